"""What dividing a schedule batch by due time, and not by seq, saves the upkeep: a simulated day of batches, all sizes a
64th of the real ones.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from unittest import mock

import numpy as np
import pyarrow as pa

from benchmarks.compact import Silent, StillBroker
from benchmarks.harness import Result, benchmark, now_ms, workspace
from tarry.message.schema import SCHEMA
from tarry.spark.pipeline.compact import Upkeep, in_process
from tarry.spark.pipeline.upkeep import UpkeepSettings
from tarry.store import Store, stage
from tarry.store.layout import DAY_MS, HOUR_MS
from tarry.store.run import FILE_BYTES_MAX

SCALE = 64
BATCHES = int(os.environ.get("BENCH_LAYOUT_BATCHES", 60))
BATCH_ROWS = 40_000
"""Of about 100 bytes: a 64th of 256 MiB, which is what a batch has that starts by its bytes."""
TASKS = 8
REACH_MS = (HOUR_MS, DAY_MS, 30 * DAY_MS, 365 * DAY_MS)
REACH_SHARES = (0.3, 0.3, 0.25, 0.15)


def by_seq(batch: pa.Table, tasks: int = TASKS) -> Iterator[pa.Table]:
    """Each task has all due times."""
    for start in range(0, BATCH_ROWS, BATCH_ROWS // tasks):
        yield batch.slice(start, BATCH_ROWS // tasks)


def by_seq_wide(batch: pa.Table) -> Iterator[pa.Table]:
    """The same with two tasks, of 128 MiB each."""
    yield from by_seq(batch, 2)


def by_due(batch: pa.Table) -> Iterator[pa.Table]:
    """As Spark's range partitioning would: each task has a span of due times of its own."""
    yield from by_seq(batch.sort_by("due_ms"))


def _batch(rng: np.random.Generator, start: int, at_ms: int) -> pa.Table:
    reach = rng.choice(REACH_MS, BATCH_ROWS, p=REACH_SHARES)
    body = pa.array(np.frombuffer(rng.bytes(80 * BATCH_ROWS), "S80"), pa.binary(80)).cast(pa.binary())
    columns = {
        "seq": pa.array(np.arange(start, start + BATCH_ROWS)),
        "topic": pa.array(["bench"] * BATCH_ROWS),
        "due_ms": pa.array(at_ms + 60_000 + (rng.random(BATCH_ROWS) * reach).astype(np.int64)),
        "body": body,
        "born_ms": pa.array(np.full(BATCH_ROWS, at_ms)),
        "kind": pa.array(np.zeros(BATCH_ROWS, np.int8)),
    }
    return pa.table([columns.get(f.name, pa.nulls(BATCH_ROWS, f.type)) for f in SCHEMA], schema=SCHEMA)


def _a_day(divide) -> dict[str, float]:
    rng = np.random.default_rng(11)
    begin_ms = now_ms() - DAY_MS
    with (
        workspace() as directory,
        mock.patch.object(sys.modules["tarry.store.stage"], "FILE_BYTES_MIN", (8 << 20) // SCALE),
    ):
        store = Store.open(str(directory / "store"))
        broker = StillBroker(0)
        settings = UpkeepSettings(file_bytes_max=FILE_BYTES_MAX // SCALE)
        upkeep = Upkeep(store, broker, Silent(), settings, in_process)
        files_new = bytes_new = files_most = 0
        for number in range(BATCHES):
            broker.now_ms = begin_ms + number * DAY_MS // BATCHES
            start = number * BATCH_ROWS
            batch = _batch(rng, start, broker.now_ms)
            files = [f for part in divide(batch) for f in stage(part, store.root, "intake-x", broker.now_ms)]
            broker.seq = start + BATCH_ROWS
            broker.fired_ms = broker.now_ms
            store.commit(files, start, broker.seq)
            files_new, bytes_new = files_new + len(files), bytes_new + sum(f.size for f in files)
            upkeep.round(threading.Event())
            files_most = max(files_most, len(store.snapshot().files))
        totals = upkeep.totals
    return {
        "files a batch": files_new / BATCHES,
        "bytes rewritten for each byte committed": totals["bytes_written"] / bytes_new,
        "bytes read by it for each byte committed": totals["bytes_read"] / bytes_new,
        "works": totals["works"],
        "files in the table, most": files_most,
    }


@benchmark(opt_in=True)
def layouts() -> list[Result]:
    """A day of batches, divided by seq and by due time; what the upkeep then rewrites. Takes minutes."""
    return [
        Result(f"a day, batches divided by {name}, {what}", figure, "")
        for name, divide in (("seq", by_seq), ("seq, wide", by_seq_wide), ("due time", by_due))
        for what, figure in _a_day(divide).items()
    ]
