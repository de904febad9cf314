"""The driver of test_datasource_cluster: ``python -m tests.spark.cluster_driver MASTER ENDPOINT DIRECTORY``."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from tarry.spark import sorted_by_due
from tarry.spark.runtime.session import build_session, end_jvm

ROWS = 20_000


def main(master: str, endpoint: str, directory: Path) -> None:
    """Write in both ways, read, stream in and out; an assertion fails the process."""
    spark = build_session(name="cluster", master=master, memory="512m", work=directory / "driver")
    later = int(time.time() * 1000) + 3_600_000
    for mode in ("bulk", "flight"):
        rows = spark.range(0, ROWS, 1, 4).selectExpr(
            f"'{mode}' AS topic", f"{later} + pmod(hash(id), 86400000) AS due_ms", "cast(id AS string) AS body"
        )
        writer = sorted_by_due(rows, 4).write.format("tarry").mode("append").option("endpoint", endpoint)
        for _ in range(2):
            writer.option("mode", mode).option("job", mode).save()
    source = spark.read.format("tarry").option("endpoint", endpoint)
    pending = source.load()
    counts = {r["topic"]: r["n"] for r in pending.groupBy("topic").agg({"body": "count"}).toDF("topic", "n").collect()}
    assert counts == {"bulk": ROWS, "flight": ROWS}, counts
    hosts = {r["pid"] for r in pending.selectExpr("spark_partition_id() AS pid").distinct().collect()}
    assert hosts

    now = spark.range(100).selectExpr("'ready' AS topic", "0L AS delay_ms", "cast(id AS string) AS body")
    now.write.format("tarry").mode("append").option("endpoint", endpoint).save()
    time_out = time.monotonic() + 60
    delivered = spark.read.format("tarry").option("endpoint", endpoint).option("what", "delivered")
    while delivered.option("topic", "ready").load().count() < 100:
        assert time.monotonic() < time_out
        time.sleep(0.2)
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
        query.awaitTermination(120)
    assert source.option("topic", "copied").load().count() == 100
    spark.stop()
    end_jvm()
    print("all is well", flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
