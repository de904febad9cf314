"""Batch read: what is pending, delivered and dead, of a real broker whose store and intake both have some of it."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from tarry import Client
from tarry.message.bulk import first_seq
from tarry.message.schema import SCHEMA
from tarry.spark.broker_client import BrokerClient
from tarry.spark.datasource import pending
from tarry.spark.datasource.filters import Bounds
from tarry.spark.datasource.options import ReadOptions
from tarry.store import Store, stage
from tests.waiting import wait_until

from ..contract.conftest import Served
from ..unit.test_store_sql import QUERIES, expected, fill, in_ms

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

HOUR_MS = 3_600_000
SPARK_DOCS = Path(__file__).parents[2] / "docs" / "spark.md"


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    place = Served(tmp_path / "data", checkpoint_interval_ms=20, retry_ms=0)
    yield place
    place.stop()


@pytest.fixture
def client(served: Served) -> Iterator[Client]:
    with Client(served.address) as connected:
        yield connected


def read(spark: SparkSession, served: Served, **options: Any) -> DataFrame:
    reader = spark.read.format("tarry").option("endpoint", served.address)
    for name, value in options.items():
        reader = reader.option(name, value)
    return reader.load()


def bodies(df: DataFrame) -> list[str]:
    return sorted(bytes(row["body"]).decode() for row in df.collect())


def to_store(served: Served) -> None:
    """What the schedule query does, without Spark."""
    state = served.broker.intake_state()
    store = Store.open(state["store_uri"])
    start, end = store.snapshot().committed_seq, state["durable_seq"]
    table = pa.Table.from_batches(list(served.broker.read_intake(start, end)), SCHEMA)
    fired = (table["due_ms"].to_numpy() < state["fired_until_ms"]) & (table["seq"].to_numpy() < state["fired_seq"])
    rest = table.filter(pa.array(~fired))
    store.commit(stage(rest, store.root, "test", state["now_ms"]) if rest.num_rows else [], start, end)
    served.broker.store_committed()


def test_pending_in_store_and_intake(spark: SparkSession, client: Client, served: Served) -> None:
    kept = [client.schedule("a", b"%d" % n, delay=HOUR_MS / 1000 * (n + 1), tag="t", key=f"k{n}") for n in range(6)]
    client.cancel(kept[0].handle)  # in the same batch as its message
    to_store(served)
    client.cancel(kept[1].handle)  # in the store; the cancellation will be, too
    to_store(served)
    client.cancel(kept[2].handle)  # in the store; the cancellation is in the intake
    more = client.schedule("b", b"b", due=datetime(2036, 1, 1, tzinfo=UTC), properties={"x": "y"})
    cancelled = client.schedule("b", b"gone", delay=60)
    client.cancel(cancelled.handle)
    df = read(spark, served)
    assert bodies(df) == ["3", "4", "5", "b"]
    rows = {bytes(row["body"]): row for row in df.collect()}
    assert rows[b"b"]["due_ms"] == more.due_ms == int(datetime(2036, 1, 1, tzinfo=UTC).timestamp() * 1000)
    assert df.where("body = 'b' AND due = timestamp'2036-01-01 00:00:00'").count() == 1
    assert (rows[b"b"]["properties"], rows[b"b"]["id"], rows[b"b"]["key"]) == ({"x": "y"}, more.id, None)
    assert (rows[b"3"]["topic"], rows[b"3"]["tag"], rows[b"3"]["key"], rows[b"3"]["seq"]) == ("a", "t", "k3", 3)
    assert bodies(read(spark, served, topic="b")) == ["b"]
    assert bodies(read(spark, served, until_ms=kept[5].due_ms, after_ms=kept[4].due_ms)) == ["4"]


def test_what_has_fired_is_not_pending(spark: SparkSession, client: Client, served: Served) -> None:
    soon = client.schedule("a", b"soon", delay=0.7)
    client.schedule("a", b"later", delay=600)
    to_store(served)
    client.schedule("a", b"now", delay=0)
    assert "soon" in bodies(read(spark, served)) or time.time() * 1000 > soon.due_ms
    wait_until(lambda: served.broker.intake_state()["fired_until_ms"] > soon.due_ms)
    assert bodies(read(spark, served)) == ["later"]
    assert bodies(read(spark, served, what="delivered")) == ["now", "soon"]


@pytest.mark.rest
def test_filters_are_pushed_to_files(spark: SparkSession, client: Client, served: Served) -> None:
    for topic in ("a", "b", "c"):
        client.schedule(topic, topic.encode(), delay={"a": 3600, "b": 10 * 86400, "c": 100 * 86400}[topic])
        to_store(served)
    state = served.broker.intake_state()
    root = Path(state["store_uri"])
    files = pending.open_snapshot(str(root), 0, state["table_id"]).files
    assert sorted(files.topic_min) == ["a", "b", "c"]
    for path, topic in zip(files.path, files.topic_min, strict=True):
        if topic != "c":
            (root / path).unlink()  # who reads it fails
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:

        def fresh() -> DataFrame:
            return read(spark, served, pushFilters="true")

        assert bodies(fresh().where("topic = 'c' AND tag IS NULL")) == ["c"]
        assert bodies(fresh().where("topic IN ('c', 'x')")) == ["c"]
        assert bodies(fresh().where("due > current_timestamp() + INTERVAL 50 DAYS")) == ["c"]
        assert bodies(fresh().where(f"due_ms >= {int(time.time() * 1000) + 50 * 86_400_000}")) == ["c"]
        assert bodies(fresh().where("topic = 'none'")) == []
        with pytest.raises(Exception, match="is missing, though the store's log names it"):
            fresh().where("body = 'c'").collect()
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")
    assert bodies(read(spark, served, topic="c").where("topic = 'c'")) == ["c"]  # not pushed, and right


def test_a_dataframe_may_be_filtered_and_used_again(spark: SparkSession, client: Client, served: Served) -> None:
    client.schedule("a", b"a", delay=3600)
    client.schedule("b", b"b", delay=3600)
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        df = read(spark, served)
        assert bodies(df.where("topic = 'a'")) == ["a"]
        client.schedule("c", b"c", delay=3600)
        assert bodies(df)[:2] == ["a", "b"]
        assert bodies(read(spark, served)) == ["a", "b", "c"]
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")


def test_a_schema_of_ones_own_chooses_columns(spark: SparkSession, client: Client, served: Served) -> None:
    client.schedule("a", b"x", delay=3600)
    reader = spark.read.format("tarry").option("endpoint", served.address)
    df = reader.schema("due_ms long, topic string").load()
    assert [row.asDict().keys() for row in df.collect()] == [{"due_ms": 0, "topic": 0}.keys()]
    with pytest.raises(Exception, match="unknown column 'topc'; allowed: topic, due"):
        reader.schema("topc string").load().collect()
    with pytest.raises(Exception, match="column 'due' is to be read as string; allowed: timestamp"):
        reader.schema("due string").load().collect()


def test_nothing_is_an_empty_dataframe(spark: SparkSession, served: Served) -> None:
    for what in ("pending", "delivered", "dead"):
        assert read(spark, served, what=what).collect() == []


def test_rows_that_move_to_the_store_while_they_are_read(client: Client, served: Served, tmp_path: Path) -> None:
    for n in range(20):
        client.schedule("a", b"%d" % n, delay=3600)
    state = served.broker.intake_state()
    moment = pending.PlannedState(state["store_uri"], state["table_id"], 0, (0, 0), (), ())
    to_store(served)
    wait_until(lambda: served.broker.intake_state()["committed_seq"] == 20)
    with BrokerClient(served.address) as calls:
        whole = [s for b in pending.intake_rows(calls, moment, 0, 20) for s in b.column("seq").to_pylist()]
        assert whole == list(range(20))

        class Deleted(BrokerClient):
            """Of the intake, what is below 15 is gone."""

            def read(self, start: int, end: int) -> Iterator[pa.RecordBatch]:
                yield from super().read(max(start, 15), end)

        with Deleted(served.address) as deleted:
            rest = [s for b in pending.intake_rows(deleted, moment, 3, 20) for s in b.column("seq").to_pylist()]
            assert sorted(rest) == list(range(3, 20))


def test_rows_of_cancelled_jobs() -> None:
    seqs = [5, first_seq(3), first_seq(4) + 7, first_seq(5)]
    batch = pa.RecordBatch.from_pydict(
        {"seq": seqs, "due_ms": [100] * 4, "kind": pa.array([0] * 4, pa.int8()), "topic": ["a"] * 4}
    )
    moment = pending.PlannedState("", "", 0, (50, 3), ((4, 0, 0), (5, 101, 0)), ())
    empty = pa.array([], pa.int64()).to_numpy()
    assert pending.is_pending(batch, moment, empty).tolist() == [True, True, False, True]
    fired = pending.PlannedState("", "", 0, (101, 3), (), ())
    assert pending.is_pending(batch, fired, empty).tolist() == [True, False, False, False]
    assert Bounds(topics=frozenset({"b"})).rows_within(batch).tolist() == [False] * 4


@pytest.mark.rest
def test_delivered(spark: SparkSession, client: Client, served: Served) -> None:
    for n in range(30):
        client.schedule("a" if n % 3 else "b", b"%d" % n, delay=0)
    wait_until(lambda: served.broker.queue_state() == {"a": (0, 20), "b": (0, 10)})
    df = read(spark, served, what="delivered")
    assert bodies(df) == sorted(str(n) for n in range(30))
    assert [r["offset"] for r in df.where("topic = 'b'").orderBy("offset").collect()] == list(range(10))
    some = read(spark, served, what="delivered", topic="a", start=5, end=8)
    assert [r["offset"] for r in some.orderBy("offset").collect()] == [5, 6, 7]
    with pytest.raises(Exception, match="option 'start' is for what='delivered'"):
        read(spark, served, start=5).collect()


@pytest.mark.rest
def test_dead(spark: SparkSession, client: Client, served: Served) -> None:
    client.set_group("orders", "billing", tries=1)
    receipt = client.schedule("orders", b"bad", delay=0, id="i", properties={"x": "y"})
    for message in client.consume("orders", group="billing", timeout=5):
        message.nack()
        break
    wait_until(lambda: client.group_info("orders", "billing").dead == 1)
    for options in ({}, {"topic": "orders"}, {"topic": "orders", "group": "billing"}, {"group": "billing"}):
        (row,) = read(spark, served, what="dead", **options).collect()
        assert (row["topic"], row["group"], row["cause"], row["attempts"]) == ("orders", "billing", "tries", 1)
        assert (row["seq"], row["due_ms"], row["id"]) == (receipt.seq, receipt.due_ms, "i")
        assert row["properties"] == {"x": "y"}
        assert row["died_ms"] >= row["due_ms"]
        assert row["offset"] == 0
    assert read(spark, served, what="dead", topic="other").collect() == []
    assert read(spark, served, what="dead").where("topic = 'other'").collect() == []


@pytest.mark.rest
def test_a_broker_that_is_not_there(spark: SparkSession, served: Served) -> None:
    served.stop()
    for what in ("pending", "delivered", "dead"):
        with pytest.raises(Exception, match=f"the broker at {served.address} cannot be reached"):
            read(spark, served, what=what).collect()


@pytest.mark.rest
def test_columns_that_are_not_asked_for_are_not_read(spark: SparkSession, client: Client, served: Served) -> None:
    client.schedule("a", b"a", delay=3600, tag="t")
    to_store(served)
    client.schedule("b", b"b", delay=3600)
    df = read(spark, served, columns="Topic, due")
    assert df.columns == ["topic", "due"]
    assert sorted(row["topic"] for row in df.collect()) == ["a", "b"]
    # As in a task, but here, where it can be seen what is read.
    asked: list[list[str]] = []
    read_group = pending.read_group
    reader = pending.PendingReader(ReadOptions.of({"endpoint": served.address}), df.schema)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pending, "read_group", lambda *how: (asked.append(how[-1]), read_group(*how))[1])
        rows = [batch for partition in reader.partitions() for batch in reader.read(partition)]
    assert sum(batch.num_rows for batch in rows) == 2
    assert asked == [["seq", "due_ms", "topic", "kind"]]
    with pytest.raises(Exception, match="option 'columns' has 'bodies'; allowed: topic, due, "):
        read(spark, served, columns="topic,bodies")
    with pytest.raises(Exception, match="option 'columns' is 'due, due'; allowed: names of columns"):
        read(spark, served, columns="due, due")


@pytest.mark.rest
def test_the_documented_queries_over_the_table_itself(spark: SparkSession, tmp_path: Path) -> None:
    root = str(tmp_path / "store")
    answers = expected(fill(root))
    [recipe] = re.findall(r"### The table itself.*?```python\n(.*?)```", SPARK_DOCS.read_text(), re.S)
    assert recipe.count('"data/store"') == 1
    exec(recipe.replace('"data/store"', repr(root)), {"spark": spark})
    for title, query in QUERIES.items():
        assert in_ms([tuple(row) for row in spark.sql(query).collect()]) == answers[title], title
    # As everything does that Parquet can leave out.
    [[plan]] = spark.sql("EXPLAIN SELECT topic FROM store WHERE due > now()").collect()
    assert "ReadSchema: struct<topic:string,due:timestamp>" in plan
    assert "GreaterThan(due," in plan
