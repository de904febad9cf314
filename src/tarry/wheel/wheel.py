"""Slots and runs: the messages below ``loaded``, by due time. See the package for a worked example.

Nothing here is the only copy: every row is in the intake or the store until the ready log has it durably. That is what
makes :meth:`Wheel.truncate` safe, and a crash.
"""

from __future__ import annotations

import heapq
import itertools
import threading
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tarry.base.message import concat
from tarry.base.types import Int64s, Key
from tarry.wheel.due import Due
from tarry.wheel.withdrawn import Withdrawn

_HIGHEST = np.iinfo(np.int64).max
SLOT_MS = 1000
NEAR_MS = 1500
"""Slots that begin within this time are sorted into runs."""
FEW_ROWS = 8
PIECES_MAX = 64
"""So many slices of one slot are joined at once, so that no later join has thousands of parts."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Rows sorted by (due time, seq), all from the intake or all from the store."""

    batch: pa.RecordBatch
    due_ms: Int64s
    seq: Int64s
    stored: bool
    row_bytes: float

    @classmethod
    def of(cls, batch: pa.RecordBatch, *, stored: bool, size: float | None = None) -> Piece:
        """Sort a batch, if it is not sorted. ``size``: its bytes, where they are known; to count them takes a while."""
        due, seq = batch.column("due_ms").to_numpy(), batch.column("seq").to_numpy()
        row_bytes = (batch.nbytes if size is None else size) / max(1, batch.num_rows)
        if len(due) > FEW_ROWS:
            if not _ascending(due, seq):
                order = np.lexsort((seq, due))
                batch, due, seq = batch.take(pa.array(order, pa.int64())), due[order], seq[order]
        elif len(due) > 1:
            # A steady stream comes in frames of a few rows, for which plain Python is several times as quick.
            keys = list(zip(due.tolist(), seq.tolist(), strict=True))
            places = sorted(range(len(keys)), key=keys.__getitem__)
            if places != list(range(len(keys))):
                batch = pa.concat_batches([batch.slice(place, 1) for place in places])
                due, seq = due[places], seq[places]
        return cls(batch, due, seq, stored, row_bytes)

    def slice(self, low: int, high: int) -> Piece:
        return Piece(
            self.batch.slice(low, high - low), self.due_ms[low:high], self.seq[low:high], self.stored, self.row_bytes
        )

    def below(self, key: Key) -> int:
        """How many rows come before ``key``."""
        low = int(self.due_ms.searchsorted(key.due_ms, "left"))
        high = int(self.due_ms.searchsorted(key.due_ms, "right"))
        return low + int(self.seq[low:high].searchsorted(key.seq, "left"))

    @property
    def rows(self) -> int:
        return len(self.due_ms)

    @property
    def bytes(self) -> float:
        return self.row_bytes * self.rows


@dataclass(frozen=True, slots=True)
class Arrival:
    """What came in, and of that the rows below ``limit``, by slot."""

    batch: pa.RecordBatch
    size: int
    limit: Key
    parts: list[tuple[int, Piece]]


@dataclass(slots=True)
class _Slot:
    pieces: list[Piece] = field(default_factory=list)
    due_min_ms: int = _HIGHEST


