"""Pushing: 2,000 messages a second to a receiver on this machine, how late they are, and what each costs the broker."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

from benchmarks.harness import Result, benchmark, messages, now_ms, percentiles, server, workspace
from tarry import AsyncClient, Client

RATE, SECONDS = 2000, 30
SETTLE_S = 15.0
"""The longest delay, and time for what is due last."""

RECEIVER = """
import asyncio, sys, time
import numpy as np

count, path = int(sys.argv[1]), sys.argv[2]
seen = []


class Receiver(asyncio.Protocol):
    def connection_made(self, transport):
        self.transport, self.waiting = transport, b""

    def data_received(self, data):
        now_us = time.time_ns() // 1000
        self.waiting += data
        while True:
            end = self.waiting.find(b"\\r\\n\\r\\n")
            if end < 0:
                return
            head = dict(line.split(b": ", 1) for line in self.waiting[:end].lower().split(b"\\r\\n")[1:])
            length = int(head[b"content-length"])
            if len(self.waiting) < end + 4 + length:
                return
            self.waiting = self.waiting[end + 4 + length :]
            seen.append((int(head[b"webhook-id"].split(b"_")[1], 16), int(head[b"x-tarry-due-ms"]), now_us))
            self.transport.write(b"HTTP/1.1 204 No Content\\r\\n\\r\\n")


async def main():
    listening = await asyncio.get_running_loop().create_server(Receiver, "127.0.0.1", 0)
    print(listening.sockets[0].getsockname()[1], flush=True)
    while len(seen) < count:
        await asyncio.sleep(0.05)
    np.save(path, np.array(seen, np.int64).T)

asyncio.run(main())
"""
"""Does as little as it can, in a process of its own."""


def _receiver(count: int, path: Path) -> tuple[subprocess.Popen[str], int]:
    process = subprocess.Popen(
        [sys.executable, "-c", RECEIVER, str(count), str(path)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    return process, int(process.stdout.readline())


@benchmark
def push() -> list[Result]:
    """2,000 msg/s for 30 s with delays of 1 to 10 s, pushed with 16 requests at a time; and 50,000 that wait."""
    return [*asyncio.run(_steady()), *_backlog(50_000)]


async def _steady() -> list[Result]:
    rows = RATE * SECONDS
    rng = np.random.default_rng(3)
    delays, body = rng.integers(1000, 10_000, rows).tolist(), rng.bytes(256)
    with workspace() as directory, server(push_private_addresses="127.0.0.0/8") as broker:
        receiver, port = _receiver(rows, directory / "seen.npy")
        async with AsyncClient(broker.address) as client:
            await client.set_push("bench", topic="bench", url=f"http://127.0.0.1:{port}/")
            start, sent, tasks = time.perf_counter(), 0, []
            while sent < rows:
                target = min(rows, int((time.perf_counter() - start) * RATE))
                for delay in delays[sent:target]:
                    tasks.append(asyncio.ensure_future(client.schedule("bench", body, due=now_ms() + delay)))
                sent = target
                await asyncio.sleep(0.001)
            await asyncio.gather(*tasks)
            await asyncio.to_thread(receiver.wait, SETTLE_S * 20)
        seen = np.load(directory / "seen.npy")
    late = seen[2] / 1000 - seen[1]
    p50, p99 = percentiles(late, 50, 99)
    return [
        Result("push at 2,000 msg/s: lateness p50", p50, "ms"),
        Result("push: lateness p99", p99, "ms", "≤ 50"),
        Result("push: lateness max", float(late.max()), "ms"),
        Result("push: early", float((late < 0).sum()), "messages", "≤ 0"),
        Result("push: lost", float(rows - len(np.unique(seen[0]))), "messages", "≤ 0"),
    ]


def _backlog(rows: int) -> list[Result]:
    """What waits, as fast as it goes; processor time is that of the whole broker, from paused to pushed."""
    with (
        workspace() as directory,
        server(push_private_addresses="127.0.0.0/8") as broker,
        Client(broker.address) as client,
    ):
        receiver, port = _receiver(rows, directory / "seen.npy")
        client.set_push("bench", topic="bench", url=f"http://127.0.0.1:{port}/", concurrency=64)
        client.pause_push("bench")
        for first in range(0, rows, 5000):
            client.schedule_batch(messages(min(5000, rows - first), now_ms(), seed=first))
        while client.group_info("bench", "push-bench").ready < rows:
            time.sleep(0.1)
        began_s, cpu_s = time.perf_counter(), broker.cpu_s()
        client.resume_push("bench")
        receiver.wait(SETTLE_S * 20)
        spent_s, cpu_s = time.perf_counter() - began_s, broker.cpu_s() - cpu_s
    return [
        Result("push of 50,000 that wait", rows / spent_s, "msg/s", "≥ 2000"),
        Result("push: processor time of the broker", cpu_s / rows * 1e6, "µs/msg"),
    ]
