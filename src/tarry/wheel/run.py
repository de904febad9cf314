"""Sorted rows in memory: the content of the wheel's slots, joined and merged as they come near."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import repeat

import numpy as np
import pyarrow as pa

from tarry.base.types import Int64s, Key, Rows, count_before, is_in_order
from tarry.message.schema import concat
from tarry.wheel.due import Due

FEW_ROWS = 8
SOME_ROWS = 32
"""Up to this many rows are sorted as places, in plain Python; more are moved."""


@dataclass(slots=True, eq=False)
class Run:
    """Rows sorted by (due time, seq), all from the intake or all from the store. Immutable.

    They are rows of ``source``, which is not rearranged or sliced before they are needed: slicing a batch touches each
    of its columns, and most rows are cut off, cut again and joined before they fire.
    """

    source: pa.RecordBatch
    places: int | Int64s
    """Positions of the rows in ``source``: an array, or the first position if the rows are contiguous."""
    due_ms: Int64s
    seq: Int64s
    stored: bool
    row_bytes: float

    @classmethod
    def of(cls, batch: pa.RecordBatch, *, stored: bool, size: float | None = None) -> Run:
        """Return a run of a batch, which is sorted if necessary.

        ``size``: its bytes, if known; counting them takes a while.
        """
        due, seq = batch.column("due_ms").to_numpy(), batch.column("seq").to_numpy()
        row_bytes = (batch.nbytes if size is None else size) / max(1, batch.num_rows)
        if len(due) > FEW_ROWS:
            if not is_in_order(due, seq):
                order = np.lexsort((seq, due))
                batch, due, seq = batch.take(pa.array(order, pa.int64())), due[order], seq[order]
        elif len(due) > 1:
            # A steady stream comes in frames of a few rows, for which plain Python is several times faster.
            keys = list(zip(due.tolist(), seq.tolist(), strict=True))
            if keys != sorted(keys):
                places = np.array(sorted(range(len(keys)), key=keys.__getitem__), np.int64)
                return cls(batch, places, due[places], seq[places], stored, row_bytes)
        return cls(batch, 0, due, seq, stored, row_bytes)

    def slice(self, low: int, high: int) -> Run:
        places = self.places + low if isinstance(self.places, int) else self.places[low:high]
        return Run(self.source, places, self.due_ms[low:high], self.seq[low:high], self.stored, self.row_bytes)

    @property
    def batch(self) -> pa.RecordBatch:
        """The rows themselves, as a new batch each time."""
        return concat(self.pieces())

    def pieces(self) -> list[pa.RecordBatch]:
        """Return the rows themselves, in consecutive batches."""
        if isinstance(self.places, int):
            return [self.source if self.rows == self.source.num_rows else self.source.slice(self.places, self.rows)]
        return pieces_at(self.source, self.places)

    def below(self, key: Key) -> int:
        """Return how many rows come before ``key``."""
        return count_before(self.due_ms, self.seq, key)

    @property
    def rows(self) -> int:
        return len(self.due_ms)

    @property
    def bytes(self) -> float:
        return self.row_bytes * self.rows


def pieces_at(batch: pa.RecordBatch, places: Rows) -> list[pa.RecordBatch]:
    """Return the rows of a batch at these places, in consecutive batches."""
    if len(places) > FEW_ROWS:
        return [batch.take(pa.array(places, pa.int64()))]
    # Taking a handful of rows costs twice as much as concatenating slices.
    return [batch.slice(place, 1) for place in places.tolist()]


def cut(run: Run, slot_ms: int) -> list[tuple[int, Run]]:
    """Return the parts of a run by slot, of ``slot_ms`` each, ascending."""
    parts = []
    low = 0
    while low < run.rows:
        number = int(run.due_ms[low]) // slot_ms
        high = int(run.due_ms.searchsorted((number + 1) * slot_ms, "left"))
        parts.append((number, run if high - low == run.rows else run.slice(low, high)))
        low = high
    return parts


def cut_arrival(batch: pa.RecordBatch, size: int, slot_ms: int) -> list[tuple[int, Run]]:
    """Return a batch of ``size`` bytes, just arrived in the intake, as runs by slot, ascending."""
    rows = batch.num_rows
    if not 1 < rows <= SOME_ROWS:
        return cut(Run.of(batch, stored=False, size=size), slot_ms)
    due, seq = batch.column("due_ms").to_numpy(), batch.column("seq").to_numpy()
    # Seqs ascend in the intake, and a stable sort keeps their order among equal due times.
    moments = due.tolist()
    order = sorted(range(rows), key=moments.__getitem__)
    places = np.array(order, np.int64)
    run = Run(batch, places, due[places], seq[places], False, size / rows)
    parts, low = [], 0
    while low < rows:
        number = moments[order[low]] // slot_ms
        high = low + 1
        while high < rows and moments[order[high]] // slot_ms == number:
            high += 1
        parts.append((number, run.slice(low, high)))
        low = high
    return parts


def join(runs: list[Run], *, copy: bool = False) -> list[Run]:
    """Return at most two runs: one of the rows from the intake and one of those from the store.

    With ``copy``, neither shares memory with ``runs``.
    """
    joined = []
    for stored in (False, True):
        parts = [run for run in runs if run.stored is stored]
        if len(parts) == 1 and not copy:
            joined += parts
        elif parts:
            # Keep the summed size: the wheel's total was computed from it.
            size = sum(run.bytes for run in parts)
            batch = pa.concat_batches([piece for run in parts for piece in run.pieces()])
            joined.append(Run.of(batch, stored=stored, size=size))
    return joined


def merge(runs: list[Run], order: Rows | None) -> Due:
    """Merge all rows of some runs; ``order``, if known, sorts their rows, one run after the other."""
    stored = sum(run.rows for run in runs if run.stored)
    size = int(sum(run.bytes for run in runs))
    if len(runs) == 1:
        return Due(runs[0].batch, runs[0].due_ms, stored, size)
    if order is None and sum(run.rows for run in runs) <= SOME_ROWS:
        return Due(*_merged(runs), stored, size)
    batch = concat(piece for run in runs for piece in run.pieces())
    due = np.concatenate([run.due_ms for run in runs])
    if order is None:
        order = np.lexsort((np.concatenate([run.seq for run in runs]), due))
    if (order[1:] > order[:-1]).all():
        return Due(batch, due, stored, size)  # sorted already, as small batches often are
    return Due(concat(pieces_at(batch, order)), due[order], stored, size)


def _merged(runs: list[Run]) -> tuple[pa.RecordBatch, Int64s]:
    """Return the rows of a few runs in order, and their due times.

    For a few rows, as in a steady stream, slicing costs the most: so each slice is cut once, in its place.
    """
    rows: list[tuple[int, int, int, int]] = []
    for number, run in enumerate(runs):
        places = run.places
        at = range(places, places + run.rows) if isinstance(places, int) else places.tolist()
        rows += zip(run.due_ms.tolist(), run.seq.tolist(), repeat(number), at, strict=False)
    rows.sort()
    pieces = []
    low = 0
    while low < len(rows):
        _, _, number, place = rows[low]
        high = low + 1
        while high < len(rows) and rows[high][2:] == (number, place + high - low):
            high += 1
        pieces.append(runs[number].source.slice(place, high - low))
        low = high
    return concat(pieces), np.array([row[0] for row in rows], np.int64)
