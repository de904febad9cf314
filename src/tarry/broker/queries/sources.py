"""The places of pending messages, with one interface: find wanted rows, then read them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import numpy as np
import pyarrow as pa

from tarry.base.types import Int64s, Key
from tarry.broker.queries.cut import Cut, JobRows
from tarry.intake.index import Window
from tarry.message.criteria import Criteria
from tarry.store.scan import Found, first_alive, read_places, scan

INTAKE_ROWS = 1024
"""Rows of the intake that are looked at first. In due order they may be in as many frames."""
INTAKE_ROWS_MAX = 1 << 18
INTAKE_UNIT_ROWS = 16
"""Rows of the intake that are read together: bodies may be large."""


class Source(Protocol):
    """One of the places: wheel, bulk jobs that it still lacks, store, intake."""

    def find(self, after: Key, until: Key, rows_max: int, deadline_s: float) -> Found:
        """Return the first wanted rows with ``after <= (due_ms, seq) < until``; see :mod:`tarry.store.scan`."""
        ...

    def units(self, place: Int64s) -> Int64s:
        """Return a unit number for each row of ``place`` (rows, 3); rows of one unit are read together."""
        ...

    def read(self, place: Int64s, columns: Sequence[str]) -> pa.RecordBatch:
        """Return the rows of one unit, in the order of ``place``."""
        ...


@dataclass(frozen=True, slots=True)
class InWheel:
    """Rows in memory; ``place`` is (piece, row, 0)."""

    cut: Cut
    wanted: Criteria

    def find(self, after: Key, until: Key, rows_max: int, deadline_s: float) -> Found:
        until = min(until, self.cut.safe)
        parts = [self._of_piece(at, after, until, rows_max) for at in range(len(self.cut.pieces))]
        rows = np.concatenate([np.empty((0, 4), np.int64), *parts])
        rows = rows[np.lexsort((rows[:, 1], rows[:, 0]))][:rows_max]
        reached = Key(int(rows[-1, 0]), int(rows[-1, 1]) + 1) if len(rows) >= rows_max else None
        place = np.column_stack([rows[:, 2:], np.zeros(len(rows), np.int64)])
        return Found(rows[:, 0], rows[:, 1], place, reached)

    def _of_piece(self, at: int, after: Key, until: Key, rows_max: int) -> Int64s:
        """(due_ms, seq, piece, row) of the first wanted rows."""
        piece = self.cut.pieces[at]
        low, high = piece.below(after), piece.below(until)
        if low >= high:
            return np.empty((0, 4), np.int64)
        rows = low + np.flatnonzero(self.wanted.mask(piece.batch.slice(low, high - low)))
        rows = first_alive(rows, piece.due_ms, piece.seq, self.cut.alive_in_wheel, rows_max)
        return np.column_stack([piece.due_ms[rows], piece.seq[rows], np.full(len(rows), at), rows]).astype(np.int64)

    def units(self, place: Int64s) -> Int64s:
        return place[:, 0]

    def read(self, place: Int64s, columns: Sequence[str]) -> pa.RecordBatch:
        rows = pa.array(place[:, 1], pa.int64())
        return self.cut.pieces[int(place[0, 0])].batch.select(list(columns)).take(rows)


@dataclass(frozen=True, slots=True)
class InStore:
    """Rows of the store's snapshot at or above the cut."""

    cut: Cut
    wanted: Criteria

    def find(self, after: Key, until: Key, rows_max: int, deadline_s: float) -> Found:
        after = max(after, self.cut.safe)
        snapshot = self.cut.snapshot
        return scan(snapshot, after, until, self.wanted, self.cut.alive, rows_max=rows_max, deadline_s=deadline_s)

    def units(self, place: Int64s) -> Int64s:
        return place[:, 0] << 32 | place[:, 1]

    def read(self, place: Int64s, columns: Sequence[str]) -> pa.RecordBatch:
        return read_places(self.cut.snapshot, place, columns)


