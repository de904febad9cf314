"""One tenant asks for ten times its quota: how its neighbour's messages are acknowledged, beside it and alone."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import uvloop

from benchmarks.harness import Result, benchmark, now_ms, percentiles, start_server, workspace
from tarry.base.config import Config
from tarry.broker import Broker
from tarry.client import AsyncClient
from tarry.errors import QuotaExceededError

QUOTA = 2_000
ASKED = 10 * QUOTA
NEIGHBOUR_PER_S = 500
SECONDS = 15.0
HOUR_MS = 3_600_000


@benchmark
def tenants() -> list[Result]:
    """Two identities on one broker: 500 messages a second, paced; and 20,000 a second, of which 2,000 are allowed."""
    with workspace() as directory:
        data = directory / "data"
        tokens = _identities(data)
        broker = start_server(data)
        try:
            alone = uvloop.run(_neighbour(broker.address, tokens["quiet"]))
            # At a lower priority: its client would have a machine of its own.
            greedy = subprocess.Popen(
                ["nice", "-n", "10", sys.executable, "-m", "benchmarks.tenants", broker.address, tokens["greedy"]],
                stdout=subprocess.PIPE,
                text=True,
            )
            time.sleep(3)
            beside = uvloop.run(_neighbour(broker.address, tokens["quiet"]))
            counts = json.loads(greedy.communicate(timeout=120)[0])
        finally:
            broker.kill()
    p99_alone, p99_beside = percentiles(alone * 1000, 99)[0], percentiles(beside * 1000, 99)[0]
    return [
        Result("tenants: neighbour's p99, alone", p99_alone, "ms"),
        Result("tenants: neighbour's p99, beside one at ten times its quota", p99_beside, "ms"),
        Result("tenants: beside / alone", p99_beside / p99_alone, "times", "≤ 1.5"),
        Result("tenants: asked for", counts["asked"] / counts["seconds"], "msg/s"),
        Result("tenants: let pass", counts["accepted"] / counts["seconds"], "msg/s", f"≤ {1.1 * QUOTA:.0f}"),
    ]


def _identities(data: Path) -> dict[str, str]:
    with Broker.open(Config(data=data, pipeline="off")) as broker:
        broker.set_identity("admin", ["admin"])
        broker.add_credential("admin")
        broker.set_identity("quiet", ["produce quiet.*"])
        broker.set_identity("greedy", ["produce greedy.*"], quotas={"messages_per_second": QUOTA})
        return {name: broker.add_credential(name).secret for name in ("quiet", "greedy")}


async def _neighbour(address: str, token: str) -> np.ndarray:
    latency: list[float] = []
    async with AsyncClient(address, token=token) as client:

        async def one() -> None:
            start = time.perf_counter()
            await client.schedule("quiet.a", b"x" * 256, due=now_ms() + HOUR_MS)
            latency.append(time.perf_counter() - start)

        await paced(one, NEIGHBOUR_PER_S, SECONDS)
    return np.array(latency)


async def _greedy(address: str, token: str) -> dict[str, float]:
    accepted = refused = 0
    body = os.urandom(256)
    async with AsyncClient(address, token=token) as client:

        async def one() -> None:
            nonlocal accepted, refused
            try:
                await client.schedule("greedy.a", body, due=now_ms() + HOUR_MS)
                accepted += 1
            except QuotaExceededError:
                refused += 1

        start = time.perf_counter()
        asked = await paced(one, ASKED, SECONDS + 5)
        elapsed = time.perf_counter() - start
    return {"asked": asked, "accepted": accepted, "refused": refused, "seconds": elapsed}


async def paced(one, per_s: int, seconds: float) -> int:
    """Begin so many calls a second, whether those before have ended or not; wait for all."""
    tasks: set[asyncio.Task[None]] = set()
    begun, start = 0, time.perf_counter()
    while (now_s := time.perf_counter() - start) < seconds:
        while begun < now_s * per_s:
            task = asyncio.ensure_future(one())
            tasks.add(task)
            task.add_done_callback(tasks.discard)
            begun += 1
        await asyncio.sleep(0.001)
    await asyncio.gather(*tasks)
    return begun


if __name__ == "__main__":
    print(json.dumps(uvloop.run(_greedy(sys.argv[1], sys.argv[2]))))
