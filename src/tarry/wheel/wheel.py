"""Slots and runs: the messages below ``loaded``, by due time. See the package for a worked example.

Nothing here is the only copy: every row is in the intake or the store until the ready log has it durably. Therefore
:meth:`Wheel.truncate` is safe, and so is a crash.
"""

from __future__ import annotations

import heapq
import itertools
import threading
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from tarry.base.types import Key, Rows, extremes
from tarry.message.bulk import CancelledJobs
from tarry.wheel.due import Due
from tarry.wheel.handed import NONE_HANDED, PerhapsHanded
from tarry.wheel.run import SOME_ROWS, Run, cut, cut_arrival, join, merge
from tarry.wheel.tombstones import Tombstones

_HIGHEST = np.iinfo(np.int64).max
SLOT_MS = 1000
NEAR_MS = 1500
"""Slots that begin within this time are sorted into runs."""
RUNS_MAX = 64
"""After this many slices of a slot they are joined, so that no later join has thousands of parts."""


@dataclass(frozen=True, slots=True)
class Arrival:
    """A batch that arrived, and its rows below ``limit``, by slot.

    The first of ``parts`` has the lowest due time.
    """

    batch: pa.RecordBatch
    size: int
    limit: Key
    parts: list[tuple[int, Run]]


@dataclass(slots=True)
class _Slot:
    runs: list[Run] = field(default_factory=list)
    due_min_ms: int = _HIGHEST


