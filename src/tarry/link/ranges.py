"""Rows of a range in parts: the broker ends an answer early, and who reads asks on behind it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import pyarrow as pa

from tarry.message.schema import chunks

PART_BYTES = 4 << 20
"""An answer ends with the batch that brings it to this."""


def first_part(batches: Iterable[pa.RecordBatch]) -> list[pa.RecordBatch]:
    """Return batches up to about :data:`PART_BYTES`, one at least if there is one."""
    return next(chunks(batches, PART_BYTES), [])


def read_range(first: pa.Table, ask: Callable[[int], pa.Table], goes_on_by: str, end: int) -> Iterator[pa.RecordBatch]:
    """Yield all batches of a range that ends at ``end``, of which ``first`` is the first part.

    ``ask`` returns the part that begins at a position; ``goes_on_by`` is the column of positions.
    """
    part = first
    while part.num_rows:
        yield from part.to_batches()
        start = part[goes_on_by][-1].as_py() + 1
        if start >= end:
            return
        part = ask(start)
