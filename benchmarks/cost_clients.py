"""The clients that :mod:`benchmarks.cost` measures a broker with, each a process of its own that tells what it took.

``python -m benchmarks.cost_clients MODE ADDRESS COUNT RATE``: ``send`` keeps 64 single messages in flight, due in an
hour; ``paced`` sends RATE a second, one call each, due in half a second to two and a half; ``consume`` reads COUNT
messages and acknowledges each. It prints a line when it begins, and at the end its CPU time and what it has seen, as
JSON.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
import time
from typing import Any

import uvloop

from tarry import AsyncClient, Client

TOPIC, GROUP = "cost", "cost"
IN_FLIGHT = 64
BODY_BYTES = 256
HOUR_MS = 3_600_000
DELAYS_MS = (500, 2_500)


async def send(address: str, count: int) -> dict[str, Any]:
    body = random.randbytes(BODY_BYTES)

    async def task() -> None:
        for _ in range(count // IN_FLIGHT):
            await client.schedule(TOPIC, body, due=_now_ms() + HOUR_MS)

    async with AsyncClient(address) as client:
        began = time.perf_counter()
        await asyncio.gather(*(task() for _ in range(IN_FLIGHT)))
        return {"per_s": count / (time.perf_counter() - began)}


async def paced(address: str, count: int, rate: float) -> dict[str, Any]:
    body = random.randbytes(BODY_BYTES)
    tasks: set[asyncio.Task[Any]] = set()
    async with AsyncClient(address) as client:
        began, sent = time.perf_counter(), 0
        while sent < count:
            target = min(count, int((time.perf_counter() - began) * rate))
            for _ in range(target - sent):
                due = _now_ms() + random.randint(*DELAYS_MS)
                tasks.add(task := asyncio.ensure_future(client.schedule(TOPIC, body, due=due)))
                task.add_done_callback(tasks.discard)
            sent = target
            await asyncio.sleep(0.001)
        await asyncio.gather(*tasks)
        return {"per_s": count / (time.perf_counter() - began)}


def consume(address: str, count: int) -> dict[str, Any]:
    late: list[float] = []
    with Client(address) as client, client.consume(TOPIC, group=GROUP, prefetch=50_000) as consumer:
        print("ready", flush=True)
        for message in consumer:
            late.append(time.time_ns() / 1e6 - message.due_ms)
            message.ack()
            if len(late) == count:
                break
        consumer.flush()
    late.sort()
    return {"late_p50_ms": late[count // 2], "late_p99_ms": late[count * 99 // 100], "early": sum(x < 0 for x in late)}


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def main(mode: str, address: str, count: str, rate: str) -> None:
    before_s = time.process_time()
    if mode == "consume":
        found = consume(address, int(count))
    else:
        print("ready", flush=True)
        work = send(address, int(count)) if mode == "send" else paced(address, int(count), float(rate))
        found = uvloop.run(work)
    print(json.dumps({**found, "cpu_s": time.process_time() - before_s}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
