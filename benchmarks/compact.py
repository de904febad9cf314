"""Compaction: small files that overlap, of 256 B bodies, into sorted runs in the committed table."""

from __future__ import annotations

import os
import threading
import time
from typing import Any

import numpy as np
import psutil
import pyarrow as pa

from benchmarks.harness import Result, benchmark, messages, now_ms, workspace
from tarry.message.schema import SCHEMA
from tarry.spark.broker_client import IntakeState
from tarry.spark.pipeline.compact import Upkeep, in_process
from tarry.spark.pipeline.upkeep import UpkeepSettings
from tarry.store import Store, stage
from tarry.store.upkeep import plan

ROWS = int(os.environ.get("TARRY_BENCH_COMPACT_ROWS", 2_000_000))
"""A smaller number tells whether it works; a figure for the record takes the default."""
COMMITS = 8


class StillBroker:
    """What the upkeep asks of one: nothing has fired, unless it is said."""

    def __init__(self, seq: int) -> None:
        self.seq, self.fired_ms = seq, 0
        self.now_ms: int | None = None

    def state(self) -> IntakeState:
        now = self.now_ms or now_ms()
        fired = self.fired_ms
        return IntakeState(0, self.seq, self.seq, 0, None, fired, self.seq, fired, [], now, 0, "", "")

    def store_committed(self) -> None:
        pass


class Silent:
    def update(self, **status: Any) -> None:
        pass


def fill(store: Store, reach_ms: int) -> None:
    """Commits of which each is all over the time to come."""
    rng, rows = np.random.default_rng(5), ROWS // COMMITS
    for start in range(0, rows * COMMITS, rows):
        batch = messages(rows, now_ms() + 600_000 + rng.integers(0, reach_ms, rows), seed=start)
        columns = {name: batch.column(name) for name in ("topic", "due_ms", "body")}
        columns["seq"] = pa.array(np.arange(start, start + rows))
        columns["born_ms"] = pa.array(np.full(rows, now_ms()))
        columns["kind"] = pa.array(np.zeros(rows, np.int8))
        table = pa.table([columns.get(f.name, pa.nulls(rows, f.type)) for f in SCHEMA], schema=SCHEMA)
        store.commit(stage(table, store.root, "intake-x", now_ms()), start, start + rows)


@benchmark
def compact() -> list[Result]:
    """One process, as one task of the job: planning, reading, merging, writing and committing."""
    found = []
    for name, reach_ms, bar in (("within the hour", 2_400_000, "≥ 200000"), ("over three months", 90 * 86_400_000, "")):
        with workspace() as directory:
            store = Store.open(str(directory / "store"))
            fill(store, reach_ms)
            broker, silent = StillBroker(ROWS), Silent()
            upkeep = Upkeep(store, broker, silent, UpkeepSettings(), in_process)  # type: ignore[arg-type]
            before = len(store.snapshot().files)
            start = time.perf_counter()
            while upkeep.round(threading.Event()):
                pass
            elapsed = time.perf_counter() - start
            assert int(store.snapshot().files.rows.sum()) == ROWS // COMMITS * COMMITS
            assert plan(store.snapshot(), now_ms(), floor_ms=0) == []
            written = upkeep.totals["rows_written"]
            found += [
                Result(f"compaction, messages due {name}", written / elapsed, "msg/s", bar),
                Result(f"compaction, {name}, files after {before}", len(store.snapshot().files), "files"),
                Result(f"compaction, {name}, messages written for each stored", written / ROWS, ""),
            ]
    rss = psutil.Process().memory_info().rss / (1 << 20)
    return [*found, Result("compaction, resident memory of the process afterwards", rss, "MB")]
