"""Each snippet of the pages that uses Spark runs by itself, beside a broker, as it is pasted."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ..contract.conftest import Served
from ..snippets import Snippet, snippets
from ..waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.rest]
SNIPPETS = [each for each in snippets("python") if each.takes_spark and each.reason is None]


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    monkeypatch.chdir(tmp_path)
    place = Served(tmp_path / "data", checkpoint_interval_ms=20)
    yield place
    place.stop()


def prepare(spark: SparkSession, served: Served, directory: Path) -> None:
    """What the pages speak of as being there: a store with something in it, and ledgers of what was sent and came."""
    due_ms = int(time.time() * 1000) + 3_600_000
    jobs = served.broker.components.bulk
    attempt = jobs.begin("before")
    rows = spark.range(3).selectExpr("'orders' AS topic", f"{due_ms} AS due_ms", "cast('x' AS binary) AS body")
    jobs.commit(attempt.number, *jobs.stage(attempt.number, rows.toArrow().to_batches()))
    sent = {"topic": "orders", "id": "m1", "due_ms": due_ms, "accepted_ms": due_ms - 1000}
    came = {"topic": "orders", "id": "m1", "group": "billing", "due_ms": due_ms, "delivered_ms": due_ms + 1}
    for name, row in (("sent", sent), ("got", came)):
        (directory / f"{name}.jsonl").write_text(json.dumps(row) + "\n")
        spark.read.json(str(directory / f"{name}.jsonl")).write.parquet(str(directory / f"{name}.parquet"))


@pytest.mark.parametrize("snippet", [pytest.param(each, id=each.name) for each in SNIPPETS])
def test_a_snippet_with_spark_runs_by_itself(
    snippet: Snippet, spark: SparkSession, served: Served, tmp_path: Path
) -> None:
    prepare(spark, served, tmp_path)
    code = snippet.code.replace("127.0.0.1:7611", served.address).replace("1_000_000", "1_000")
    for word in ("sent.parquet", "got.parquet", "data/store", '"c"', '"out"', '"ticks-checkpoint"'):
        # The session's directory is where its JVM was started.
        bare = word.strip('"')
        code = code.replace(f'"{bare}"', repr(str(tmp_path / bare)))
    names: dict[str, Any] = {}
    exec(compile(code, snippet.name, "exec"), names)
    if (query := names.get("query")) is not None:
        # Not until it has nothing to do: a stream of ticks always has.
        wait_until(lambda: query.lastProgress is not None or query.exception() is not None, 120)
        assert query.exception() is None
        query.stop()
