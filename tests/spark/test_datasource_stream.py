"""Streams: a topic read by a query with its offsets in Spark's checkpoint, and micro-batches that are bulk jobs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tarry import Client
from tarry.base.errors import TarryError
from tests.waiting import wait_until

from ..contract.conftest import Served
from .fake_bulk import NOW_MS, FakeBulk

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    place = Served(tmp_path / "data", checkpoint_interval_ms=20)
    yield place
    place.stop()


@pytest.fixture
def bulk(tmp_path: Path) -> Iterator[FakeBulk]:
    server = FakeBulk(tmp_path / "store")
    yield server
    server.shutdown()


def fill(served: Served, topic: str, start: int, stop: int, pad: int = 0) -> None:
    with Client(served.address) as client:
        for n in range(start, stop):
            client.schedule(topic, b"%0*d" % (pad, n), delay=0)
    wait_until(lambda: served.broker.queue_state([topic])[topic][1] >= stop)


def stream(spark: SparkSession, served: Served, **options: Any) -> DataFrame:
    reader = spark.readStream.format("tarry").option("endpoint", served.address)
    for name, value in {"topic": "a", "group": "g", **options}.items():
        reader = reader.option(name, value)
    return reader.load()


def run(df: DataFrame, out: Path, checkpoint: Path) -> None:
    """All that there is now, into files."""
    text = df.selectExpr("cast(body AS string) AS body", "topic", "offset")
    query = (
        text.writeStream.format("json").option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
    ).start(str(out))
    try:
        query.awaitTermination(60)
        assert query.exception() is None
    finally:
        query.stop()


def undone(checkpoint: Path) -> None:
    """Take away what Spark wrote down last: that a micro-batch is done."""
    last = max((checkpoint / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
    last.unlink()
    last.with_name(f".{last.name}.crc").unlink()


def seen(out: Path) -> list[int]:
    """What the sink has written."""
    return sorted(int(json.loads(line)["body"]) for part in out.glob("part-*") for line in part.open())


@pytest.mark.rest
def test_a_topic_is_read_once_over_restarts(spark: SparkSession, served: Served, tmp_path: Path) -> None:
    out, checkpoint = tmp_path / "out", tmp_path / "checkpoint"
    fill(served, "a", 0, 50)
    run(stream(spark, served, maxRowsPerTrigger=20), out, checkpoint)
    assert seen(out) == list(range(50))
    fill(served, "a", 50, 60)
    served.stop()
    served.start()
    run(stream(spark, served), out, checkpoint)
    assert seen(out) == list(range(60))
    # The last micro-batch, as if Spark had died before it wrote down that it was done: it reads the same once more.
    undone(checkpoint)
    replayed = tmp_path / "replayed"
    run(stream(spark, served), replayed, checkpoint)
    assert seen(replayed) == list(range(50, 60))


@pytest.mark.rest
def test_a_group_stands_where_its_query_stood(spark: SparkSession, served: Served, tmp_path: Path) -> None:
    fill(served, "a", 0, 10)
    fill(served, "b", 0, 3)
    out = tmp_path / "out"
    run(stream(spark, served, topic="a,b", maxRowsPerTrigger=8), out, tmp_path / "c1")
    assert seen(out) == sorted([*range(10), *range(3)])
    # What a batch has done is told with the next one: the group stands at the end of the last but one.
    stands = served.broker.follow_queue("a", "g")
    assert 0 < stands <= 10
    again = tmp_path / "again"
    run(stream(spark, served, startingOffsets="latest"), again, tmp_path / "c2")
    assert seen(again) == []
    whole = tmp_path / "whole"
    run(stream(spark, served, startingOffsets="earliest", group="other"), whole, tmp_path / "c3")
    assert seen(whole) == list(range(10))


@pytest.mark.rest
def test_what_retention_deleted_is_an_error_or_left_out(spark: SparkSession, tmp_path: Path) -> None:
    # Without a cache: what is in memory can be read for longer than its segment is kept.
    short = {"segment_bytes_max": 16384, "retention_ms": 1, "ready_cache_bytes_max": 0}
    served = Served(tmp_path / "data", checkpoint_interval_ms=20, **short)
    try:
        out, checkpoint = tmp_path / "out", tmp_path / "checkpoint"
        fill(served, "a", 0, 2, pad=400)
        run(stream(spark, served), out, checkpoint)
        assert seen(out) == [0, 1]
        assert served.broker.follow_queue("a", "g") <= 2
        fill(served, "a", 2, 60, pad=400)
        wait_until(lambda: served.broker.queue_state(["a"])["a"][0] > 2)
        with pytest.raises(Exception, match="of topic 'a' cannot be read any more: retention has deleted"):
            run(stream(spark, served), out, checkpoint)
        run(stream(spark, served, failOnDataLoss="false"), out, checkpoint)
        assert set(seen(out)) <= {0, 1, *range(3, 60)}  # what is left of it
    finally:
        served.stop()


@pytest.mark.rest
def test_options_of_a_stream(spark: SparkSession, served: Served) -> None:
    for options, words in (
        ({"group": ""}, "option 'group' is missing"),
        ({"topic": "a b"}, "option 'topic': topic 'a b' is not a topic name"),
        ({"startingOffsets": "5"}, "option 'startingOffsets' is '5'; allowed: group, earliest, latest"),
        ({"maxRowsPerTrigger": "0"}, "option 'maxRowsPerTrigger' is '0'; allowed: a whole number, 1 or more"),
    ):
        with pytest.raises(Exception, match=words):  # at load(), before a query is started
            stream(spark, served, **options)


# -- writing -----------------------------------------------------------------------------------------------------------


def load(spark: SparkSession, bulk: FakeBulk, source: Path, checkpoint: Path) -> None:
    """Each file of ``source`` is a micro-batch."""
    df = spark.readStream.schema("n long").option("maxFilesPerTrigger", 1).json(str(source))
    rows = df.selectExpr("'t' AS topic", f"{NOW_MS} + 60000 + n AS due_ms", "cast(n AS string) AS body")
    query = (
        rows.repartition(2)
        .writeStream.format("tarry")
        .option("endpoint", bulk.address)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    try:
        query.awaitTermination(60)
        assert query.exception() is None
    finally:
        query.stop()


def put(source: Path, name: str, numbers: range) -> None:
    source.mkdir(exist_ok=True)
    (source / name).write_text("".join(f'{{"n": {n}}}\n' for n in numbers))


@pytest.mark.rest
def test_each_micro_batch_is_a_job(spark: SparkSession, bulk: FakeBulk, tmp_path: Path) -> None:
    source, checkpoint = tmp_path / "source", tmp_path / "checkpoint"
    put(source, "1", range(100))
    put(source, "2", range(100, 150))
    load(spark, bulk, source, checkpoint)
    assert sorted(int(row["body"]) for row in bulk.rows()) == list(range(150))
    names = sorted(bulk.jobs)
    assert len({name.split("/")[1] for name in names}) == 1
    assert [name.split("/")[2] for name in names] == ["0", "1"]
    assert all(job["state"] == "committed" for job in bulk.jobs.values())
    # As if Spark had died between our commit and its own: the micro-batch is replayed, and is there already.
    undone(checkpoint)
    commits = bulk.calls.count("bulk-commit")
    put(source, "3", range(150, 160))
    load(spark, bulk, source, checkpoint)
    assert bulk.calls.count("bulk-commit") == commits + 1
    assert sorted(int(row["body"]) for row in bulk.rows()) == list(range(160))


@pytest.mark.rest
def test_a_micro_batch_that_fails_is_loaded_later(spark: SparkSession, bulk: FakeBulk, tmp_path: Path) -> None:
    source, checkpoint = tmp_path / "source", tmp_path / "checkpoint"
    put(source, "1", range(100))

    def before(name: str, body: dict[str, Any]) -> None:
        if name == "bulk-commit":
            raise TarryError("not now")

    bulk.before = before
    with pytest.raises(Exception, match="not now"):
        load(spark, bulk, source, checkpoint)
    assert bulk.rows() == []
    assert bulk.files() == []  # given up
    bulk.before = lambda name, body: None
    load(spark, bulk, source, checkpoint)
    assert sorted(int(row["body"]) for row in bulk.rows()) == list(range(100))


def test_what_a_stream_cannot_do(spark: SparkSession, bulk: FakeBulk, tmp_path: Path) -> None:
    put(tmp_path / "source", "1", range(3))
    df = spark.readStream.schema("n long").json(str(tmp_path / "source"))
    for rows, options, words in (
        (df, {}, "unknown column 'n'"),
        (df.selectExpr("cast(n AS string) AS body"), {"topic": "t", "delay_ms": 1, "job": "x"}, "unknown option 'job'"),
    ):
        writer = rows.writeStream.format("tarry").option("endpoint", bulk.address)
        for name, value in options.items():
            writer = writer.option(name, value)
        query = writer.option("checkpointLocation", str(tmp_path / words[-4:].strip("'"))).start()
        with pytest.raises(Exception, match=words):
            query.awaitTermination(60)
    assert bulk.calls == []


def test_a_stream_that_its_options_do_not_allow_says_why(spark: SparkSession, tmp_path: Path) -> None:
    """Without a group it looks like a batch when it is loaded, so the query's first answer has to say so."""
    df = spark.readStream.format("tarry").option("endpoint", "127.0.0.1:1").option("topic", "a").load()
    query = df.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "c")).start()
    with pytest.raises(Exception, match="option 'group' is missing; a stream is read of a topic, by a group") as raised:
        query.awaitTermination(60)
    assert "UnboundLocalError" not in str(raised.value)