class Wheel:
    """The wheel. Its :attr:`lock` is the condition that the dispatcher waits on.

    All methods except :meth:`prepare`, :meth:`join_small` and :meth:`make_near` are called with the lock held.
    """

    def __init__(
        self,
        loaded: Key,
        fired: Key,
        cancelled_jobs: CancelledJobs | None = None,
        perhaps_handed: PerhapsHanded = NONE_HANDED,
    ) -> None:
        self.lock = threading.Condition()
        self.loaded = loaded
        """Rows below this key that are accepted from now on belong here."""
        self.safe = loaded
        """All pending rows below this key are here. Same as ``loaded``, except during a load."""
        self.fired = fired
        """Above every row that was ever taken.

        The wheel is never cut below it, or a fired row would be loaded again.
        """
        self.bytes = 0.0
        self.rows = 0
        self._slots: dict[int, _Slot] = {}
        self._first = 0
        """The lowest slot. If that slot does not exist, the lowest has to be looked for."""
        self._near: list[tuple[int, int, int, Run]] = []  # heap of (due, seq, tie, rest of the run)
        self._crowded: set[int] = set()
        self._near_slot = loaded.due_ms // SLOT_MS
        self._ties = itertools.count()
        self.perhaps_handed = perhaps_handed
        """Messages that are delivered despite a cancellation of their job.

        A consumer may have had them before the last crash.
        """
        self.tombstones = Tombstones(CancelledJobs() if cancelled_jobs is None else cancelled_jobs, perhaps_handed)
        """Messages that were cancelled and whose rows are still here."""
        self.advancing: dict[int, int] = {}
        """Occurrences of series (due time by seq) that were taken and are not in the ready log yet."""
        self.leaving: set[int] = set()
        """Those of them that are decided to be handed on: not pending, so nothing withdraws them."""

    def prepare(self, batch: pa.RecordBatch, size: int) -> Arrival:
        """Sort the rows of an arrival that are below ``loaded``, and cut them into slots. Without the lock.

        The dispatcher waits for the lock, so :meth:`accept` must have little left to do. ``size`` is in bytes.

        A few rows of a large batch are copied out, so that they do not keep all of it in memory for the length of the
        horizon.

        The seq counts as well as the due time. Suppose that the wheel was cut among a bulk job's messages due in one
        millisecond. Then an arrival for the same millisecond has a lower seq than the cut, and the loader, which goes
        on from the cut, would never bring it.
        """
        limit, due = self.loaded, batch.column("due_ms").to_numpy()
        if extremes(due)[1] < limit.due_ms:
            return Arrival(batch, size, limit, cut_arrival(batch, size, SLOT_MS))
        is_below = due < limit.due_ms
        if limit.seq:  # seldom; else the due time alone decides
            is_below |= (due == limit.due_ms) & (batch.column("seq").to_numpy() < limit.seq)
        below = is_below.nonzero()[0]
        if not len(below):
            return Arrival(batch, size, limit, [])
        if 2 * len(below) > batch.num_rows:
            run = Run.of(batch, stored=False, size=size)
            run = run.slice(0, len(below))
        else:
            few = batch.take(pa.array(below, pa.int64()))
            run = Run.of(few, stored=False, size=size * len(below) // batch.num_rows)
        return Arrival(batch, size, limit, cut(run, SLOT_MS))

    def accept(self, arrival: Arrival) -> bool:
        """Take the rows below ``loaded``.

        Return whether the next due time became sooner, so that the dispatcher must be woken.
        """
        if arrival.limit != self.loaded:
            # The loader moved it since: the rows between the two limits now belong here, or no longer do.
            arrival = self.prepare(arrival.batch, arrival.size)
        return self._take(arrival.parts)

    def add(self, run: Run) -> bool:
        """Take all rows; return whether the next due time became sooner."""
        return self._take(cut(run, SLOT_MS))

    def _take(self, parts: list[tuple[int, Run]]) -> bool:
        if not parts:
            return False
        before = self.next_due()
        for number, run in parts:
            self.rows += run.rows
            self.bytes += run.bytes
            if number < self._near_slot:
                self._push(run)
            else:
                self._put(number, run)
        return before is None or int(parts[0][1].due_ms[0]) < before

    def _put(self, number: int, run: Run) -> None:
        slot = self._slots.get(number)
        if slot is None:
            slot = self._slots[number] = _Slot()
            self._first = min(self._first, number)
        slot.runs.append(run)
        slot.due_min_ms = min(slot.due_min_ms, int(run.due_ms[0]))
        if len(slot.runs) % RUNS_MAX == 0:
            self._crowded.add(number)

    def _push(self, run: Run) -> None:
        heapq.heappush(self._near, (int(run.due_ms[0]), int(run.seq[0]), next(self._ties), run))

    def next_due(self) -> int | None:
        """Return the lowest due time here; None if the wheel is empty."""
        run = self._near[0][0] if self._near else None
        slot = self._next_in_slots()
        if run is None or slot is None:
            return slot if run is None else run
        return min(run, slot)

    def _next_in_slots(self) -> int | None:
        slot = self._first_slot()
        return None if slot is None else slot.due_min_ms

    def _first_slot(self) -> _Slot | None:
        slot = self._slots.get(self._first)
        if slot is None and self._slots:
            # An hour has thousands of slots, and this is called several times a millisecond.
            self._first = min(self._slots)
            slot = self._slots[self._first]
        return slot

    def next_fireable(self) -> int | None:
        """Return the lowest due time here that need not wait for the loader; None if there is none."""
        heads = [Key(self._near[0][0], self._near[0][1])] if self._near else []
        if (slot := self._next_in_slots()) is not None:
            heads.append(Key(slot, 0))
        head = min(heads, default=None)
        return head.due_ms if head is not None and head < self.safe else None

    @property
    def is_crowded(self) -> bool:
        """True if there is something for :meth:`join_small`."""
        return bool(self._crowded)

    def join_small(self) -> None:
        """Join the small runs of each slot that has many, so that no later join has thousands of parts.

        Takes the lock itself, but not while joining: nothing on a message's way waits for copying.
        """
        while True:
            with self.lock:
                if not self._crowded:
                    return
                slot = self._slots.get(number := self._crowded.pop())
                runs = [] if slot is None else list(slot.runs)
            small = [run for run in runs if run.rows < 4 * RUNS_MAX]
            if slot is None or len(small) <= RUNS_MAX // 2:
                continue
            joined = [run for run in runs if run.rows >= 4 * RUNS_MAX] + join(small)
            with self.lock:
                # It may have fired, become near or been cut meanwhile. New runs were appended behind.
                if self._slots.get(number) is slot:
                    slot.runs = joined + slot.runs[len(runs) :]
            # Hundreds of batches freed together would hold the interpreter lock for milliseconds.
            small.clear()
            while runs:
                runs.pop()

    def make_near(self, now_ms: int) -> None:
        """Sort the slots that begin soon into runs.

        Takes the lock itself, but not while sorting, so that nothing waits for a large slot. A slot stays where it is
        until its sorted run takes its place, so a dispatcher that comes meanwhile finds every row.
        """
        end = (now_ms + NEAR_MS) // SLOT_MS + 1
        while True:
            with self.lock:
                self._near_slot = max(self._near_slot, end)
                number = min((n for n in self._slots if n < end), default=None)
                if number is None:
                    return
                slot = self._slots[number]
                if len(slot.runs) == 1:
                    del self._slots[number]
                    self._push(slot.runs[0])
                    self.lock.notify_all()
                    continue
                runs = list(slot.runs)
            joined = join(runs)
            with self.lock:
                # New rows for this slot have become runs of their own meanwhile; truncate() may have cut the slot.
                if self._slots.get(number) is slot and len(slot.runs) == len(runs) and slot.runs[0] is runs[0]:
                    del self._slots[number]
                    for run in joined:
                        self._push(run)
                    self.lock.notify_all()

    def take_due(self, now_ms: int, rows_max: int, bytes_max: int | None = None) -> Due | None:
        """Remove and return the first ``rows_max`` rows that are due, in order; None if there are none.

        With ``bytes_max``, they have about as many bytes at most, and are one row at least.

        Rows at or above ``safe`` wait until the loader has brought all rows below them. That keeps the order. It also
        keeps ``fired`` at or below ``safe``, so that a load that stops half way can go on from there. A slot that is
        due but not near yet (the loader was busy) is turned into runs here.
        """
        while (due := self._take_due(now_ms, rows_max, bytes_max)) is not None:
            due = self.tombstones.leave_out(due, self.fired) if self.tombstones else due
            if due.batch.num_rows:
                return self._set_aside_series(due)
        return None

    def _set_aside_series(self, due: Due) -> Due:
        repeats = due.batch.column("repeat")
        if repeats.null_count == due.batch.num_rows:
            return due
        mask = repeats.is_valid().to_numpy(zero_copy_only=False)
        series, rest = due.split(mask)
        seqs, moments = series.batch.column("seq").to_numpy(), series.due_ms
        self.advancing.update(zip(seqs.tolist(), moments.tolist(), strict=True))
        return replace(rest, series=series)

    def _take_due(self, now_ms: int, rows_max: int, bytes_max: int | None) -> Due | None:
        runs = self._pop_due_runs(now_ms)
        if not runs:
            return None
        until = min(Key(now_ms + 1, 0), self.safe)
        counts, order = _first_rows(runs, until, rows_max)
        if bytes_max is not None:
            size = sum(run.row_bytes * count for run, count in zip(runs, counts, strict=True))
            if size > bytes_max:
                counts, order = _first_rows(runs, until, max(1, int(sum(counts) * bytes_max / size)))
        heads: list[Run] = []
        for run, count in zip(runs, counts, strict=True):
            if count:
                heads.append(run if count == run.rows else run.slice(0, count))
            if count < run.rows:
                self._push(run.slice(count, run.rows))
        if not heads:
            return None
        self.rows -= sum(head.rows for head in heads)
        self.bytes = self.bytes - sum(head.bytes for head in heads) if self.rows else 0.0
        last = max(Key(int(head.due_ms[-1]), int(head.seq[-1]) + 1) for head in heads)
        self.fired = max(self.fired, last)
        return merge(heads, order)

    def _pop_due_runs(self, now_ms: int) -> list[Run]:
        """Remove and return the runs whose first row is due."""
        while (soonest := self._next_in_slots()) is not None and soonest <= now_ms:
            for run in self._slots.pop(self._first).runs:
                self._push(run)
        runs: list[Run] = []
        while self._near and self._near[0][0] <= now_ms:
            runs.append(heapq.heappop(self._near)[3])
        return runs

    def has_late(self, due_ms: int, seq: int) -> bool:
        """Return whether this message, which is below :attr:`fired`, is here.

        Such a message came late and is about to be taken.
        """
        candidates = [run for due, *_, run in self._near if due <= due_ms]
        slot = self._slots.get(due_ms // SLOT_MS)
        for run in [*candidates, *(slot.runs if slot is not None else ())]:
            at = run.below(Key(due_ms, seq))
            if at < run.rows and int(run.seq[at]) == seq:
                return True
        return False

    def runs(self) -> list[Run]:
        """Return all rows that are here, as runs."""
        return [run for s in self._slots.values() for run in s.runs] + [run for *_, run in self._near]

    def truncate(self, key: Key) -> None:
        """Forget the rows at or above ``key``, and move ``loaded`` back to it.

        The loader will bring them again.

        The rows kept are copied, since a slice would keep the whole batch in memory that it was cut from.
        """
        for number in list(self._slots):
            if (number + 1) * SLOT_MS > key.due_ms:
                slot = self._slots.pop(number)
                kept = [run.slice(0, n) for run in slot.runs if (n := run.below(key))]
                if kept:
                    self._slots[number] = _Slot(join(kept, copy=True), min(int(run.due_ms[0]) for run in kept))
        near, self._near = self._near, []
        for run in join([run.slice(0, n) for *_, run in near if (n := run.below(key))], copy=True):
            self._push(run)
        everything = self.runs()
        self.rows = sum(run.rows for run in everything)
        self.bytes = sum(run.bytes for run in everything)
        self.loaded = min(self.loaded, key)
        self.safe = min(self.safe, key)

    def key_at_bytes(self, size: float) -> Key:
        """Return the key below which the first rows lie, about ``size`` bytes of them.

        There is always at least one row below.
        """
        runs: list[Run] = [run for *_, run in self._near]
        for number in sorted(self._slots):
            if runs and sum(run.bytes for run in runs) >= size:
                break
            runs += self._slots[number].runs
        due = np.concatenate([run.due_ms for run in runs])
        seq = np.concatenate([run.seq for run in runs])
        weight = np.concatenate([np.full(run.rows, run.row_bytes) for run in runs])
        order = np.lexsort((seq, due))
        at = order[min(max(1, int(np.searchsorted(np.cumsum(weight[order]), size))), len(order) - 1)]
        return Key(int(due[at]), int(seq[at]) + (len(order) == 1))


def _first_rows(runs: list[Run], until: Key, rows_max: int) -> tuple[list[int], Rows | None]:
    """Return how many rows of each run are among the first ``rows_max`` of all before ``until``.

    Also return the order that sorts those rows, one run after the other, if it was computed on the way.
    """
    counts = [run.below(until) for run in runs]
    if len(runs) < 2:
        return [min(count, rows_max) for count in counts], None
    if sum(counts) <= min(SOME_ROWS, rows_max):
        return counts, None
    due = np.concatenate([run.due_ms[:n] for run, n in zip(runs, counts, strict=True)])
    seq = np.concatenate([run.seq[:n] for run, n in zip(runs, counts, strict=True)])
    order = np.lexsort((seq, due))
    if len(order) <= rows_max:
        return counts, order
    # Each run is sorted, so the first rows overall are a prefix of each run.
    number = np.repeat(np.arange(len(runs)), counts)[order[:rows_max]]
    return np.bincount(number, minlength=len(runs)).tolist(), None
