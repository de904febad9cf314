"""The forecast counted by Spark: against the rows that were written, with cancellations, and what the intake has."""

from __future__ import annotations

import json
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest

from tarry.base.errors import InvalidArgumentError, NotFoundError
from tarry.base.types import Key
from tarry.cli.exits import ExitCode
from tarry.cli.main import run
from tarry.message.criteria import Criteria
from tarry.message.schema import SCHEMA, UNNUMBERED, cancellations
from tarry.spark.reports.forecast.result import Outlook, Sources
from tarry.store import Store, stage
from tarry.store.spread import Dead, StoreSpread
from tarry.store.tally import Tally

from .conftest import NOW_MS, FakeIntake, messages

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

HOUR = 3_600_000
NOTHING = Sources("", 0, 0, 0, 0, False, 0)


def cancels(targets: pa.RecordBatch, first_seq: int) -> pa.RecordBatch:
    rows = cancellations(targets.select(["seq", "due_ms", "topic"]), NOW_MS)
    seq = pa.array(np.arange(first_seq, first_seq + rows.num_rows))
    return pa.RecordBatch.from_arrays([seq, *(rows.column(f.name) for f in UNNUMBERED)], schema=SCHEMA)


def commit(store: Store, batches: list[pa.RecordBatch], start: int, end: int) -> None:
    files = stage(pa.Table.from_batches(batches), store.root, f"intake-{start:020d}-{end:020d}", NOW_MS, shard=0)
    store.commit(files, start, end)


def count(spark: SparkSession, uri: str, *, from_ms: int = NOW_MS, **asked: object) -> Outlook:
    from tarry.spark.reports.forecast.count import forecast
    from tarry.spark.reports.forecast.pending import StoreVersion, pending, rows_of

    rows = pending(rows_of(spark, StoreVersion.of(uri)), from_ms=from_ms)
    settings = {"rate": 1000.0, "horizon_ms": 60_000, "wheel_bytes_max": 1 << 20, "retention_ms": 3 * 86_400_000}
    return forecast(rows, NOTHING, now_ms=from_ms, **{**settings, **asked})  # type: ignore[arg-type]


def broker_counts(store: Store, dead: pa.RecordBatch) -> dict[int, int]:
    """What a broker's forecast makes of the same files, by hour; exactly."""
    order = np.lexsort((dead["seq"].to_numpy(), dead["due_ms"].to_numpy()))
    due, seq = dead["due_ms"].to_numpy()[order], dead["seq"].to_numpy()[order]
    start = NOW_MS // HOUR * HOUR
    tally = Tally(Key(NOW_MS, 0), start + 48 * HOUR, start, HOUR)
    cancelled = Dead(due, seq, lambda _, of: np.isin(of, seq, invert=True), -1, [])
    end_s = time.monotonic() + 60
    StoreSpread(store.snapshot(), tally, Criteria(), lambda *_: 1.0, cancelled, end_s, end_s).run()
    low, _, high = tally.bounds()
    assert (low == high).all()
    return {start + at * HOUR: rows for at, rows in enumerate(low.tolist()) if rows}


