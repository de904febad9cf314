"""Due index of an intake segment that is in memory: the rows that fall due in a window.

A segment that is being written answers from arrays in memory (:class:`ActiveIndex`); a sealed one from a file
(:class:`tarry.intake.sealed_index.SealedIndex`).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from tarry.base.types import Int64s, Key, Mask, at_or_after, before
from tarry.log.segment import Located, SegmentReader
from tarry.message.schema import SCHEMA


@dataclass(frozen=True, slots=True)
class Window:
    """Rows with ``after <= (due_ms, seq) < until`` and ``seq_min <= seq < seq_max``."""

    after: Key
    until: Key
    seq_min: int
    seq_max: int

    def select(self, due: Int64s, seq: Int64s) -> Mask:
        """Mask of the rows that are in the window."""
        within = at_or_after(due, seq, self.after) & before(due, seq, self.until)
        mask: Mask = within & (seq >= self.seq_min) & (seq < self.seq_max)
        return mask


class FrameTable(NamedTuple):
    """The frames of a segment in seq order: ``first_seq`` and file ``position`` of each."""

    first_seq: Int64s
    position: Int64s


class Index(NamedTuple):
    """Rows of a segment sorted by (due time, seq), with the segment's frames."""

    due_ms: Int64s
    seq: Int64s
    frames: FrameTable


class ActiveIndex:
    """Grows with the segment being written. One writer appends; readers may look at any time.

    A reader that runs beside the writer sees a prefix: lists only grow, and each append adds to ``_rows`` last.
    """

    def __init__(self, base: int) -> None:
        self.base = base
        self._first_seq: list[int] = []
        self._position: list[int] = []
        self._due: list[Int64s] = []
        self._rows: list[int] = []
        self.due_min_ms = np.iinfo(np.int64).max
        self.due_max_ms = np.iinfo(np.int64).min

    def add(self, first_seq: int, position: int, due_ms: Int64s, due_min_ms: int, due_max_ms: int) -> None:
        """Add a written frame: the seq of its first row, its position in the file, and its due times.

        ``due_min_ms`` and ``due_max_ms`` are the lowest and the highest of these.
        """
        self.due_min_ms = min(self.due_min_ms, due_min_ms)
        self.due_max_ms = max(self.due_max_ms, due_max_ms)
        self._first_seq.append(first_seq)
        self._position.append(position)
        self._due.append(due_ms)
        self._rows.append(len(due_ms))

    @property
    def end_seq(self) -> int:
        """The seq after the last row."""
        n = len(self._rows)
        return self._first_seq[n - 1] + self._rows[n - 1] if n else self.base

    def frames(self) -> FrameTable:
        n = len(self._rows)
        return FrameTable(np.array(self._first_seq[:n], np.int64), np.array(self._position[:n], np.int64))

    def select(self, window: Window, limit: int) -> tuple[Int64s, Int64s]:
        """Due times and seqs of the first ``limit`` rows of the window, in order."""
        n = len(self._rows)
        # Frames before seq_min cannot contribute; a long-lived active segment of small frames is mostly that.
        start = max(0, bisect_right(self._first_seq, window.seq_min, 0, n) - 1)
        if start >= n:
            return np.empty(0, np.int64), np.empty(0, np.int64)
        due = np.concatenate(self._due[start:n])
        seq = np.arange(self._first_seq[start], self._first_seq[start] + len(due), dtype=np.int64)
        picked = np.flatnonzero(window.select(due, seq))
        due, seq = due[picked], seq[picked]
        order = np.argsort(due, kind="stable")[:limit]
        return due[order], seq[order]

    def sorted(self) -> Index:
        """All rows, for sealing."""
        due = np.concatenate(self._due) if self._due else np.empty(0, np.int64)
        order = np.argsort(due, kind="stable")
        return Index(due[order], order + self.base, self.frames())


def index_of_log(path: Path, base: int, checked: Iterable[Located] | None = None) -> ActiveIndex:
    """Rebuild the index from the frames of a segment.

    ``checked``: all of its frames, found whole; None: each is read and checked here.

    Raises:
        CorruptError: for a damaged frame.
    """
    index = ActiveIndex(base)
    with SegmentReader(path) as reader:
        if checked is None:
            for at, _, batch in reader.read_all(SCHEMA):
                _add(index, at, _due_times(batch))
            return index
        for at in checked:
            header = at.header
            if header.due_min_ms == header.due_max_ms:  # as that of each message that was sent alone: nothing is read
                _add(index, at, np.full(header.rows, header.due_min_ms, np.int64))
            else:
                _add(index, at, _due_times(reader.read(at.position, SCHEMA)[2]))
    return index


def _add(index: ActiveIndex, at: Located, due_ms: Int64s) -> None:
    index.add(at.header.base, at.position, due_ms, at.header.due_min_ms, at.header.due_max_ms)


def _due_times(batch: pa.RecordBatch) -> Int64s:
    due_ms: Int64s = batch.column("due_ms").to_numpy().copy()
    return due_ms
