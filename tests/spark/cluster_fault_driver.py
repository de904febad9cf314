"""The driver of test_an_executor_is_killed: ``python -m tests.spark.cluster_fault_driver MASTER ENDPOINT DIRECTORY
SHAPE TOPIC ROWS BASE_MS`` loads one account as job TOPIC, as it comes ("plain"), or in due order behind a shuffle
("sorted").
"""

from __future__ import annotations

import sys
from pathlib import Path

from tarry.spark import sorted_by_due
from tarry.spark.runtime.session import build_session, end_jvm

from .exactness import Account

PARTITIONS = 8


def main(master: str, endpoint: str, directory: str, shape: str, topic: str, rows: str, base_ms: str) -> None:
    """Load it, or say why not."""
    spark = build_session(name="faults", master=master, memory="512m", work=Path(directory) / topic)
    account = Account(int(rows), topic)
    account.base_ms = int(base_ms)
    frame = account.frame(spark, PARTITIONS)
    if shape == "sorted":
        frame = sorted_by_due(frame, PARTITIONS)
    try:
        writer = frame.write.format("tarry").mode("append").option("endpoint", endpoint)
        writer.option("mode", "bulk").option("job", topic).save()
        print("written", flush=True)
    except Exception as error:  # noqa: BLE001  whatever Spark makes of it
        print(f"failed: {error}", flush=True)
    spark.stop()
    end_jvm()


if __name__ == "__main__":
    main(*sys.argv[1:])
