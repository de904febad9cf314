"""SQS's API beside ElasticMQ: one client, on the same machine, one after the other, each time on fresh data.

ElasticMQ keeps its messages in memory and loses them with its process; ours fsyncs before it answers. It needs Java and
Maven, and some minutes: ``python -m benchmarks --only sqs_peer``. A part of it, smaller, by hand:
``python -m benchmarks.sqs_peer send herd --scale 0.1 --rounds 1``.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

import numpy as np

from benchmarks.harness import Result, benchmark, percentiles, server
from benchmarks.peers.elasticmq.server import elasticmq_server
from benchmarks.peers.sqs.client import SqsClient

CONNECTIONS = 32
SEND_S, RECEIVE_S, MEMORY_S, HERD_S = 60.0, 120.0, 240.0, 60.0
"""Longest times of the parts, in seconds; what was not done by then is not counted."""
PENDING_S = 900
"""Delay of what is pending: ElasticMQ's longest, as AWS's."""


class Peer(Protocol):
    """A server of SQS's API in a process of its own."""

    @property
    def place(self) -> str: ...
    @property
    def rss_mb(self) -> float: ...
    def cpu_s(self) -> float: ...


class Ours:
    """Tarry with its HTTP front."""

    def __init__(self, place: str, rss_mb: Callable[[], float], cpu_s: Callable[[], float]) -> None:
        self.place = place
        self._rss_mb = rss_mb
        self.cpu_s = cpu_s

    @property
    def rss_mb(self) -> float:
        return self._rss_mb()


@contextmanager
def tarry_server() -> Iterator[Ours]:
    with server(http="127.0.0.1:0") as started:
        yield Ours(started.http, lambda: started.rss_mb, started.cpu_s)


Found = dict[str, float]
Work = Callable[[Peer, SqsClient, float], Awaitable[Found]]
"""A measurement, with the part of its size that is wanted."""


async def _send(peer: Peer, client: SqsClient, scale: float) -> Found:
    cpu_s = peer.cpu_s()
    sent, took_s = await client.send(int(50_000 * scale), SEND_S)
    return {"sends/s": sent / took_s, "send, CPU µs": (peer.cpu_s() - cpu_s) / sent * 1e6}


async def _receive(peer: Peer, client: SqsClient, scale: float) -> Found:
    sent, _ = await client.send(int(100_000 * scale), SEND_S, batch=True)
    cpu_s = peer.cpu_s()
    lateness, took_s = await client.receive(sent, RECEIVE_S)
    count = len(lateness)
    return {"receive+delete/s": count / took_s, "receive+delete, CPU µs": (peer.cpu_s() - cpu_s) / max(1, count) * 1e6}


async def _herd(peer: Peer, client: SqsClient, scale: float) -> Found:
    count, due_s = int(10_000 * scale), float(int(time.time()) + 10)
    await client.send_for(due_s, count)
    if time.time() > due_s:
        raise RuntimeError("the herd was not sent before it was due; allowed: a smaller --scale")
    await asyncio.sleep(max(0.0, due_s - time.time() - 0.5))
    lateness, took_s = await client.receive(count, HERD_S)
    return {
        **_late("herd", lateness),
        "herd, received of it": len(lateness) / count,
        "herd, s to the last": took_s - 0.5,
    }


async def _paced(peer: Peer, client: SqsClient, scale: float) -> Found:
    seconds, half = max(3.0, 20 * scale), len(client.connections) // 2
    whole = client.connections
    receiving = asyncio.ensure_future(client.receive(int(200 * seconds), seconds + 15, whole[half:]))
    client.connections = whole[:half]
    try:
        await client.send_paced(200, seconds, range(1, 6))
        lateness, _ = await receiving
    finally:
        client.connections = whole
        receiving.cancel()
    return _late("200/s, delays of 1 to 5 s", lateness)


async def _memory(peer: Peer, client: SqsClient, scale: float) -> Found:
    before_mb = peer.rss_mb
    sent, took_s = await client.send(int(1_000_000 * scale), MEMORY_S, batch=True, delay_s=PENDING_S)
    grown = (peer.rss_mb - before_mb) * (1 << 20) / sent
    return {"pending": sent, "sends/s in batches": sent / took_s, "RSS MiB then": peer.rss_mb, "RSS bytes each": grown}


def _late(what: str, lateness: np.ndarray) -> Found:
    if not len(lateness):
        raise RuntimeError(f"{what}: nothing was received")
    p50, p99 = percentiles(lateness, 50, 99)
    early = int((lateness < 0).sum())
    return {f"{what}: lateness p50 ms": p50, f"{what}: lateness p99 ms": p99, f"{what}: came early": early}


OURS, THEIRS = "Tarry", "ElasticMQ"
STARTERS: dict[str, Callable[[], AbstractContextManager[Peer]]] = {THEIRS: elasticmq_server, OURS: tarry_server}
WORKS: dict[str, Work] = {"send": _send, "receive": _receive, "herd": _herd, "paced": _paced, "memory": _memory}
ONCE = ("memory",)


async def _measured(peer: Peer, work: Work, scale: float) -> Found:
    client = SqsClient(peer.place, CONNECTIONS)
    try:
        await client.make_queue("bench")
        await client.send(200, 10.0)  # so that neither begins cold
        await client.receive(200, 20.0)
        return await work(peer, client, scale)
    finally:
        client.close()


def measure(names: list[str], scale: float, rounds: int) -> Iterator[Result]:
    """Run workloads on one server and at once on the other; the median of the rounds."""
    for name in names:
        found: dict[str, dict[str, list[float]]] = {}
        for _ in range(1 if name in ONCE else rounds):
            for side, start in STARTERS.items():
                with start() as peer:
                    for what, value in asyncio.run(_measured(peer, WORKS[name], scale)).items():
                        found.setdefault(what, {}).setdefault(side, []).append(value)
        for what, sides in found.items():
            for side, values in sides.items():
                yield Result(f"SQS, {what}: {side}", statistics.median(values), "")


@benchmark(opt_in=True)
def sqs_peer() -> list[Result]:
    return list(measure(list(WORKS), 1.0, 3))


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.sqs_peer", description=__doc__)
    parser.add_argument("works", nargs="*", metavar="WORK", help=f"{', '.join(WORKS)}; all")
    parser.add_argument("--scale", type=float, default=1.0, help="of the sizes")
    parser.add_argument("--rounds", type=int, default=3)
    chosen = parser.parse_args()
    if unknown := [name for name in chosen.works if name not in WORKS]:
        parser.error(f"there is no {unknown[0]!r}; there are {', '.join(WORKS)}")
    for result in measure(chosen.works or list(WORKS), chosen.scale, chosen.rounds):
        print(f"{result.name}: {result.value:,.4g}", flush=True)


if __name__ == "__main__":
    main()