class Wheel:
    """All methods but :meth:`prepare`, :meth:`join_small` and :meth:`make_near` are called with :attr:`lock` held. The
    lock's condition is what the dispatcher waits on.
    """

    def __init__(self, loaded: Key, fired: Key) -> None:
        self.lock = threading.Condition()
        self.loaded = loaded
        """Rows accepted from now on that stand before it belong here."""
        self.safe = loaded
        """All pending rows below are here: ``loaded``, except while the loader is on its way there."""
        self.fired = fired
        """Above every row that was ever taken. The wheel is never cut below it, or a fired row would be loaded
        again.
        """
        self.bytes = 0.0
        self.rows = 0
        self._slots: dict[int, _Slot] = {}
        self._runs: list[tuple[int, int, int, Piece]] = []  # heap of (due, seq, tie, the run's rest)
        self._crowded: set[int] = set()
        self._near_slot = loaded.due_ms // SLOT_MS
        self._ties = itertools.count()
        self.withdrawn = Withdrawn()
        """What was cancelled and is in here all the same."""
        self.advancing: dict[int, int] = {}
        """Occurrences of series (due time by seq) that were taken and are not in the ready log yet."""

    def prepare(self, batch: pa.RecordBatch, size: int) -> Arrival:
        """Without the lock: the rows of an arrival of ``size`` bytes that are below ``loaded`` as it is now, sorted and
        cut into slots. The dispatcher waits for the lock, so :meth:`accept` must have little left to do.

        A few rows of a large batch are copied out, so that they do not keep all of it in memory for the length of the
        horizon.

        The seq counts as well as the due time: where the wheel was cut among the messages of a bulk job that are due in
        one millisecond, what arrives for the same millisecond has a lower seq than the cut, and the loader, which goes
        on from the cut, would never bring it.
        """
        limit, due = self.loaded, batch.column("due_ms").to_numpy()
        is_below = due < limit.due_ms
        if limit.seq:  # seldom: else the due time alone decides
            is_below |= (due == limit.due_ms) & (batch.column("seq").to_numpy() < limit.seq)
        below = is_below.nonzero()[0]
        if not len(below):
            return Arrival(batch, size, limit, [])
        if 2 * len(below) > batch.num_rows:
            piece = Piece.of(batch, stored=False, size=size)
            piece = piece.slice(0, len(below))
        else:
            few = batch.take(pa.array(below, pa.int64()))
            piece = Piece.of(few, stored=False, size=size * len(below) // batch.num_rows)
        return Arrival(batch, size, limit, _cut(piece))

    def accept(self, arrival: Arrival) -> bool:
        """Take the rows below ``loaded``; whether the next due time became sooner, so that the dispatcher must be
        woken.
        """
        if arrival.limit != self.loaded:
            # The loader moved it since: the rows between the two limits belong here now, or do no longer.
            arrival = self.prepare(arrival.batch, arrival.size)
        return self._take(arrival.parts)

    def add(self, piece: Piece) -> bool:
        """Take all rows; whether the next due time became sooner."""
        return self._take(_cut(piece))

    def _take(self, parts: list[tuple[int, Piece]]) -> bool:
        if not parts:
            return False
        before = self.next_due()
        for number, piece in parts:
            self.rows += piece.rows
            self.bytes += piece.bytes
            if number < self._near_slot:
                self._push(piece)
            else:
                self._put(number, piece)
        return before is None or int(parts[0][1].due_ms[0]) < before

    def _put(self, number: int, piece: Piece) -> None:
        slot = self._slots.get(number)
        if slot is None:
            slot = self._slots[number] = _Slot()
        slot.pieces.append(piece)
        slot.due_min_ms = min(slot.due_min_ms, int(piece.due_ms[0]))
        if len(slot.pieces) % PIECES_MAX == 0:
            self._crowded.add(number)

    def _push(self, piece: Piece) -> None:
        heapq.heappush(self._runs, (int(piece.due_ms[0]), int(piece.seq[0]), next(self._ties), piece))

    def next_due(self) -> int | None:
        """The lowest due time here."""
        run = self._runs[0][0] if self._runs else None
        slot = self._next_in_slots()
        if run is None or slot is None:
            return slot if run is None else run
        return min(run, slot)

    def _next_in_slots(self) -> int | None:
        return self._slots[min(self._slots)].due_min_ms if self._slots else None

    def next_fireable(self) -> int | None:
        """The lowest due time here that need not wait for the loader; None when there is none."""
        heads = [Key(self._runs[0][0], self._runs[0][1])] if self._runs else []
        if (slot := self._next_in_slots()) is not None:
            heads.append(Key(slot, 0))
        head = min(heads, default=None)
        return head.due_ms if head is not None and head < self.safe else None

    @property
    def is_crowded(self) -> bool:
        """Whether there is something for :meth:`join_small`."""
        return bool(self._crowded)

    def join_small(self) -> None:
        """Join the small pieces of each slot that has many, so that no later join has thousands of parts. Takes the
        lock itself, and joins without it: whoever is on the way of a message waits for no copying.
        """
        while True:
            with self.lock:
                if not self._crowded:
                    return
                slot = self._slots.get(number := self._crowded.pop())
                pieces = [] if slot is None else list(slot.pieces)
            small = [p for p in pieces if p.rows < 4 * PIECES_MAX]
            if slot is None or len(small) <= PIECES_MAX // 2:
                continue
            joined = [p for p in pieces if p.rows >= 4 * PIECES_MAX] + _join(small)
            with self.lock:
                # It may have fired, become near or been cut meanwhile; what was added came behind.
                if self._slots.get(number) is slot:
                    slot.pieces = joined + slot.pieces[len(pieces) :]
            # Freed together, hundreds of batches would keep the interpreter from all threads for milliseconds.
            small.clear()
            while pieces:
                pieces.pop()

    def make_near(self, now_ms: int) -> None:
        """Sort the slots that begin soon into runs. Takes the lock itself; sorts without it, so that nothing waits for
        a large slot.

        A slot stays where it is until its sorted run takes its place, so a dispatcher that comes meanwhile finds every
        row.
        """
        end = (now_ms + NEAR_MS) // SLOT_MS + 1
        while True:
            with self.lock:
                self._near_slot = max(self._near_slot, end)
                number = min((n for n in self._slots if n < end), default=None)
                if number is None:
                    return
                slot = self._slots[number]
                if len(slot.pieces) == 1:
                    del self._slots[number]
                    self._push(slot.pieces[0])
                    self.lock.notify_all()
                    continue
                pieces = list(slot.pieces)
            runs = _join(pieces)
            with self.lock:
                # New rows for this slot have become runs of their own meanwhile; truncate() may have cut the slot.
                if self._slots.get(number) is slot and len(slot.pieces) == len(pieces) and slot.pieces[0] is pieces[0]:
                    del self._slots[number]
                    for run in runs:
                        self._push(run)
                    self.lock.notify_all()

    def take_due(self, now_ms: int, rows_max: int) -> Due | None:
        """Remove and give the first ``rows_max`` rows that are due, in order; None when nothing is.

        Rows at or above ``safe`` wait for what the loader is still to bring from below them: that keeps the order, and
        keeps ``fired`` at or below ``safe``, so that a load that stops half way can be taken up again from there.
        A slot that is due and not near yet (the loader was busy) is turned into runs here.
        """
        while (due := self._take_due(now_ms, rows_max)) is not None:
            due = self.withdrawn.leave_out(due, self.fired) if self.withdrawn else due
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

    def _take_due(self, now_ms: int, rows_max: int) -> Due | None:
        while (soonest := self._next_in_slots()) is not None and soonest <= now_ms:
            number = min(self._slots)
            for piece in self._slots.pop(number).pieces:
                self._push(piece)
        taken: list[Piece] = []
        while self._runs and self._runs[0][0] <= now_ms:
            taken.append(heapq.heappop(self._runs)[3])
        if not taken:
            return None
        until = min(Key(now_ms + 1, 0), self.safe)
        counts = [p.below(until) for p in taken]
        order: npt.NDArray[np.intp] | None = None
        if len(taken) > 1:
            due = np.concatenate([p.due_ms[:n] for p, n in zip(taken, counts, strict=True)])
            seq = np.concatenate([p.seq[:n] for p, n in zip(taken, counts, strict=True)])
            order = np.lexsort((seq, due))
            if len(order) > rows_max:
                # Each run is sorted, so the first rows overall are a prefix of each run.
                run = np.repeat(np.arange(len(taken)), counts)[order[:rows_max]]
                counts = np.bincount(run, minlength=len(taken)).tolist()
                order = None
        else:
            counts[0] = min(counts[0], rows_max)
        first = [p.slice(0, n) for p, n in zip(taken, counts, strict=True) if n]
        if not first:
            for piece in taken:
                self._push(piece)
            return None
        for piece, n in zip(taken, counts, strict=True):
            if n < piece.rows:
                self._push(piece.slice(n, piece.rows))
        self.rows -= sum(p.rows for p in first)
        self.bytes = self.bytes - sum(p.bytes for p in first) if self.rows else 0.0
        last = max(Key(int(p.due_ms[-1]), int(p.seq[-1]) + 1) for p in first)
        self.fired = max(self.fired, last)
        return _merge(first, order)

    def has_late(self, due_ms: int, seq: int) -> bool:
        """Whether this message, which is below :attr:`fired`, is here: it came late and is about to be taken."""
        candidates = [p for due, *_, p in self._runs if due <= due_ms]
        slot = self._slots.get(due_ms // SLOT_MS)
        for piece in [*candidates, *(slot.pieces if slot is not None else ())]:
            at = piece.below(Key(due_ms, seq))
            if at < piece.rows and int(piece.seq[at]) == seq:
                return True
        return False

    def pieces(self) -> list[Piece]:
        """Everything that is here."""
        return [p for s in self._slots.values() for p in s.pieces] + [p for *_, p in self._runs]

    def truncate(self, key: Key) -> None:
        """Forget the rows at or above ``key`` and move ``loaded`` back to it: the loader will bring them again.

        What is kept is copied, since a slice would keep the whole batch in memory that it was cut from.
        """
        for number in list(self._slots):
            if (number + 1) * SLOT_MS > key.due_ms:
                slot = self._slots.pop(number)
                kept = [p.slice(0, n) for p in slot.pieces if (n := p.below(key))]
                if kept:
                    self._slots[number] = _Slot(_join(kept, copy=True), min(int(p.due_ms[0]) for p in kept))
        runs, self._runs = self._runs, []
        for run in _join([p.slice(0, n) for *_, p in runs if (n := p.below(key))], copy=True):
            self._push(run)
        everything = self.pieces()
        self.rows = sum(p.rows for p in everything)
        self.bytes = sum(p.bytes for p in everything)
        self.loaded = min(self.loaded, key)
        self.safe = min(self.safe, key)

    def key_at_bytes(self, size: float) -> Key:
        """The key below which the first rows, about ``size`` bytes of them, lie. Always leaves at least one row
        below.
        """
        total = 0.0
        pieces: list[Piece] = [p for *_, p in self._runs]
        for number in sorted(self._slots):
            if pieces and total + sum(p.bytes for p in pieces) >= size:
                break
            pieces += self._slots[number].pieces
        due = np.concatenate([p.due_ms for p in pieces])
        seq = np.concatenate([p.seq for p in pieces])
        weight = np.concatenate([np.full(p.rows, p.row_bytes) for p in pieces])
        order = np.lexsort((seq, due))
        at = order[min(max(1, int(np.searchsorted(np.cumsum(weight[order]), size))), len(order) - 1)]
        return Key(int(due[at]), int(seq[at]) + (len(order) == 1))


def _cut(piece: Piece) -> list[tuple[int, Piece]]:
    """By slot, ascending."""
    parts = []
    low = 0
    while low < piece.rows:
        number = int(piece.due_ms[low]) // SLOT_MS
        high = int(piece.due_ms.searchsorted((number + 1) * SLOT_MS, "left"))
        parts.append((number, piece if high - low == piece.rows else piece.slice(low, high)))
        low = high
    return parts


def _ascending(due: Int64s, seq: Int64s) -> bool:
    step, order = np.diff(due), np.diff(seq)
    return bool(((step > 0) | ((step == 0) & (order > 0))).all())


def _join(pieces: list[Piece], *, copy: bool = False) -> list[Piece]:
    """At most two pieces, one of rows from the intake and one from the store."""
    joined = []
    for stored in (False, True):
        parts = [p for p in pieces if p.stored is stored]
        if len(parts) == 1 and not copy:
            joined += parts
        elif parts:
            # They weigh what they weighed: the wheel's sum counts on it.
            size = sum(p.bytes for p in parts)
            joined.append(Piece.of(pa.concat_batches([p.batch for p in parts]), stored=stored, size=size))
    return joined


def _merge(pieces: list[Piece], order: npt.NDArray[np.intp] | None) -> Due:
    stored = sum(p.rows for p in pieces if p.stored)
    size = int(sum(p.bytes for p in pieces))
    if len(pieces) == 1:
        return Due(pieces[0].batch, pieces[0].due_ms, stored, size)
    batch = concat(p.batch for p in pieces)
    due = np.concatenate([p.due_ms for p in pieces])
    if order is None:
        order = np.lexsort((np.concatenate([p.seq for p in pieces]), due))
    if (order[1:] > order[:-1]).all():
        return Due(batch, due, stored, size)  # sorted already, as small batches often are
    return Due(batch.take(pa.array(order, pa.int64())), due[order], stored, size)
