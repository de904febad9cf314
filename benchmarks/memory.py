"""What pending messages cost: resident memory, time to start again, and the idle processor."""

from __future__ import annotations

import time

import numpy as np

from benchmarks.harness import Result, Server, benchmark, messages, now_ms, server, start_server, workspace
from tarry import Client

DAY_MS = 86_400_000


def _fill(client: Client, rows: int) -> None:
    each = 5000
    rng = np.random.default_rng(4)
    for i in range(0, rows, 20 * each):
        parts = [messages(each, now_ms() + 3_600_000 + rng.integers(0, DAY_MS, each), seed=i) for _ in range(20)]
        for part in parts:
            client.schedule_batch(part)


def _settled_rss(broker: Server) -> float:
    """The resident memory after the broker has had some seconds for its housekeeping."""
    time.sleep(5)
    return broker.rss_mb


@benchmark
def rss() -> list[Result]:
    """Resident memory with 5 and 20 million pending against none; the pipeline is off, so all of it is in the
    intake.
    """
    with server() as broker, Client(broker.address) as client:
        client.schedule_batch(messages(5000, now_ms() + DAY_MS))
        none = _settled_rss(broker)
        _fill(client, 5_000_000)
        five = _settled_rss(broker)
        _fill(client, 15_000_000)
        twenty = _settled_rss(broker)
    return [
        Result("RSS with none pending", none, "MB"),
        Result("RSS, 5 M pending, above none", five - none, "MB", "≤ 64"),
        Result("RSS, 20 M pending, above none", twenty - none, "MB", "≤ 64"),
    ]


@benchmark
def restart() -> list[Result]:
    """kill -9 with 5 million pending, then the time from starting the process to the first acknowledged send."""
    with workspace() as directory:
        broker = start_server(directory / "data")
        with Client(broker.address) as client:
            _fill(client, 5_000_000)
        broker.kill()
        start = time.perf_counter()
        broker = start_server(directory / "data", address=broker.address)
        with Client(broker.address) as client:
            client.schedule("bench", b"first", delay="1h")
            elapsed = time.perf_counter() - start
            pending = sum(t.pending for t in client.pending())
        broker.kill()
    return [
        Result("kill -9 with 5 M pending, to the first send", elapsed, "s", "≤ 3"),
        Result("restart: pending that were lost", 5_000_001 - pending, "messages", "≤ 0"),
    ]


@benchmark
def idle() -> list[Result]:
    """Processor time of a broker that has nothing to do, without Spark."""
    with server() as broker:
        time.sleep(3)
        before, seconds = broker.cpu_s(), 20
        time.sleep(seconds)
        used = broker.cpu_s() - before
    return [Result("idle broker", 100 * used / seconds, "% of a core", "≤ 1")]
