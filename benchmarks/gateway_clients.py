"""A gateway's link under load, without the clients behind it, as a process of its own: ``python -m
benchmarks.gateway_clients MODE ADDRESS ROWS COUNT``.

``send`` keeps two batches of ROWS messages under way, due in an hour, each with an id; ``consume`` has eight consumers
that poll for ROWS at a time, and acknowledges what comes. It prints a line when it begins, and what it took as JSON.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import sys
import time
from typing import Any

import numpy as np
import uvloop

from benchmarks.cost_clients import BODY_BYTES, HOUR_MS, TOPIC
from tarry.base.errors import TarryError
from tarry.base.types import Int64s, Mask
from tarry.fronts.gateway.remote.broker import RemoteBroker
from tarry.fronts.kit.receiving import ReceiveQueue, leases_of
from tarry.fronts.rocketmq.common.draft import Draft
from tarry.fronts.rocketmq.common.send_queue import rows_of
from tarry.message.accepted import Accepted

GROUP = "gateway"
"""Not that of the warm-up."""
UNDER_WAY = 2
CONSUMERS = 8
GATHER_S = 0.01
BODY = b"x" * BODY_BYTES
PROPERTIES = [("KEYS", "k"), ("__BORNHOST", "10.0.0.1"), ("BORN_TIMESTAMP", "1760000000000")]


async def connected(address: str) -> RemoteBroker:
    broker = RemoteBroker(address, secrets.token_hex(8), "benchmark", "benchmark")
    await broker.connect(lambda: None)
    return broker


async def send(address: str, rows: int, count: int) -> None:
    loop, broker = asyncio.get_running_loop(), await connected(address)
    due_ms, done, left = broker.clock.now_ms() + HOUR_MS, loop.create_future(), [count, count]

    def submit() -> None:
        left[0] -= rows
        drafts = [
            Draft(TOPIC, due_ms, BODY, secrets.token_hex(16), "a", PROPERTIES, None, False, None, True)
            for _ in range(rows)
        ]
        broker.submit_checked(rows_of(drafts, broker.clock.now_ms()), on_result)

    def on_result(result: Accepted | TarryError) -> None:
        left[1] -= rows
        if isinstance(result, TarryError):
            done.set_exception(result)
        elif left[1] <= 0:
            done.done() or done.set_result(None)
        elif left[0] > 0:
            loop.call_soon(submit)

    for _ in range(UNDER_WAY):
        submit()
    await done


async def consume(address: str, rows: int, count: int) -> None:
    loop, broker = asyncio.get_running_loop(), await connected(address)
    group = broker.group(TOPIC, GROUP)
    queue, done, settled = ReceiveQueue(loop, group), loop.create_future(), [0]
    gathered: list[tuple[Int64s, Int64s]] = []

    def settle() -> None:
        loop.call_later(GATHER_S, settle)
        if gathered:
            leases, offsets = (np.concatenate(column) for column in zip(*gathered, strict=True))
            gathered.clear()
            group.ack_each(leases, offsets, on_settled)

    def on_settled(held: Mask | TarryError) -> None:
        if isinstance(held, TarryError):
            done.set_exception(held)
            return
        settled[0] += int(held.sum())
        if settled[0] >= count and not done.done():
            done.set_result(None)

    async def consumer() -> None:
        subscription = group.subscribe(prefetch=2048, lease_ms=60_000)
        while (batch := await queue.receive(subscription, rows)) is not None:
            gathered.append(leases_of(batch))

    tasks = [asyncio.ensure_future(consumer()) for _ in range(CONSUMERS)]
    settle()
    await done
    for task in tasks:
        task.cancel()


def main(mode: str, address: str, rows: str, count: str) -> None:
    print("ready", flush=True)
    began_s, before_s = time.perf_counter(), time.process_time()
    uvloop.run({"send": send, "consume": consume}[mode](address, int(rows), int(count)))
    took: dict[str, Any] = {"per_s": int(count) / (time.perf_counter() - began_s)}
    print(json.dumps({**took, "cpu_s": time.process_time() - before_s}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
