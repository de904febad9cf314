"""Counts of a file's messages by topic and span of due time, kept in the file's footer.

They are counted while the file is written, so that the load is forecast without reading a row. Format:
``docs/formats-store.md``.

Spans of time are as short as few counts allow: a minute, else an hour, a day or 32 days; all of a file are of one
length. Beside them stand the instants that have the most messages, as herds fall into one millisecond.
"""

from __future__ import annotations

import base64
import json
import zlib
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from tarry.base.types import Int64s
from tarry.store.layout import DAY_MS, HOUR_MS, MINUTE_MS

KEY = b"tarry.due_counts"
"""Key of the counts in a footer's metadata."""
VERSION = 1
SPANS_MS = (MINUTE_MS, HOUR_MS, DAY_MS, 32 * DAY_MS)
CELLS_MAX = 8192
"""Most counts of a file: about 30 KB of its footer."""
CELLS_FREE = 256
"""Beyond so many counts there are at most as many as rows: a small file's footer stays small."""
TOPICS_MAX = 256
"""Topics with counts of their own; those that come later in a file share one."""
OTHERS = -1
"""The number of that one."""
EVERY = -1
"""Number in herds for all topics together."""
HERD_ROWS_MIN = 8
HERDS_MAX = 64
HERDS_OF_TOPIC_MAX = 8
SAMPLE_ROWS = 512
_WAITING_MAX = 4 * CELLS_MAX


@dataclass(frozen=True, slots=True, eq=False)
class DueCounts:
    """Counts of one file.

    ``cells``: rows of (topic, number of the span of ``span_ms``, messages); a topic is a number of ``topics``, or
    :data:`OTHERS`. ``herds``: rows of (topic or :data:`EVERY`, due_ms, messages).
    """

    span_ms: int
    topics: list[str]
    cells: Int64s
    herds: Int64s

    @property
    def rows(self) -> int:
        """Number of messages of the file."""
        return int(self.cells[:, 2].sum())

    def cells_of(self, topic: str | None) -> tuple[Int64s, bool]:
        """Spans and messages (rows of two) of a topic, or of all; and whether they are known to be of it."""
        if topic is None:
            spans, at = np.unique(self.cells[:, 1], return_inverse=True)
            return np.column_stack([spans, _summed(at, self.cells[:, 2], len(spans))]), True
        number = self._number(topic)
        return self.cells[self.cells[:, 0] == number, 1:], number != OTHERS

    def may_have(self, topic: str | None, due_ms: int) -> bool:
        """Return whether the span of that instant has a message of a topic, or of any."""
        is_there = self.cells[:, 1] == due_ms // self.span_ms
        return bool(is_there.any() if topic is None else (is_there & (self.cells[:, 0] == self._number(topic))).any())

    def herds_of(self, topic: str | None) -> Int64s:
        """Instants and messages (rows of two) of a topic, or of all."""
        number = EVERY if topic is None else self._number(topic)
        if topic is not None and number == OTHERS:
            return self.herds[:0, 1:]
        return self.herds[self.herds[:, 0] == number, 1:]

    def _number(self, topic: str) -> int:
        return self.topics.index(topic) if topic in self.topics else OTHERS

    def to_bytes(self) -> bytes:
        """Return the counts for a footer: printable, because other readers take them for text."""
        head = {"version": VERSION, "span_ms": self.span_ms, "topics": self.topics, "cells": len(self.cells)}
        # Columns, and the steps of ascending ones: these compress well.
        parts = [_steps(self.cells), _steps(self.herds)]
        body = b"".join(part.T.astype("<i8").tobytes() for part in parts)
        return base64.b64encode(zlib.compress(json.dumps(head).encode() + b"\n" + body, 1))

    @classmethod
    def of_bytes(cls, raw: bytes) -> DueCounts | None:
        """Read the bytes of :meth:`to_bytes`; None if another version or a foreign writer wrote them."""
        try:
            head, _, body = zlib.decompress(base64.b64decode(raw, validate=True)).partition(b"\n")
            fields = json.loads(head)
            if fields["version"] != VERSION:
                return None
            numbers = np.frombuffer(body, "<i8").astype(np.int64)
            end = 3 * int(fields["cells"])
            cells, herds = (part.reshape(3, -1).T for part in (numbers[:end], numbers[end:]))
            return cls(int(fields["span_ms"]), list(fields["topics"]), _sums(cells), _sums(herds))
        except (ValueError, LookupError, TypeError, zlib.error):
            return None


