"""The front for classic clients beside RocketMQ itself: the same Java client, on the same machine, one after the other.

RocketMQ is 5.5.0 from its Maven jars, name server and broker: with SYNC_FLUSH, which says as much of a send as ours,
and its sends with ASYNC_FLUSH, too. Delays are by ``setDeliverTimeMs``. Ratios are of one run. It needs Java and Maven:
``python -m benchmarks --only rocketmq_classic``; ``rocketmq_classic_ours`` is our half alone, with the CPU time of the
broker for each message, from the first that is sent to the last answer or receipt, which is steadier than rates where
other things run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from benchmarks.harness import Result, Server, benchmark, free_endpoint, server
from benchmarks.marks import Meter
from benchmarks.peers.rocketmq.client import herd, paced, send
from benchmarks.peers.rocketmq.server import rocketmq_server

SENDS = 100_000
HERD = 200_000
RATE = 2000
PACED_S = 30
WARM_S = 15.0
COUNTS = ("early", "lost", "duplicates")

OURS, THEIRS, ASYNC = "classic front", "RocketMQ 5.5.0, classic client", "RocketMQ 5.5.0, ASYNC_FLUSH, classic client"
Work = Callable[[str, Meter | None], dict[str, Any]]
"""Of an endpoint, and what the server has spent."""
QUIET: dict[str, float] = {"warm_s": WARM_S, "classic": 1}
WORK: dict[str, Work] = {
    "send": lambda endpoint, meter: send(endpoint, "bench-send", count=SENDS, meter=meter, **QUIET),
    "paced": lambda endpoint, meter: paced(
        endpoint, "bench-paced", "bench-paced-group", rate=RATE, seconds=PACED_S, meter=meter, **QUIET
    ),
    "herd": lambda endpoint, meter: herd(endpoint, "bench-herd", "bench-herd-group", count=HERD, meter=meter, **QUIET),
}


@contextmanager
def _ours() -> Iterator[tuple[str, Server]]:
    endpoint = free_endpoint()
    with server(remoting=endpoint) as started:
        yield endpoint, started


def _of_theirs(*names: str, sync_flush: bool) -> dict[str, dict[str, Any]]:
    found = {}
    with rocketmq_server(sync_flush=sync_flush, proxy=False) as rocketmq:
        for name in names:
            rocketmq.create_topic(f"bench-{name}")
            rocketmq.create_group(f"bench-{name}-group")
            found[name] = WORK[name](rocketmq.name_server, None)
            print(f"  {THEIRS if sync_flush else ASYNC}, {name}: {found[name]}", flush=True)
    return found


def _of_ours() -> dict[str, dict[str, Any]]:
    found = {}
    with _ours() as (endpoint, started):
        for name, measure in WORK.items():
            found[name] = measure(endpoint, started.cpu_s)
            found[name]["cpu_us"] = found[name]["spent"] * 1e6 / found[name]["count"]
            print(f"  {OURS}, {name}: {found[name]}", flush=True)
    return found


def _rows(text: str, found: dict[str, dict[str, Any]], *, bars: bool) -> list[Result]:
    late = found["paced"]
    rows = [
        Result(f"{text}: sends, 64 in flight", found["send"]["sends_per_s"], "msg/s"),
        Result(f"{text}: acknowledged, p99", found["send"]["ack_p99_ms"], "ms"),
        Result(f"{text}: {HERD:,} due in one instant, the last", found["herd"]["last_s"], "s", "≤ 4" if bars else ""),
        Result(f"{text}: {RATE}/s, taken", late["sends_per_s"], "msg/s"),
        Result(f"{text}: {RATE}/s, lateness p50", late["late_p50_ms"], "ms"),
        Result(f"{text}: {RATE}/s, lateness p99", late["late_p99_ms"], "ms", "≤ 20" if bars else ""),
    ]
    for count in COUNTS:
        total = sum(found[name][count] for name in ("paced", "herd"))
        rows.append(Result(f"{text}: {count}", total, "messages", "≤ 0" if bars else ""))
    rows += [
        Result(f"{text}: CPU time of a message, {name}", one["cpu_us"], "µs")
        for name, one in found.items()
        if "cpu_us" in one
    ]
    return rows


@benchmark(opt_in=True)
def rocketmq_classic() -> list[Result]:
    """Both, and how they compare."""
    theirs = _of_theirs(*WORK, sync_flush=True)
    unsafe = _of_theirs("send", sync_flush=False)["send"]["sends_per_s"]
    ours = _of_ours()
    sends, herds = (ours[w][n] / theirs[w][n] for w, n in (("send", "sends_per_s"), ("herd", "last_s")))
    return [
        *_rows(OURS, ours, bars=True),
        *_rows(THEIRS, theirs, bars=False),
        Result(f"{ASYNC}: sends, 64 in flight", unsafe, "msg/s"),
        Result(f"{OURS}: sends beside RocketMQ's with SYNC_FLUSH", sends, "times", "≥ 1"),
        Result(f"{OURS}: herd beside RocketMQ's", herds, "times", "≤ 1"),
    ]


@benchmark(opt_in=True)
def rocketmq_classic_ours() -> list[Result]:
    """Ours alone, by the same client."""
    return _rows(OURS, _of_ours(), bars=True)
