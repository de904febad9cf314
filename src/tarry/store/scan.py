"""Finds the first wanted rows in due order; skips files and row groups that cannot have them.

It reads bounds of files and row groups first, then a few columns, and all columns only of rows that are requested
afterwards.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from tarry.base.types import Int64s, Key, Mask, Rows, at_or_after, before, count_before
from tarry.message.criteria import Criteria
from tarry.message.schema import SCHEMA
from tarry.store.parquet import RowGroup, groups, read_group
from tarry.store.place import Place
from tarry.store.snapshot import Snapshot

Alive = Callable[[Int64s, Int64s], Mask]
"""``(due_ms, seq)`` → which of these rows are still pending."""


@dataclass(frozen=True, slots=True)
class Found:
    """Found rows by (due_ms, seq), and their places.

    ``place`` is (file, row group, row) of each. ``reached``: all wanted rows below it were found; None: there are no
    more.
    """

    due_ms: Int64s
    seq: Int64s
    place: Int64s
    reached: Key | None


def scan(
    snapshot: Snapshot, after: Key, until: Key, criteria: Criteria, alive: Alive, *, rows_max: int, deadline_s: float
) -> Found:
    """Return the first ``rows_max`` rows that fulfil the criteria with ``after <= (due_ms, seq) < until``.

    Searches until ``deadline_s`` (of :func:`time.monotonic`), but at least until it is past ``after``: it looks into
    each file and row group that spans that place once.

    Raises:
        CorruptError: a file is missing or damaged.
    """
    return _Scan(snapshot, after, until, criteria, alive, rows_max).run(deadline_s)


def read_places(snapshot: Snapshot, place: Int64s, columns: Sequence[str] = SCHEMA.names) -> pa.RecordBatch:
    """Rows of one row group, in the order in which ``place`` (:attr:`Found.place`) names them.

    Raises:
        CorruptError: the file is missing or damaged.
    """
    file, number = int(place[0, 0]), int(place[0, 1])
    batch = read_group(Place.of(snapshot.root), snapshot.files.path[file], number, columns)
    return batch.take(pa.array(place[:, 2], pa.int64()))


def first_alive(rows: Rows, due_ms: Int64s, seq: Int64s, alive: Alive, rows_max: int) -> Rows:
    """Return the first ``rows_max`` living rows of ``rows``, in order.

    Few are asked about at a time, because each question looks into an index.
    """
    kept, count = [rows[:0]], 0
    for low in range(0, len(rows), rows_max):
        part = rows[low : low + rows_max]
        part = part[alive(due_ms[part], seq[part])][: rows_max - count]
        kept.append(part)
        count += len(part)
        if count >= rows_max:
            break
    return np.concatenate(kept)


class _Scan:
    def __init__(
        self, snapshot: Snapshot, after: Key, until: Key, criteria: Criteria, alive: Alive, rows_max: int
    ) -> None:
        files = snapshot.files
        self._place, self._paths = Place.of(snapshot.root), files.path
        self._after, self._until, self._criteria, self._alive = after, until, criteria, alive
        self._rows_max = rows_max
        # (due_ms, seq), file, row group: lower bounds of unread parts. Row group -1 is a file as a whole.
        self._waiting: list[tuple[Key, int, int]] = []
        last = at_or_after(files.due_max_ms, files.seq_max, after)
        for i in np.flatnonzero(last & (files.due_min_ms <= until[0])).tolist():
            bounds = int(files.seq_min[i]), int(files.seq_max[i]), files.topic_min[i], files.topic_max[i]
            if criteria.may_be_in(*bounds):
                self._waiting.append((max(Key(int(files.due_min_ms[i]), bounds[0]), after), i, -1))
        heapq.heapify(self._waiting)
        self._due: Int64s = np.empty(0, np.int64)
        self._seq: Int64s = np.empty(0, np.int64)
        self._at: Int64s = np.empty((0, 3), np.int64)

    def run(self, deadline_s: float) -> Found:
        while self._waiting:
            bound = self._waiting[0][0]
            if bound >= self._last() or (bound > self._after and time.monotonic() >= deadline_s):
                break
            _, file, number = heapq.heappop(self._waiting)
            if number < 0:
                self._open(file)
            else:
                self._look(file, number)
        reached = self._waiting[0][0] if self._waiting else None
        if reached is not None and reached >= self._until:
            reached = None  # a file that begins at the end has nothing that is wanted
        if len(self._due) >= self._rows_max:
            # Rows behind the last of these were dropped.
            last = Key(int(self._due[-1]), int(self._seq[-1]) + 1)
            reached = last if reached is None else min(last, reached)
        if reached is None:
            return Found(self._due, self._seq, self._at, None)
        count = count_before(self._due, self._seq, reached)
        return Found(self._due[:count], self._seq[:count], self._at[:count], reached)

    def _last(self) -> Key:
        """Return the place from which on rows are not wanted: the end, or the last row's if there are enough."""
        if len(self._due) < self._rows_max:
            return self._until
        return Key(int(self._due[-1]), int(self._seq[-1]))

    def _open(self, file: int) -> None:
        for group in groups(self._place, self._paths[file]):
            if self._may_have(group):
                heapq.heappush(
                    self._waiting, (max(Key(group.due_min_ms, group.seq_min), self._after), file, group.number)
                )

    def _may_have(self, group: RowGroup) -> bool:
        within = (group.due_max_ms, group.seq_max) >= self._after and (group.due_min_ms, group.seq_min) < self._until
        return within and self._criteria.may_be_in(group.seq_min, group.seq_max, group.topic_min, group.topic_max)

    def _look(self, file: int, number: int) -> None:
        columns = ["due_ms", "seq", *self._criteria.columns]
        batch = read_group(self._place, self._paths[file], number, columns)
        due, seq = batch.column("due_ms").to_numpy(), batch.column("seq").to_numpy()
        hits = at_or_after(due, seq, self._after) & before(due, seq, self._last())
        rows = np.flatnonzero(hits & self._criteria.mask(batch))
        rows = rows[np.lexsort((seq[rows], due[rows]))]  # a foreign writer's file may not be sorted
        rows = first_alive(rows, due, seq, self._alive, self._rows_max)
        if len(rows):
            self._keep(file, number, rows, due, seq)

    def _keep(self, file: int, number: int, rows: Rows, due: Int64s, seq: Int64s) -> None:
        place = np.column_stack([np.full(len(rows), file), np.full(len(rows), number), rows]).astype(np.int64)
        due, seq = np.concatenate([self._due, due[rows]]), np.concatenate([self._seq, seq[rows]])
        order = np.lexsort((seq, due))[: self._rows_max]
        self._due, self._seq, self._at = due[order], seq[order], np.concatenate([self._at, place])[order]