class DueCounter:
    """Counts the rows of a file as they are written, in due order; memory does not grow with them."""

    def __init__(self) -> None:
        self._rows = 0
        self._level = 0
        self._topics_max = TOPICS_MAX
        self._codes: dict[str, int] = {}
        self._cells: list[Int64s] = []
        self._waiting = 0
        self._herds: list[Int64s] = []
        self._herds_waiting = 0

    def add(self, rows: pa.RecordBatch) -> None:
        """More rows, of a schema with ``topic`` and ``due_ms``."""
        if not rows.num_rows:
            return
        due, codes = rows.column("due_ms").to_numpy(), self._numbered(rows.column("topic"))
        self._rows += len(due)
        while len(due) > SAMPLE_ROWS and self._level + 1 < len(SPANS_MS) and self._is_sparse(due, codes):
            self._level += 1
            self._cells = [_coarser(cells, self._level) for cells in self._cells]
        cells = _counted(codes, due // SPANS_MS[self._level])
        self._cells.append(cells)
        self._waiting += len(cells)
        if self._waiting > _WAITING_MAX:
            self._fit(CELLS_MAX)
        self._note_herds(due, codes)

    def counts(self) -> DueCounts | None:
        """Return the counts of all rows; None for no rows, or due times too far apart for few counts."""
        if not self._rows:
            return None
        self._fit(min(CELLS_MAX, max(CELLS_FREE, self._rows)))
        [cells] = self._cells
        if len(cells) > CELLS_MAX:
            return None
        self._keep_largest(None)
        herds = self._herds[0] if self._herds else np.empty((0, 3), np.int64)
        return DueCounts(SPANS_MS[self._level], list(self._codes), cells, herds)

    def _numbered(self, topic: pa.Array) -> Int64s:
        encoded = topic.dictionary_encode()
        numbers = []
        for name in encoded.dictionary.to_pylist():
            if name not in self._codes and len(self._codes) < self._topics_max:
                self._codes[name] = len(self._codes)
            numbers.append(self._codes.get(name, OTHERS))
        return np.asarray(np.array(numbers, np.int64)[encoded.indices.to_numpy()])

    def _is_sparse(self, due: Int64s, codes: Int64s) -> bool:
        """Return whether neighbours seldom share a cell: then there will be too many, and sorting is slow."""
        middle = slice(start := (len(due) - SAMPLE_ROWS) // 2, start + SAMPLE_ROWS)
        cells = set(zip((due[middle] // SPANS_MS[self._level]).tolist(), codes[middle].tolist(), strict=True))
        return len(cells) > SAMPLE_ROWS * 4 // 5

    def _fit(self, cells_max: int) -> None:
        """Put the cells together, with longer spans until there are so few."""
        cells = _merged(np.concatenate(self._cells))
        while len(cells) > cells_max and self._level + 1 < len(SPANS_MS):
            self._level += 1
            cells = _merged(_coarser(cells, self._level))
        if len(cells) > CELLS_MAX:
            self._forget_topics()
            cells[:, 0] = OTHERS
            cells = _merged(cells)
        self._cells, self._waiting = [cells], len(cells)

    def _forget_topics(self) -> None:
        self._topics_max = 0
        self._codes.clear()
        self._herds = [herds[herds[:, 0] == EVERY] for herds in self._herds]

    def _note_herds(self, due: Int64s, codes: Int64s) -> None:
        starts = np.flatnonzero(due[1:] != due[:-1]) + 1
        starts = np.concatenate([[0], starts])
        lengths = np.diff(starts, append=len(due))
        kept = lengths >= HERD_ROWS_MIN
        kept[[0, -1]] = True  # it may go on from the rows before, or in those that follow
        moments, number = due[starts[kept]], np.arange(int(kept.sum()))
        if len(number) > 2:
            codes = codes[np.repeat(kept, lengths)]
        elif len(starts) > 1:  # as nearly always: no herd, but the ends of the rows
            codes = np.concatenate([codes[: starts[1]], codes[starts[-1] :]])
        by_topic = _counted(codes, np.repeat(number, lengths[kept]))
        by_topic = by_topic[by_topic[:, 0] != OTHERS]
        by_topic[:, 1] = moments[by_topic[:, 1]]
        every = np.column_stack([np.full(len(moments), EVERY), moments, lengths[kept]])
        self._herds += [every, by_topic]
        self._herds_waiting += len(every) + len(by_topic)
        if self._herds_waiting > CELLS_MAX:
            self._keep_largest(int(due[-1]))

    def _keep_largest(self, last_ms: int | None) -> None:
        """Keep the instants with the most messages, and all of the last one, which may go on."""
        herds = _merged(np.concatenate([np.empty((0, 3), np.int64), *self._herds]))
        herds = herds[np.lexsort((herds[:, 1], -herds[:, 2], herds[:, 0]))]
        first = np.searchsorted(herds[:, 0], herds[:, 0])
        most = np.where(herds[:, 0] == EVERY, HERDS_MAX, HERDS_OF_TOPIC_MAX)
        kept = (herds[:, 2] >= HERD_ROWS_MIN) & (np.arange(len(herds)) - first < most)
        if last_ms is not None:
            kept |= herds[:, 1] == last_ms
        herds = _merged(herds[kept])
        self._herds, self._herds_waiting = [herds], len(herds)


def _coarser(cells: Int64s, level: int) -> Int64s:
    """Return the same cells, with spans of ``level`` instead of the one before.

    Several rows of the result may be of one cell.
    """
    factor = SPANS_MS[level] // SPANS_MS[level - 1]
    return np.column_stack([cells[:, 0], cells[:, 1] // factor, cells[:, 2]])


def _counted(codes: Int64s, at: Int64s) -> Int64s:
    """(code, place, how often): each pair once, ascending."""
    return _sums_by_pair(codes, at, None)


def _merged(cells: Int64s) -> Int64s:
    """Return each pair of the first two columns once, ascending, with the sum of the third."""
    return _sums_by_pair(*cells.T) if len(cells) > 1 else cells


def _sums_by_pair(codes: Int64s, at: Int64s, rows: Int64s | None) -> Int64s:
    low, code = int(at.min()), int(codes.min())
    width, kinds = int(at.max()) - low + 1, int(codes.max()) - code + 1
    if width * kinds <= 4 * len(at) + 1024:  # counting is several times as quick as sorting
        numbers = (codes - code) * width + (at - low)
        sums = np.bincount(numbers, rows, width * kinds).astype(np.int64)
        places = np.flatnonzero(sums)
        return np.column_stack([places // width + code, places % width + low, sums[places]])
    order = np.lexsort((at, codes))
    codes, at = codes[order], at[order]
    firsts = np.flatnonzero(np.r_[True, (codes[1:] != codes[:-1]) | (at[1:] != at[:-1])])
    sums = np.diff(firsts, append=len(at)) if rows is None else np.add.reduceat(rows[order], firsts)
    return np.column_stack([codes[firsts], at[firsts], sums])


def _summed(at: Int64s, rows: Int64s, length: int) -> Int64s:
    return np.bincount(at, rows, length).astype(np.int64)


def _steps(rows: Int64s) -> Int64s:
    # Of the second column alone; between topics it steps back.
    return np.column_stack([rows[:, 0], np.diff(rows[:, 1], prepend=0), rows[:, 2]]) if len(rows) else rows


def _sums(rows: Int64s) -> Int64s:
    return np.column_stack([rows[:, 0], np.cumsum(rows[:, 1]), rows[:, 2]])
