"""Due index of a sealed segment: a file sorted by due time.

Only the blocks that may have rows of a window are read. Format: ``docs/formats.md``.

A wrong due time in it would make a message late for good, since the loader goes on behind the window. So nothing of it
is believed unchecked: its checksum is verified when it is opened, and each part against checksums that are kept in
memory from then on, whenever it is read again. One that is damaged is made again from its log; while the disk has no
room for it, it answers from memory.
"""

from __future__ import annotations

import errno
import logging
import os
import struct
import threading
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np

from tarry.base.descriptors import when_free
from tarry.base.errors import CorruptError
from tarry.base.types import Int64s
from tarry.intake.index import ActiveIndex, FrameTable, Window
from tarry.log.files import DISK_FULL, removed_on_failure

log = logging.getLogger(__name__)

BLOCK_ROWS = 4096
"""So many rows are read and checked together: 48 KiB."""
_HEADER = struct.Struct("<8sIIqqqq")
_MAGIC = b"TARRYIDX"
_VERSION = 1
_DUE_BYTES, _ROW_BYTES = 8, 4

T = TypeVar("T")


class _DamagedError(Exception):
    """The file does not have what it had when it was opened."""


@dataclass(frozen=True, slots=True)
class _Summary:
    """Summary of a sound file: each block's checksum (``blocks``) and first due time (``first_due_ms``)."""

    base: int
    rows: int
    frames: int
    due_min_ms: int
    due_max_ms: int
    table: int
    blocks: tuple[int, ...]
    first_due_ms: Int64s

    @property
    def end_seq(self) -> int:
        return self.base + self.rows


class SealedIndex:
    """The index file of a sealed segment. Opened for each question and closed after it. Any thread asks.

    ``rebuild`` gives the index as it can be made from the log.

    Raises:
        CorruptError: the log has to be read for it, and is damaged itself.
    """

    def __init__(self, path: Path, log_path: Path, rebuild: Callable[[], ActiveIndex]) -> None:
        self.path = path
        self._log_path = log_path
        self._rebuild = rebuild
        self._repairing = threading.Lock()
        known = _read_summary(path, log_path) or self._made_again("missing or damaged")
        self._known: _Summary | ActiveIndex = known
        self.base, self.rows = known.base, known.end_seq - known.base
        self.due_min_ms, self.due_max_ms = known.due_min_ms, known.due_max_ms

    @property
    def end_seq(self) -> int:
        """The seq after the last row."""
        return self.base + self.rows

    @property
    def is_on_disk(self) -> bool:
        """False while the disk has no room for the file: then all of it is in memory."""
        return isinstance(self._known, _Summary)

    def write_down(self) -> None:
        """Put on disk what is in memory alone.

        Raises:
            OSError: the disk is still full. CorruptError: the file is damaged as soon as it is written.
        """
        with self._repairing:
            if isinstance(self._known, ActiveIndex):
                self._known = self._written(self._known)

    def frames(self) -> FrameTable:
        """Return the segment's frames. Raises as :meth:`select` does."""
        return self._sound(ActiveIndex.frames, self._frames)

    def select(self, window: Window, limit: int) -> tuple[Int64s, Int64s]:
        """Due times and seqs of the first ``limit`` rows of the window, in order.

        Raises:
            CorruptError: the file is damaged, and the log, too. FileNotFoundError: the segment was deleted.
        """
        return self._sound(
            lambda index: index.select(window, limit), lambda fd, summary: self._select(fd, summary, window, limit)
        )

    # -- inside ------------------------------------------------------------------------------------------------------

    def _sound(self, ask: Callable[[ActiveIndex], T], read: Callable[[int, _Summary], T]) -> T:
        """Return ``ask`` of the index in memory, else ``read`` of the file, which is rebuilt first if damaged."""
        known = self._known
        if isinstance(known, ActiveIndex):
            return ask(known)
        try:
            with _opened(self.path) as fd:
                return read(fd, known)
        except _DamagedError as error:
            damage = str(error)
        except FileNotFoundError:
            if not self._log_path.exists():
                raise
            damage = "missing"
        with self._repairing:
            if self._known is known:  # else another reader has met it, too
                self._known = self._made_again(damage)
            mended = self._known
        if isinstance(mended, ActiveIndex):
            return ask(mended)
        try:
            with _opened(self.path) as fd:
                return read(fd, mended)
        except _DamagedError as error:
            raise CorruptError(f"{self.path}: {error}, and again after it was made again") from error

    def _made_again(self, damage: str) -> _Summary | ActiveIndex:
        log.warning("%s: the due index is %s; making it again", self._log_path, damage)
        index = self._rebuild()
        try:
            return self._written(index)
        except OSError as error:
            if error.errno not in DISK_FULL:
                raise
            # Consumers can be served without the file, and only so may the disk become free.
            log.warning("%s: %s; the due index is in memory until there is room", self.path, error.strerror)
            return index

    def _written(self, index: ActiveIndex) -> _Summary:
        write_index(self.path, index, self._log_path.stat().st_size)
        summary = _read_summary(self.path, self._log_path)
        if not self._log_path.exists():
            # The segment was deleted meanwhile, and the index before this one with it.
            self.path.unlink(missing_ok=True)
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(self._log_path))
        if summary is None:
            raise CorruptError(f"{self.path}: the due index is damaged as soon as it is written")
        return summary

    def _frames(self, fd: int, summary: _Summary) -> FrameTable:
        content = _read(fd, _HEADER.size, 16 * summary.frames)
        if zlib.crc32(content) != summary.table:
            raise _DamagedError("damaged: the table of its frames")
        table = np.frombuffer(content, np.int64)
        return FrameTable(table[: summary.frames], table[summary.frames :])

    def _select(self, fd: int, summary: _Summary, window: Window, limit: int) -> tuple[Int64s, Int64s]:
        firsts = summary.first_due_ms
        # The block before the first that begins at the window may end in it.
        low = max(0, int(np.searchsorted(firsts, window.after.due_ms, "left")) - 1)
        high = int(np.searchsorted(firsts, window.until.due_ms, "right" if window.until.seq > 0 else "left"))
        picked_due, picked_seq, picked_rows = [], [], 0
        # A herd may put the whole segment into one millisecond, and all but `limit` of it is not wanted yet.
        for number in range(low, high):
            due, seq = _block(fd, summary, number)
            mask = window.select(due, seq)
            picked_due.append(due[mask])
            picked_seq.append(seq[mask])
            picked_rows += int(mask.sum())
            if picked_rows >= limit:
                break
        if not picked_due:
            return np.empty(0, np.int64), np.empty(0, np.int64)
        return np.concatenate(picked_due)[:limit], np.concatenate(picked_seq)[:limit]


