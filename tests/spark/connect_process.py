"""The two sides of test_datasource_connect: ``serve DIRECTORY`` is a Spark Connect server, which ends with its stdin;
``drive PORT ENDPOINT DIRECTORY`` uses it as a program without a JVM does.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

PATIENCE_S = 90.0


def serve(directory: Path) -> None:
    """A server on a free port, which it prints."""
    from tarry.spark.runtime.session import build_session, end_jvm

    settings = {
        "spark.plugins": "org.apache.spark.sql.connect.SparkConnectPlugin",
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": "0",
    }
    spark = build_session(
        name="connect", master="local[2]", memory="512m", work=directory / "server", settings=settings
    )
    try:
        jvm = spark._jvm  # noqa: SLF001 - PySpark does not say which port its server got
        service = getattr(jvm, "org.apache.spark.sql.connect.service.SparkConnectService$")
        print(getattr(service, "MODULE$").localPort(), flush=True)
        sys.stdin.read()
    finally:
        spark.stop()
        end_jvm()


def drive(port: str, endpoint: str, directory: Path) -> None:
    """Write and read, batches and streams; an assertion fails the process."""
    from pyspark.sql import SparkSession

    spark = SparkSession.builder.remote(f"sc://127.0.0.1:{port}").getOrCreate()
    assert type(spark).__module__ == "pyspark.sql.connect.session"
    batches(spark, endpoint)
    streams(spark, endpoint, directory)
    spark.stop()
    print("all is well", flush=True)


def batches(spark: Any, endpoint: str) -> None:
    """A job twice, in both ways; a bad row; what is pending and what is delivered."""
    from tarry.spark import sorted_by_due

    for mode in ("bulk", "flight"):
        rows = spark.range(0, 1000, 1, 2).selectExpr(
            f"'{mode}' AS topic", "3600000L + id AS delay_ms", "cast(id AS string) AS body"
        )
        for _ in range(2):
            writer = sorted_by_due(rows, 2).write.format("tarry").mode("append").option("endpoint", endpoint)
            writer.option("mode", mode).option("job", mode).save()
    bad = spark.range(0, 10, 1, 1).selectExpr("'t' AS topic", "if(id = 7, -1L, 1L) AS delay_ms", "'b' AS body")
    try:
        bad.write.format("tarry").mode("append").option("endpoint", endpoint).option("job", "bad").save()
    except Exception as error:  # noqa: BLE001  whatever Spark makes of it
        assert "row 7 of partition 0 is refused: delay_ms is -1" in str(error), error
    else:
        raise AssertionError("a bad row was taken")
    pending = spark.read.format("tarry").option("endpoint", endpoint).load()
    counts = {row["topic"]: row["count"] for row in pending.groupBy("topic").count().collect()}
    assert counts == {"bulk": 1000, "flight": 1000}, counts
    now = spark.range(100).selectExpr("'ready' AS topic", "0L AS delay_ms", "cast(id AS string) AS body")
    now.write.format("tarry").mode("append").option("endpoint", endpoint).save()
    end = time.monotonic() + PATIENCE_S
    source = spark.read.format("tarry").option("endpoint", endpoint).option("what", "delivered")
    while source.option("topic", "ready").load().count() < 100:
        assert time.monotonic() < end
        time.sleep(0.2)


def streams(spark: Any, endpoint: str, directory: Path) -> None:
    """A queue into jobs, twice: the second time there is nothing to do."""
    queue = spark.readStream.format("tarry").option("endpoint", endpoint).option("topic", "ready").option("group", "g")
    copied = queue.load().selectExpr("'copied' AS topic", "3600000L AS delay_ms", "body")
    for _ in range(2):
        query = (
            copied.writeStream.format("tarry")
            .option("endpoint", endpoint)
            .option("checkpointLocation", str(directory / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(PATIENCE_S)
    loaded = spark.read.format("tarry").option("endpoint", endpoint).option("topic", "copied").load()
    assert sorted(int(bytes(row["body"])) for row in loaded.collect()) == list(range(100))


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        serve(Path(sys.argv[2]))
    else:
        drive(sys.argv[2], sys.argv[3], Path(sys.argv[4]))
