"""The log of what was accepted: numbering, writing, rolling, and reading back by seq or by due time."""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tarry import handle
from tarry.errors import CorruptError, DiskFullError, TarryError
from tarry.intake.index import ActiveIndex, FrameTable, Int64s, Key, SealedIndex, Window, index_of_log, write_index
from tarry.log import frame
from tarry.log.files import DISK_FULL, Files
from tarry.log.frame import Room
from tarry.log.recover import recover_tail
from tarry.log.segment import SegmentReader, SegmentWriter, list_segments, segment_path
from tarry.message import SCHEMA, concat

log = logging.getLogger(__name__)

FEW_ROWS = 16
FRAME_ROWS = 4096
"""Small submissions that wait together share a frame, up to about this many rows."""


@dataclass(frozen=True, slots=True)
class Accepted:
    """The answer to a submitted batch, given when it is durable: row i has seq ``first_seq + i`` and due time
    ``due_ms[i]``.
    """

    first_seq: int
    due_ms: Int64s
    token: bytes

    def handles(self) -> list[str]:
        """The handles that cancel or reschedule the rows."""
        rows = len(self.due_ms)
        return [
            handle.encode(self.first_seq + i, int(d), self.first_seq, rows, self.token)
            for i, d in enumerate(self.due_ms)
        ]


@dataclass(frozen=True, slots=True)
class Submission:
    """An admitted batch on its way to the disk, and whom to tell."""

    batch: pa.RecordBatch
    done: Callable[[Accepted | TarryError], None]


@dataclass(slots=True)
class _Segment:
    """A segment that is no longer written; its index is in memory until :meth:`Intake.seal` has put it on disk."""

    path: Path
    index: ActiveIndex | SealedIndex
    log_bytes: int
    sealed: bool = field(default=False)


