"""The ready log: messages that became due, in frames of one topic each, written behind the hand-out.

A row is handed to waiting consumers as soon as it has its offset. The file is written a little later, many rows to a
frame, and is fsynced only when an acknowledgement or a checkpoint needs it. Until then the row's source is still in the
intake or the store. So a due message waits for no disk.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterator

import numpy as np
import pyarrow as pa

from tarry.base.errors import CorruptError
from tarry.base.types import Int64s
from tarry.log.engine import Log
from tarry.log.files import FREE_CHECK_S, Files
from tarry.message.schema import accepted_ms
from tarry.queue.frame_table import FrameEntry
from tarry.queue.reader import FramesReader
from tarry.queue.recovery import recover_segments
from tarry.queue.retention import Retention, RetentionGuard
from tarry.queue.room import DiskRoom
from tarry.queue.topic import TailCache, Topic
from tarry.queue.writer import FRAME_ROWS, SegmentsWriter
from tarry.wheel.due import Due

BATCH_BYTES = 8192
"""Size of a record batch beside its rows; a trickle comes in batches of one or two."""
FEW_ROWS = 16
"""Up to this many rows, a Python list of topics is faster than dictionary encoding."""
UNWRITTEN_BYTES_MAX = 16 << 20
"""The dispatcher itself writes when this much has not been written."""


class ReadyLog:
    """The ready log. One dispatcher appends; any thread may call :meth:`flush` and :meth:`sync`.

    ``topics`` are by name. ``stored_rows``: how many of the rows ever appended had been read from the store.
    """

    def __init__(
        self,
        log: Log,
        files: Files,
        *,
        segment_bytes_max: int,
        cache_bytes_max: int,
        place: tuple[int, int] = (0, 0),
        ends: dict[str, int] | None = None,
        first: int | None = None,
        stored_rows: int = 0,
        kept_bytes: int = 0,
        on_append: Callable[[Int64s, Int64s], None] | None = None,
        on_damage: Callable[[CorruptError], None] = lambda _: None,
    ) -> None:
        """Open what is on disk.

        Args:
            files: says how much room the disk of ``log`` has.
            place: (segment, position) where the checkpoint was taken.
            ends: the topics' ends there.
            first: what it says of deletion: segments before this one may be gone; None: nothing.
            stored_rows: how many of the rows before it had been read from the store.
            kept_bytes: free disk that the log leaves to others.
            on_append: called with the due times of appended rows, and the times at which they were accepted.
            on_damage: called for each damaged frame that a reader finds.

        Raises:
            CorruptError: for damage in what had been durable.
        """
        known_ends = ends or {}
        writer, recovered = recover_segments(log, place, known_ends, first)
        self.topics: dict[str, Topic] = {}
        self.stored_rows = stored_rows + recovered.stored_rows
        self._cache = TailCache(cache_bytes_max)
        self._writer = SegmentsWriter(
            log,
            writer,
            segments=recovered.segments,
            sealed_due_ms=recovered.sealed_due_ms,
            frames=recovered.last_frames,
            cache=self._cache,
            segment_bytes_max=segment_bytes_max,
            room=DiskRoom(files, log.directory, kept_bytes),
        )
        self._checked_s, self._checked_added, self._checked_room = -1.0, 0, 0
        self._reader = FramesReader(log.directory, self._writer, on_damage)
        self._retention = Retention(log, self.topics, self._writer, self._reader)
        self._on_append = on_append
        self._topics_lock = threading.Lock()
        self._append_lock = threading.Lock()
        for name in {**known_ends, **recovered.extents}:
            extents = recovered.extents.get(name, [])
            end = max(known_ends.get(name, 0), extents[-1].end if extents else 0)
            self.topics[name] = Topic(name, self._reader.read_frame, end=end, written=end, extents=extents)

    # -- appending ---------------------------------------------------------------------------------------------------

    def topic(self, name: str) -> Topic:
        """Return the topic of that name; create it if it is new."""
        topic = self.topics.get(name)
        if topic is None:
            with self._topics_lock:
                topic = self.topics.setdefault(name, Topic(name, self._reader.read_frame))
        return topic

    def append(self, due: Due) -> list[Topic]:
        """Give due rows their offsets; they can be read from now on.

        Return the topics that got rows, so that the caller can :meth:`Topic.notify` them.
        """
        parts = _by_topic(due.batch)
        # A consumer that polls may lease and acknowledge a row before this returns; the lock makes ticket() wait.
        with self._append_lock:
            touched = self._append(due, parts)
        if self._on_append is not None:
            self._on_append(due.due_ms, accepted_ms(due.batch))
        return touched

    def _append(self, due: Due, parts: list[tuple[str, pa.RecordBatch]]) -> list[Topic]:
        touched = []
        size = due.bytes
        rows = due.batch.num_rows
        share = due.stored_rows
        for name, part in parts:
            topic = self.topic(name)
            # The number of rows from the store is known for the whole only. Divide it over the topics; the sum is
            # exact.
            stored = min(share, part.num_rows)
            share -= stored
            tail = topic.append(part, size * part.num_rows // rows + BATCH_BYTES)
            self._writer.add(topic, tail, stored)
            self._cache.add(topic, tail)
            touched.append(topic)
        self.stored_rows += due.stored_rows
        self._writer.commit_added()
        return touched

    # -- writing -----------------------------------------------------------------------------------------------------

    @property
    def dirty(self) -> threading.Event:
        """Set when rows wait to be written."""
        return self._writer.dirty

    @property
    def unwritten_bytes(self) -> int:
        """Bytes that wait to be written."""
        return self._writer.unwritten_bytes

    def room_bytes(self) -> int:
        """Return about how much may be appended for which there will be room on the disk; may be negative.

        The disk is asked again when a quarter of what was free has been used, too.
        """
        now_s, added = time.monotonic(), self._writer.added_bytes
        taken = added - self._checked_added
        if now_s - self._checked_s > FREE_CHECK_S or 4 * taken > self._checked_room:
            self._checked_s, self._checked_added, taken = now_s, added, 0
            self._checked_room = self._writer.room_bytes - self._writer.unwritten_bytes
        return self._checked_room - taken

    def ticket(self) -> int:
        """Return the ticket that makes :meth:`sync` cover all rows that can be read now."""
        with self._append_lock:
            return self._writer.added

    def flush(self) -> None:
        """Write what was appended. After an OSError (disk full), what found no room stays queued."""
        self._writer.flush()

    def sync(self, ticket: int) -> None:
        """Return when all rows are durable that were appended before :meth:`ticket` gave ``ticket``.

        Raises:
            OSError: the write failed (disk full), or the fsync did; the latter is fatal.
        """
        self._writer.sync(ticket)

    def mark(self) -> tuple[int, int, int]:
        """Return segment, position and ticket of the boundary between past and future appends.

        The caller keeps the dispatcher out meanwhile. A recovery that reads from there finds exactly the rows appended
        from now on.
        """
        return self._writer.mark()

    # -- reading -----------------------------------------------------------------------------------------------------

    def rows_after(self, segment: int, position: int) -> Iterator[pa.RecordBatch]:
        """Yield all rows from a place in the log on, in the order written."""
        return self._reader.rows_after(segment, position)

    def frames_in(self, segment: int) -> list[FrameEntry]:
        """Return the frames of a segment, in file order; none if it was deleted meanwhile."""
        return self._reader.frames_in(segment)

    @property
    def segments(self) -> list[int]:
        """The existing segments, ascending; the last is being written."""
        return list(self._writer.segments)

    def ends(self) -> dict[str, int]:
        """Return the end offset of each topic."""
        return {name: topic.end for name, topic in list(self.topics.items())}

    def empty_topics(self) -> set[str]:
        """Return the topics that keep no rows."""
        return {name for name, topic in list(self.topics.items()) if topic.is_empty}

    def forget(self, names: Collection[str], is_done: Callable[[str, int], bool]) -> None:
        """Forget topics that keep no rows and have none on the way.

        ``is_done``, called with a topic and its end, tells that nothing handed over by the dispatcher is on its way
        there; the caller keeps the dispatcher from taking more. If a message comes to a forgotten topic later, the
        topic begins at offset 0.
        """
        with self._append_lock, self._topics_lock:
            for name in names:
                topic = self.topics.get(name)
                if (topic is None or topic.is_empty) and is_done(name, 0 if topic is None else topic.end):
                    self.topics.pop(name, None)

    def first_due(self, topic: Topic, due_ms: int) -> int:
        """Return the lowest kept offset whose message is due at ``due_ms`` or later; the topic's end if none.

        Messages that arrived late are out of order: there may be some behind it that were due before.
        """
        with topic.lock:
            written, extents = topic.written, list(topic.extents)
        for extent in extents:
            for entry in self.frames_in(extent.segment):
                if entry.topic == topic.name and entry.due_max_ms >= due_ms:
                    first = _first_due(topic, entry.offset, entry.offset + entry.rows, due_ms)
                    if first is not None:
                        return first
        first = _first_due(topic, max(written, topic.first), topic.end, due_ms)
        return topic.end if first is None else first

    # -- deletion, and the end ---------------------------------------------------------------------------------------

    @property
    def first_segment(self) -> int:
        """The oldest segment that is still here."""
        return self._writer.segments[0]

    def delete_consumed(
        self,
        now_ms: int,
        retention_ms: int,
        guard: RetentionGuard,
        announce: Callable[[int], None],
        *,
        below: int,
    ) -> int:
        """Delete the oldest segments before ``below``, as far as ``guard`` allows, and return how many.

        A segment goes when all its readers are done with it, or when it is older than the retention. ``announce`` gets
        the first segment that stays, and writes it down durably: only then is one deleted.
        """
        return self._retention.delete(now_ms, retention_ms, guard, announce, below)

    def close(self) -> None:
        """Close the files. Rows that were not flushed are not written."""
        self._writer.close()


def _by_topic(batch: pa.RecordBatch) -> list[tuple[str, pa.RecordBatch]]:
    """Return the rows of each topic, in the order they have in ``batch``."""
    column = batch.column("topic")
    if batch.num_rows <= FEW_ROWS:
        few = column.to_pylist()
        if few.count(few[0]) == len(few):
            return [(few[0], batch)]
    encoded = column.dictionary_encode()
    names = encoded.dictionary.to_pylist()
    if len(names) == 1:
        return [(names[0], batch)]
    codes = encoded.indices.to_numpy()
    order = np.argsort(codes, kind="stable")
    ends = np.cumsum(np.bincount(codes, minlength=len(names)))
    arranged = batch.take(pa.array(order, pa.int64()))
    return [
        (name, arranged.slice(int(ends[i - 1]) if i else 0, int(ends[i] - (ends[i - 1] if i else 0))))
        for i, name in enumerate(names)
    ]


def _first_due(topic: Topic, start: int, end: int, due_ms: int) -> int | None:
    """Return the lowest of the offsets ``start … end-1`` whose message is due at ``due_ms`` or later."""
    for base, batch in topic.read_range(start, end, FRAME_ROWS):
        hits = np.flatnonzero(batch.column("due_ms").to_numpy() >= due_ms)
        if len(hits):
            return base + int(hits[0])
    return None
