"""How late messages are: a herd due in one instant, and a steady stream."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import numpy as np

from benchmarks.harness import Result, Server, benchmark, child, messages, now_ms, percentiles, server, workspace
from tarry import AsyncClient, Client


def _consumer(broker: Server, count: int, path: Path):
    process = child("consume", broker.address, "bench", str(count), str(path))
    assert process.stdout is not None
    process.stdout.readline()
    return process


def _seen(process, path: Path) -> np.ndarray:
    process.wait(120)
    return np.load(path)


@benchmark
def herd() -> list[Result]:
    """200,000 due in the same millisecond, one consumer waiting: when its code has seen the last."""
    rows, each = 200_000, 5000
    with workspace() as directory, server() as broker, Client(broker.address) as client:
        consumer = _consumer(broker, rows, directory / "seen.npy")
        due = now_ms() + 6000
        for i in range(0, rows, each):
            client.schedule_batch(messages(each, due, seed=i))
        assert now_ms() < due - 1500, "scheduling took too long for this machine"
        seen = _seen(consumer, directory / "seen.npy")
    late = seen[2] / 1000 - seen[1]
    return [
        Result("herd of 200,000: last", float(late.max()) / 1000, "s", "≤ 0.7"),
        Result("herd: first", float(late.min()), "ms"),
        Result("herd: early", float((late < 0).sum()), "messages", "≤ 0"),
        Result("herd: lost or twice", float(rows - len(np.unique(seen[0]))), "messages", "≤ 0"),
    ]


@benchmark
def lateness() -> list[Result]:
    """2,000 msg/s for 60 s, one call a message, delays of 1 to 10 s."""
    return asyncio.run(_lateness(2000, 60))


async def _lateness(rate: int, seconds: int) -> list[Result]:
    rows = rate * seconds
    rng = np.random.default_rng(3)
    delays = rng.integers(1000, 10_000, rows).tolist()
    body = rng.bytes(256)
    with workspace() as directory, server() as broker:
        consumer = _consumer(broker, rows, directory / "seen.npy")
        async with AsyncClient(broker.address) as client:
            start, sent, tasks = time.perf_counter(), 0, []
            while sent < rows:
                target = min(rows, int((time.perf_counter() - start) * rate))
                for delay in delays[sent:target]:
                    tasks.append(asyncio.ensure_future(client.schedule("bench", body, due=now_ms() + delay)))
                sent = target
                await asyncio.sleep(0.001)
            await asyncio.gather(*tasks)
        seen = await asyncio.to_thread(_seen, consumer, directory / "seen.npy")
    late = seen[2] / 1000 - seen[1]
    p50, p99, p999 = percentiles(late, 50, 99, 99.9)
    return [
        Result("lateness at 2,000 msg/s: p50", p50, "ms", "≤ 1"),
        Result("lateness: p99", p99, "ms", "≤ 3"),
        Result("lateness: p99.9", p999, "ms", "≤ 10"),
        Result("lateness: max", float(late.max()), "ms"),
        Result("lateness: early", float((late < 0).sum()), "messages", "≤ 0"),
        Result("lateness: lost or twice", float(rows - len(np.unique(seen[0]))), "messages", "≤ 0"),
    ]
