"""The log of what was accepted: numbering, writing, rolling, and reading back by seq or by due time."""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tarry.base import handle
from tarry.base.bulk import read_job_rows
from tarry.base.errors import CorruptError, DiskFullError, TarryError
from tarry.base.message import SCHEMA, Kind, concat, count_topics, kinds_of, messages_only, numbered
from tarry.base.types import Int64s, Key, before
from tarry.intake.index import ActiveIndex, FrameTable, SealedIndex, Window, index_of_log, write_index
from tarry.intake.submission import NO_ROWS, Accepted, Round, Submission
from tarry.log import frame
from tarry.log.files import DISK_FULL, Buffer, Files
from tarry.log.frame import Room
from tarry.log.recover import recover_tail
from tarry.log.segment import SegmentReader, SegmentWriter, list_segments, segment_path

log = logging.getLogger(__name__)

FRAME_ROWS = 4096
"""Small submissions that wait together share a frame, up to about this many rows."""


@dataclass(frozen=True, slots=True)
class _Written:
    """A frame of a commit, and where it is in the log."""

    first_seq: int
    position: int
    due_ms: Int64s
    batch: pa.RecordBatch
    parts: Sequence[Buffer]

    @property
    def size(self) -> int:
        return sum(len(p) for p in self.parts)


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
        begin_round: Callable[[int], Round] | None = None,
        register: Callable[[pa.RecordBatch, bool], None] | None = None,
    ) -> None:
        self._files = files
        self._directory = directory
        self._segment_bytes_max = segment_bytes_max
        self._secret = secret
        self._publish = publish
        self._begin_round = begin_round
        self._register = register
        self._lock = threading.Lock()  # guards the list of segments, not their contents
        self._closed: list[_Segment] = []
        self._keepers = 0
        self._active: ActiveIndex
        self._writer: SegmentWriter
        self.accepted: Counter[str] = Counter()
        self.cancelled: Counter[str] = Counter()
        self.published_seq = 0
        """All messages below are durable and visible to the loader."""

    # -- writing -----------------------------------------------------------------------------------------------------

    def commit(self, submissions: list[Submission]) -> None:
        """Number, write, fsync, publish and answer. Full disk refuses the submissions; other failures are the caller's
        to treat as fatal.
        """
        submissions, round = self._decide(submissions)
        frames = self._numbered(_share_frames(submissions))
        try:
            if frames:
                self._writer.append([part for written in frames for part in written.parts])
        except OSError as error:
            if error.errno not in DISK_FULL:
                raise
            if round is not None:
                round.undo()
            text = f"the disk of {self._directory} is full ({error.strerror}): nothing was accepted; try again"
            for s in submissions:
                s.fail(DiskFullError(text))
            return
        first = self.published_seq
        if frames:
            self._writer.sync()
            self._made_durable(frames, special=round is not None)
        if round is not None:
            round.settle()
        self._answer(submissions, first)
        if self._writer.size >= self._segment_bytes_max:
            self._roll()

    def _decide(self, submissions: list[Submission]) -> tuple[list[Submission], Round | None]:
        """The submissions with the rows that their deeds come to; those that are refused are told so and left out."""
        if not any(s.deed is not None for s in submissions):
            return submissions, None
        assert self._begin_round is not None, "nobody is here to decide deeds"
        round = self._begin_round(self.published_seq)
        decided = []
        for s in submissions:
            if s.deed is not None:
                try:
                    batch = s.deed.decide(round)
                except TarryError as error:
                    s.fail(error)
                    continue
                s = replace(s, batch=NO_ROWS if batch is None else batch)
            round.next_seq += s.batch.num_rows
            decided.append(s)
        return decided, round

    def _numbered(self, batches: list[pa.RecordBatch]) -> list[_Written]:
        seq, position, written = self.published_seq, self._writer.size, []
        for batch in batches:
            rows = numbered(batch, seq)
            # A copy: the index keeps it for the life of the segment, and a view would keep the bodies with it.
            due = rows.column("due_ms").to_numpy().copy()
            parts = frame.encode(
                rows,
                base=seq,
                durable_to=self._writer.durable,
                due_min_ms=int(due.min()),
                due_max_ms=int(due.max()),
            )
            written.append(_Written(seq, position, due, rows, parts))
            position += written[-1].size
            seq += rows.num_rows
        return written

    def _made_durable(self, frames: list[_Written], *, special: bool) -> None:
        accepted, cancelled = Counter[str](), Counter[str]()
        batches = []
        for written in frames:
            batch = written.batch
            plain = not special or not kinds_of(batch).any()
            if special and self._register is not None:
                # Before it is published: what is below a checkpoint's seq is not applied again.
                self._register(batch, plain)
            if plain:
                count_topics(batch.column("topic"), accepted)
            else:
                batch = tally(batch, accepted, cancelled)
            batches.append((batch, written.size))

        def add() -> None:
            for written in frames:
                self._active.add(written.first_seq, written.position, written.due_ms)
            self.accepted.update(accepted)
            self.cancelled.update(cancelled)
            self.published_seq = frames[-1].first_seq + frames[-1].batch.num_rows

        self._publish([(batch, size) for batch, size in batches if batch.num_rows], add)

    def _answer(self, submissions: Sequence[Submission], seq: int) -> None:
        for s in submissions:
            rows = s.batch.num_rows
            if s.deed is not None:
                s.deed.answer(seq)
            else:
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
        keep = before(due, seq, Key(cut.due_ms, cut.seq + 1))
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

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Nothing is deleted meanwhile. For what is short: the disk fills until it ends."""
        with self._lock:
            self._keepers += 1
        try:
            yield
        finally:
            with self._lock:
                self._keepers -= 1

    def delete_below(self, committed_seq: int, fired_seq: int, fired_until_ms: int) -> int:
        """Delete segments of which each message is in the store's snapshot, or fired with the ready log durable. How
        many.
        """
        deleted = 0
        while True:
            with self._lock:
                first = self._closed[0] if self._closed and not self._keepers else None
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
        if not s.batch.num_rows:
            continue
        if rows and rows + s.batch.num_rows > FRAME_ROWS:
            frames.append(concat(waiting))
            waiting, rows = [], 0
        waiting.append(s.batch)
        rows += s.batch.num_rows
    return [*frames, concat(waiting)] if waiting else frames


def tally(batch: pa.RecordBatch, accepted: Counter[str], cancelled: Counter[str]) -> pa.RecordBatch:
    """Count, by topic, what rows of the intake say was accepted and cancelled; the messages among them."""
    messages = messages_only(batch)
    count_topics(messages.column("topic"), accepted)
    if messages is not batch:
        cancellations = batch.filter(pc.equal(batch.column("kind"), int(Kind.CANCEL)))
        count_topics(cancellations.column("topic"), cancelled)
        for row in read_job_rows(batch):
            (accepted if row.kind is Kind.JOB else cancelled)[row.topic] += row.rows
    return messages
