"""The ready log: what became due, in frames of one topic each, written behind the hand-out.

A row is handed to waiting consumers as soon as it has its offset; the file is written a little later, many rows to a
frame, and fsynced only when an acknowledgement or a checkpoint needs it. Until then its source is still in the intake
or the store. So no disk is on the way of a due message.
"""

from __future__ import annotations

import itertools
import logging
import threading
import zlib
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

import numpy as np
import pyarrow as pa

from tarry.base.errors import CorruptError
from tarry.base.lru_cache import LruCache
from tarry.base.message import SCHEMA, concat
from tarry.base.types import Int64s
from tarry.log import frame
from tarry.log.files import DISK_FULL, Files
from tarry.log.frame import LogKind
from tarry.log.recover import recover_tail
from tarry.log.segment import Located, SegmentReader, SegmentWriter, list_segments, segment_path
from tarry.queue.topic import Extent, Tail, Topic
from tarry.wheel.due import Due

log = logging.getLogger(__name__)

FRAME_ROWS = 8192
BATCH_BYTES = 8192
"""What a record batch takes beside its rows; a trickle comes in batches of one or two."""
FEW_ROWS = 16
"""For so few, a Python list of topics is quicker than a dictionary of them."""
TABLES_MAX = 64
"""Frame tables (of one topic in one segment) that are kept for groups that lag behind."""
READ_BYTES_MAX = 32 << 20
"""Frames that are kept for them, by segment and position."""
UNWRITTEN_BYTES_MAX = 16 << 20
"""The dispatcher writes itself when this much has not been written."""

FRAMES = pa.schema(
    [
        ("topic", pa.string()),
        ("offset", pa.int64()),
        ("rows", pa.int64()),
        ("position", pa.int64()),
        ("due_min_ms", pa.int64()),
        ("due_max_ms", pa.int64()),
        ("stored_rows", pa.int64()),
    ]
)

Frame = tuple[str, int, int, int, int, int, int]
"""A row of :data:`FRAMES`."""
_SEAL = b"tarry"


class Keeper(Protocol):
    """Who has a say before something is deleted for its age alone."""

    def tend(self) -> None:
        """Called whenever it is looked what can be deleted."""
        ...

    def take_over(self, segment: int) -> bool:
        """Whether that segment may go; what is still needed of it is elsewhere now."""
        ...


