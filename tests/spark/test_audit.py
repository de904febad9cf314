"""The audit: every verdict is broken once and found by name; and random histories against a plain reference."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tarry.base.config import Config
from tarry.base.errors import InvalidArgumentError, NotFoundError
from tarry.broker import Broker
from tarry.cli.exits import ExitCode
from tarry.cli.main import run
from tarry.fronts.flight.front import FlightFront
from tarry.spark.reports.audit.result import Audit
from tests.examples import examples

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

T = 1_790_000_000_000
ACCEPTED = "topic string, id string, due_ms long, accepted_ms long, cancelled_ms long, expire_ms long, answered boolean"
DELIVERED = "topic string, id string, delivered_ms double, due_ms long, group string, attempt int"


def sent(spark: SparkSession, *rows: tuple[Any, ...]) -> DataFrame:
    """(id, due after T, accepted after T, cancelled, expire, answered), the last ones left out at will."""
    full = [(*row, *[None] * (6 - len(row))) for row in rows]
    shifted = [
        ("t", r[0], *(None if r[i] is None else T + r[i] for i in (1, 2, 3, 4)), True if r[5] is None else r[5])
        for r in full
    ]
    return spark.createDataFrame(shifted, ACCEPTED)


def got(spark: SparkSession, *rows: tuple[Any, ...]) -> DataFrame:
    """(id, delivered after T, group, attempt, due after T)."""
    full = [(*row, *[None] * (5 - len(row))) for row in rows]
    handed_out = [("t", r[0], T + r[1] + 0.0, None if r[4] is None else T + r[4], r[2], r[3]) for r in full]
    return spark.createDataFrame(handed_out, DELIVERED)


def check(accepted: DataFrame, delivered: DataFrame, **asked: Any) -> Audit:
    from tarry.spark.reports.audit import audit

    return audit(accepted, delivered, **asked)


def fates(accepted: DataFrame, delivered: DataFrame, until_ms: int, **asked: Any) -> dict[str, list[str]]:
    """What :func:`judge` says, in one job: for each flag the messages that have it."""
    from tarry.spark.reports.audit.compare import combine, identified, judge
    from tarry.spark.reports.audit.ledgers import accepted_of, delivered_of

    both = identified(accepted_of(accepted), "id"), identified(delivered_of(delivered), "id")
    judged = judge(combine(*both, topics=True), until_ms=T + until_ms, **asked)
    fates_of: dict[str, list[str]] = defaultdict(list)
    for row in judged.orderBy("ident").collect():
        for name, value in row.asDict().items():
            if value is True and name != "was_due":
                fates_of[name].append(row["ident"])
    return fates_of


def named(result: Audit, name: str) -> list[str]:
    return [example.ident for example in result.examples.get(name, [])]


@pytest.mark.rest
def test_every_failure_is_found_and_named(spark: SparkSession) -> None:
    accepted = sent(
        spark,
        ("good", 100, 0),
        ("lost", 110, 0),
        ("early", 200, 0),
        ("twice", 100, 0),
        ("two groups", 100, 0),
        ("later", 10_000, 0),
        ("cancelled", 100, 0, 50),
        ("undead", 100, 0, 50),
        ("expired", 100, 0, None, 120),
        ("moved", 100, 0),
        ("retried", 100, 0),
        ("retried", 100, 5),
        ("no answer", 100, 0, None, None, False),
        ("no answer, came", 100, 0, None, None, False),
        (None, 100, 0),
    )
    delivered = got(
        spark,
        ("good", 101.5, "g"),
        ("early", 199.75, "g"),
        ("twice", 100, "g", 1),
        ("twice", 900, "g", 2),
        ("two groups", 100, "g"),
        ("two groups", 140, "h"),
        ("undead", 100, "g"),
        ("moved", 150, "g", 1, 140),
        ("retried", 100, "g"),
        ("no answer, came", 100, "g"),
        ("foreign", 1000, "g"),
        (None, 100, "g"),
    )
    result = check(accepted, delivered)
    c = result.counts
    assert (c.accepted, c.accepted_rows, c.delivered, c.handouts) == (11, 14, 7, 11)
    assert result.failures == {"lost": 1, "early": 1, "foreign": 1, "cancelled_delivered": 1}
    assert (c.pending, c.cancelled, c.expired, c.rescheduled) == (1, 1, 1, 0)
    assert (c.duplicated, c.retried, c.due_changed) == (1, 1, 1)
    assert (c.unanswered, c.unanswered_delivered) == (1, 1)
    assert (c.unread_accepted, c.unread_delivered) == (1, 1)
    assert named(result, "lost") == ["lost"]
    assert named(result, "early") == ["early"]
    assert result.early_most_ms == 0.25
    assert named(result, "foreign") == ["foreign"]
    assert named(result, "cancelled_delivered") == ["undead"]
    assert named(result, "duplicated") == ["twice"]
    assert named(result, "due_changed") == ["moved"]
    assert [(g.group, g.delivered, g.duplicated, g.missing) for g in result.groups] == [("g", 8, 1, 1), ("h", 1, 0, 8)]
    assert not result.good
    assert "1 lost" in result.verdict()[0]
    assert result.unit == "second"
    assert [(u.from_ms, u.due, u.lost, u.early) for u in result.units] == [(T, 10, 1, 1), (T + 1000, 0, 0, 0)]


@pytest.mark.rest
def test_a_good_run_and_its_lateness(spark: SparkSession) -> None:
    rows = range(1, 1001)
    result = check(
        sent(spark, *((str(i), 10 * i, 0) for i in rows)), got(spark, *((str(i), 11 * i, "g") for i in rows))
    )
    assert result.good
    assert result.verdict() == [
        "All 1,000 messages that were due were delivered, none before its time, none twice.",
        "The latest was handed out 1,000 ms after its due time, 99 of 100 within 990 ms; "
        "no limit was said (--late-max).",
    ]
    assert result.late.count == 1000
    assert result.late.ms == {"p50": 500, "p90": 900, "p99": 990, "p99.9": 999, "max": 1000}
    assert sum(count for _, _, count in result.histogram) == 1000
    assert sum(u.accepted for u in result.units) == sum(u.due for u in result.units) == 1000
    assert sum(u.delivered for u in result.units) == 1000
    assert result.topics[0].late == result.late


@pytest.mark.rest
def test_the_end_of_the_observation_the_skew_and_the_grace(spark: SparkSession) -> None:
    accepted = sent(spark, ("a", 100, 0), ("b", 500, 0), ("c", 90, 0))
    delivered = got(spark, ("a", 98, "g"), ("c", 95, "g"))
    result = fates(accepted, delivered, 499)
    assert (result["early"], result["pending"], result["lost"]) == (["a"], ["b"], [])
    assert fates(accepted, delivered, 499, skew_ms=2)["early"] == []
    assert fates(accepted, delivered, 500)["lost"] == ["b"]
    assert fates(accepted, delivered, 500, grace_ms=1)["pending"] == ["b"]


@pytest.mark.rest
def test_where_nothing_was_delivered_it_was_watched_until_the_last_was_accepted(spark: SparkSession) -> None:
    result = check(sent(spark, ("a", 100, 0), ("b", 500, 200)), spark.createDataFrame([], DELIVERED))
    assert (result.until_ms, result.counts.lost, result.counts.pending, result.late.count) == (T + 200, 1, 1, 0)


@pytest.mark.rest
def test_a_rescheduled_message_counts_by_its_last_due_time(spark: SparkSession) -> None:
    accepted = sent(spark, ("later", 100, 0, 50), ("later", 900, 50), ("gone", 100, 0, 50), ("gone", 900, 50, 60))
    result = fates(accepted, got(spark, ("later", 100, "g")), 1000)
    assert (result["accepted"], result["rescheduled"]) == (["gone", "later"], ["gone", "later"])
    assert (result["cancelled"], result["early"], result["lost"]) == (["gone"], ["later"], [])
    assert fates(accepted, got(spark, ("later", 901, "g")), 1000)["early"] == []


@pytest.mark.rest
def test_every_group_has_to_have_it(spark: SparkSession) -> None:
    accepted = sent(spark, ("a", 100, 0), ("b", 100, 0), ("later", 500, 0))
    delivered = got(spark, ("a", 100, "g"), ("a", 100, "h"), ("b", 100, "h"), ("later", 500, "g"))
    assert fates(accepted, delivered, 400)["missed"] == []
    assert fates(accepted, delivered, 400, every_group=True)["missed"] == ["b"]


@pytest.mark.rest
def test_by_seq_content_and_topic_have_to_fit_and_a_lost_answer_is_told_apart(spark: SparkSession) -> None:
    accepted = spark.createDataFrame(
        [
            *(("t", 1, "a", T, True), ("t", 2, "b", T, True), ("u", 3, "c", T, True), ("t", 9, "z", T, None)),
            *(("t", None, "w", T, False), ("t", None, "v", T, True)),
        ],
        "topic string, seq long, id string, due_ms long, answered boolean",
    )
    delivered = spark.createDataFrame(
        [
            *(("t", 1, "b", T + 1), ("t", 2, "b", T + 1), ("t", 3, "c", T + 1), ("t", 8, "z", T + 1)),
            *(("t", 7, "y", T + 1), ("t", 9, "z", T + 2), ("t", 6, "w", T + 2), ("%DLQ%t/g", 10, "b", T + 3)),
        ],
        "topic string, seq long, id string, delivered_ms long",
    )
    result = check(accepted, delivered)
    assert result.by == "seq"
    assert named(result, "mixed_up") == ["1", "3"]
    assert named(result, "foreign") == ["7"]
    assert named(result, "unanswered_delivered") == ["6", "8"]
    assert (result.counts.delivered, result.counts.lost, result.counts.dead_letters) == (4, 0, 1)
    assert result.counts.unread_accepted == 1


@pytest.mark.rest
def test_from_the_command_line_to_the_audit(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from tarry.spark.reports.audit.ledgers import read_ledger

    names, ledgers = tmp_path / "names", {name: tmp_path / f"{name}.jsonl" for name in ("sent", "got")}
    names.write_text("".join(f"{n}\n" for n in range(50)))
    config = Config(data=tmp_path / "data", disk_free_bytes_min=0)
    with Broker.open(config) as broker, FlightFront.start(broker, "127.0.0.1:0") as front:
        monkeypatch.setenv("TARRY_ENDPOINT", front.address)
        send, take = ["--ledger", str(ledgers["sent"])], ["--ledger", str(ledgers["got"]), "--wait", "30s"]
        assert run(["send", "t", "--lines", "--file", str(names), *send]) == 0
        assert run(["send", "t", "own", "--id", "mine", *send]) == 0
        assert run(["send", "t", "later", "--delay", "1d", *send]) == 0
        assert run(["receive", "t", "--max", "51", *take]) == 0
    capsys.readouterr()
    accepted, delivered = (read_ledger(spark, str(path)) for path in ledgers.values())
    result = check(accepted, delivered)
    c = result.counts
    assert (result.good, result.by) == (True, "seq")
    assert (c.accepted, c.delivered, c.pending, c.unread_accepted, c.unread_delivered) == (52, 51, 1, 0, 0)
    # One line of what came is missing.
    ledgers["got"].write_text("".join(ledgers["got"].read_text().splitlines(keepends=True)[1:]))
    assert check(accepted, read_ledger(spark, str(ledgers["got"]))).failures == {"lost": 1}


def test_ledgers_that_cannot_be_read_are_refused(spark: SparkSession) -> None:
    accepted = spark.createDataFrame([("a", T), ("b", T), ("c", T)], "id string, due_ms long")
    unread = spark.createDataFrame([("a", "soon"), ("b", "later"), ("c", str(T))], "id string, delivered_ms string")
    with pytest.raises(InvalidArgumentError, match="2 of 3 rows of the delivered ledger have no identity, or no time"):
        check(accepted, unread)
    unread = spark.createDataFrame([(None, T), (None, T), ("c", T)], "id string, due_ms long")
    with pytest.raises(InvalidArgumentError, match=r"2 of 3 rows of the accepted .*--accepted-column due=NAME"):
        check(unread, got(spark, ("c", 0)))


@pytest.mark.rest
def test_an_id_of_the_broker_is_its_seq_in_other_digits(spark: SparkSession) -> None:
    accepted = spark.createDataFrame([(17, T), (18, T)], "seq long, due_ms long")
    delivered = spark.createDataFrame([(f"{17:016x}", T), (f"{18:016x}", T - 1)], "id string, delivered_ms long")
    result = check(accepted, delivered)
    assert (result.by, result.counts.delivered, named(result, "early")) == ("id", 2, [f"{18:016x}"])


@pytest.mark.parametrize("topics", [True, False])
def test_ledgers_are_shuffled_once(spark: SparkSession, topics: bool, capsys: pytest.CaptureFixture[str]) -> None:
    from tarry.spark.reports.audit.compare import combine, identified, judge
    from tarry.spark.reports.audit.ledgers import accepted_of, delivered_of

    accepted, delivered = sent(spark, ("a", 100, 0)), got(spark, ("a", 101, "g"))
    both = identified(accepted_of(accepted), "id"), identified(delivered_of(delivered), "id")
    judge(combine(*both, topics=topics), until_ms=T).explain()
    assert capsys.readouterr().out.count("Exchange ") == 1


def test_ledgers_that_cannot_be_compared_are_refused(spark: SparkSession) -> None:
    accepted = spark.createDataFrame([("a", T)], "id string, due_ms long")
    with pytest.raises(InvalidArgumentError, match="needed: seq or id in both"):
        check(accepted, spark.createDataFrame([(1, T)], "number long, delivered_ms long"))
    with pytest.raises(InvalidArgumentError, match="when a message was delivered"):
        check(accepted, accepted)
    with pytest.raises(InvalidArgumentError, match="there is no column 'when'"):
        check(accepted, accepted, delivered_columns={"delivered": "when"})
    with pytest.raises(InvalidArgumentError, match="skew_ms is -1"):
        check(accepted, accepted, skew_ms=-1)
    with pytest.raises(InvalidArgumentError, match="unit is 'week'"):
        check(accepted, accepted, unit="week")
    empty = spark.createDataFrame([], "id string, delivered_ms long")
    with pytest.raises(InvalidArgumentError, match="say until"):
        check(accepted, empty)


def test_moments_in_other_units_are_exact(spark: SparkSession) -> None:
    """Due exactly, and a microsecond before, which is early."""
    from tarry.spark.reports.audit.ledgers import delivered_of

    columns = {
        "delivered_ns": (T * 1_000_000, T * 1_000_000 - 1000, "long"),
        "handed_out_us": (str(T * 1000), str(T * 1000 - 1), "string"),
        "received_ms": (T + 0.0, T - 0.001, "double"),
        "delivered": ("2026-09-21T14:13:20Z", "2026-09-21T14:13:19.999999Z", "string"),
    }
    for name, (due, early, kind) in columns.items():
        rows = delivered_of(spark.createDataFrame([(due,), (early,), (None,)], f"{name} {kind}")).collect()
        moments = [row["delivered_ms"] for row in rows]
        assert moments[0] == T, name
        assert moments[1] == pytest.approx(T - 0.001, abs=0.0003), name
        assert moments[1] < T, name
        assert moments[2] is None, name


# -- files and the command ---------------------------------------------------------------------------------------------


@pytest.mark.rest
def test_ledgers_of_every_format(spark: SparkSession, tmp_path: Path) -> None:
    from tarry.spark.reports.audit.ledgers import read_ledger

    rows = [{"topic": "t", "id": f"00{i}", "due_ms": T + i} for i in range(5)]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows) + '{"topic": "t", "id')
    (tmp_path / "a.csv").write_text("topic,id,due_ms\n" + "".join(f"t,00{i},{T + i}\n" for i in range(5)))
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "a.parquet")
    write_deltalake(str(tmp_path / "delta"), pa.Table.from_pylist(rows), partition_by=["topic"])
    delivered = got(spark, *((f"00{i}", i, "g") for i in range(5)), ("004", 4, "g"))
    ids = [row["id"] for row in rows]
    for name in ("a.jsonl", "a.csv", "a.parquet", "delta"):
        result = fates(read_ledger(spark, str(tmp_path / name)), delivered, 100)
        assert {n: f for n, f in result.items() if f} == {"accepted": ids, "delivered": ids}, name
    # A line that was cut is no row that could be lost, and is counted.
    assert check(read_ledger(spark, str(tmp_path / "a.jsonl")), delivered).counts.unread_accepted == 1
    with pytest.raises(NotFoundError, match="is not there"):
        read_ledger(spark, str(tmp_path / "b.csv"))
    with pytest.raises(InvalidArgumentError, match="does not say what format"):
        read_ledger(spark, str(tmp_path))
    with pytest.raises(InvalidArgumentError, match="format is 'xml'"):
        read_ledger(spark, str(tmp_path / "a.csv"), "xml")


@pytest.mark.rest
def test_the_command(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from contextlib import nullcontext

    from tarry.spark.reports import session

    # The session of the tests instead of a JVM of its own.
    monkeypatch.setattr(session, "report_session", lambda *_, **__: nullcontext(spark))
    accepted, delivered, out = tmp_path / "a.jsonl", tmp_path / "d.csv", tmp_path / "new" / "r.html"
    accepted.write_text("".join(json.dumps({"id": str(i), "deliver_at": T + i}) + "\n" for i in range(9)))
    delivered.write_text("id,delivered_ms\n" + "".join(f"{i},{T + i + 2}\n" for i in range(9)))
    common = ["audit", "-a", str(accepted), "-d", str(delivered), "--accepted-column", "due=deliver_at"]
    assert run([*common, "--out", str(out), "--until", "2027-01-01T00:00:00Z"]) == ExitCode.OK
    printed = capsys.readouterr()
    assert "All 9 messages" in printed.out
    assert str(out) in printed.err
    assert "All 9 messages" in out.read_text()
    assert re.search(r"^-  +9  +9  +0  +0 ", printed.out, re.MULTILINE)
    accepted.write_text(accepted.read_text() + json.dumps({"id": "<b>", "deliver_at": T}) + "\n")
    assert run([*common, "--json", "--out", str(out)]) == ExitCode.FAILED
    answer = json.loads(capsys.readouterr().out)
    assert answer["failures"] == {"lost": 1}
    assert answer["examples"]["lost"][0]["id"] == "<b>"
    assert "<code>&lt;b&gt;</code>" in out.read_text()
    assert "Judged: none lost; none early; none foreign" in out.read_text()
    of_one = ["history", "3", "-a", str(accepted), "-d", str(delivered), "--out", str(out), "--json"]
    assert run(of_one) == ExitCode.USAGE, "the column of due times is not named"
    accepted.write_text(accepted.read_text().replace("deliver_at", "due_ms"))
    assert run(of_one) == ExitCode.OK
    assert "delivered" in capsys.readouterr().out
    page = out.read_text()
    assert (page.count("<strong>accepted</strong>"), page.count("<strong>delivered</strong>")) == (1, 1)
    assert f"the ledgers {accepted} and {delivered}" in page
    assert run([*common, "--accepted-column", "due"]) == ExitCode.USAGE
    assert "WHAT=COLUMN" in capsys.readouterr().err


def test_the_history_of_one_message(spark: SparkSession) -> None:
    from tarry.spark.reports.audit.history import history

    accepted = sent(spark, ("a", 100, 0, 50), ("a", 900, 50), ("b", 100, 0))
    delivered = got(spark, ("a", 901.5, "g", 1), ("b", 100, "g"))
    result = history(accepted, delivered, "a", topic="t")
    assert [(e.at_ms, e.event) for e in result.events] == [
        (T, "accepted"), (T + 50, "cancelled"), (T + 50, "accepted"), (T + 100, "due"), (T + 900, "due"),
        (T + 901.5, "delivered"),
    ]  # fmt: skip
    assert result.events[-1].details == {"topic": "t", "id": "a", "group": "g", "attempt": 1}
    assert history(accepted, delivered, "a", topic="u").events == []
    assert "Neither ledger" in history(accepted, delivered, "never").unknown[0]


# -- against a plain reference -----------------------------------------------------------------------------------------

SPAN = 50
_moment = st.none() | st.integers(0, SPAN)
_accepted = st.tuples(st.integers(0, SPAN), _moment, _moment, _moment, st.booleans())
_delivered = st.tuples(st.integers(0, SPAN), st.sampled_from("gh"), st.integers(1, 2), st.none() | st.integers(0, SPAN))
_history = st.tuples(st.lists(_accepted, max_size=3), st.lists(_delivered, max_size=4))


def reference(accepted: list[Any], delivered: list[Any], until: int, skew: int) -> dict[str, int | bool]:
    """What became of one message, said as plainly as it can be; rows as in :func:`sent` and :func:`got`."""
    none = -(10**9)
    out: dict[str, int | bool] = defaultdict(int)
    out["handouts"] = len(delivered)
    out["duplicated"] = sum(max(0, sum(d[1] == g for d in delivered) - 1) for g in "gh")
    out["retried"] = sum(d[2] > 1 for d in delivered)
    came = bool(delivered)
    if not accepted:
        out["foreign"] = came
        return out
    low = lambda v: none if v is None else v  # noqa: E731
    last = max(accepted, key=lambda a: (low(a[1]), a[0], low(a[2]), low(a[3]), a[4]))
    due = last[0]
    sure = any(a[4] for a in accepted)
    latest_cancel = max((a[2] for a in accepted if a[2] is not None), default=None)
    cancelled = last[2] is not None or (latest_cancel is not None and latest_cancel > low(last[1]))
    expired = last[3] is not None and last[3] <= until
    over = due <= until - skew
    out["accepted"] = sure
    out["rescheduled"] = len({a[0] for a in accepted}) > 1
    out["due_changed"] = any(d[3] is not None and d[3] != due for d in delivered)
    out["early"] = any(d[0] < due - skew for d in delivered)
    out["cancelled_delivered"] = came and cancelled
    out["delivered"] = came and sure
    out["unanswered_delivered"] = came and not sure
    if not came:
        out["unanswered"] = not sure
        if sure:
            fate = "cancelled" if cancelled else "expired" if expired else "lost" if over else "pending"
            out[fate] = True
    return out


@settings(max_examples=examples(4), deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(_history, min_size=150, max_size=200), st.integers(0, SPAN), st.integers(0, 3))
@pytest.mark.rest
def test_random_histories_are_judged_as_the_reference_does(
    spark: SparkSession, histories: list[Any], until: int, skew: int
) -> None:
    from tarry.spark.reports.audit.compare import combine, identified, judge
    from tarry.spark.reports.audit.ledgers import accepted_of, delivered_of

    accepted = sent(spark, ("-", 0, 0), *((str(i), *a) for i, (rows, _) in enumerate(histories) for a in rows))
    delivered = got(spark, ("-", 0, "g"), *((str(i), *d) for i, (_, rows) in enumerate(histories) for d in rows))
    both = identified(accepted_of(accepted), "id"), identified(delivered_of(delivered), "id")
    judged = judge(combine(*both, topics=True), until_ms=T + until, skew_ms=skew)
    rows = {row["ident"]: row.asDict() for row in judged.collect()}
    for i, (accepted_rows, handed) in enumerate(histories):
        if not accepted_rows and not handed:
            assert str(i) not in rows
            continue
        wanted = reference(accepted_rows, handed, until, skew)
        names = [n for n in rows[str(i)] if isinstance(rows[str(i)][n], bool)] + ["handouts", "duplicated", "retried"]
        judged_as = {n: rows[str(i)][n] for n in names if n != "was_due"}
        assert {n: v for n, v in judged_as.items() if v} == {n: v for n, v in wanted.items() if v}, (
            accepted_rows,
            handed,
        )