@pytest.mark.rest
def test_what_the_store_has_less_what_is_cancelled(spark: SparkSession, tmp_path: Path) -> None:
    store = Store.open(str(tmp_path / "store"))
    batch = messages(0, 3000, body_bytes=100)
    commit(store, [batch], 0, 3000)
    dead = batch.slice(500, 200)
    commit(store, [messages(3000, 4000), cancels(dead, 4000)], 3000, 4200)
    due = [d for b in (batch, messages(3000, 4000)) for d in b["due_ms"].to_pylist()]
    alive = Counter(due) - Counter(dead["due_ms"].to_pylist())
    outlook = count(spark, store.root)
    assert (outlook.rows, outlook.body_bytes) == (3800, 2800 * 100 + 1000 * 16)
    assert outlook.row_bytes > outlook.body_bytes + 3800 * 72
    assert {t.topic: t.rows for t in outlook.topics} == {"orders": 1900, "mails": 1900}
    hours = Counter(d // HOUR * HOUR for d in alive.elements())
    start = NOW_MS // HOUR * HOUR
    assert {u.from_ms: u.rows for u in outlook.units} == {start + i * HOUR: hours[start + i * HOUR] for i in range(48)}
    assert broker_counts(store, dead) == {at: rows for at, rows in hours.items() if rows}
    seconds = Counter(d // 1000 * 1000 for d in alive.elements())
    assert outlook.herds["second"][0].rows == max(seconds.values())
    assert [h.rows for h in outlook.herds["instant"]] == sorted(alive.values(), reverse=True)[:10]
    assert (outlook.first_ms, outlook.last_ms) == (min(alive), max(alive))
    assert sum(d.rows for d in outlook.days) == 3800
    # What is due before has fired.
    later = count(spark, store.root, from_ms=start + 5 * HOUR)
    assert later.rows == sum(rows for moment, rows in alive.items() if moment >= start + 5 * HOUR)


def test_a_version_of_the_store_is_pinned_and_an_intake_adds_what_it_does_not_have(
    spark: SparkSession, intake: FakeIntake
) -> None:
    from tarry.spark.reports.forecast.pending import StoreVersion, look, pending, rows_of

    store = Store.open(intake.store_uri)
    intake.add(2500)
    commit(store, [messages(0, 1000)], 0, 1000)
    intake.committed_seq = 1000
    files, state = look(intake.address, None)
    commit(store, [messages(1000, 2000)], 1000, 2000)  # after the look: the intake still has them
    rows = rows_of(spark, files, endpoint=intake.address, intake=(files.committed_seq, state.durable_seq))
    left = pending(rows, from_ms=NOW_MS).orderBy("seq").collect()
    assert [row["seq"] for row in left] == list(range(2500))
    assert left[7]["due_ms"] == messages(7, 8)["due_ms"][0].as_py()
    # What has fired, but for what came later.
    assert pending(rows, from_ms=1 << 60, fired_seq=2400).count() == 100
    with pytest.raises(NotFoundError, match="no store"):
        StoreVersion.of(f"{intake.store_uri}-other")


def test_of_a_cancelled_job_nothing_comes_from_its_place_on(spark: SparkSession) -> None:
    from tarry.message.bulk import first_seq
    from tarry.spark.reports.forecast.pending import ROWS, pending

    rows = [("t", first_seq(job) + row, NOW_MS + row, 1, 73, 0, 0) for job in (3, 4) for row in range(10)]
    left = pending(
        spark.createDataFrame(rows, ROWS), from_ms=NOW_MS, cancelled_jobs=[[3, NOW_MS + 4, first_seq(3) + 4]]
    )
    seqs = sorted(row["seq"] for row in left.collect())
    assert seqs == [first_seq(3) + row for row in range(4)] + [first_seq(4) + row for row in range(10)]


def test_the_command_writes_the_report(
    spark: SparkSession, intake: FakeIntake, capsys: pytest.CaptureFixture[str], tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    from contextlib import nullcontext

    from tarry.spark.reports import session

    monkeypatch.setattr(session, "report_session", lambda *_, **__: nullcontext(spark))
    Store.open(intake.store_uri)
    intake.add(2000)
    out = tmp_path / "forecast.html"
    assert run(["forecast", "--endpoint", intake.address, "--report", str(out), "--rate", "0.5", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert (answer["rows"], answer["sources"]["intake"], answer["in_time"]) == (2000, True, False)
    assert answer["needs"]["seconds_too_full"] == 10
    text = out.read_text()
    assert "Some will be late" in text
    assert "orders" in text
    for wrong in (["orders"], ["--until", "1", "--within", "1h"], ["--unit", "week"], ["--rate", "nan"]):
        assert run(["forecast", "--store", intake.store_uri, *wrong]) == ExitCode.USAGE
    assert run(["forecast", "--store", str(tmp_path / "nothing")]) == ExitCode.FAILED


def test_arguments_that_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    store = Store.open(str(tmp_path / "store"))
    with pytest.raises(InvalidArgumentError, match="until_ms is 5"):
        count(spark, store.root, until_ms=5)
    outlook = count(spark, store.root)
    assert (outlook.rows, outlook.units[0].rows, outlook.verdict()) == (0, 0, ["Nothing is pending."])
