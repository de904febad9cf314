"""How fast messages are accepted: in batches and one by one through Flight, and in-process. Each is fsynced before its
answer.
"""

from __future__ import annotations

import asyncio
import os
import time

import numpy as np
import uvloop

from benchmarks.harness import Result, benchmark, disk_bytes_per_s, messages, now_ms, percentiles, server, workspace
from tarry import AsyncBroker, AsyncClient, Client
from tarry import open as open_broker

HOUR_MS = 3_600_000


@benchmark
def batches() -> list[Result]:
    """Tables of 1,000 rows a batch through Flight, acknowledged batch by batch."""
    rows, each = 3_000_000, 1000
    spread = now_ms() + HOUR_MS + np.random.default_rng(2).integers(0, 86_400_000, rows)
    with server() as broker, Client(broker.address) as client:
        table = [messages(each, spread[i : i + each], seed=i) for i in range(0, 200 * each, each)]
        for batch in table[:20]:
            client.schedule_batch(batch)
        start = time.perf_counter()
        client.schedule_batch(_repeated(table, rows // each))
        elapsed = time.perf_counter() - start
        written = sum(p.stat().st_size for p in (broker.data / "intake").glob("*.log"))
    rate, disk = rows / elapsed, disk_bytes_per_s(written)
    return [
        Result("batches", rate, "msg/s", "≥ 500000"),
        Result("batches: share of the disk's sequential rate", 100 * written / elapsed / disk, "%"),
    ]


def _repeated(table, count: int):
    import pyarrow as pa

    return pa.Table.from_batches([table[i % len(table)] for i in range(count)])


@benchmark
def singles() -> list[Result]:
    """One message a call, 64 tasks, each waiting for its own acknowledgement."""
    return uvloop.run(_singles(64, 300_000))


async def _singles(in_flight: int, total: int) -> list[Result]:
    body = os.urandom(256)
    with server() as broker:
        async with AsyncClient(broker.address) as client:
            due = now_ms() + HOUR_MS
            await _tasks(client.schedule, in_flight, total // 10, body, due)
            elapsed, latency = await _tasks(client.schedule, in_flight, total, body, due)
    p50, p99 = percentiles(latency * 1000, 50, 99)
    return [
        Result("singles, 64 in flight", total / elapsed, "msg/s", "≥ 45000"),
        Result("singles: acknowledged p50", p50, "ms"),
        Result("singles: acknowledged p99", p99, "ms", "≤ 10"),
    ]


async def _tasks(schedule, in_flight: int, total: int, body: bytes, due: int) -> tuple[float, np.ndarray]:
    latency: list[float] = []

    async def task(count: int) -> None:
        for _ in range(count):
            start = time.perf_counter()
            await schedule("bench", body, due=due)
            latency.append(time.perf_counter() - start)

    start = time.perf_counter()
    await asyncio.gather(*(task(total // in_flight) for _ in range(in_flight)))
    return time.perf_counter() - start, np.array(latency)


@benchmark
def inprocess() -> list[Result]:
    """``await broker.schedule(...)`` by 1,000 tasks, beside the same tasks awaiting nothing but the event loop."""
    return uvloop.run(_inprocess(1000, 500_000))


async def _inprocess(in_flight: int, total: int) -> list[Result]:
    body = os.urandom(256)

    async def nothing(topic: str, body: bytes, *, due: int) -> None:
        await asyncio.sleep(0)

    with workspace() as directory, open_broker(directory / "data") as broker:
        schedule = AsyncBroker(broker).schedule
        due = now_ms() + HOUR_MS
        await _tasks(schedule, in_flight, total // 10, body, due)
        elapsed, _ = await _tasks(schedule, in_flight, total, body, due)
        bare, _ = await _tasks(nothing, in_flight, total, body, due)
    return [
        Result("in-process schedule, 1,000 concurrent", total / elapsed, "msg/s", "≥ 150000"),
        Result("in-process: share of the bare loop's rate", 100 * bare / elapsed, "%"),
    ]
