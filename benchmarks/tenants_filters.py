"""One tenant's filters take all the CPU time they get: how late its neighbour's messages are, beside it and alone."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import uvloop

from benchmarks.harness import Result, Server, benchmark, now_ms, percentiles, start_server, workspace
from benchmarks.tenants import paced
from tarry.base.config import Config
from tarry.broker import Broker
from tarry.client import AsyncClient, Client

GROUPS, GREEDY_PER_S, TEXT_CHARS = 20, 2_000, 600
COSTLY = f"sql: p LIKE '%{'a' * 20}b%'"
"""About 20 µs a message of :data:`TEXT_CHARS`: below what pauses a group, and just above what is quick."""
QUOTA = {"filter_ms_per_second": 100}
NEIGHBOUR_PER_S, AHEAD_MS, SECONDS = 200, 100, 10.0


@benchmark
def tenants_filters() -> list[Result]:
    """A consumer with a filter of its own, 200 messages a second; beside 20 groups that filter 2,000 a second each."""
    with workspace() as directory:
        data = directory / "data"
        tokens = _identities(data)
        broker = start_server(data)
        try:
            uvloop.run(_neighbour(broker.address, tokens["quiet"], 3.0))  # the broker has just begun
            alone = uvloop.run(_neighbour(broker.address, tokens["quiet"]))
            without, without_ms = _beside(broker, tokens)
            with Client(broker.address, token=tokens["admin"]) as admin:
                admin.set_identity("greedy", quotas=QUOTA)
                within, within_ms = _beside(broker, tokens)
                [use] = admin.get_quota_use("greedy")
        finally:
            broker.kill()
    p99s = [percentiles(each, 99)[0] for each in (alone, without, within)]
    names = ("alone", "beside costly filters", "beside costly filters with a quota of 100 ms a second")
    return [
        *(Result(f"tenants: a consumer's p99, {name}", p99, "ms") for name, p99 in zip(names, p99s, strict=True)),
        Result("tenants: CPU time of the broker a second, without the quota", without_ms, "ms"),
        Result("tenants: CPU time of the broker a second, with it", within_ms, "ms"),
        Result("tenants: time for which the costly ones were held back", use.delayed_ms / 1000, "s"),
    ]


def _identities(data: Path) -> dict[str, str]:
    with Broker.open(Config(data=data, pipeline="off")) as broker:
        for name, grants in {
            "admin": ["admin"],
            "quiet": ["produce quiet.*", "consume quiet.*"],
            "greedy": ["produce greedy.*", "consume greedy.*"],
        }.items():
            broker.set_identity(name, grants)
        tokens = {name: broker.add_credential(name).secret for name in ("admin", "quiet", "greedy")}
        broker.set_group("quiet.a", "g", filter="sql: p = 'yes'")
        for number in range(GROUPS):
            broker.set_group("greedy.a", f"g{number}", filter=COSTLY)
        return tokens


def _beside(broker: Server, tokens: dict[str, str]) -> tuple[np.ndarray, float]:
    """Return when the neighbour has its messages beside the costly filters, and the broker's CPU time a second."""
    # At a lower priority: its client would have a machine of its own.
    greedy = subprocess.Popen(
        ["nice", "-n", "10", sys.executable, "-m", "benchmarks.tenants_filters", broker.address, tokens["greedy"]]
    )
    try:
        time.sleep(3)
        cpu_s, start = broker.cpu_s(), time.perf_counter()
        seen = uvloop.run(_neighbour(broker.address, tokens["quiet"]))
        return seen, 1000 * (broker.cpu_s() - cpu_s) / (time.perf_counter() - start)
    finally:
        greedy.kill()
        greedy.wait()


async def _neighbour(address: str, token: str, seconds: float = SECONDS) -> np.ndarray:
    """Return by how many milliseconds each message came after it was due."""
    late_ms: list[float] = []
    async with AsyncClient(address, token=token) as client:

        async def consume() -> None:
            async with client.consume("quiet.a", group="g", auto_ack=True) as consumer:
                async for message in consumer:
                    late_ms.append(time.time() * 1000 - message.due_ms)
                    if len(late_ms) == 1:
                        consuming.set()

        async def one() -> None:
            await client.schedule("quiet.a", b"x", due=now_ms() + AHEAD_MS, properties={"p": "yes"})

        consuming, task = asyncio.Event(), asyncio.create_task(consume())
        await one()
        await consuming.wait()
        late_ms.clear()  # it had to connect
        count = await paced(one, NEIGHBOUR_PER_S, seconds)
        deadline = time.perf_counter() + 60
        while len(late_ms) < count and time.perf_counter() < deadline:
            await asyncio.sleep(0.05)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    return np.array(late_ms)


async def _greedy(address: str, token: str) -> None:
    """Schedule messages that no group wants, and wait for those that one would."""
    text = "a" * TEXT_CHARS
    async with AsyncClient(address, token=token) as client:

        async def consume(group: str) -> None:
            async with client.consume("greedy.a", group=group) as consumer:
                async for _ in consumer:
                    pass

        async def hundred() -> None:
            await client.schedule_many(
                [{"topic": "greedy.a", "body": b"x", "due": now_ms(), "properties": {"p": text}}] * 100
            )

        consumers = [asyncio.create_task(consume(f"g{number}")) for number in range(GROUPS)]
        await paced(hundred, GREEDY_PER_S // 100, 600)
        del consumers


if __name__ == "__main__":
    uvloop.run(_greedy(sys.argv[1], sys.argv[2]))