class Intake:
    """One writer calls :meth:`commit`; any thread reads.

    ``publish([(batch, bytes), …], add)`` is called when frames are durable, before they are answered: it must call
    ``add()`` under the lock that the loader moves the horizon with, so that each message is seen by exactly one of them
    (see ``wheel``).
    """

    def __init__(
        self,
        files: Files,
        directory: Path,
        *,
        segment_bytes_max: int,
        secret: bytes,
        publish: Callable[[list[tuple[pa.RecordBatch, int]], Callable[[], None]], None],
    ) -> None:
        self._files = files
        self._directory = directory
        self._segment_bytes_max = segment_bytes_max
        self._secret = secret
        self._publish = publish
        self._lock = threading.Lock()  # guards the list of segments, not their contents
        self._closed: list[_Segment] = []
        self._active: ActiveIndex
        self._writer: SegmentWriter
        self.accepted: Counter[str] = Counter()
        self.published_seq = 0
        """All messages below are durable and visible to the loader."""

    # -- writing -----------------------------------------------------------------------------------------------------

    def commit(self, submissions: list[Submission]) -> None:
        """Number, write, fsync, publish and answer. Full disk refuses the submissions; other failures are the caller's
        to treat as fatal.
        """
        frames = _share_frames(submissions)
        seq, position, buffers, published = self.published_seq, self._writer.size, [], []
        for batch in frames:
            numbered = _numbered(batch, seq)
            # A copy: the index keeps it for the life of the segment, and a view would keep the bodies with it.
            due = numbered.column("due_ms").to_numpy().copy()
            parts = frame.encode(
                numbered,
                base=seq,
                durable_to=self._writer.durable,
                due_min_ms=int(due.min()),
                due_max_ms=int(due.max()),
            )
            buffers += parts
            size = sum(len(p) for p in parts)
            published.append((seq, position, due, numbered, size))
            position += size
            seq += numbered.num_rows
        try:
            self._writer.append(buffers)
        except OSError as error:
            if error.errno not in DISK_FULL:
                raise
            for s in submissions:
                s.done(
                    DiskFullError(
                        f"the disk of {self._directory} is full ({error.strerror}): nothing was accepted; try again"
                    )
                )
            return
        self._writer.sync()
        counts = Counter[str]()
        for _, _, _, batch, _ in published:
            _count_topics(batch, counts)

        def add() -> None:
            for first_seq, at, due, *_ in published:
                self._active.add(first_seq, at, due)
            self.accepted.update(counts)
            self.published_seq = seq

        first = self.published_seq
        self._publish([(batch, size) for *_, batch, size in published], add)
        self._answer(submissions, first)
        if self._writer.size >= self._segment_bytes_max:
            self._roll()

    def _answer(self, submissions: Sequence[Submission], seq: int) -> None:
        for s in submissions:
            rows = s.batch.num_rows
            s.done(Accepted(seq, s.batch.column("due_ms").to_numpy(), handle.sign(self._secret, seq, rows)))
            seq += rows

    def _roll(self) -> None:
        old, index = self._writer, self._active
        try:
            writer = SegmentWriter(self._files, self._directory, Room.INTAKE, self.published_seq)
        except OSError as error:
            # All submissions were answered. The file that there is goes on; the next commit tries again, or finds the
            # disk as bad as it is.
            log.warning("%s: the next segment could not be begun: %s", self._directory, error)
            return
        with self._lock:
            self._closed.append(_Segment(old.path, index, old.size))
            self._active, self._writer = ActiveIndex(self.published_seq), writer
        old.close()

    def seal(self) -> bool:
        """Put the index of one rolled segment on disk and forget it in memory. Whether there was one."""
        with self._lock:
            waiting = next((s for s in self._closed if not s.sealed), None)
        if waiting is None:
            return False
        path = waiting.path.with_suffix(".idx")
        assert isinstance(waiting.index, ActiveIndex)
        write_index(path, waiting.index, waiting.log_bytes)
        sealed = SealedIndex(path, waiting.path, _rebuilder(waiting.path, waiting.index.base))
        with self._lock:
            waiting.index, waiting.sealed = sealed, True
        return True

    # -- reading -----------------------------------------------------------------------------------------------------

    @property
    def first_seq(self) -> int:
        """The lowest seq that is still here (or will be the first)."""
        with self._lock:
            return self._closed[0].index.base if self._closed else self._active.base

    @property
    def position(self) -> tuple[int, int]:
        """Base and durable length of the active segment."""
        return self._writer.base, self._writer.durable

    def bytes_from(self, seq: int) -> int:
        """About how many bytes of log hold the messages from ``seq`` on."""
        whole = sum(s.log_bytes for s, base, end in self._ranges() if base >= seq)
        for s, base, end in self._ranges():
            if base < seq < end:
                whole += s.log_bytes * (end - seq) // (end - base)
        active, size = self._active, self._writer.size
        rows = active.end_seq - active.base
        return whole + (size * (active.end_seq - max(seq, active.base)) // rows if rows and seq < active.end_seq else 0)

    def _ranges(self) -> list[tuple[_Segment, int, int]]:
        with self._lock:
            return [(s, s.index.base, s.index.end_seq) for s in self._closed]

    def select(self, window: Window, limit: int) -> tuple[Int64s, Int64s, bool]:
        """Due times and seqs of the window's first ``limit`` (or somewhat more) rows, in order, and whether that is all
        of it.
        """
        with self._lock:
            indexes = [s.index for s in self._closed] + [self._active]
        indexes = [
            i
            for i in indexes
            if i.end_seq > window.seq_min
            and i.due_min_ms <= window.until.due_ms
            and i.due_max_ms >= window.after.due_ms
        ]
        each = max(1024, limit // max(1, len(indexes)))
        found = [i.select(window, each) for i in indexes]
        found = [(d, s) for d, s in found if len(d)]
        if not found:
            return np.empty(0, np.int64), np.empty(0, np.int64), True
        # A segment that gave all it was asked for may have more: nothing beyond its last row can be trusted to be next.
        cut = min((Key(int(d[-1]), int(s[-1])) for d, s in found if len(d) >= each), default=None)
        due = np.concatenate([d for d, _ in found])
        seq = np.concatenate([s for _, s in found])
        order = np.lexsort((seq, due))
        due, seq = due[order], seq[order]
        if cut is None:
            return due, seq, True
        keep = (due < cut.due_ms) | ((due == cut.due_ms) & (seq <= cut.seq))
        return due[keep], seq[keep], False

    def born_ms(self, seq: int) -> int:
        """When the message with this seq (or the first one after it) was accepted."""
        rows = self.read_rows(np.array([max(seq, self.first_seq)], np.int64))
        assert rows is not None
        return int(rows.column("born_ms")[0].as_py())

    def next_due(self, after: Key, seq_min: int) -> int | None:
        """The lowest due time from ``after`` on; None when nothing is left."""
        window = Window(after, Key(np.iinfo(np.int64).max, 0), seq_min, self.published_seq)
        due, _, _ = self.select(window, 1)
        return int(due[0]) if len(due) else None

    def read_rows(self, seqs: Int64s) -> pa.RecordBatch | None:
        """The messages with these seqs, in seq order; None for none.

        Raises:
            CorruptError: when a frame is damaged.
        """
        wanted, batches = np.sort(seqs), []
        for path, frames, base, end in self._tables(int(wanted[0]), int(wanted[-1]) + 1) if len(wanted) else []:
            here = wanted[np.searchsorted(wanted, base) : np.searchsorted(wanted, end)]
            if not len(here):
                continue
            which = np.searchsorted(frames.first_seq, here, "right") - 1
            cuts = np.flatnonzero(np.diff(which)) + 1
            with SegmentReader(path) as reader:
                for part in np.split(here, cuts):
                    at = int(np.searchsorted(frames.first_seq, part[0], "right")) - 1
                    _, _, batch = reader.read(int(frames.position[at]), SCHEMA)
                    rows = part - int(frames.first_seq[at])
                    batches.append(batch if len(rows) == batch.num_rows else batch.take(pa.array(rows, pa.int64())))
        return concat(batches) if batches else None

    def read(self, start: int, end: int) -> Iterator[pa.RecordBatch]:
        """Messages with ``start <= seq < end`` in seq order; frames that are small are joined.

        Raises:
            CorruptError: when the intake does not hold all of them, or a frame is damaged.
        """
        if end > self.published_seq:
            raise CorruptError(
                f"intake range [{start}, {end}) is not all here; here: [{self.first_seq}, {self.published_seq})"
            )
        waiting: list[pa.RecordBatch] = []
        rows = 0
        for path, frames, _, _ in self._tables(start, end):
            with SegmentReader(path) as reader:
                first = max(0, int(np.searchsorted(frames.first_seq, start, "right")) - 1)
                last = int(np.searchsorted(frames.first_seq, end, "left"))
                for at in range(first, last):
                    header, _, batch = reader.read(int(frames.position[at]), SCHEMA)
                    low, high = max(start - header.base, 0), min(end - header.base, batch.num_rows)
                    waiting.append(batch.slice(low, high - low))
                    rows += high - low
                    if rows >= 2 * FRAME_ROWS:
                        yield concat(waiting)
                        waiting, rows = [], 0
        if waiting:
            yield concat(waiting)

    def _tables(self, start: int, end: int) -> list[tuple[Path, FrameTable, int, int]]:
        with self._lock:
            found = [(s.path, s.index) for s in self._closed] + [(self._writer.path, self._active)]
        return [(p, i.frames(), i.base, i.end_seq) for p, i in found if i.base < end and i.end_seq > start]

    # -- deletion and recovery ---------------------------------------------------------------------------------------

    def delete_below(self, committed_seq: int, fired_seq: int, fired_until_ms: int) -> int:
        """Delete segments of which each message is in the store's snapshot, or fired with the ready log durable. How
        many.
        """
        deleted = 0
        while True:
            with self._lock:
                first = self._closed[0] if self._closed else None
                if first is None or not first.sealed or first.index.end_seq > fired_seq:
                    return deleted
                # `fired_seq` bounds both ways: recovery reads the intake itself from there on.
                if first.index.end_seq > committed_seq and first.index.due_max_ms >= fired_until_ms:
                    return deleted
                self._closed.pop(0)
            self._files.remove(first.path)
            self._files.remove(first.path.with_suffix(".idx"))
            deleted += 1

    def recover(self, *, next_seq: int, durable: tuple[int, int] | None) -> None:
        """Open what is on disk, or start at ``next_seq``; ``durable`` is (base, length) that a checkpoint knows to be
        on disk.

        Raises:
            CorruptError: for damage in what was acknowledged, or a segment that is missing.
        """
        bases = list_segments(self._directory)
        if durable is not None and durable[1] > frame.FILE_HEADER_BYTES and durable[0] not in bases:
            missing = segment_path(self._directory, durable[0])
            raise CorruptError(f"{missing} is missing; {durable[1]} bytes of it had been durable")
        if not bases:
            bases = [next_seq]
            SegmentWriter(self._files, self._directory, Room.INTAKE, next_seq).close()
        for base in bases[:-1]:
            path = segment_path(self._directory, base)
            index = SealedIndex(path.with_suffix(".idx"), path, _rebuilder(path, base))
            self._closed.append(_Segment(path, index, path.stat().st_size, sealed=True))
        last = segment_path(self._directory, bases[-1])
        known = durable[1] if durable is not None and durable[0] == bases[-1] else 0
        recover_tail(self._files, last, Room.INTAKE, bases[-1], durable_to=known)
        self._active = index_of_log(last, bases[-1])
        self._check_unbroken()
        self._writer = SegmentWriter(self._files, self._directory, Room.INTAKE, bases[-1])
        # What is in the file now is about to be served, so it must be durable even if its writer died before the fsync.
        self._writer.sync()
        self.published_seq = self._active.end_seq

    def _check_unbroken(self) -> None:
        bases = [s.index.base for s in self._closed] + [self._active.base]
        for segment, following in zip(self._closed, bases[1:], strict=True):
            end = segment.index.end_seq
            if end != following:
                raise CorruptError(
                    f"{segment.path} ends at seq {end}, the next segment begins at {following}: one is missing"
                )

    def close(self) -> None:
        self._writer.close()


def _rebuilder(path: Path, base: int) -> Callable[[], ActiveIndex]:
    def rebuild() -> ActiveIndex:
        log.warning("%s: the due index is missing or damaged; making it again", path)
        return index_of_log(path, base)

    return rebuild


def _share_frames(submissions: Sequence[Submission]) -> list[pa.RecordBatch]:
    frames: list[pa.RecordBatch] = []
    waiting: list[pa.RecordBatch] = []
    rows = 0
    for s in submissions:
        if rows and rows + s.batch.num_rows > FRAME_ROWS:
            frames.append(concat(waiting))
            waiting, rows = [], 0
        waiting.append(s.batch)
        rows += s.batch.num_rows
    frames.append(concat(waiting))
    return frames


def _numbered(batch: pa.RecordBatch, first_seq: int) -> pa.RecordBatch:
    seq = pa.array(np.arange(first_seq, first_seq + batch.num_rows, dtype=np.int64), pa.int64())
    return batch.add_column(0, SCHEMA.field(0), seq)


def _count_topics(batch: pa.RecordBatch, counts: Counter[str]) -> None:
    topics = batch.column("topic")
    if len(topics) <= FEW_ROWS:
        counts.update(topics.to_pylist())
        return
    for entry in pc.value_counts(topics):
        counts[entry["values"].as_py()] += entry["counts"].as_py()


def count_topics(batches: Iterator[pa.RecordBatch]) -> Counter[str]:
    """How many messages of each topic."""
    counts = Counter[str]()
    for batch in batches:
        _count_topics(batch, counts)
    return counts
