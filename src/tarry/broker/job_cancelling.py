"""Cancels a bulk job's pending messages in the store, by one row of the intake, whatever its size."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from tarry.base.clock import Clock
from tarry.base.errors import UnavailableError
from tarry.base.types import Int64s, Key, Mask, before
from tarry.base.waiting import wait_for
from tarry.broker.commands.append_rows import AppendRows
from tarry.broker.scheduling import Scheduling
from tarry.broker.store_view import StoreFollower
from tarry.message.bulk import among, job_rows
from tarry.message.schema import SCHEMA, Kind, cancellations, count_topics
from tarry.names import Registry
from tarry.store import Snapshot, read_window
from tarry.store.jobs import count_job
from tarry.store.scan import Alive
from tarry.wheel import Loader, Wheel
from tarry.wheel.run import Run

LOADING_WAIT_S = 30.0
READ_ROWS = 8192
LATE = ["seq", "due_ms", "topic"]


@dataclass(eq=False)
class JobCancelling:
    """Cancels bulk jobs. Any thread; one cancellation at a time for each job.

    ``on_news`` makes the loader look at the store.
    """

    _follower: StoreFollower
    _wheel: Wheel
    _loader: Loader
    _registry: Registry
    _scheduling: Scheduling
    _clock: Clock
    _on_news: Callable[[], None]
    _threaded: bool

    def cancel(self, number: int) -> int:
        """Cancel the pending messages of a job, durably; return how many there were.

        Raises:
            UnavailableError, DiskFullError, OverloadedError: not now; nothing was cancelled.
        """
        self._wait_until_loaded(number)
        now = self._clock.now_ms()
        # From here on none of its messages fires or is cancelled singly; due ones are held back. So they can be
        # counted.
        with self._loader.still, self._wheel.lock:
            self._wheel.tombstones.add_job(number)
            # Messages that a consumer may have had before a crash are not cancelled: they stand before that place.
            perhaps_handed = self._wheel.perhaps_handed
            since = max(self._wheel.fired, perhaps_handed.end_of(number))
            safe, snapshot = self._wheel.safe, self._follower.snapshot
            counts, late = _in_wheel(self._wheel, number, since)
            # The registry lacks some of these: messages being cancelled singly, and those that recovery found
            # delivered.
            others = np.concatenate([self._wheel.tombstones.seqs(), self._loader.excluded])

        def alive(due_ms: Int64s, seq: Int64s) -> Mask:
            gone = self._registry.cancelled_mask(due_ms, seq) | perhaps_handed.mask(due_ms, seq)
            return np.isin(seq, others, invert=True) & ~gone

        try:
            late = pa.concat_batches([late, *_not_loaded(snapshot, number, safe, since, alive)])
            counts += count_job(snapshot, number, max(safe, since), alive)
            total = int(counts.total() + late.num_rows)
            if total:
                # Late messages stand among delivered ones: they are cancelled one by one.
                by_topic = counts or {late.column("topic")[0].as_py(): 0}
                rows = [job_rows(Kind.JOB_CANCELLED, number, by_topic, now, since), cancellations(late, now)]
                wait_for(lambda done: self._scheduling.carry_out(AppendRows(pa.concat_batches(rows), done)))
        except BaseException:
            self._undo(number)
            raise
        if not total:
            self._undo(number)
            return 0
        with self._wheel.lock:
            moments = zip(late.column("seq").to_pylist(), late.column("due_ms").to_pylist(), strict=True)
            self._wheel.tombstones.confirm_job(number, dict(moments))
        return total

    def _undo(self, number: int) -> None:
        with self._wheel.lock:
            for rows in self._wheel.tombstones.revoke_job(number):
                self._wheel.add(Run.of(rows, stored=True))
            self._wheel.lock.notify_all()

    def _wait_until_loaded(self, number: int) -> None:
        end = time.monotonic() + LOADING_WAIT_S
        while self._loader.is_behind_with(number):
            self._on_news()
            if self._loader.is_behind_with(number):
                if time.monotonic() > end or not self._threaded:
                    raise UnavailableError(f"bulk job {number} is still being taken up; try again")
                time.sleep(0.01)


def _in_wheel(wheel: Wheel, number: int, since: Key) -> tuple[Counter[str], pa.RecordBatch]:
    """Return the pending messages of a job in the wheel, split at ``since``.

    From there on they are counted by topic; those before it are returned as rows. Messages at or above ``safe`` are
    counted in the store.
    """
    counts, alone, late = Counter[str](), wheel.tombstones.seqs(), list[pa.RecordBatch]()
    for piece in wheel.runs():
        rows = piece.slice(0, piece.below(wheel.safe))
        of_job = among(rows.seq, [number])
        if of_job.any():
            of_job &= np.isin(rows.seq, alone, invert=True) & ~wheel.perhaps_handed.mask(rows.due_ms, rows.seq)
            earlier = np.arange(rows.rows) < rows.below(since)
            count_topics(rows.batch.column("topic").filter(pa.array(of_job & ~earlier)), counts)
            late.append(rows.batch.select(LATE).filter(pa.array(of_job & earlier)))
    return counts, pa.concat_batches(late or [_no_rows()])


def _not_loaded(snapshot: Snapshot, number: int, safe: Key, since: Key, alive: Alive) -> Iterator[pa.RecordBatch]:
    """Yield a job's pending messages before ``since`` that are not in the wheel yet.

    There are some only soon after a crash. Then the latest fired message was in the ready log, but not all that were
    due before it: one was being cancelled, or was in another topic's frame, which was torn.
    """
    if safe >= since:
        return
    for batch in read_window(snapshot.of_jobs([number]), safe, since.due_ms + (since.seq > 0), batch_rows=READ_ROWS):
        due, seq = batch.column("due_ms").to_numpy(), batch.column("seq").to_numpy()
        rows = among(seq, [number]) & before(due, seq, since)
        rows[rows] = alive(due[rows], seq[rows])
        yield batch.select(LATE).filter(pa.array(rows))


def _no_rows() -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([], schema=pa.schema([SCHEMA.field(name) for name in LATE]))
