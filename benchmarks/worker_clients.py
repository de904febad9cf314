"""The clients of :mod:`benchmarks.worker`: ``python -m benchmarks.worker_clients MODE ADDRESS TOPIC GROUP COUNT``.

``consume`` is a bare ``async for``, ``worker`` an async handler, ``threads`` a plain function. It prints a line when it
has begun, and at the end the CPU time that it took since, as JSON.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time

import uvloop

import tarry

PREFETCH = 10_000


class Count:
    """Counts messages, and says when all have come."""

    def __init__(self, count: int) -> None:
        self._left = [0] * count
        self._before_s = 0.0
        self.done = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    def begin(self) -> None:
        self._before_s = time.process_time()
        print("ready", flush=True)

    def one(self) -> None:
        self._left.pop()  # one step, also in threads
        if not self._left:
            self._loop.call_soon_threadsafe(self.done.set)

    def end(self) -> None:
        print(json.dumps({"cpu_s": time.process_time() - self._before_s}))


async def consume(address: str, topic: str, group: str, count: Count) -> None:
    async def all_of_it() -> None:
        async for message in client.consume(topic, group=group, prefetch=PREFETCH):
            count.one()
            message.ack()

    async with tarry.AsyncClient(address) as client:
        count.begin()
        task = asyncio.create_task(all_of_it())
        await count.done.wait()
        task.cancel()
    count.end()


async def work(address: str, topic: str, group: str, count: Count, *, in_threads: bool) -> None:
    worker = tarry.Worker(address)

    async def handle(message: tarry.Delivery) -> None:
        count.one()

    def handle_sync(message: tarry.Delivery) -> None:
        count.one()

    worker.on(topic, group=group, prefetch=PREFETCH, concurrency=8)(handle_sync if in_threads else handle)
    count.begin()
    task = asyncio.create_task(worker.serve())
    await count.done.wait()
    worker.stop()
    await task
    count.end()


async def main(mode: str, address: str, topic: str, group: str, rows: int) -> None:
    count = Count(rows)
    if mode == "consume":
        await consume(address, topic, group, count)
    else:
        await work(address, topic, group, count, in_threads=mode == "threads")


uvloop.run(main(*sys.argv[1:5], int(sys.argv[5])))
