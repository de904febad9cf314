"""Which rows of an intake segment fall due in a window?

A segment that is being written answers from arrays in memory (:class:`ActiveIndex`); a sealed one from a file sorted by
due time (:class:`SealedIndex`), of which only the pages touched by a binary search and the window itself are read.
Format: ``docs/formats.md``.
"""

from __future__ import annotations

import struct
import zlib
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tarry.base.message import SCHEMA
from tarry.base.types import Int64s, Key, Mask, at_or_after, before
from tarry.log.segment import SegmentReader

_HEADER = struct.Struct("<8sIIqqqq")
_MAGIC = b"TARRYIDX"
_VERSION = 1


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

    def add(self, first_seq: int, position: int, due_ms: Int64s) -> None:
        """Take up a frame that was written: the seq of its first row, its position in the file, its due times."""
        self.due_min_ms = min(self.due_min_ms, int(due_ms.min()))
        self.due_max_ms = max(self.due_max_ms, int(due_ms.max()))
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


class SealedIndex:
    """The index file of a sealed segment. Opened for each question and closed after it: nothing stays mapped."""

    def __init__(self, path: Path, log_path: Path, rebuild: Callable[[], ActiveIndex]) -> None:
        self.path = path
        header = _read_header(path, log_path)
        if header is None:
            write_index(path, rebuild(), log_path.stat().st_size)
            header = _read_header(path, log_path)
            assert header is not None
        self.base, self.rows, self._frames = header
        due = self._due()
        self.due_min_ms = int(due[0]) if self.rows else np.iinfo(np.int64).max
        self.due_max_ms = int(due[-1]) if self.rows else np.iinfo(np.int64).min

    @property
    def end_seq(self) -> int:
        return self.base + self.rows

    def frames(self) -> FrameTable:
        table = np.fromfile(self.path, np.int64, 2 * self._frames, offset=_HEADER.size)
        return FrameTable(table[: self._frames], table[self._frames :])

    def select(self, window: Window, limit: int) -> tuple[Int64s, Int64s]:
        """Due times and seqs of the first ``limit`` rows of the window, in order."""
        due = self._due()
        low = int(np.searchsorted(due, window.after.due_ms, "left"))
        high = int(np.searchsorted(due, window.until.due_ms, "right" if window.until.seq > 0 else "left"))
        row = self._row()
        picked_due, picked_seq, picked_rows = [], [], 0
        # In steps: a herd may put the whole segment into one millisecond, and all but `limit` of it is not wanted yet.
        for start in range(low, high, max(limit, 1)):
            stop = min(start + max(limit, 1), high)
            part_due = np.array(due[start:stop])
            part_seq = np.array(row[start:stop], np.int64) + self.base
            mask = window.select(part_due, part_seq)
            picked_due.append(part_due[mask])
            picked_seq.append(part_seq[mask])
            picked_rows += int(mask.sum())
            if picked_rows >= limit:
                break
        if not picked_due:
            return np.empty(0, np.int64), np.empty(0, np.int64)
        return np.concatenate(picked_due)[:limit], np.concatenate(picked_seq)[:limit]

    def _due(self) -> Int64s:
        return (
            np.memmap(self.path, np.int64, "r", _HEADER.size + 16 * self._frames, (self.rows,))
            if self.rows
            else np.empty(0, np.int64)
        )

    def _row(self) -> npt.NDArray[np.uint32]:
        offset = _HEADER.size + 16 * self._frames + 8 * self.rows
        return np.memmap(self.path, np.uint32, "r", offset, (self.rows,))


def write_index(path: Path, index: ActiveIndex, log_bytes: int) -> None:
    """Write the index file of a segment; whole or not at all, but not fsynced: it can be made again."""
    due, seq, frames = index.sorted()
    body = b"".join(
        part.tobytes() for part in (frames.first_seq, frames.position, due, (seq - index.base).astype(np.uint32))
    )
    rest = struct.pack("<qqqq", index.base, len(due), len(frames.position), log_bytes)
    head = struct.pack("<8sII", _MAGIC, _VERSION, zlib.crc32(body, zlib.crc32(rest))) + rest
    temporary = path.with_name(path.name + ".new")
    temporary.write_bytes(head + body)
    temporary.replace(path)


def _read_header(path: Path, log_path: Path) -> tuple[int, int, int] | None:
    """Base, rows and frames of a sound index file of this log, else None."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return None
    if len(content) < _HEADER.size:
        return None
    magic, version, crc, base, rows, frames, log_bytes = _HEADER.unpack_from(content)
    whole = _HEADER.size + 16 * frames + 12 * rows
    sound = (magic, version, len(content)) == (_MAGIC, _VERSION, whole) and zlib.crc32(content[16:]) == crc
    sound &= base == int(log_path.stem)
    return (base, rows, frames) if sound and log_bytes == log_path.stat().st_size else None


def is_sound_index(path: Path, log_path: Path) -> bool:
    """Whether an index file is whole and of this log, by its checksum."""
    return _read_header(path, log_path) is not None


def index_of_log(path: Path, base: int) -> ActiveIndex:
    """The index made again from the frames of a segment, each checked.

    Raises:
        CorruptError: for a damaged frame.
    """
    index = ActiveIndex(base)
    with SegmentReader(path) as reader:
        for at, _, batch in reader.read_all(SCHEMA):
            index.add(at.header.base, at.position, batch.column("due_ms").to_numpy().copy())
    return index
