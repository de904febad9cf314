"""A log in an object store: how long a send takes, how late messages are, how many are accepted. Requests take longer,
as to S3 (60 ms) and S3 Express (8 ms).

The store is versitygw (``make object-stores`` builds it), which never fsyncs, behind a proxy that delays; both, the
broker and its clients share the machine. Opt-in, since it has to be built.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from tests.engines.versitygw import BUCKET, environment_at, served

from benchmarks.harness import Result, Server, benchmark, child, now_ms, percentiles, start_server, workspace
from benchmarks.store_proxy import delayed
from tarry import AsyncClient, Client
from tarry.cli.frame import GET_DOLLARS, PUT_DOLLARS

HOUR_MS = 3_600_000
RATE, SECONDS = 1000, 20
PRICED_SECONDS = 115
"""Where requests are priced: with what comes due at the end, the time from one base of the logs to the next."""
LATEST_MS = 5000
MONTH_S = 30 * 86_400
IN_FLIGHT, TOTAL = 512, 20_000


@benchmark(opt_in=True)
def log_store() -> list[Result]:
    """1,000 msg/s one by one, and 512 in flight, on logs in a store whose requests take 60 or 8 ms longer."""
    return [
        result
        for delay_ms, gap_ms in ((60, 0), (60, 200), (8, 0))
        for result in asyncio.run(_measured(delay_ms, gap_ms))
    ]


async def _measured(delay_ms: int, gap_ms: int) -> list[Result]:
    seconds = PRICED_SECONDS if gap_ms else SECONDS
    with (
        workspace() as directory,
        served(directory / "store") as endpoint,
        delayed(endpoint, delay_ms) as address,
        _broker(directory, address, gap_ms) as broker,
    ):
        before = _dollars(broker)
        accepted_ms, late_ms = await _steady(broker, directory / "seen.npy", seconds)
        dollars = (_dollars(broker) - before) * MONTH_S / (seconds + LATEST_MS / 1000)
        elapsed = await _in_flight(broker)
    p50, p99 = percentiles(accepted_ms, 50, 99)
    [late_p99] = percentiles(late_ms, 99)
    bars = ("≤ 120", "≤ 250", "≥ 4000") if delay_ms == 60 else ("≤ 25", "≤ 60", "≥ 15000")
    name = f"log in a store, {delay_ms} ms" + (f", {gap_ms} ms between rounds" if gap_ms else "")
    return [
        Result(f"{name}: accepted at {RATE:,} msg/s, p50", p50, "ms", bars[0]),
        Result(f"{name}: accepted, p99", p99, "ms", bars[1]),
        Result(f"{name}: requests a month, at S3's prices", dollars, "$", "≤ 75" if gap_ms else ""),
        Result(f"{name}: lateness p99", late_p99, "ms"),
        Result(f"{name}: early", float((late_ms < 0).sum()), "messages", "≤ 0"),
        Result(f"{name}: singles, {IN_FLIGHT} in flight", TOTAL / elapsed, "msg/s", bars[2]),
    ]


@contextmanager
def _broker(directory: Path, address: str, gap_ms: int) -> Iterator[Server]:
    os.environ |= environment_at(address)
    started = start_server(
        directory / "data", log=f"s3://{BUCKET}/log", store=f"s3://{BUCKET}/store", log_interval_ms=gap_ms
    )
    try:
        yield started
    finally:
        started.kill()


def _dollars(broker: Server) -> float:
    with Client(broker.address) as client:
        requests = client.status()["log"]["requests"]
    return (requests["put"] + requests["list"]) * PUT_DOLLARS + requests["get"] * GET_DOLLARS


async def _steady(broker: Server, seen: Path, seconds: int) -> tuple[np.ndarray, np.ndarray]:
    """Return how long each send took, and how late each message was, in milliseconds."""
    rows = RATE * seconds
    delays = np.random.default_rng(3).integers(1000, LATEST_MS, rows).tolist()
    consumer = child("consume", broker.address, "bench", str(rows), str(seen))
    assert consumer.stdout is not None
    consumer.stdout.readline()
    took_s: list[float] = []

    async def send(client: AsyncClient, delay_ms: int) -> None:
        begun = time.perf_counter()
        await client.schedule("bench", bytes(256), due=now_ms() + delay_ms)
        took_s.append(time.perf_counter() - begun)

    async with AsyncClient(broker.address) as client:
        start, tasks = time.perf_counter(), []
        while len(tasks) < rows:
            for delay_ms in delays[len(tasks) : int((time.perf_counter() - start) * RATE)]:
                tasks.append(asyncio.ensure_future(send(client, delay_ms)))
            await asyncio.sleep(0.001)
        await asyncio.gather(*tasks)
    await asyncio.to_thread(consumer.wait, 60)
    figures = np.load(seen)
    return np.array(took_s) * 1000, figures[2] / 1000 - figures[1]


async def _in_flight(broker: Server) -> float:
    """Return how many seconds all of them took."""
    due = now_ms() + HOUR_MS

    async def task(client: AsyncClient) -> None:
        for _ in range(TOTAL // IN_FLIGHT):
            await client.schedule("later", bytes(256), due=due)

    async with AsyncClient(broker.address) as client:
        start = time.perf_counter()
        await asyncio.gather(*(task(client) for _ in range(IN_FLIGHT)))
        return time.perf_counter() - start
