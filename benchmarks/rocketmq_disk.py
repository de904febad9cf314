"""What is written to disk for a message that is due in 72 hours, by RocketMQ's two timers and by Tarry.

The timer of RocketMQ's files writes a message again where it is due later than its window, two days; that of RocksDB
writes all that is due in more than two hours again in each hour. So that this takes minutes, an hour has ``HOUR_S``
seconds: the window is a setting, and the hours of RocksDB's timer are shortened in the class (they are set in whole
ones). Tarry has its pipeline beside it, whose query takes the messages to the store once, and merges files as always.

Counted is what the broker's processes have the disk write, by ``/proc/PID/io``, from the first message that is sent to
the last that is received. RocketMQ flushes as it does without a setting (ASYNC_FLUSH): with SYNC_FLUSH it writes pages
again for each message that is added to them, in larger pieces the newer the kernel is. Tarry has each on disk first.
``python -m benchmarks --only rocketmq_disk``; TARRY_BENCH_DIR chooses the disk, and a tmpfs counts nothing.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import psutil

from benchmarks.harness import Result, benchmark, free_endpoint, server
from benchmarks.marks import Meter
from benchmarks.peers.rocketmq.client import herd
from benchmarks.peers.rocketmq.server import rocketmq_server

OURS, THEIRS, ROCKSDB = "RocketMQ front", "RocketMQ 5.5.0", "RocketMQ 5.5.0, timerRocksDBEnable"
ROCKSDB_SETTINGS = {"timerRocksDBEnable": "true"}

HOUR_S = float(os.environ.get("BENCH_ROCKETMQ_HOUR_S", 5))
HOURS, WINDOW_HOURS = 72, 48
MESSAGES = int(os.environ.get("BENCH_ROCKETMQ_DISK_MESSAGES", 4_000))
"""RocksDB's timer writes at most 8,000 a second again: these, within the shortened hour."""
BODY_BYTES = 1024
TOPIC = "bench-disk"
GROUP = f"{TOPIC}-group"


class Place(NamedTuple):
    """A server that runs: its endpoint, and what its processes have written."""

    endpoint: str
    written: Meter
    data: Path


@contextmanager
def _theirs(settings: Mapping[str, str]) -> Iterator[Place]:
    with rocketmq_server(sync_flush=False, broker=settings, hour_ms=round(HOUR_S * 1000)) as rocketmq:
        rocketmq.create_topic(TOPIC)
        rocketmq.create_group(GROUP)
        yield Place(rocketmq.endpoint, _written(rocketmq.processes["broker"].pid), rocketmq.directory)


@contextmanager
def _ours() -> Iterator[Place]:
    endpoint = free_endpoint()
    with server(rocketmq=endpoint, pipeline="on") as broker:
        yield Place(endpoint, _written(broker.process.pid), broker.data)


def _written(pid: int) -> Meter:
    """Bytes; the kernel adds those of a child that has ended to its parent's."""

    def read() -> float:
        first = psutil.Process(pid)
        return sum(process.io_counters().write_bytes for process in (first, *first.children(recursive=True)))

    return read


STARTERS: dict[str, Callable[[], AbstractContextManager[Place]]] = {
    THEIRS: lambda: _theirs({"timerRollWindowSlot": str(round(WINDOW_HOURS * HOUR_S))}),
    ROCKSDB: lambda: _theirs(ROCKSDB_SETTINGS),
    OURS: _ours,
}


def measure(text: str) -> dict[str, Any]:
    """One of :data:`STARTERS`."""
    with STARTERS[text]() as place:
        before = _kept(place.data)
        found = herd(
            place.endpoint, TOPIC, GROUP, count=MESSAGES, body=BODY_BYTES, lead_s=HOURS * HOUR_S, warm_s=3,
            meter=place.written,
        )  # fmt: skip
        return {**found, "kept": _kept(place.data) - before}


def _kept(directory: Path) -> int:
    """Bytes on disk of all files: those that are made beforehand for what comes have holes."""
    return sum(path.stat().st_blocks * 512 for path in directory.rglob("*") if path.is_file())


@benchmark(opt_in=True)
def rocketmq_disk() -> list[Result]:
    """All three, one after the other."""
    rows = []
    for text in STARTERS:
        found = measure(text)
        print(f"  {text}, {MESSAGES:,} of {BODY_BYTES} B due in 72 h: {found}", flush=True)
        of = f"{text}: due in 72 h, of {BODY_BYTES} B"
        rows += [
            Result(f"{of}, written to disk a message", found["spent"] / found["count"], "B"),
            Result(f"{of}, kept on disk at its end", found["kept"] / found["count"], "B"),
            Result(f"{of}, early", found["early"], "messages", "≤ 0" if text == OURS else ""),
            Result(f"{of}, lost", found["lost"], "messages", "≤ 0" if text == OURS else ""),
        ]
    return rows
