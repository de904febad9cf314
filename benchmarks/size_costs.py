"""CPU time that a message takes, for :mod:`benchmarks.size_constants`, in loop-µs (:mod:`benchmarks.cost`).

The broker's own, user and system, by the message: in batches of 1,000 and one by one at a steady rate, far in the
future; and due at that rate and acknowledged by one group. ``busy``: the same as fast as it goes, when many share a
round.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable

import numpy as np

from benchmarks.harness import BODY_BYTES, messages, now_ms, server
from benchmarks.loop import loop_s
from tarry import AsyncClient, Client

HOUR_MS = 3_600_000
ROWS, RATE, SECONDS = 100_000, 1000, 15
BUSY, IN_FLIGHT = 38_400, 64
BATCH = 1000


def costs() -> dict[str, float]:
    """Return the constants of CPU by name."""
    row = _measured(ROWS, _batches)
    steady = RATE * SECONDS
    return {
        "cpu_idle_loop_us": _idle_loop_us(),
        "cpu_row_loop_us": row,
        "cpu_call_loop_us": _measured(steady, lambda address: asyncio.run(steadily(address))) - row,
        "cpu_call_busy_loop_us": _measured(BUSY, lambda address: asyncio.run(_busily(address))) - row,
        "cpu_out_loop_us": _measured(steady, _through) - row,
        "cpu_out_busy_loop_us": _measured(ROWS, lambda address: _through(address, ROWS, 1)) - row,
    }


def _measured(rows: int, load: Callable[[str], object]) -> float:
    """Return loop-µs of a message."""
    with server(pipeline="off") as broker:
        _through(broker.address, BATCH, 1)  # what is imported and made with the first message is not the next one's
        speed, cpu_s = loop_s(), broker.cpu_s()
        load(broker.address)
        cpu_s = (broker.cpu_s() - cpu_s) / ((speed + loop_s()) / 2)
        return cpu_s / rows * 1e6


def _idle_loop_us() -> float:
    """In a second."""
    with server(pipeline="off") as broker:
        time.sleep(3)
        before, speed = broker.cpu_s(), loop_s()
        time.sleep(SECONDS)
        return (broker.cpu_s() - before) / SECONDS * 1e6 / speed


def _batches(address: str) -> None:
    with Client(address) as client:
        for i in range(ROWS // BATCH):
            client.schedule_batch(messages(BATCH, now_ms() + HOUR_MS + np.arange(BATCH), seed=i))


def _through(address: str, rows: int = RATE * SECONDS, seconds: float = SECONDS) -> None:
    """Due evenly over some seconds; a group gets and acknowledges all."""
    with Client(address) as client, client.consume("bench", group="size", prefetch=1000) as consumer:
        due = now_ms() + 500 + (np.arange(rows) * seconds * 1000 // rows)
        for begin in range(0, rows, BATCH):
            part = due[begin : begin + BATCH]
            client.schedule_batch(messages(len(part), part, seed=begin))
        for seen, message in enumerate(consumer, 1):
            message.ack()
            if seen == rows:
                break
        consumer.flush()


async def steadily(address: str) -> None:
    """Send one message a call, at a steady rate, due in an hour."""
    async with AsyncClient(address) as client:
        await _send(client, RATE, "1h")


async def sent_and_taken(address: str, rate: int) -> None:
    """Send one message a call, at a steady rate, due after a second; a group gets and acknowledges all."""
    async with AsyncClient(address) as client, AsyncClient(address) as other:
        taking = asyncio.ensure_future(_take(other, rate * SECONDS))
        await _send(client, rate, "1s")
        await taking


async def _send(client: AsyncClient, rate: int, delay: str) -> None:
    start, tasks = time.perf_counter(), []
    while len(tasks) < rate * SECONDS:
        while len(tasks) < min(rate * SECONDS, (time.perf_counter() - start) * rate):
            tasks.append(asyncio.ensure_future(client.schedule("bench", os.urandom(BODY_BYTES), delay=delay)))
        await asyncio.sleep(0.001)
    await asyncio.gather(*tasks)


async def _take(client: AsyncClient, count: int) -> None:
    async with client.consume("bench", group="size") as consumer:
        async for message in consumer:
            message.ack()
            count -= 1
            if not count:
                return


async def _busily(address: str) -> None:
    """Send one message a call, as fast as 64 tasks can."""

    async def task() -> None:
        for _ in range(BUSY // IN_FLIGHT):
            await client.schedule("bench", os.urandom(BODY_BYTES), delay="1h")

    async with AsyncClient(address) as client:
        await asyncio.gather(*(task() for _ in range(IN_FLIGHT)))
