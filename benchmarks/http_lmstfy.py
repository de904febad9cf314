"""The HTTP front beside lmstfy itself: lmstfy's own Go client, on the same machine, one after the other.

lmstfy is built from its source, on a Redis that fsyncs its file each second; ours fsyncs before it answers. A workload
runs on one and at once on the other, each time on fresh data. It needs Go, redis-server, and some minutes:
``python -m benchmarks --only lmstfy``. A part of it, shorter, by hand:
``python -m benchmarks.http_lmstfy publish consume --scale 0.2 --rounds 3``.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from benchmarks.harness import Result, benchmark
from benchmarks.peers.lmstfy.client import result_of, run, start
from benchmarks.peers.lmstfy.ours import TarryServer, tarry_server
from benchmarks.peers.lmstfy.server import LmstfyServer, lmstfy_server

Server = LmstfyServer | TarryServer
Found = dict[str, Any]
Work = Callable[[Server, float], Found]
"""A measurement, with the part of its size that is wanted."""

OURS, THEIRS = "lmstfy's API", "lmstfy on Redis"
STARTERS: dict[str, Callable[[], AbstractContextManager[Server]]] = {THEIRS: lmstfy_server, OURS: tarry_server}
KILLS = 3
PATIENCE_S = 60
"""Much longer than a start takes."""


def _run(mode: str, count: int, **options: float) -> Work:
    def work(server: Server, scale: float) -> Found:
        rows = int(count * scale)
        found = run(mode, server.place, f"bench-{mode}", meter=server.cpu_s, count=rows, **options)
        cpu_s = found.pop("spent")
        return {**found, "cpu_us": cpu_s / found.get("calls", rows) * 1e6}

    return work


def _paced(server: Server, scale: float) -> Found:
    return run("paced", server.place, "bench-paced", rate=2000, seconds=max(5.0, 30 * scale))


def _memory(server: Server, scale: float) -> Found:
    """What so many pending jobs take, and both processes as a whole then."""
    empty, rows = server.rss_bytes, int(1_000_000 * scale)
    run("bulk", server.place, "bench-memory", count=rows, warm_s=0)
    return {"rss_mb": server.rss_bytes / (1 << 20), "bytes_each": (server.rss_bytes - empty) / rows}


def _killed(server: Server, scale: float) -> Found:
    """The server dies three times while it hands out: what never comes, though nobody acknowledged it."""
    drain = start(
        "drain", server.place, "bench-killed", count=int(50_000 * scale), ttr_s=5, tries=10, patience_s=PATIENCE_S
    )
    assert drain.stdout is not None
    drain.stdout.readline()
    for _ in range(KILLS):
        time.sleep(scale)
        server.kill()
        server.start()
    return result_of(drain)


WORK: dict[str, Work] = {
    "publish": _run("publish", 100_000),
    "consume": _run("consume", 50_000),
    "bulk": _run("bulk", 500_000),
    "herd": _run("herd", 200_000),
    "herd-acknowledged": _run("herd", 200_000, ack=1),
    "paced": _paced,
    "memory": _memory,
    "killed": _killed,
}


def measure(name: str, scale: float = 1.0, rounds: int = 1) -> dict[str, Found]:
    """Both, in turn; of several rounds the median of each figure."""
    found: dict[str, list[Found]] = {}
    for _ in range(rounds):
        for text, starter in STARTERS.items():
            with starter() as server:
                found.setdefault(text, []).append(WORK[name](server, scale))
            print(f"  {text}, {name}: {found[text][-1]}", flush=True)
    return {
        text: {figure: statistics.median(each[figure] for each in results) for figure in results[0]}
        for text, results in found.items()
    }


@benchmark(opt_in=True)
def lmstfy() -> list[Result]:
    """All of it."""
    found = {name: measure(name) for name in WORK}
    rows = [row for text in STARTERS for row in _rows(text, {name: both[text] for name, both in found.items()})]
    return [*rows, *_ratios(found)]


def _rows(text: str, found: dict[str, Found]) -> list[Result]:
    ours = text == OURS
    late = found["paced"]
    return [
        Result(f"{text}: publish, 64 connections", found["publish"]["per_s"], "jobs/s"),
        Result(f"{text}: publish, p99", found["publish"]["p99_ms"], "ms"),
        Result(f"{text}: consume and acknowledge one by one", found["consume"]["per_s"], "jobs/s"),
        Result(f"{text}: bulk of 64", found["bulk"]["per_s"], "jobs/s"),
        Result(f"{text}: herd of 200,000, from first to last", found["herd"]["span_s"], "s"),
        Result(f"{text}: herd, each acknowledged, too", found["herd-acknowledged"]["span_s"], "s"),
        Result(f"{text}: 2,000/s, taken", late["taken_per_s"], "jobs/s"),
        Result(f"{text}: 2,000/s, lateness p50", late["p50_late_ms"], "ms"),
        Result(f"{text}: 2,000/s, lateness p99", late["p99_late_ms"], "ms", "≤ 20" if ours else ""),
        Result(f"{text}: 2,000/s, early", late["early"], "jobs", "≤ 0" if ours else ""),
        Result(f"{text}: 1,000,000 pending, memory", found["memory"]["rss_mb"], "MB"),
        Result(f"{text}: 1,000,000 pending, each", found["memory"]["bytes_each"], "B", "≤ 300" if ours else ""),
        Result(f"{text}: killed three times, lost", found["killed"]["lost"], "jobs", "≤ 0" if ours else ""),
    ]


def _ratios(found: dict[str, dict[str, Found]]) -> list[Result]:
    bars = (
        ("publish", "per_s", "≥ 1.5"),
        ("consume", "per_s", "≥ 1.5"),
        ("bulk", "per_s", "≥ 4"),
        ("herd", "span_s", "≤ 0.33"),
        ("herd-acknowledged", "span_s", ""),
    )
    return [
        Result(
            f"{OURS} beside lmstfy's own: {name}", found[name][OURS][figure] / found[name][THEIRS][figure], "times", bar
        )
        for name, figure, bar in bars
    ]


def main() -> None:
    """Some workloads, printed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("work", nargs="*", choices=[[], *WORK], help="all, where none is named")
    parser.add_argument("--scale", type=float, default=1.0, help="the part of each workload's size")
    parser.add_argument("--rounds", type=int, default=1)
    given = parser.parse_args()
    for name in given.work or WORK:
        for text, found in measure(name, given.scale, given.rounds).items():
            print(name, text, {figure: round(value, 3) for figure, value in found.items()})


if __name__ == "__main__":
    main()