@dataclass(frozen=True, slots=True)
class InJobs:
    """Rows of bulk jobs that the loader has not brought yet."""

    cut: Cut
    wanted: Criteria
    rows: JobRows

    def find(self, after: Key, until: Key, rows_max: int, deadline_s: float) -> Found:
        after, until = max(after, self.rows.low), min(until, self.rows.high)
        alive = partial(self.cut.alive_of, self.rows)
        return scan(self.rows.snapshot, after, until, self.wanted, alive, rows_max=rows_max, deadline_s=deadline_s)

    def units(self, place: Int64s) -> Int64s:
        return place[:, 0] << 32 | place[:, 1]

    def read(self, place: Int64s, columns: Sequence[str]) -> pa.RecordBatch:
        return read_places(self.rows.snapshot, place, columns)


@dataclass(frozen=True, slots=True)
class InIntake:
    """Rows of the intake at or above the cut that the snapshot does not have; ``place`` is (seq, 0, 0)."""

    cut: Cut
    wanted: Criteria

    def find(self, after: Key, until: Key, rows_max: int, deadline_s: float) -> Found:
        after = max(after, self.cut.safe)
        rows_found, reached = np.empty((0, 2), np.int64), None
        rows, began = max(INTAKE_ROWS, rows_max), time.monotonic()
        while after < until:
            window = Window(after, until, self.cut.snapshot.committed_seq, self.cut.seq_max)
            seq, after = self._next(window, rows)
            rows_found = np.concatenate([rows_found, self._filtered(window, seq, rows_max)])
            now = time.monotonic()
            if after < until and (len(rows_found) >= rows_max or now >= deadline_s):
                reached = after
                break
            if rows < INTAKE_ROWS_MAX and now + 4 * (now - began) < deadline_s:
                rows *= 4
        rows_found = rows_found[np.lexsort((rows_found[:, 1], rows_found[:, 0]))][:rows_max]
        if len(rows_found) >= rows_max:
            reached = Key(int(rows_found[-1, 0]), int(rows_found[-1, 1]) + 1)
        place = np.column_stack([rows_found[:, 1], np.zeros((len(rows_found), 2), np.int64)])
        return Found(rows_found[:, 0], rows_found[:, 1], place, reached)

    def _next(self, window: Window, rows: int) -> tuple[Int64s, Key]:
        """Seqs of the window's first rows, and the place behind them."""
        if (one := self.wanted.seq) is not None:
            # Looked up by number, without a search.
            return np.array([one] if window.seq_min <= one < window.seq_max else [], np.int64), window.until
        due, seq, complete = self.cut.intake.select(window, rows)
        if complete and len(seq) <= rows:
            return seq, window.until
        due, seq = due[:rows], seq[:rows]
        return seq, Key(int(due[-1]), int(seq[-1]) + 1)

    def _filtered(self, window: Window, seq: Int64s, rows_max: int) -> Int64s:
        """(due_ms, seq) of the first of these that are wanted and pending."""
        columns = ["seq", "due_ms", "kind", *self.wanted.columns]
        batch = self.cut.intake.read_columns(seq, columns)
        due, seq = batch.column("due_ms").to_numpy(), batch.column("seq").to_numpy()
        rows = np.flatnonzero(self.wanted.mask(batch) & window.select(due, seq))
        rows = rows[np.lexsort((seq[rows], due[rows]))]
        rows = first_alive(rows, due, seq, self.cut.alive, rows_max)
        return np.column_stack([due[rows], seq[rows]])

    def units(self, place: Int64s) -> Int64s:
        return np.arange(len(place), dtype=np.int64) // INTAKE_UNIT_ROWS

    def read(self, place: Int64s, columns: Sequence[str]) -> pa.RecordBatch:
        batch = self.cut.intake.read_columns(place[:, 0], columns)
        if batch.num_rows < len(place):
            raise FileNotFoundError("rows of the intake went away")  # with their segment: the cut is not whole
        return batch.take(pa.array(np.argsort(np.argsort(place[:, 0])), pa.int64()))
