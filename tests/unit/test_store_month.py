"""A month in the life of a store: commits, cancellations, a clock that moves on, and the upkeep after each.

``TARRY_MONTH_STEP_MS`` says how long a step is; ``make month`` takes a minute, as the schedule query does by default.
"""

from __future__ import annotations

import dataclasses
import os
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tarry.base.clock import SystemClock
from tarry.message.schema import cancelled_seqs
from tarry.spark.broker_client import IntakeState
from tarry.spark.pipeline.compact import Upkeep, in_process
from tarry.spark.pipeline.upkeep import UpkeepSettings
from tarry.store import Store, read_window, stage
from tarry.store.creation import CHECKPOINT_COMMITS
from tarry.store.layout import DAY_MS, HOUR_MS, label
from tarry.store.upkeep import NEAR_MS, TIER_FILES, Sizes

from .test_store_upkeep import gone, messages

STEP_MS = int(os.environ.get("TARRY_MONTH_STEP_MS", 8 * HOUR_MS))
MONTH_MS = 30 * DAY_MS
FILE_BYTES = 4 << 20
ROWS = 60
LOWEST = -(2**63)


class Broker:
    """What the upkeep asks of one."""

    def __init__(self) -> None:
        self.now_ms = self.fired_ms = self.seq = 0

    def state(self) -> IntakeState:
        return IntakeState(
            first_seq=self.seq,
            durable_seq=self.seq,
            committed_seq=self.seq,
            waiting_bytes=0,
            oldest_ms=None,
            fired_until_ms=self.fired_ms,
            fired_seq=self.seq,
            expire_until_ms=self.fired_ms,
            cancelled_jobs=[],
            now_ms=self.now_ms,
            shard=0,
            store_uri="",
            table_id="",
        )

    def store_committed(self) -> None:
        pass


class Silent:
    def update(self, **status: Any) -> None:
        pass


class Month:
    """``now_ms`` ends at the real time: what is old by the simulated clock is old by the real one, too."""

    def __init__(self, root: Path) -> None:
        self.store = Store.open(str(root), clock=self)  # type: ignore[arg-type]
        self.broker = Broker()
        self.broker.now_ms = self.broker.fired_ms = SystemClock().now_ms() - MONTH_MS
        settings = UpkeepSettings(file_bytes_max=FILE_BYTES)
        self.elapsed_s = 0.0
        self.upkeep = Upkeep(
            self.store,
            self.broker,  # type: ignore[arg-type]
            Silent(),  # type: ignore[arg-type]
            settings,
            in_process,
            monotonic=lambda: self.elapsed_s,
        )
        self.rng = np.random.default_rng(7)
        self.pending: dict[int, int] = {}
        self.cancelled = 0
        self.delivered: Counter[int] = Counter()
        self.accepted = 0
        self.dated: set[str] = set()

    def now_ms(self) -> int:
        """As a clock."""
        return self.broker.now_ms

    def commit(self) -> None:
        reach = self.rng.choice([HOUR_MS, DAY_MS, 30 * DAY_MS, 365 * DAY_MS], ROWS, p=[0.3, 0.3, 0.25, 0.15])
        due = self.broker.now_ms + 1 + (self.rng.random(ROWS) * reach).astype(np.int64)
        start = self.broker.seq
        seq = np.arange(start, start + ROWS)
        tables = [messages(due, seq, body=200)]
        alive = np.array(sorted(self.pending), np.int64)
        victims = self.rng.choice(alive, min(len(alive), int(self.rng.integers(0, 6))), replace=False).tolist()
        if victims:
            tables.append(gone([self.pending.pop(v) for v in victims], victims, start + ROWS))
        self.pending.update(zip(seq.tolist(), due.tolist(), strict=True))
        self.cancelled += len(victims)
        self.accepted += ROWS
        self.broker.seq = start + ROWS + len(victims)
        files = stage(pa.concat_tables(tables), self.store.root, "intake-x", self.broker.now_ms)
        self.store.commit(files, start, self.broker.seq)

    def deliver(self) -> None:
        """Move the clock on, and read what fell due, as the store alone says it."""
        before, now = self.broker.fired_ms, self.broker.now_ms + STEP_MS
        snapshot = self.store.snapshot()
        dead = set()
        marks = dataclasses.replace(snapshot, files=snapshot.cancellations)
        for batch in read_window(marks, (before, LOWEST), now, batch_rows=8192):
            dead.update(cancelled_seqs(batch).tolist())
        for batch in read_window(snapshot, (before, LOWEST), now, batch_rows=8192):
            for seq, due in zip(batch["seq"].to_pylist(), batch["due_ms"].to_pylist(), strict=True):
                if seq not in dead:
                    assert self.pending.pop(seq) == due, "read twice, or cancelled"
                    self.delivered[seq] += 1
        late = [seq for seq, due in self.pending.items() if due < now]
        assert late == [], "not read"
        self.broker.now_ms = self.broker.fired_ms = now

    def age_log(self) -> None:
        """Give what is new on the disk its simulated age."""
        root = Path(self.store.root)
        for path in (*root.glob("_delta_log/0*"), *root.glob("shard=*/*/*.parquet")):
            if path.name not in self.dated:
                self.dated.add(path.name)
                os.utime(path, (self.broker.now_ms / 1000, self.broker.now_ms / 1000))


