"""Writer of the ready log, behind the hand-out: many rows to a frame, fsynced only when needed."""

from __future__ import annotations

import errno
import os
import threading
from collections import deque
from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass, field
from typing import NamedTuple

from tarry.base.types import extremes
from tarry.log import frame
from tarry.log.engine import Log
from tarry.log.files import Buffer
from tarry.log.segment import SegmentWriter
from tarry.message.schema import concat
from tarry.queue.frame_table import FrameEntry, due_max_ms, store_frames
from tarry.queue.room import DiskRoom
from tarry.queue.topic import Tail, TailCache, Topic

FRAME_ROWS = 8192
WRITE_ENTRIES_MAX = 4096
"""Appended parts per write to the file."""
WRITE_BYTES_MAX = 16 << 20
"""About as many bytes per write, and as there is room for: what fits is written, however much waits."""


class _Unwritten(NamedTuple):
    topic: Topic
    tail: Tail
    stored_rows: int


@dataclass(eq=False)
class SegmentsWriter:
    """Writes and rolls segments. Any thread, except for :meth:`add`: one thread at a time.

    ``segments`` are the first numbers of the existing segments, ascending. ``sealed_due_ms`` has the latest due time of
    each but the last, which is being written and whose frames are in ``frames``. Retention removes the oldest from
    both.
    """

    _log: Log
    _writer: SegmentWriter
    _: KW_ONLY
    segments: list[int]
    sealed_due_ms: dict[int, int]
    frames: list[FrameEntry]
    cache: TailCache
    segment_bytes_max: int
    room: DiskRoom
    dirty: threading.Event = field(default_factory=threading.Event)
    """Set when rows wait to be written."""
    added_bytes: int = 0
    unwritten_bytes: int = 0
    _retired: list[SegmentWriter] = field(default_factory=list)
    _unwritten: deque[_Unwritten] = field(default_factory=deque)
    _write_lock: threading.Lock = field(default_factory=threading.Lock)
    _sync_lock: threading.Lock = field(default_factory=threading.Lock)
    _added: int = 0
    _flushed: int = 0
    _synced: int = 0

    @property
    def added(self) -> int:
        """Number of calls of :meth:`commit_added`, which is the ticket of all rows added before."""
        return self._added

    def add(self, topic: Topic, tail: Tail, stored_rows: int) -> None:
        """Queue rows to be written, ``stored_rows`` of which had been read from the store."""
        self._unwritten.append(_Unwritten(topic, tail, stored_rows))
        self.unwritten_bytes += tail.size
        self.added_bytes += tail.size

    def commit_added(self) -> None:
        """Give one ticket to all rows added since the last call: they belong together."""
        self._added += 1
        self.dirty.set()

    def flush(self) -> None:
        """Write what was added. After an OSError (disk full), what found no room stays queued."""
        with self._write_lock:
            self.dirty.clear()
            ticket, count = self._added, len(self._unwritten)
            while count:
                parts = self._next_parts(count)
                self._write(parts)
                for part in parts:
                    self._unwritten.popleft()
                    self.unwritten_bytes -= part.tail.size
                count -= len(parts)
                # Roll only now: if it fails (disk full), the same rows must not be written twice.
                if self._writer.size >= self.segment_bytes_max:
                    self._roll()
            self._flushed = max(self._flushed, ticket)
            self.cache.evict()

    @property
    def room_bytes(self) -> int:
        """Free disk that this log may take."""
        return self.room.now()

    def _next_parts(self, count: int) -> list[_Unwritten]:
        """Return the first of ``count`` parts, those that are written together.

        Raises:
            OSError: there is no room for even one.
        """
        room = self.room.left()
        left = min(room, WRITE_BYTES_MAX)
        parts: list[_Unwritten] = []
        # By index: the dispatcher may be adding.
        for i in range(min(count, WRITE_ENTRIES_MAX)):
            part = self._unwritten[i]
            left -= part.tail.size
            if parts and left < 0:
                break
            parts.append(part)
        if self.room.kept_bytes and parts[0].tail.size > room:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self._writer.path))
        return parts

    def _write(self, parts: list[_Unwritten]) -> None:
        by_topic: dict[str, list[_Unwritten]] = {}
        for part in parts:
            by_topic.setdefault(part.topic.name, []).append(part)
        buffers: list[Buffer] = []
        frames: list[tuple[Topic, FrameEntry]] = []
        position = self._writer.size
        for parts_of_topic in by_topic.values():
            for group in _by_frame(parts_of_topic):
                encoded, entry = self._encode(group, position)
                buffers += encoded
                frames.append((group[0].topic, entry))
                position += sum(len(buffer) for buffer in encoded)
        self.room.take(position - self._writer.size)
        try:
            self._writer.append(buffers)
        except OSError:
            self.room.forget()
            raise
        self.frames += [entry for _, entry in frames]
        for topic, entry in frames:
            topic.on_written(self._writer.base, entry.offset, entry.rows)

    def _encode(self, parts: list[_Unwritten], position: int) -> tuple[list[Buffer], FrameEntry]:
        """Return a frame of these parts, to be written at ``position``, and its entry for the table."""
        name, base = parts[0].topic.name, parts[0].tail.base
        batch = concat(part.tail.batch for part in parts)
        due_min_ms, due_max_ms = extremes(batch.column("due_ms").to_numpy())
        stored_rows = sum(part.stored_rows for part in parts)
        entry = FrameEntry(name, base, batch.num_rows, position, due_min_ms, due_max_ms, stored_rows)
        encoded = frame.encode(
            batch,
            base=base,
            durable_to=self._writer.durable,
            topic=name,
            due_min_ms=entry.due_min_ms,
            due_max_ms=entry.due_max_ms,
            stored_rows=stored_rows,
        )
        return list(encoded), entry

    def _roll(self) -> None:
        # The old segment is made durable before the new one exists: in a sealed segment every invalid frame is damage.
        old = self._writer
        old.sync()
        # Everything that can fail because of a full disk comes before the first change of state.
        store_frames(old.path, self.frames)
        fresh = SegmentWriter(self._log, old.base + 1)
        self.sealed_due_ms[old.base] = due_max_ms(self.frames)
        self._retired.append(old)
        self.frames = []
        self._writer = fresh
        self.segments.append(fresh.base)

    def sync(self, ticket: int) -> None:
        """Make rows durable: see :meth:`tarry.queue.log.ReadyLog.sync`."""
        if self._synced >= ticket:
            return
        with self._sync_lock:
            if self._synced >= ticket:
                return
            self.flush()
            with self._write_lock:
                writer, flushed = self._writer, self._flushed
            # Segments before this one were synced when it was begun.
            writer.sync()
            self._synced = max(self._synced, flushed)
            while self._retired and self._retired[0] is not writer:
                self._retired.pop(0).close()

    def mark(self) -> tuple[int, int, int]:
        """Flush, and return the place: see :meth:`tarry.queue.log.ReadyLog.mark`."""
        self.flush()
        return self._writer.base, self._writer.size, self._added

    def frames_being_written(self, segment: int) -> list[FrameEntry] | None:
        """Return the frames of a segment, in file order, if it is being written; else None."""
        with self._write_lock:
            return list(self.frames) if self._writer.base == segment else None

    def close(self) -> None:
        """Close the files. Rows that were not flushed are not written."""
        for writer in [*self._retired, self._writer]:
            writer.close()


def _by_frame(parts: list[_Unwritten]) -> Iterator[list[_Unwritten]]:
    """Yield the parts of one topic that share a frame, in order."""
    group: list[_Unwritten] = []
    rows = 0
    for part in parts:
        if rows and rows + part.tail.batch.num_rows > FRAME_ROWS:
            yield group
            group, rows = [], 0
        group.append(part)
        rows += part.tail.batch.num_rows
    yield group
