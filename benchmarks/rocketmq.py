"""The RocketMQ front beside RocketMQ itself: the same official Java client, on the same machine, one after the other.

RocketMQ is 5.5.0 from its Maven jars, broker and proxy, flushing to disk before it answers (SYNC_FLUSH), as ours does;
once with the timer of its files (a wheel), which is what it has without a setting, and once with that of RocksDB.
Ratios are of one run, to the first. It needs Java and Maven, and three quarters of an hour, of which
:mod:`benchmarks.rocketmq_disk` takes half: ``python -m benchmarks --only rocketmq``; ``rocketmq_ours`` is our half of
the rest alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from benchmarks.harness import Result, benchmark, free_endpoint, server
from benchmarks.peers.rocketmq.client import herd, paced, send
from benchmarks.peers.rocketmq.server import rocketmq_server
from benchmarks.rocketmq_disk import OURS, ROCKSDB, ROCKSDB_SETTINGS, THEIRS, rocketmq_disk

SENDS = 100_000
HERD = 200_000
PACES = ((1000, "≤ 30"), (2000, "≤ 100"))
PACED_S = 30
WARM_S = 15.0
COUNTS = ("early", "lost", "duplicates")

Found = dict[str, dict[str, Any]]
Measure = Callable[[str, str, str], dict[str, Any]]
"""Of an endpoint, a topic and a group."""


@contextmanager
def _ours() -> Iterator[Callable[[str], str]]:
    endpoint = free_endpoint()
    with server(rocketmq=endpoint):
        yield lambda topic: endpoint


@contextmanager
def _theirs(settings: Mapping[str, str] | None = None) -> Iterator[Callable[[str], str]]:
    with rocketmq_server(sync_flush=True, broker=settings) as rocketmq:

        def endpoint(topic: str) -> str:
            rocketmq.create_topic(topic)
            rocketmq.create_group(f"{topic}-group")
            return rocketmq.endpoint

        yield endpoint


def _sends(endpoint: str, topic: str, group: str) -> dict[str, Any]:
    return send(endpoint, topic, count=SENDS, warm_s=WARM_S)


def _herd(endpoint: str, topic: str, group: str) -> dict[str, Any]:
    return herd(endpoint, topic, group, count=HERD, warm_s=WARM_S)


def _paced(rate: int) -> Measure:
    return lambda endpoint, topic, group: paced(endpoint, topic, group, rate=rate, seconds=PACED_S, warm_s=WARM_S)


WORK: dict[str, Measure] = {
    "send": _sends,
    **{f"paced-{rate}": _paced(rate) for rate, _ in PACES},
    "herd": _herd,
}


def _measured(text: str, endpoint: Callable[[str], str]) -> Found:
    """By workload. The other server does not run meanwhile: an idle RocketMQ takes a tenth of a core."""
    found: Found = {}
    for name, measure in WORK.items():
        topic = f"bench-{name}"
        found[name] = measure(endpoint(topic), topic, f"{topic}-group")
        print(f"  {text}, {name}: {found[name]}", flush=True)
    return found


def _rows(text: str, found: Found, *, bars: bool) -> list[Result]:
    rows = [
        Result(f"{text}: sends, 64 in flight, Java v2 client", found["send"]["sends_per_s"], "msg/s"),
        Result(f"{text}: acknowledged, p50", found["send"]["ack_p50_ms"], "ms"),
        Result(f"{text}: acknowledged, p99", found["send"]["ack_p99_ms"], "ms"),
        Result(f"{text}: {HERD:,} due in one instant, the last", found["herd"]["last_s"], "s"),
    ]
    for rate, bar in PACES:
        paced = found[f"paced-{rate}"]
        rows += [
            Result(f"{text}: {rate}/s, taken", paced["sends_per_s"], "msg/s"),
            Result(f"{text}: {rate}/s, lateness p50", paced["late_p50_ms"], "ms"),
            Result(f"{text}: {rate}/s, lateness p99", paced["late_p99_ms"], "ms", bar if bars else ""),
            Result(f"{text}: {rate}/s, lateness p99.9", paced["late_p999_ms"], "ms"),
        ]
    for count in COUNTS:
        total = sum(result[count] for name, result in found.items() if name != "send")
        rows.append(Result(f"{text}: {count}", total, "messages", "≤ 0" if bars else ""))
    return rows


@benchmark(opt_in=True)
def rocketmq() -> list[Result]:
    """Ours and theirs, and how they compare."""
    with _theirs() as endpoint:
        theirs = _measured(THEIRS, endpoint)
    with _theirs(ROCKSDB_SETTINGS) as endpoint:
        second = _measured(ROCKSDB, endpoint)
    with _ours() as endpoint:
        ours = _measured(OURS, endpoint)
    sends, herds = (ours[w][n] / theirs[w][n] for w, n in (("send", "sends_per_s"), ("herd", "last_s")))
    return [
        *_rows(OURS, ours, bars=True),
        *_rows(THEIRS, theirs, bars=False),
        *_rows(ROCKSDB, second, bars=False),
        Result(f"{OURS}: sends beside RocketMQ's", sends, "times", "≥ 1.5"),
        Result(f"{OURS}: herd beside RocketMQ's", herds, "times", "≤ 0.5"),
        *rocketmq_disk(),
    ]


@benchmark(opt_in=True)
def rocketmq_ours() -> list[Result]:
    """Ours alone, by the same client."""
    with _ours() as endpoint:
        return _rows(OURS, _measured(OURS, endpoint), bars=True)
