"""What holds for a job however it came about: each message once, none early, and one job of that name."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tarry import Client

from .failing_broker import FailingBroker

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

LONG = pytest.mark.skipif(os.environ.get("SPARK_CLUSTER_TEST") != "1", reason="slow: make spark-cluster")
"""Of tests for which `make test` has no time."""
ROOT = Path(__file__).parents[2]
PATIENCE_S = 180.0
FAR_MS = 86_400_000
SETTINGS: dict[str, str | int] = {"pipeline": "off", "checkpoint_interval_ms": 50, "disk_free_bytes_min": 0}


def now_ms() -> int:
    return time.time_ns() // 1_000_000


class Account:
    """A DataFrame of ``rows`` messages, two thirds of them due within three seconds, and what becomes of them."""

    def __init__(self, rows: int, topic: str = "t") -> None:
        self.rows, self.topic, self.base_ms = rows, topic, now_ms()
        self.near = {n: self.base_ms + n % 3000 for n in range(rows) if n % 3}
        self.far = rows - len(self.near)

    def frame(self, spark: SparkSession, partitions: int = 3, more: int = 0) -> DataFrame:
        """``more``: so many bytes that no compression makes less, in each body."""
        noise = [f"to_binary(sha2(concat(id, '-{i}'), 256), 'hex')" for i in range(more // 32)]
        body = ", ".join(["to_binary(rpad(cast(id AS string), 20, ' '), 'utf-8')", *noise])
        return spark.range(0, self.rows, 1, partitions).selectExpr(
            f"'{self.topic}' AS topic",
            f"{self.base_ms} + if(id % 3 = 0, {FAR_MS} + id, id % 3000) AS due_ms",
            f"concat({body}) AS body",
        )

    def write(self, spark: SparkSession, address: str, *, partitions: int = 3, more: int = 0, **how: Any) -> None:
        writer = self.frame(spark, partitions, more).write.format("tarry").mode("append").option("endpoint", address)
        for name, value in how.items():
            writer = writer.option(name, value)
        writer.save()

    def nothing(self, address: str) -> None:
        """Nothing of it is scheduled."""
        with Client(address) as client:
            assert not [t for t in client.pending() if t.topic == self.topic and (t.pending or t.ready)]

    def received(self, client: Client, group: str) -> list[int]:
        """All that a group gets until nothing but what is far is left; that none comes early."""
        got: list[int] = []
        end = time.monotonic() + PATIENCE_S
        while [(t.pending, t.ready) for t in client.pending() if t.topic == self.topic] != [(self.far, 0)] or not got:
            assert time.monotonic() < end, f"{len(got)} came, and no more: {client.pending()}"
            with client.consume(self.topic, group=group, timeout=0.3) as consumer:
                for batch in consumer.batches():
                    now, numbers = now_ms(), [int(body[:20]) for body in batch.data["body"].to_pylist()]
                    assert batch.data["due_ms"].to_pylist() == [self.near[number] for number in numbers]
                    assert now >= max(self.near[number] for number in numbers), "early"
                    got += numbers
                    batch.ack()
                consumer.flush()
        return sorted(got)

    def exact(self, address: str, job: str) -> None:
        """Each is delivered once, or still to come; and the command shows the job once."""
        with Client(address) as client:
            assert self.received(client, "g") == sorted(self.near)
        assert listed(address, job) == [("committed", self.rows)]

    def exact_over_a_kill(self, broker: FailingBroker, job: str) -> None:
        """The same, and once more from what the disk has."""
        self.exact(broker.address, job)
        broker.kill()
        broker.start()
        with Client(broker.address) as client:
            assert self.received(client, "another") == sorted(self.near)
            assert client.cancel_job(job).cancelled == self.far


def listed(address: str, job: str) -> list[tuple[str, int]]:
    """Of the jobs that ``tarry jobs`` shows, those of this name."""
    command = [sys.executable, "-m", "tarry", "jobs", "--json", "--endpoint", address]
    shown = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=True).stdout
    jobs = [json.loads(line) for line in shown.splitlines()]
    return [(each["state"], each["rows"]) for each in jobs if each["job"] == job]


@contextmanager
def failing(directory: Path, **settings: str | int) -> Iterator[FailingBroker]:
    """A broker on ``directory``, ended with the block."""
    with FailingBroker(directory, SETTINGS | settings) as broker:
        broker.start()
        yield broker
