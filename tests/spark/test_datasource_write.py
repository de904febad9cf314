"""Batch write: what a DataFrame becomes, what is refused before and in the tasks, and faults at every step."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from tarry.base.errors import InvalidArgumentError, InvalidMessageError, UnavailableError
from tarry.spark import sorted_by_due, write_once
from tarry.spark.datasource.partitions import WAVES, fewer_partitions
from tarry.store import table_id_at
from tarry.store.place import Place

from .fake_bulk import NOW_MS, FakeBulk

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark


@pytest.fixture
def bulk(tmp_path: Path) -> Iterator[FakeBulk]:
    server = FakeBulk(tmp_path / "store")
    yield server
    server.shutdown()


def write(df: DataFrame, bulk: FakeBulk, **options: Any) -> None:
    writer = df.write.format("tarry").mode("append").option("endpoint", bulk.address)
    for name, value in options.items():
        writer = writer.option(name, value)
    writer.save()


def refused(df: DataFrame, bulk: FakeBulk, **options: Any) -> str:
    """Write what cannot be written; nothing is left of it. The text of the error."""
    with pytest.raises(Exception) as raised:  # whatever Spark makes of it
        write(df, bulk, **options)
    assert bulk.rows() == []
    assert bulk.named() == 0
    return str(raised.value)


@contextmanager
def job_group(spark: SparkSession, name: str) -> Iterator[None]:
    """What Spark does is found by this name."""
    spark.sparkContext.setJobGroup(name, "")
    try:
        yield
    finally:
        spark.sparkContext.setLocalProperty("spark.jobGroup.id", None)


def some(spark: SparkSession, rows: int, partitions: int = 3) -> DataFrame:
    return spark.range(0, rows, 1, partitions).selectExpr(
        "'orders' AS topic", f"{NOW_MS} + 3600000 + id * 7919 % 86400000 AS due_ms", "cast(id AS string) AS body"
    )


@pytest.mark.parametrize("mode", ["bulk", "flight"])
def test_a_dataframe_is_one_commit(spark: SparkSession, bulk: FakeBulk, mode: str) -> None:
    write(some(spark, 5000), bulk, mode=mode, job="nightly")
    rows = bulk.rows()
    assert sorted(int(row["body"]) for row in rows) == list(range(5000))
    assert all(row["due_ms"] == NOW_MS + 3_600_000 + int(row["body"]) * 7919 % 86_400_000 for row in rows)
    assert len({row["seq"] for row in rows}) == 5000
    assert {row["born_ms"] for row in rows} == {NOW_MS}
    assert bulk.jobs["nightly"]["topics"] == {"orders": 5000}
    assert bulk.calls.count("bulk-commit") == 1
    assert ("bulk-stage" in bulk.calls) == (mode == "flight")


def test_every_column(spark: SparkSession, bulk: FakeBulk) -> None:
    df = spark.sql(f"""
        SELECT 'orders' AS topic, timestamp_millis({NOW_MS + 60_000}) + INTERVAL 1 MICROSECOND AS due,
               X'00ff' AS body, 'i1' AS id, 'k1' AS key, 'vip' AS tag, map('shop', '42') AS properties,
               cast(5 AS TINYINT) AS tries, 86400000 AS ttl_ms, 'o' AS order_key, 'dead' AS late
    """)
    write(df, bulk)
    (row,) = bulk.rows()
    assert row["due_ms"] == NOW_MS + 60_001  # rounded up: never early
    assert (row["topic"], row["body"], row["id"], row["key"], row["tag"]) == ("orders", b"\0\xff", "i1", "k1", "vip")
    assert dict(row["properties"]) == {"shop": "42", "tarry.order": "o", "tarry.late": "dead"}
    assert (row["tries"], row["expire_ms"], row["repeat"]) == (5, NOW_MS + 86_400_000, None)


@pytest.mark.parametrize("zone", ["UTC", "Asia/Kolkata", "America/St_Johns", "Europe/Berlin"])
def test_a_timestamp_is_an_instant_in_any_session_time_zone(spark: SparkSession, bulk: FakeBulk, zone: str) -> None:
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        instants = [NOW_MS + 1, 1_801_447_200_000, 1_824_598_800_000]  # 2027-01-31, and an hour that comes twice
        df = spark.createDataFrame([(i,) for i in instants], "ms long")
        write(
            df.selectExpr("timestamp_millis(ms) AS due", "named_struct('at', timestamp_millis(ms)) AS body"),
            bulk,
            topic="t",
        )
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)
    rows = bulk.rows()
    assert [row["due_ms"] for row in rows] == instants
    assert json.loads(rows[0]["body"]) == {"at": "2026-11-21T12:26:40.001000Z"}


def test_delays_and_defaults(spark: SparkSession, bulk: FakeBulk) -> None:
    write(spark.sql("SELECT 'a' AS body, INTERVAL '1 02:03:04.5' DAY TO SECOND AS delay"), bulk, topic="t")
    write(
        spark.sql("SELECT 'b' AS body, cast(7 AS SMALLINT) AS delay_ms"), bulk, topic="t", tag="x", tries=3, ttl_ms=100
    )
    write(spark.sql("SELECT 'c' AS body, cast(NULL AS STRING) AS topic"), bulk, topic="t", delay_ms=5)
    by_body = {row["body"]: row for row in bulk.rows()}
    assert by_body[b"a"]["due_ms"] == NOW_MS + 93_784_500
    assert (by_body[b"b"]["due_ms"], by_body[b"b"]["tag"], by_body[b"b"]["tries"]) == (NOW_MS + 7, "x", 3)
    assert by_body[b"b"]["expire_ms"] == NOW_MS + 100
    assert (by_body[b"c"]["due_ms"], by_body[b"c"]["topic"]) == (NOW_MS + 5, "t")


def test_a_struct_is_json(spark: SparkSession, bulk: FakeBulk) -> None:
    df = spark.sql("""
        SELECT named_struct('n', 1, 'no', cast(NULL AS STRING), 'text', 'ä"\\\\', 'price', cast(1.10 AS DECIMAL(9,2)),
               'day', DATE'2026-11-21', 'list', array(1, NULL), 'map', map('a', true), 'x', X'00ff') AS body
    """)
    write(df, bulk, topic="t", delay_ms=1)
    (row,) = bulk.rows()
    assert row["body"].decode() == (
        '{"n":1,"text":"ä\\"\\\\","price":1.10,"day":"2026-11-21","list":[1,null],"map":{"a":true},"x":"AP8="}'
    )


def test_zero_rows_are_a_job_too(spark: SparkSession, bulk: FakeBulk) -> None:
    write(some(spark, 0), bulk, job="empty")
    assert bulk.rows() == []
    assert bulk.jobs["empty"]["state"] == "committed"


def test_one_due_time_and_an_order_by_due(spark: SparkSession, bulk: FakeBulk) -> None:
    same = some(spark, 20_000).selectExpr("topic", f"{NOW_MS + 5} AS due_ms", "body")
    write(sorted_by_due(same, 3), bulk, job="herd")
    assert len(bulk.rows()) == 20_000
    assert {row["due_ms"] for row in bulk.rows()} == {NOW_MS + 5}
    write(sorted_by_due(some(spark, 20_000), 3), bulk, job="spread")
    assert len(bulk.rows()) == 40_000


def test_a_table_of_sql(spark: SparkSession, bulk: FakeBulk) -> None:
    """Spark puts properties of its own among the options when it makes a table, and passes none on when it is used."""
    spark.sql(f"CREATE TABLE sql_table USING tarry OPTIONS (endpoint '{bulk.address}') COMMENT 'reminders'")
    spark.sql("CREATE TABLE sql_orders (topic string, due_ms bigint, body string) USING tarry")
    try:
        assert "due_ms" in spark.table("sql_table").columns
        row = f"SELECT 'orders' AS topic, {NOW_MS + 5}L AS due_ms, 'x' AS body"
        spark.sql(f"INSERT INTO sql_orders WITH ('endpoint' = '{bulk.address}') {row}")
        spark.sql(row).writeTo("sql_orders").option("endpoint", bulk.address).append()
        assert [(row["topic"], row["body"]) for row in bulk.rows()] == [("orders", b"x")] * 2
        with pytest.raises(Exception, match=r"WITH \('endpoint' = '127\.0\.0\.1:7611'\) behind its name"):
            spark.sql(f"INSERT INTO sql_orders {row}")
        with pytest.raises(Exception, match="unknown option 'team'; allowed here: endpoint, token"):
            spark.sql(f"CREATE TABLE t USING tarry OPTIONS (endpoint '{bulk.address}') TBLPROPERTIES ('team' = 'b')")
    finally:
        spark.sql("DROP TABLE sql_table")
        spark.sql("DROP TABLE sql_orders")


# -- refused -----------------------------------------------------------------------------------------------------------


@pytest.mark.rest
def test_what_is_refused_before_anything_moves(spark: SparkSession, bulk: FakeBulk) -> None:
    df = some(spark, 10)
    for wrong, words in {
        df.drop("body"): ["column 'body' is missing", "given: topic, due_ms"],
        df.withColumnRenamed("topic", "topc"): ["unknown column 'topc'", "allowed: topic, body, due"],
        df.selectExpr("1 AS topic", "due_ms", "body"): ["column 'topic' has type int", "allowed: string"],
        df.selectExpr("topic", "'soon' AS due", "body"): ["column 'due' has type string", "allowed: timestamp"],
        df.selectExpr("topic", "TIMESTAMP_NTZ'2027-01-01' AS due", "body"): ["timestamp_ntz", "names no instant"],
        df.selectExpr("topic", "body"): ["exactly one of due, due_ms", "given: none"],
        df.selectExpr("*", "1 AS delay_ms", "now() AS due"): ["exactly one of", "given: due, due_ms, delay_ms"],
        df.selectExpr("*", "'x' AS repeat"): ["column 'repeat' is not for bulk"],
        df.selectExpr("topic", "due_ms", "1.5D AS body"): ["column 'body' has type double"],
    }.items():
        text = refused(wrong, bulk)
        assert all(word in text for word in words), text
    assert bulk.calls == []


@pytest.mark.rest
def test_options_that_are_refused(spark: SparkSession, bulk: FakeBulk) -> None:
    df = some(spark, 10)
    assert "unknown option 'jbo'" in refused(df, bulk, jbo="x")
    assert "option 'mode' is 'fast'; allowed: auto, bulk, flight" in refused(df, bulk, mode="fast")
    assert "option 'job' has 201 bytes" in refused(df, bulk, job="j" * 201)
    assert "given: due_ms, option delay_ms" in refused(df, bulk, delay_ms=5)
    with pytest.raises(Exception, match="option 'endpoint' is missing"):
        df.write.format("tarry").mode("append").save()
    with pytest.raises(Exception, match="option 'endpoint' is 'nowhere'; allowed: HOST:PORT"):
        df.write.format("tarry").mode("append").option("endpoint", "nowhere").save()
    with pytest.raises(Exception, match="allowed: append"):
        df.write.format("tarry").mode("overwrite").option("endpoint", bulk.address).save()
    with pytest.raises(Exception, match=r"the broker at 127.0.0.1:1 cannot be reached"):
        df.write.format("tarry").mode("append").option("endpoint", "127.0.0.1:1").save()
    assert bulk.calls == []


@pytest.mark.parametrize("mode", [pytest.param("bulk", marks=pytest.mark.rest), "flight"])
def test_one_bad_row_is_named_and_nothing_is_committed(spark: SparkSession, bulk: FakeBulk, mode: str) -> None:
    df = spark.range(0, 30_000, 1, 3).selectExpr(
        "'orders' AS topic", f"if(id = 17123, null, {NOW_MS} + id) AS due_ms", "cast(id AS string) AS body"
    )
    text = refused(df, bulk, job="bad", mode=mode)
    assert "row 7123 of partition 1 is refused: due_ms is null; a value is needed" in text
    assert "the row: topic='orders', due_ms=None, body='17123'" in text
    assert "bulk-commit" not in bulk.calls
    assert bulk.named() == 0
    # The task that failed took its own files away. Another one, killed while it wrote, may leave what nobody names.
    assert [file for file in bulk.files() if file.name.startswith("bulk-1-1-")] == []
    write(df.where("due_ms IS NOT NULL"), bulk, job="bad", mode=mode)
    assert len(bulk.rows()) == 29_999


@pytest.mark.rest
def test_values_that_no_type_shows(spark: SparkSession, bulk: FakeBulk) -> None:
    for select, words in {
        "'bad topic' AS topic, 'b' AS body, 1 AS delay_ms": "topic 'bad topic' is not a topic name",
        "cast(null AS STRING) AS topic, 'b' AS body, 1 AS delay_ms": "topic is null",
        "'t' AS topic, cast(null AS BINARY) AS body, 1 AS delay_ms": "body is null",
        "'t' AS topic, 'b' AS body, cast(null AS TIMESTAMP) AS due": "due is null",
        "'t' AS topic, 'b' AS body, -1L AS delay_ms": "delay_ms is -1; allowed: 0 to",
        "'t' AS topic, 'b' AS body, TIMESTAMP'9999-01-01' AS due": "row 0 of partition 0 is refused",
        "'t' AS topic, 'b' AS body, 1 AS delay_ms, map('tarry.x', '1') AS properties": "is reserved",
    }.items():
        assert words in refused(spark.sql(f"SELECT {select}"), bulk)


# -- once --------------------------------------------------------------------------------------------------------------


@pytest.mark.rest
def test_a_committed_job_is_not_loaded_again(spark: SparkSession, bulk: FakeBulk) -> None:
    for _ in range(3):
        write(some(spark, 50_000), bulk, job="once")
    assert len(bulk.rows()) == 50_000
    assert bulk.calls.count("bulk-commit") == 1
    write(some(spark, 10), bulk)
    write(some(spark, 10), bulk)
    assert len(bulk.rows()) == 50_020


def test_a_committed_job_is_not_computed_again(spark: SparkSession, bulk: FakeBulk) -> None:
    first = write_once(some(spark, 100), "once", endpoint=bulk.address, mode="bulk")
    assert (first.rows, first.topics, first.already) == (100, {"orders": 100}, False)
    jobs = spark.sparkContext.statusTracker().getJobIdsForGroup(None)
    assert write_once(some(spark, 10**9).repartition(3), "once", endpoint=bulk.address) == replace(first, already=True)
    assert spark.sparkContext.statusTracker().getJobIdsForGroup(None) == jobs, "Spark had nothing to do"
    with pytest.raises(InvalidArgumentError, match="job 'once' is committed already, with 100 messages; allowed: ifC"):
        write_once(some(spark, 100), "once", endpoint=bulk.address, ifCommitted="fail")
    with pytest.raises(InvalidArgumentError, match="job is None; allowed: a text"):
        write_once(some(spark, 100), None, endpoint=bulk.address)  # type: ignore[arg-type]
    assert len(bulk.rows()) == 100


def test_a_committed_job_that_is_refused_before_its_tasks(spark: SparkSession, bulk: FakeBulk) -> None:
    write(some(spark, 100), bulk, job="once", ifCommitted="fail")
    text = "job 'once' is committed already, with 100 messages; allowed: ifCommitted 'skip', or another job id"
    with job_group(spark, "again"), pytest.raises(Exception, match=text):
        write(some(spark, 10**9), bulk, job="once", ifCommitted="fail")
    assert not spark.sparkContext.statusTracker().getJobIdsForGroup("again"), "Spark had nothing to do"
    with job_group(spark, "again"):
        write(some(spark, 10), bulk, job="once", ifCommitted="skip")
    assert spark.sparkContext.statusTracker().getJobIdsForGroup("again")
    assert len(bulk.rows()) == 100


@pytest.mark.rest
def test_small_partitions_are_fewer_tasks_and_large_ones_are_not(spark: SparkSession, bulk: FakeBulk) -> None:
    cores, tasks = 10, spark.sparkContext.statusTracker()

    def written(df: DataFrame, name: str) -> int:
        """In how many tasks, of its widest stage."""
        with job_group(spark, name):
            write_once(df, name, endpoint=bulk.address, mode="bulk")
        jobs = [tasks.getJobInfo(job) for job in tasks.getJobIdsForGroup(name)]
        return max(tasks.getStageInfo(stage).numTasks for job in jobs for stage in job.stageIds)

    assert written(some(spark, 1000, 100), "small") == WAVES * cores
    assert written(some(spark, 1000, 3), "few already") == 3
    assert written(some(spark, 10, 1).repartition(60), "shuffled") == WAVES * cores
    assert sorted(int(row["body"]) for row in bulk.rows()) == sorted([*range(1000), *range(1000), *range(10)])
    assert fewer_partitions(some(spark, 10**9, 60)).rdd.getNumPartitions() == 60
    assert fewer_partitions(some(spark, 10**9, 10**4)).rdd.getNumPartitions() > 1000
    # Of what size these are nobody knows.
    for df in (
        spark.createDataFrame([("orders",)], "topic string"),
        some(spark, 9, 100).selectExpr("explode(array(1))"),
    ):
        assert fewer_partitions(df) is df


def test_another_topic_under_the_name_of_a_committed_job(spark: SparkSession, bulk: FakeBulk) -> None:
    df = spark.sql("SELECT 'x' AS body, 5 AS delay_ms")
    assert write_once(df, "j", endpoint=bulk.address, topic="orders").rows == 1
    text = r"job 'j' is committed with messages of topic 'orders', and these are of 'mails'; allowed: another job id"
    with pytest.raises(InvalidArgumentError, match=text):
        write_once(df, "j", endpoint=bulk.address, topic="mails")
    with pytest.raises(Exception, match=text):
        write(df, bulk, job="j", topic="mails")
    with pytest.raises(InvalidMessageError, match="column 'body' is missing"):
        write_once(df.drop("body"), "j", endpoint=bulk.address, topic="orders")
    bulk.jobs["gone"] = {"state": "cancelled", "number": 1, "rows": 5, "topics": {"orders": 5}}
    with pytest.raises(InvalidArgumentError, match="job 'gone' was cancelled"):
        write_once(df, "gone", endpoint=bulk.address, topic="orders")
    assert len(bulk.rows()) == 1


def test_a_cancelled_job_is_not_loaded_again_in_silence(spark: SparkSession, bulk: FakeBulk) -> None:
    bulk.jobs["gone"] = {"state": "cancelled", "number": 1, "rows": 5, "topics": {"orders": 5}}
    assert "job 'gone' was cancelled; allowed: another job id" in refused(some(spark, 10), bulk, job="gone")


@pytest.mark.rest
def test_a_commit_whose_answer_is_lost(spark: SparkSession, bulk: FakeBulk) -> None:
    lost = iter([True, True])

    def after(name: str, body: dict[str, Any]) -> None:
        if name == "bulk-commit" and next(lost, False):
            raise UnavailableError("the answer is lost")

    bulk.after = after
    write(some(spark, 100), bulk, job="lost")
    assert len(bulk.rows()) == 100
    assert bulk.calls.count("bulk-commit") == 3


@pytest.mark.rest
def test_a_driver_that_dies_between_write_and_commit(spark: SparkSession, bulk: FakeBulk) -> None:
    def before(name: str, body: dict[str, Any]) -> None:
        if name in ("bulk-commit", "bulk-abort"):
            raise RuntimeError("the driver is dead: nobody commits, and nobody gives up")

    bulk.before = before
    refused(some(spark, 1000), bulk, job="dead")
    assert len(bulk.files()) > 0  # orphans, which nobody can see
    bulk.before = lambda name, body: None
    write(some(spark, 1000), bulk, job="dead")
    assert sorted(int(row["body"]) for row in bulk.rows()) == list(range(1000))


@pytest.mark.rest
def test_of_two_runs_of_one_job_at_once_the_later_wins(spark: SparkSession, bulk: FakeBulk) -> None:
    nested = iter([True])

    def before(name: str, body: dict[str, Any]) -> None:
        if name == "bulk-commit" and next(nested, False):
            # Makes the session this thread's, too, without which Spark finds no source.
            spark.createDataFrame([(1,)], "n int")
            write(some(spark, 1000), bulk, job="same")

    bulk.before = before
    with pytest.raises(Exception, match="is not the newest"):
        write(some(spark, 1000), bulk, job="same")
    assert sorted(int(row["body"]) for row in bulk.rows()) == list(range(1000))


@pytest.mark.rest
def test_a_worker_that_is_killed(spark: SparkSession, bulk: FakeBulk) -> None:
    """The task dies with it; nothing is committed, and a second run loads all of it once."""
    killed: list[int] = []

    def before(name: str, body: dict[str, Any]) -> None:
        if name == "bulk-reserve" and not killed:
            pid = next(iter(workers_connected_to(bulk.port)))
            killed.append(pid)
            os.kill(pid, signal.SIGKILL)

    bulk.before = before
    refused(some(spark, 1000), bulk, job="killed", mode="bulk")
    assert killed
    bulk.before = lambda name, body: None
    write(some(spark, 1000), bulk, job="killed", mode="bulk")
    assert sorted(int(row["body"]) for row in bulk.rows()) == list(range(1000))


def workers_connected_to(port: int) -> set[int]:
    """Python workers, descendants of this process, that have a connection to ``port``."""
    pids = set()
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):  # a worker that ends meanwhile: not the one that waits for an answer
            if "python" in process.name():
                for connection in process.net_connections("tcp"):
                    if connection.raddr and connection.raddr.port == port:
                        pids.add(process.pid)
    return pids


def test_a_broker_that_goes_away(spark: SparkSession, bulk: FakeBulk, tmp_path: Path) -> None:
    def before(name: str, body: dict[str, Any]) -> None:
        if name == "bulk-reserve":
            raise UnavailableError("the broker is stopping; try again later")

    bulk.before = before
    assert "the broker is stopping" in refused(some(spark, 10), bulk, job="gone")


@pytest.mark.rest
def test_a_disk_that_is_full(spark: SparkSession, bulk: FakeBulk) -> None:
    """/dev/full is a file that no byte fits into: the bucket's directory is a link to it."""
    shard = Path(bulk.store_uri) / "shard=0"
    shard.symlink_to("/dev/full")
    text = refused(some(spark, 1000), bulk, job="full", mode="bulk")
    assert "Error" in text
    shard.unlink()
    write(some(spark, 1000), bulk, job="full", mode="bulk")
    assert len(bulk.rows()) == 1000


@pytest.mark.rest
def test_a_store_that_tasks_cannot_reach(spark: SparkSession, bulk: FakeBulk, tmp_path: Path) -> None:
    reachable, bulk.store_uri = bulk.store_uri, str(tmp_path / "elsewhere")
    assert table_id_at(Place.of(bulk.store_uri)) is None
    with pytest.raises(Exception, match="this task cannot write to the store at"):
        write(some(spark, 10), bulk, mode="bulk")

    def before(name: str, body: dict[str, Any]) -> None:
        if name == "bulk-reserve":
            raise AssertionError("a task writes by itself")

    bulk.before, begin = before, bulk.on_bulk_begin
    bulk.store_uri = reachable
    bulk.on_bulk_begin = lambda body: {**begin(body), "store_uri": str(tmp_path / "elsewhere")}  # type: ignore[method-assign]
    write(some(spark, 10), bulk)
    assert len(bulk.rows()) == 10
