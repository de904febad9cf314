"""The schedule query: from the intake to the committed store, and what it costs when there is nothing to do."""

from __future__ import annotations

import time

import numpy as np
import psutil

from benchmarks.harness import Result, Server, benchmark, messages, now_ms, server
from tarry import Client

ROWS = 3_000_000


def wait_for_status(client: Client, what: str, test) -> dict:
    """Look at the status until ``test`` holds for it; the status."""
    end = time.monotonic() + 180
    while time.monotonic() < end:
        status = client.status()
        if test(status):
            return status
        time.sleep(0.2)
    raise RuntimeError(f"{what} did not happen; the last status: {status}")


def _fill(client: Client, rows: int) -> None:
    rng = np.random.default_rng(5)
    for i in range(0, rows, 5000):
        client.schedule_batch(messages(5000, now_ms() + 600_000 + rng.integers(0, 86_400_000, 5000), seed=i))


@benchmark
def schedule() -> list[Result]:
    """One batch of 3 million, ``local[2]``, as the job reports it: from planning the batch to the commit."""
    with (
        server(pipeline="on", spark_master="local[2]", schedule_bytes="16GiB", schedule_interval_ms=20_000) as broker,
        Client(broker.address, timeout=120) as client,
    ):
        wait_for_status(
            client, "the start of the pipeline", lambda s: s["pipeline"].get("state") in ("idle", "running")
        )
        _fill(client, ROWS // 2)
        first = _batch(client, 0)
        _fill(client, ROWS)
        second = _batch(client, first["end_seq"])
        store = client.status()["store"]
    assert store["committed_seq"] == second["end_seq"]
    return [
        Result("schedule query, first batch after its start", first["rows_per_second"], "msg/s"),
        Result("schedule query, batch of 3 M", second["rows_per_second"], "msg/s", "≥ 250000"),
    ]


def _batch(client: Client, start_seq: int) -> dict:
    def done(status: dict) -> bool:
        last = status["pipeline"].get("last_batch") or {}
        return last.get("start_seq") == start_seq and status["store"]["committed_seq"] == last["end_seq"]

    return wait_for_status(client, "the batch", done)["pipeline"]["last_batch"]


@benchmark
def idle_pipeline() -> list[Result]:
    """Processor time of driver, JVM and workers when there is nothing to schedule."""
    with server(pipeline="on", spark_master="local[2]") as broker, Client(broker.address) as client:
        wait_for_status(
            client, "the start of the pipeline", lambda s: s["pipeline"].get("state") in ("idle", "running")
        )
        time.sleep(10)
        before, seconds = _cpu_s(broker), 30
        time.sleep(seconds)
        used = _cpu_s(broker) - before
    return [Result("idle pipeline", 100 * used / seconds, "% of a core", "≤ 5")]


def _cpu_s(broker: Server) -> float:
    total = 0.0
    for process in psutil.Process(broker.process.pid).children(recursive=True):
        times = process.cpu_times()
        total += times.user + times.system
    return total
