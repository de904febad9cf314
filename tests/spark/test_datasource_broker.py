"""With a real broker: what a DataFrame or a stream schedules is pending, delivered, and cancelled as a job."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tarry import Client
from tarry.spark import write_once
from tarry.spark.broker_client import BrokerClient, Staged
from tarry.store import StaleCommitError

from ..contract.conftest import Served

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    place = Served(tmp_path / "data", checkpoint_interval_ms=20)
    yield place
    place.stop()


def write(df: DataFrame, served: Served, **options: Any) -> None:
    writer = df.write.format("tarry").mode("append").option("endpoint", served.address)
    for name, value in options.items():
        writer = writer.option(name, value)
    writer.save()


def pending(spark: SparkSession, served: Served) -> DataFrame:
    return spark.read.format("tarry").option("endpoint", served.address).load()


def received(served: Served, topic: str, count: int) -> list[bytes]:
    got: list[bytes] = []
    with Client(served.address) as client:
        for message in client.consume(topic, group="g", timeout=20):
            got.append(message.body)
            message.ack()
            if len(got) == count:
                break
    return got


@pytest.mark.parametrize("mode", [pytest.param("bulk", marks=pytest.mark.rest), "flight"])
def test_a_dataframe_is_scheduled_once_and_delivered(spark: SparkSession, served: Served, mode: str) -> None:
    soon, later = int(time.time() * 1000) + 4000, int(time.time() * 1000) + 3_600_000
    df = spark.range(0, 2000, 1, 2).selectExpr(
        "'t' AS topic", f"if(id < 100, {soon}, {later} + id) AS due_ms", "cast(id AS string) AS body"
    )
    first = write_once(df, "load", endpoint=served.address, mode=mode)
    assert (first.rows, first.topics, first.already) == (2000, {"t": 2000}, False)
    assert write_once(df, "load", endpoint=served.address) == replace(first, already=True)
    write(df, served, mode=mode, job="load")
    assert {int(body) for body in received(served, "t", 100)} == set(range(100))
    rest = pending(spark, served).where("due_ms > unix_millis(now()) + 60000").collect()
    assert {int(bytes(row["body"])) for row in rest} == set(range(100, 2000))
    with Client(served.address) as client:
        assert client.cancel_job("load").cancelled == 1900
    assert pending(spark, served).where("due_ms > unix_millis(now()) + 60000").collect() == []
    with pytest.raises(Exception, match="job 'load' was cancelled; allowed: another job id"):
        write(df, served, mode=mode, job="load")


@pytest.mark.rest
def test_a_table_of_sql_is_read(spark: SparkSession, served: Served) -> None:
    write(spark.sql("SELECT 't' AS topic, 3600000 AS delay_ms, 'x' AS body"), served)
    options = f"('endpoint' = '{served.address}', 'columns' = 'topic,body')"
    spark.sql(f"CREATE TABLE sql_pending USING tarry OPTIONS {options}")
    try:
        (row,) = spark.sql(f"SELECT * FROM sql_pending WITH {options}").collect()
        assert (row["topic"], bytes(row["body"])) == ("t", b"x")
    finally:
        spark.sql("DROP TABLE sql_pending")


def test_no_rows(spark: SparkSession, served: Served) -> None:
    write(spark.range(0).selectExpr("'t' AS topic", "id AS due_ms", "'' AS body"), served, job="none")
    with Client(served.address) as client:
        assert [(job.job, job.state, job.rows) for job in client.jobs("none")] == [("none", "committed", 0)]


def test_those_who_say_the_same_share_an_attempt(served: Served) -> None:
    with BrokerClient(served.address) as calls:
        first = calls.begin("j", "x")
        assert calls.begin("j", "x").number == first.number
        second = calls.begin("j", "y")
        assert second.number > first.number
        assert calls.begin("j").number > second.number
        with pytest.raises(StaleCommitError):
            calls.commit(first.number, Staged((), {}))
        last = calls.begin("j", "z")
        calls.commit(last.number, Staged((), {}))
        assert calls.begin("j", "z").state == "committed"


@pytest.mark.rest
def test_a_stream_is_scheduled_once(spark: SparkSession, served: Served, tmp_path: Path) -> None:
    source, checkpoint = tmp_path / "source", tmp_path / "checkpoint"
    source.mkdir()
    for part in range(2):
        lines = [f'{{"n": {n}}}\n' for n in range(50 * part, 50 * part + 50)]
        (source / str(part)).write_text("".join(lines))
    for _ in range(2):
        df = spark.readStream.schema("n long").option("maxFilesPerTrigger", 1).json(str(source)).repartition(2)
        rows = df.selectExpr("'t' AS topic", "3600000L AS delay_ms", "cast(n AS string) AS body")
        query = (
            rows.writeStream.format("tarry")
            .option("endpoint", served.address)
            .option("checkpointLocation", str(checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination(60)
        last = max((checkpoint / "commits").glob("[0-9]*"))
        for written in (last, last.with_name(f".{last.name}.crc")):
            written.unlink()  # as if Spark had died before it knew that the micro-batch was done
    assert sorted(int(bytes(row["body"])) for row in pending(spark, served).collect()) == list(range(100))