class ReadyLog:
    """One dispatcher appends; :meth:`flush` and :meth:`sync` may be called by any thread."""

    def __init__(self, files: Files, directory: Path, *, segment_bytes_max: int, cache_bytes_max: int) -> None:
        self.topics: dict[str, Topic] = {}
        self.stored_rows = 0
        """How many of the rows ever appended had been read from the store."""
        self._files = files
        self._directory = directory
        self._segment_bytes_max = segment_bytes_max
        self._cache_bytes_max = cache_bytes_max
        self._topics_lock = threading.Lock()
        self._append_lock = threading.Lock()
        self._write_lock = threading.Lock()
        self._sync_lock = threading.Lock()
        self._unwritten: deque[tuple[Topic, Tail, int]] = deque()
        self.unwritten_bytes = 0
        self._cached: deque[tuple[Topic, Tail]] = deque()
        self._cached_bytes = 0
        self._appended = 0
        self._flushed = 0
        self._synced = 0
        self._writer: SegmentWriter
        self._retired: list[SegmentWriter] = []
        self._segments: list[int] = []
        self._sealed_due_ms: dict[int, int] = {}
        self._tables: LruCache[tuple[int, str], tuple[Int64s, Int64s]] = LruCache(TABLES_MAX, lambda _: 1)
        # A consumer that lags takes a few rows at a time, a frame has thousands, and reading it is checking all of it.
        self._read: LruCache[tuple[int, int], pa.RecordBatch] = LruCache(READ_BYTES_MAX, lambda rows: int(rows.nbytes))
        self._active_frames: list[Frame] = []
        self.dirty = threading.Event()
        """Set when rows wait to be written."""
        self.keeper: Keeper | None = None
        self.on_append: Callable[[Int64s], None] | None = None
        """Told the due times of what was appended."""

    # -- appending ---------------------------------------------------------------------------------------------------

    def topic(self, name: str) -> Topic:
        """The topic of that name, made when it is new."""
        found = self.topics.get(name)
        if found is None:
            with self._topics_lock:
                found = self.topics.setdefault(name, Topic(name, self._read_frames))
        return found

    def append(self, due: Due) -> list[Topic]:
        """Give due rows their offsets; they can be read from now on. The topics that got some, for
        :meth:`Topic.notify`.
        """
        parts = _by_topic(due.batch)
        # A consumer that polls may lease and acknowledge a row before this returns; the lock makes its ticket wait.
        with self._append_lock:
            touched = self._append(due, parts)
        if self.on_append is not None:
            self.on_append(due.due_ms)
        return touched

    def _append(self, due: Due, parts: list[tuple[str, pa.RecordBatch]]) -> list[Topic]:
        touched = []
        size = due.bytes
        rows = due.batch.num_rows
        share = due.stored_rows
        for name, part in parts:
            topic = self.topic(name)
            part_bytes = size * part.num_rows // rows + BATCH_BYTES
            # Which rows came from the store is known for the whole, and shared out over the topics: the sum is exact.
            stored = min(share, part.num_rows)
            share -= stored
            tail = topic.append(part, part_bytes)
            self._unwritten.append((topic, tail, stored))
            self._cached.append((topic, tail))
            self.unwritten_bytes += part_bytes
            self._cached_bytes += part_bytes
            touched.append(topic)
        self.stored_rows += due.stored_rows
        self._appended += 1
        self.dirty.set()
        return touched

    def ticket(self) -> int:
        """What to give to :meth:`sync` to have all that can be read until now."""
        with self._append_lock:
            return self._appended

    def flush(self) -> None:
        """Write what was appended. An OSError (disk full) leaves it queued."""
        with self._write_lock:
            self.dirty.clear()
            ticket, count = self._appended, len(self._unwritten)
            while count:
                group = [self._unwritten[i] for i in range(min(count, 4096))]
                self._write(group)
                for _, tail, _ in group:
                    self._unwritten.popleft()
                    self.unwritten_bytes -= tail.size
                count -= len(group)
                # Only now: a roll that fails (disk full) must not make the same rows be written twice.
                if self._writer.size >= self._segment_bytes_max:
                    self._roll()
            self._flushed = max(self._flushed, ticket)
            self._evict()

    def _write(self, group: list[tuple[Topic, Tail, int]]) -> None:
        by_topic: dict[str, list[tuple[Topic, Tail, int]]] = {}
        for entry in group:
            by_topic.setdefault(entry[0].name, []).append(entry)
        buffers, frames, position = [], [], self._writer.size
        for entries in by_topic.values():
            for part in _frames_of(entries):
                topic, base = part[0][0], part[0][1].base
                batch = concat(tail.batch for _, tail, _ in part)
                due = batch.column("due_ms").to_numpy()
                stored = sum(s for *_, s in part)
                low, high = int(due.min()), int(due.max())
                parts = frame.encode(
                    batch,
                    base=base,
                    durable_to=self._writer.durable,
                    topic=topic.name,
                    due_min_ms=low,
                    due_max_ms=high,
                    stored_rows=stored,
                )
                buffers += parts
                frames.append((topic.name, base, batch.num_rows, position, low, high, stored))
                position += sum(len(p) for p in parts)
        self._writer.append(buffers)
        self._active_frames += frames
        for name, base, rows, *_ in frames:
            self.topics[name].wrote(self._writer.base, base, rows)

    def _evict(self) -> None:
        while self._cached_bytes > self._cache_bytes_max and self._cached:
            topic, tail = self._cached[0]
            if not topic.evict(tail):
                return
            self._cached.popleft()
            self._cached_bytes -= tail.size

    def _roll(self) -> None:
        # The old segment is made durable before the new one exists: in a sealed segment every invalid frame is damage.
        old = self._writer
        old.sync()
        # Everything that can fail for a full disk comes before the first change of state.
        _store_frames(old.path, self._active_frames)
        fresh = SegmentWriter(self._files, self._directory, LogKind.READY, old.base + 1)
        self._sealed_due_ms[old.base] = _due_max(self._active_frames)
        self._retired.append(old)
        self._active_frames = []
        self._writer = fresh
        self._segments.append(fresh.base)

    def _open(self, base: int) -> None:
        self._writer = SegmentWriter(self._files, self._directory, LogKind.READY, base)
        self._segments.append(base)

    def mark(self) -> tuple[int, int, int]:
        """Segment, position and ticket between what was appended and what will be; the caller keeps the dispatcher out
        meanwhile.

        Recovery that reads from there finds all that is appended from now on, and nothing else.
        """
        self.flush()
        return self._writer.base, self._writer.size, self._appended

    def sync(self, ticket: int) -> None:
        """Return when all that was appended before :meth:`ticket` gave ``ticket`` is durable.

        Raises:
            OSError: the write failed (disk full), or the fsync did; the latter is fatal.
        """
        if self._synced >= ticket:
            return
        with self._sync_lock:
            if self._synced >= ticket:
                return
            self.flush()
            with self._write_lock:
                writer, flushed = self._writer, self._flushed
            # Segments before this one were synced when it was opened.
            writer.sync()
            self._synced = max(self._synced, flushed)
            while self._retired and self._retired[0] is not writer:
                self._retired.pop(0).close()

    # -- reading -----------------------------------------------------------------------------------------------------

    def _read_frames(self, topic: str, segment: int, offset: int, rows_max: int) -> list[tuple[int, pa.RecordBatch]]:
        path = segment_path(self._directory, segment)
        with self._write_lock:
            active = self._writer.base == segment
            offsets, positions = _frames_of_topic(self._active_frames, topic) if active else (None, None)
        if offsets is None or positions is None:
            offsets, positions = self._sealed_frames(segment, topic)
        at = int(np.searchsorted(offsets, offset, "right")) - 1
        base, place = int(offsets[at]), (segment, int(positions[at]))
        batch = self._read.get(place)
        if batch is None:
            with SegmentReader(path) as reader:
                _, _, batch = reader.read(place[1], SCHEMA)
            if offset + rows_max < base + batch.num_rows:
                self._read.put(place, batch)
        elif offset + rows_max >= base + batch.num_rows:
            self._read.drop(place)
        return [(base, batch)]

    def _sealed_frames(self, segment: int, topic: str) -> tuple[Int64s, Int64s]:
        found = self._tables.get((segment, topic))
        if found is None:
            frames = _read_or_make_frames(segment_path(self._directory, segment))
            found = _frames_of_topic(frames, topic)
            self._tables.put((segment, topic), found)
        return found

    def rows_after(self, segment: int, position: int) -> Iterator[pa.RecordBatch]:
        """All rows from a place in the log on, in the order written."""
        for base in list(self._segments):
            if base < segment:
                continue
            with SegmentReader(segment_path(self._directory, base)) as reader:
                start = max(position, frame.FILE_HEADER_BYTES) if base == segment else frame.FILE_HEADER_BYTES
                for _, _, batch in reader.read_all(SCHEMA, start):
                    yield batch

    def ends(self) -> dict[str, int]:
        """The end offset of each topic."""
        return {name: topic.end for name, topic in list(self.topics.items())}

    def first_due(self, topic: Topic, due_ms: int) -> int:
        """The lowest offset kept whose message is due at ``due_ms`` or later; the topic's end when there is none.

        Messages that arrived late are out of order: behind it there may be some that were due before.
        """
        with topic.lock:
            written, extents = topic.written, list(topic.extents)
        for extent in extents:
            for name, base, rows, _, _, due_max_ms, _ in self.frames_in(extent.segment):
                if name == topic.name and due_max_ms >= due_ms:
                    found = _first_due(topic, base, base + rows, due_ms)
                    if found is not None:
                        return found
        found = _first_due(topic, max(written, topic.first), topic.end, due_ms)
        return topic.end if found is None else found

    def frames_in(self, segment: int) -> list[Frame]:
        """The frames of a segment, in file order; none where it was deleted since."""
        with self._write_lock:
            if self._writer.base == segment:
                return list(self._active_frames)
        try:
            return _read_or_make_frames(segment_path(self._directory, segment))
        except FileNotFoundError:
            return []  # deleted since

    # -- deletion and recovery ---------------------------------------------------------------------------------------

    def delete_consumed(self, now_ms: int, retention_ms: int) -> int:
        """Delete the oldest segments of which every group has acknowledged all, or which are older than the retention.
        How many.
        """
        if self.keeper is not None:
            self.keeper.tend()
        deleted = 0
        while len(self._segments) > 1:
            base = self._segments[0]
            path = segment_path(self._directory, base)
            # By the clock of messages, too: under a test clock, or after a restore, the file may look older than it is.
            newest_ms = max(path.stat().st_mtime_ns // 1_000_000, self._sealed_due_ms.get(base, 0))
            old = newest_ms < now_ms - retention_ms
            consumed = all(_consumed(t, base) for t in list(self.topics.values()))
            if not consumed and (not old or (self.keeper is not None and not self.keeper.take_over(base))):
                return deleted
            for topic in list(self.topics.values()):
                topic.forget_segment(base)
                self._tables.drop((base, topic.name))
                for group in list(topic.groups.values()) if not consumed else ():
                    group.forget(topic.first)
            self._segments.pop(0)
            self._sealed_due_ms.pop(base, None)
            self._files.remove(path)
            self._files.remove(path.with_suffix(".idx"))
            deleted += 1
        return deleted

    def recover(self, *, place: tuple[int, int], ends: dict[str, int]) -> None:
        """Open what is on disk. ``place`` is where the checkpoint was taken and ``ends`` the topics' ends there.

        Raises:
            CorruptError: for damage in what had been durable.
        """
        bases = list_segments(self._directory)
        for name, end in ends.items():
            topic = self.topic(name)
            topic.end = topic.written = end
        self._check_unbroken(bases, place)
        for base in bases[:-1]:
            self._segments.append(base)
            frames = _read_or_make_frames(segment_path(self._directory, base))
            self._sealed_due_ms[base] = _due_max(frames)
            self._adopt(base, frames)
        last = bases[-1] if bases else place[0]
        path = segment_path(self._directory, last)
        if bases:
            known = place[1] if place[0] == last else 0
            recover_tail(self._files, path, LogKind.READY, last, durable_to=known, start=known)
        self._open(last)
        try:
            self._active_frames = list(_scan_frames(path))
        except CorruptError:
            self.close()
            raise
        self._adopt(last, self._active_frames)
        self._writer.sync()

    def _check_unbroken(self, bases: list[int], place: tuple[int, int]) -> None:
        if place[1] > 0 and (not bases or bases[-1] < place[0]):
            raise CorruptError(
                f"{segment_path(self._directory, place[0])} is missing; {place[1]} bytes of it had been durable"
            )
        if bases and bases[0] > place[0]:
            # Segments are deleted only behind the checkpoint's place.
            raise CorruptError(
                f"{segment_path(self._directory, place[0])} is missing: the checkpoint that this directory has "
                "is older than what was deleted since, or has gone"
            )
        for base, following in itertools.pairwise(bases):
            if following != base + 1:
                raise CorruptError(f"{segment_path(self._directory, base + 1)} is missing; later segments are there")

    def stored_rows_after(self, place: tuple[int, int]) -> int:
        """How many rows from a place in the log on had come from the store."""
        total = 0
        for base in self._segments:
            if base >= place[0]:
                frames = (
                    self._active_frames
                    if base == self._writer.base
                    else _read_or_make_frames(segment_path(self._directory, base))
                )
                total += sum(f[6] for f in frames if base > place[0] or f[3] >= place[1])
        return total

    def _adopt(self, base: int, frames: list[Frame]) -> None:
        for name, offset, rows, *_ in frames:
            topic = self.topic(name)
            topic.wrote(base, offset, rows)
            topic.end = max(topic.end, offset + rows)

    def close(self) -> None:
        for writer in [*self._retired, self._writer]:
            writer.close()


def _by_topic(batch: pa.RecordBatch) -> list[tuple[str, pa.RecordBatch]]:
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


def _frames_of(entries: list[tuple[Topic, Tail, int]]) -> Iterator[list[tuple[Topic, Tail, int]]]:
    part: list[tuple[Topic, Tail, int]] = []
    rows = 0
    for entry in entries:
        if rows and rows + entry[1].batch.num_rows > FRAME_ROWS:
            yield part
            part, rows = [], 0
        part.append(entry)
        rows += entry[1].batch.num_rows
    yield part


def _first_due(topic: Topic, at: int, end: int, due_ms: int) -> int | None:
    """The lowest of the offsets ``at … end-1`` whose message is due then or later."""
    while at < end and (found := topic.read(at, min(FRAME_ROWS, end - at))) is not None:
        base, batch = found
        hits = np.flatnonzero(batch.column("due_ms").to_numpy() >= due_ms)
        if len(hits):
            return base + int(hits[0])
        at = base + batch.num_rows
    return None


def _due_max(frames: list[Frame]) -> int:
    return max((f[5] for f in frames), default=0)


def _consumed(topic: Topic, segment: int) -> bool:
    extent: Extent | None = next((e for e in topic.extents if e.segment == segment), None)
    return extent is None or (bool(topic.groups) and all(g.floor >= extent.end for g in list(topic.groups.values())))


def _frames_of_topic(frames: list[Frame], topic: str) -> tuple[Int64s, Int64s]:
    mine = [(f[1], f[3]) for f in frames if f[0] == topic]
    return np.array([o for o, _ in mine], np.int64), np.array([p for _, p in mine], np.int64)


def _store_frames(log_path: Path, frames: list[Frame]) -> None:
    columns = list(zip(*frames, strict=True)) if frames else [()] * len(FRAMES)
    # It is not fsynced, so after a power failure it may be anything: the seal tells.
    schema = FRAMES.with_metadata({_SEAL: _seal(log_path, frames)})
    table = pa.Table.from_arrays([pa.array(c, f.type) for c, f in zip(columns, FRAMES, strict=True)], schema=schema)
    path = log_path.with_suffix(".idx")
    temporary = path.with_name(path.name + ".new")
    try:
        with pa.OSFile(str(temporary), "wb") as file, pa.ipc.new_file(file, schema) as writer:
            writer.write_table(table)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
    temporary.replace(path)


def _seal(log_path: Path, frames: list[Frame]) -> bytes:
    """Bytes of the log, and a checksum of the topics, a line each, and then of the numbers, row by row."""
    topics = "\n".join(f[0] for f in frames).encode()
    numbers = np.array([f[1:] for f in frames], "<i8").tobytes()
    return f"{log_path.stat().st_size} {zlib.crc32(numbers, zlib.crc32(topics))}".encode()


def _read_or_make_frames(log_path: Path) -> list[Frame]:
    path = log_path.with_suffix(".idx")
    try:
        with pa.OSFile(str(path)) as file:
            table = pa.ipc.open_file(file).read_all()
        frames = list(zip(*(table[n].to_pylist() for n in FRAMES.names), strict=True))
        if (table.schema.metadata or {}).get(_SEAL) == _seal(log_path, frames):
            return frames
    except (OSError, pa.ArrowException, KeyError, ValueError):
        log_path.stat()  # where the log itself has gone, there is nothing to make
    log.warning("%s: the frame table is missing or damaged; making it again", path)
    frames = list(_scan_frames(log_path))
    try:
        _store_frames(log_path, frames)
    except OSError as error:
        if error.errno not in DISK_FULL:
            raise
        log.warning("%s: not written, the disk is full", path)
    return frames


def _scan_frames(log_path: Path) -> Iterator[Frame]:
    """The frames of a whole segment, by their headers alone.

    Raises:
        CorruptError: where there is no valid header before the end; a torn tail must have been cut off before.
    """
    with SegmentReader(log_path) as reader:
        end = frame.FILE_HEADER_BYTES
        for at in reader.headers():
            h = at.header
            yield _topic_of(reader, at), h.base, h.rows, at.position, h.due_min_ms, h.due_max_ms, h.stored_rows
            end = at.end
        if end != reader.size:
            raise CorruptError(f"{log_path} at offset {end}: no valid frame header")


def _topic_of(reader: SegmentReader, at: Located) -> str:
    return reader.bytes_at(at.position + frame.HEADER_BYTES, at.header.topic_bytes).decode()