@pytest.mark.rest
def test_a_month(tmp_path: Path) -> None:
    month, sizes = Month(tmp_path / "store"), Sizes(FILE_BYTES)
    small_most, files_most, near_most = 0, 0, 0
    for step in range(MONTH_MS // STEP_MS):
        month.commit()
        month.upkeep.round(threading.Event())
        month.age_log()
        files = month.store.snapshot().files
        buckets: Counter[str] = Counter()
        for low, high, size in zip(
            *(c.tolist() for c in (files.due_min_ms, files.due_max_ms, files.size)), strict=True
        ):
            buckets[label(low, high)] += size < sizes.small
        now = month.broker.now_ms
        near = int(((files.due_min_ms < now + NEAR_MS) & (files.due_max_ms >= now)).sum())
        small_most, near_most = max(small_most, *buckets.values()), max(near_most, near)
        files_most = max(files_most, len(files))
        month.deliver()
        if step * STEP_MS % DAY_MS < STEP_MS:
            month.elapsed_s += 86_400
    totals = month.upkeep.totals
    amplification = totals["rows_written"] / month.accepted
    entries = list(Path(month.store.root, "_delta_log").glob("*.json"))
    on_disk = list(Path(month.store.root).glob("shard=*/*/*.parquet"))
    figures = {
        "messages": month.accepted,
        "cancelled": month.cancelled,
        "delivered": len(month.delivered),
        "files, most": files_most,
        "small files of a bucket, most": small_most,
        "files of the next hour, most": near_most,
        "rows written for each accepted": round(amplification, 2),
        "versions": month.store.snapshot().version,
        "log entries": len(entries),
        "files on disk": len(on_disk),
    }
    print(figures)
    # One round may leave what it has just made of smaller ones; the next takes that up.
    assert small_most <= (TIER_FILES - 1) * (sizes.tier(sizes.small) + 1) + 2
    assert near_most <= 2 * TIER_FILES
    assert amplification < 12
    day = DAY_MS // STEP_MS
    assert len(entries) <= 10 * day + 2 * CHECKPOINT_COMMITS
    assert len(on_disk) <= len(month.store.snapshot().files) + 20 * day + 40
    assert set(month.delivered.values()) == {1}
    assert len(month.delivered) + month.cancelled + len(month.pending) == month.accepted
    # The rest is all there, and nothing of what was cancelled comes back.
    month.broker.now_ms += 400 * DAY_MS
    month.deliver()
    assert month.pending == {}


def test_a_reader_goes_on_with_the_snapshot_that_it_has(tmp_path: Path) -> None:
    """The files of an old snapshot are there for the retention, whatever is replaced, expired and deleted meanwhile."""
    store, broker = Store.open(str(tmp_path / "store")), Broker()
    now_ms = broker.now_ms = SystemClock().now_ms()
    for start in range(0, 500, 50):
        due = now_ms + HOUR_MS + np.arange(50) * 60_000
        files = stage(messages(due, range(start, start + 50)), store.root, "intake-x", now_ms)
        store.commit(files, start, start + 50)
        broker.seq = start + 50
    before = store.snapshot()
    for path in before.files.path:  # they were written long ago; what counts is when they were removed
        then = time.time() - 30 * 86_400
        os.utime(Path(store.root, path), (then, then))
    reader = read_window(before, (LOWEST, 0), 2**62, batch_rows=64)
    got = next(reader).num_rows
    settings = UpkeepSettings(retention_ms=HOUR_MS)
    elapsed_s = [0.0]
    upkeep = Upkeep(store, broker, Silent(), settings, in_process, lambda: elapsed_s[0])  # type: ignore[arg-type]
    assert upkeep.round(threading.Event()) >= 1
    broker.fired_ms = now_ms + DAY_MS
    elapsed_s[0] += 86_400
    upkeep.round(threading.Event())
    assert len(store.snapshot().files) == 0
    assert got + sum(batch.num_rows for batch in reader) == 500
    assert upkeep.totals["deleted_files"] == 0
