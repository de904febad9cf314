"""Sorted rows in memory: what the slots of the wheel hold, joined and merged as they come near."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from tarry.base.message import concat
from tarry.base.types import Int64s, Key, Rows, count_before, is_in_order
from tarry.wheel.due import Due

FEW_ROWS = 8


@dataclass(frozen=True, slots=True)
class Run:
    """Rows sorted by (due time, seq), all from the intake or all from the store."""

    batch: pa.RecordBatch
    due_ms: Int64s
    seq: Int64s
    stored: bool
    row_bytes: float

    @classmethod
    def of(cls, batch: pa.RecordBatch, *, stored: bool, size: float | None = None) -> Run:
        """Sort a batch, if it is not sorted. ``size``: its bytes, where they are known; to count them takes a while."""
        due, seq = batch.column("due_ms").to_numpy(), batch.column("seq").to_numpy()
        row_bytes = (batch.nbytes if size is None else size) / max(1, batch.num_rows)
        if len(due) > FEW_ROWS:
            if not is_in_order(due, seq):
                order = np.lexsort((seq, due))
                batch, due, seq = batch.take(pa.array(order, pa.int64())), due[order], seq[order]
        elif len(due) > 1:
            # A steady stream comes in frames of a few rows, for which plain Python is several times as quick.
            keys = list(zip(due.tolist(), seq.tolist(), strict=True))
            if keys != sorted(keys):
                places = sorted(range(len(keys)), key=keys.__getitem__)
                batch = pa.concat_batches([batch.slice(place, 1) for place in places])
                due, seq = due[places], seq[places]
        return cls(batch, due, seq, stored, row_bytes)

    def slice(self, low: int, high: int) -> Run:
        return Run(
            self.batch.slice(low, high - low), self.due_ms[low:high], self.seq[low:high], self.stored, self.row_bytes
        )

    def below(self, key: Key) -> int:
        """How many rows come before ``key``."""
        return count_before(self.due_ms, self.seq, key)

    @property
    def rows(self) -> int:
        return len(self.due_ms)

    @property
    def bytes(self) -> float:
        return self.row_bytes * self.rows


def cut(run: Run, slot_ms: int) -> list[tuple[int, Run]]:
    """The parts of a run by slot, of ``slot_ms`` each, ascending."""
    parts = []
    low = 0
    while low < run.rows:
        number = int(run.due_ms[low]) // slot_ms
        high = int(run.due_ms.searchsorted((number + 1) * slot_ms, "left"))
        parts.append((number, run if high - low == run.rows else run.slice(low, high)))
        low = high
    return parts


def cut_arrival(batch: pa.RecordBatch, size: int, slot_ms: int) -> list[tuple[int, Run]]:
    """The rows of a batch of ``size`` bytes from the intake, as they arrived, as runs by slot, ascending by their first
    rows.
    """
    rows = batch.num_rows
    if not 1 < rows <= FEW_ROWS:
        return cut(Run.of(batch, stored=False, size=size), slot_ms)
    due, seq = batch.column("due_ms").to_numpy(), batch.column("seq").to_numpy()
    # To put a handful of rows in order costs far more than to have some runs more, as they fall apart by slot anyway:
    # each run ends where the next row is due before the one before it, or in another slot. Seqs ascend in the intake.
    moments, low, parts = due.tolist(), 0, []
    whole = Run(batch, due, seq, False, size / rows)
    for row in range(1, rows + 1):
        number = moments[low] // slot_ms
        if row == rows or moments[row] < moments[row - 1] or moments[row] // slot_ms != number:
            parts.append((number, whole if row - low == rows else whole.slice(low, row)))
            low = row
    return sorted(parts, key=_first_due)


def _first_due(part: tuple[int, Run]) -> int:
    return int(part[1].due_ms[0])


def join(runs: list[Run], *, copy: bool = False) -> list[Run]:
    """At most two runs, one of rows from the intake and one from the store. With ``copy``, neither shares memory with
    ``runs``.
    """
    joined = []
    for stored in (False, True):
        parts = [run for run in runs if run.stored is stored]
        if len(parts) == 1 and not copy:
            joined += parts
        elif parts:
            # They weigh what they weighed: the wheel's sum counts on it.
            size = sum(run.bytes for run in parts)
            joined.append(Run.of(pa.concat_batches([run.batch for run in parts]), stored=stored, size=size))
    return joined


def merge(runs: list[Run], order: Rows | None) -> Due:
    """All rows of some runs in order; ``order`` sorts their rows, one run after the other, where it is known."""
    stored = sum(run.rows for run in runs if run.stored)
    size = int(sum(run.bytes for run in runs))
    if len(runs) == 1:
        return Due(runs[0].batch, runs[0].due_ms, stored, size)
    batch = concat(run.batch for run in runs)
    due = np.concatenate([run.due_ms for run in runs])
    if order is None:
        order = np.lexsort((np.concatenate([run.seq for run in runs]), due))
    if (order[1:] > order[:-1]).all():
        return Due(batch, due, stored, size)  # sorted already, as small batches often are
    return Due(_arranged(batch, order), due[order], stored, size)


def _arranged(batch: pa.RecordBatch, order: Rows) -> pa.RecordBatch:
    if len(order) > FEW_ROWS:
        return batch.take(pa.array(order, pa.int64()))
    # To take a handful of rows costs twice as much as to put them one behind the other.
    return pa.concat_batches([batch.slice(place, 1) for place in order.tolist()])
