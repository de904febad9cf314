"""Rows taken from the wheel because they are due."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from tarry.base.types import Int64s, Mask


@dataclass(frozen=True, slots=True)
class Due:
    """Rows that are due, sorted by (due time, seq); ``stored_rows`` of them came from the store.

    ``series`` holds the rows that repeat: their successors must be durable before they are handed on.
    """

    batch: pa.RecordBatch
    due_ms: Int64s
    stored_rows: int
    bytes: int
    series: Due | None = None

    def split(self, mask: Mask) -> tuple[Due, Due]:
        """Return the rows of the mask, and the others.

        The number of rows from the store is known for the whole only. It is divided in proportion to the rows, so only
        the sum is exact. The same holds for the bytes.
        """
        rows, some = max(1, len(mask)), int(mask.sum())
        size = self.bytes * some // rows
        stored = max(self.stored_rows * some // rows, self.stored_rows - (len(mask) - some))
        return (
            Due(self.batch.filter(pa.array(mask)), self.due_ms[mask], stored, size),
            Due(self.batch.filter(pa.array(~mask)), self.due_ms[~mask], self.stored_rows - stored, self.bytes - size),
        )