def write_index(path: Path, index: ActiveIndex, log_bytes: int) -> None:
    """Write the index file of a segment; whole or not at all, but not fsynced: it can be made again."""
    due, seq, frames = index.sorted()
    body = b"".join(
        part.tobytes() for part in (frames.first_seq, frames.position, due, (seq - index.base).astype(np.uint32))
    )
    rest = struct.pack("<qqqq", index.base, len(due), len(frames.position), log_bytes)
    head = struct.pack("<8sII", _MAGIC, _VERSION, zlib.crc32(body, zlib.crc32(rest))) + rest
    temporary = path.with_name(path.name + ".new")
    with removed_on_failure(temporary):
        when_free(lambda: temporary.write_bytes(head + body))
        temporary.replace(path)


def is_sound_index(path: Path, log_path: Path) -> bool:
    """Return whether an index file is whole and of this log, by its checksum."""
    return _checked_content(path, log_path) is not None


def _checked_content(path: Path, log_path: Path) -> tuple[bytes, int, int, int] | None:
    """Content, base, rows and frames of a sound index file of this log, else None."""
    try:
        content = when_free(path.read_bytes)
    except FileNotFoundError:
        return None
    if len(content) < _HEADER.size:
        return None
    magic, version, crc, base, rows, frames, log_bytes = _HEADER.unpack_from(content)
    whole = _HEADER.size + 16 * frames + (_DUE_BYTES + _ROW_BYTES) * rows
    sound = (magic, version, len(content)) == (_MAGIC, _VERSION, whole) and zlib.crc32(content[16:]) == crc
    sound &= base == int(log_path.stem)
    return (content, base, rows, frames) if sound and log_bytes == log_path.stat().st_size else None


def _read_summary(path: Path, log_path: Path) -> _Summary | None:
    """Of a sound index file of this log, else None."""
    checked = _checked_content(path, log_path)
    if checked is None:
        return None
    content, base, rows, frames = checked
    table_end = _HEADER.size + 16 * frames
    row_start = table_end + _DUE_BYTES * rows
    due = np.frombuffer(content, np.int64, rows, table_end)
    view = memoryview(content)
    blocks = []
    for start in range(0, rows, BLOCK_ROWS):
        end = min(start + BLOCK_ROWS, rows)
        crc = zlib.crc32(view[table_end + _DUE_BYTES * start : table_end + _DUE_BYTES * end])
        blocks.append(zlib.crc32(view[row_start + _ROW_BYTES * start : row_start + _ROW_BYTES * end], crc))
    return _Summary(
        base,
        rows,
        frames,
        due_min_ms=int(due[0]) if rows else np.iinfo(np.int64).max,
        due_max_ms=int(due[-1]) if rows else np.iinfo(np.int64).min,
        table=zlib.crc32(view[_HEADER.size : table_end]),
        blocks=tuple(blocks),
        first_due_ms=due[::BLOCK_ROWS].copy(),
    )


@contextmanager
def _opened(path: Path) -> Iterator[int]:
    fd = when_free(lambda: os.open(path, os.O_RDONLY | os.O_CLOEXEC))
    try:
        yield fd
    finally:
        os.close(fd)


def _read(fd: int, offset: int, size: int) -> bytes:
    try:
        return os.pread(fd, size, offset)
    except OSError as error:
        # Not by a map of the file: there, a page that the disk does not give back ends the process.
        raise _DamagedError(f"unreadable ({error.strerror})") from error


def _block(fd: int, summary: _Summary, number: int) -> tuple[Int64s, Int64s]:
    """Due times and seqs of a block."""
    start = number * BLOCK_ROWS
    rows = min(BLOCK_ROWS, summary.rows - start)
    due_start = _HEADER.size + 16 * summary.frames
    due = _read(fd, due_start + _DUE_BYTES * start, _DUE_BYTES * rows)
    row = _read(fd, due_start + _DUE_BYTES * summary.rows + _ROW_BYTES * start, _ROW_BYTES * rows)
    if zlib.crc32(row, zlib.crc32(due)) != summary.blocks[number]:
        raise _DamagedError(f"damaged: rows {start} to {start + rows}")
    return np.frombuffer(due, np.int64), np.frombuffer(row, np.uint32).astype(np.int64) + summary.base
