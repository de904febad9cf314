"""Ten million messages in one bulk job: what the broker's memory does, and how soon the first that is due arrives."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.bulk import scattered, session
from benchmarks.harness import Result, Server, benchmark, now_ms, server, workspace
from tarry import Client

ROWS = int(os.environ.get("BENCH_BULK_SIZE_ROWS", 10_000_000))
PARTITIONS = 10
BAD_ROW = ROWS * 7 // 9
DUE_AT_ONCE = 1000
SETTLE_S = 5.0


class Peak:
    """The highest resident memory of a broker while this is open."""

    def __init__(self, broker: Server) -> None:
        self._broker = broker
        self._done = threading.Event()
        self.mb = broker.rss_mb
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()

    def _look(self) -> None:
        while not self._done.wait(0.1):
            self.mb = max(self.mb, self._broker.rss_mb)

    def close(self) -> None:
        """Look no more."""
        self._done.set()
        self._thread.join()


@contextmanager
def peak(broker: Server) -> Iterator[Peak]:
    found = Peak(broker)
    try:
        yield found
    finally:
        found.close()


def _settled_mb(broker: Server) -> float:
    time.sleep(SETTLE_S)
    return broker.rss_mb


def _last_commit_s(data: Path) -> float:
    """When the newest entry of the store's log was written, by the clock of :func:`time.time`."""
    return max((data / "store" / "_delta_log").glob("*.json")).stat().st_mtime


@benchmark(opt_in=True)
def bulk_ten_million() -> list[Result]:
    """All but some fall due over the day that begins an hour later; some are due when the job begins, and a consumer
    waits for them. Afterwards as many rows of which one is bad.
    """
    with (
        server(pipeline="off") as broker,
        workspace() as directory,
        session(directory) as spark,
        Client(broker.address) as client,
    ):
        client.schedule("first", b"warm", delay=0)
        [warm] = client.receive("first", group="g", wait=30)
        warm.ack()
        writer = (
            scattered(spark, 100_000, PARTITIONS, now_ms() + 7_200_000).drop("id").write.format("tarry").mode("append")
        )
        writer.option("endpoint", broker.address).save()
        before = _settled_mb(broker)
        arrived: list[float] = []
        waiting = threading.Thread(
            target=lambda: arrived.extend(time.time() for _ in client.receive("first", group="g", wait=3600)),
            daemon=True,
        )
        waiting.start()
        rows = scattered(spark, ROWS, PARTITIONS, now_ms() + 3_600_000).selectExpr(
            f"if(id % {ROWS // DUE_AT_ONCE} = 0, 'first', topic) AS topic",
            f"if(id % {ROWS // DUE_AT_ONCE} = 0, {now_ms()}, due_ms) AS due_ms",
            "body",
        )
        with peak(broker) as good:
            start = time.perf_counter()
            rows.write.format("tarry").mode("append").option("endpoint", broker.address).save()
            took = time.perf_counter() - start
            waiting.join(60)
            after = _settled_mb(broker)
        late = arrived[0] - _last_commit_s(broker.data)
        pending = sum(topic.pending for topic in client.pending() if topic.topic == "bench")
        assert pending == 100_000 + ROWS - DUE_AT_ONCE, pending
        bad_before = _settled_mb(broker)
        with peak(broker) as bad:
            start = time.perf_counter()
            text = _refused(spark, broker)
            bad_took = time.perf_counter() - start
        bad_after = _settled_mb(broker)
        assert sum(topic.pending for topic in client.pending() if topic.topic == "bench") == pending
    print(text)
    return [
        Result("bulk load of ten million", ROWS / took, "msg/s"),
        Result("broker's RSS, moved by ten million in bulk", after - before, "MB", "≤ 64"),
        Result("broker's RSS, at its highest meanwhile", good.mb - before, "MB", "≤ 64"),
        Result("ten million in bulk: the first due, after the commit", late, "s", "≤ 2"),
        Result("one bad row of ten million, until it is named", bad_took, "s"),
        Result("broker's RSS, moved by a bad row", bad_after - bad_before, "MB", "≤ 64"),
        Result("broker's RSS, at its highest meanwhile (a bad row)", bad.mb - bad_before, "MB", "≤ 64"),
    ]


def _refused(spark: object, broker: Server) -> str:
    """Load small bodies of which one has no due time; the line that names it."""
    due = now_ms() + 3_600_000
    rows = spark.range(0, ROWS, 1, PARTITIONS).selectExpr(  # type: ignore[attr-defined]
        "'bench' AS topic",
        f"if(id = {BAD_ROW}, null, {due} + id % 86400000) AS due_ms",
        "cast(id AS string) AS body",
    )
    try:
        rows.write.format("tarry").mode("append").option("endpoint", broker.address).option("job", "bad").save()
    except Exception as error:
        lines = [line for line in str(error).splitlines() if "is refused" in line]
        return lines[0] if lines else str(error)
    raise AssertionError("a row without a due time was taken")
