"""The intake as everybody but its writer sees it: what was accepted, read back by seq or by due time.

A frame is always read whole, as its checksum is of all of it. Segments may be deleted while they are read: whoever
reads what may go meanwhile holds :meth:`Intake.kept`, or expects FileNotFoundError.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tarry.base.errors import CorruptError, InvalidArgumentError
from tarry.base.types import Int64s, Key, before
from tarry.intake.index import Window
from tarry.intake.segments import SegmentFrames, Segments, WrittenFrame
from tarry.log.segment import SegmentReader
from tarry.message.bulk import read_job_rows
from tarry.message.schema import SCHEMA, Kind, chunks, concat, count_topics, messages_only

OnDamage = Callable[[CorruptError, Int64s], None]
"""Called for a damaged frame, with the seqs that were wanted of it, ascending."""
JOINED_ROWS = 8192
JOINED_BYTES = 4 << 20
"""Small frames that are read one after the other are joined to about so many rows or bytes."""


class Intake:
    """Any thread reads; :class:`tarry.intake.writer.IntakeWriter` alone calls :meth:`add`."""

    def __init__(self, segments: Segments) -> None:
        self._segments = segments
        self.accepted: Counter[str] = Counter()
        """Messages accepted, by topic."""
        self.cancelled: Counter[str] = Counter()
        """Messages cancelled, by topic."""
        self.published_seq = segments.end_seq
        """All messages below are durable and visible to the loader."""

    def add(
        self, frames: Sequence[WrittenFrame], accepted: Counter[str], cancelled: Counter[str], end_seq: int
    ) -> None:
        """Show durable frames to readers; ``end_seq`` is then the seq after the last message.

        To be called under the lock that the loader moves the horizon with.
        """
        self._segments.add(frames)
        self.accepted.update(accepted)
        self.cancelled.update(cancelled)
        self.published_seq = end_seq

    @property
    def first_seq(self) -> int:
        """The lowest seq that is still here (or will be the first)."""
        return self._segments.first_seq

    @property
    def position(self) -> tuple[int, int]:
        """Base and durable length of the segment that is being written."""
        return self._segments.position

    def bytes_from(self, seq: int) -> int:
        """About how many bytes of log hold the messages from ``seq`` on."""
        return self._segments.bytes_from(seq)

    # -- reading -----------------------------------------------------------------------------------------------------

    def select(self, window: Window, limit: int) -> tuple[Int64s, Int64s, bool]:
        """Return due times and seqs of the window's first ``limit`` (or somewhat more) rows, in order.

        The third value is True if these are all of its rows.
        """
        indexes = [
            i
            for i in self._segments.indexes()
            if i.end_seq > window.seq_min
            and i.due_min_ms <= window.until.due_ms
            and i.due_max_ms >= window.after.due_ms
        ]
        each = max(1024, limit // max(1, len(indexes)))
        parts = [(due, seq) for due, seq in (i.select(window, each) for i in indexes) if len(due)]
        if not parts:
            return np.empty(0, np.int64), np.empty(0, np.int64), True
        # A segment that gave all it was asked for may have more: nothing beyond its last row can be trusted to be next.
        cut = min((Key(int(due[-1]), int(seq[-1])) for due, seq in parts if len(due) >= each), default=None)
        due, seq = (np.concatenate(columns) for columns in zip(*parts, strict=True))
        order = np.lexsort((seq, due))
        due, seq = due[order], seq[order]
        if cut is None:
            return due, seq, True
        keep = before(due, seq, Key(cut.due_ms, cut.seq + 1))
        return due[keep], seq[keep], False

    def next_due(self, after: Key, seq_min: int) -> int | None:
        """Return the lowest due time from ``after`` on; None if nothing is left."""
        window = Window(after, Key(np.iinfo(np.int64).max, 0), seq_min, self.published_seq)
        due, _, _ = self.select(window, 1)
        return int(due[0]) if len(due) else None

    def read_rows(self, seqs: Int64s, on_damage: OnDamage | None = None) -> pa.RecordBatch | None:
        """Return the messages with these seqs, in seq order; None for none.

        Those that are not here are left out, and with ``on_damage`` those that cannot be read.

        Raises:
            CorruptError: when a frame is damaged, without ``on_damage``.
        """
        batches = [
            batch if len(rows) == batch.num_rows else batch.take(pa.array(rows, pa.int64()))
            for batch, rows in self._frames_of(seqs, on_damage)
        ]
        return concat(batches) if batches else None

    def read_columns(self, seqs: Int64s, names: Sequence[str]) -> pa.RecordBatch:
        """Return some columns of the messages with these seqs, in seq order.

        Messages that are not here any more are left out.

        For looking at many, without holding their bodies: one frame is in memory at a time.

        Raises:
            CorruptError: when a frame is damaged. FileNotFoundError: a segment was deleted meanwhile.
        """
        # A copy, also of all rows: a view would keep the frame.
        batches = [batch.select(list(names)).take(pa.array(rows, pa.int64())) for batch, rows in self._frames_of(seqs)]
        schema = pa.schema([SCHEMA.field(name) for name in names])
        return pa.concat_batches(batches) if batches else pa.RecordBatch.from_pylist([], schema=schema)

    def born_ms(self, seq: int) -> int:
        """Return the time at which the message with this seq (or the first one after it) was accepted."""
        rows = self.read_rows(np.array([max(seq, self.first_seq)], np.int64))
        assert rows is not None
        return int(rows.column("born_ms")[0].as_py())

    def check_end(self, end: int) -> None:
        """For who asks for a range that somebody else gave.

        Raises:
            InvalidArgumentError: it ends behind what was published.
        """
        if end > self.published_seq:
            raise InvalidArgumentError(f"end is {end}; allowed: up to {self.published_seq}, where the intake ends")

    def read(self, start: int, end: int) -> Iterator[pa.RecordBatch]:
        """Messages with ``start <= seq < end`` in seq order; frames that are small are joined.

        Raises:
            CorruptError: while iterating, when the intake ends before ``end``, or a frame is damaged.
        """
        if end > self.published_seq:
            raise CorruptError(
                f"intake range [{start}, {end}) is not all here; here: [{self.first_seq}, {self.published_seq})"
            )
        yield from map(concat, chunks(self._slices(start, end), JOINED_BYTES, JOINED_ROWS))

    def columns_between(self, start: int, end: int, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield some columns of the messages here with ``start <= seq < end``, in order, a frame at a time.

        Raises as :meth:`read_columns` does.
        """
        for batch in self._slices(start, end):
            yield batch.select(list(names))

    # -- upkeep ------------------------------------------------------------------------------------------------------

    def seal(self) -> bool:
        """As :meth:`tarry.intake.segments.Segments.seal`."""
        return self._segments.seal()

    def kept(self) -> AbstractContextManager[None]:
        """As :meth:`tarry.intake.segments.Segments.kept`."""
        return self._segments.kept()

    def deletable_until(self, committed_seq: int, fired_seq: int, fired_until_ms: int) -> int:
        """As :meth:`tarry.intake.segments.Segments.deletable_until`."""
        return self._segments.deletable_until(committed_seq, fired_seq, fired_until_ms)

    def delete_below(self, first_seq: int) -> int:
        """As :meth:`tarry.intake.segments.Segments.delete_below`."""
        return self._segments.delete_below(first_seq)

    def close(self) -> None:
        """Close the files; what is not durable by then may be lost."""
        self._segments.close()

    # -- inside ------------------------------------------------------------------------------------------------------

    def _frames_of(self, seqs: Int64s, on_damage: OnDamage | None = None) -> Iterator[tuple[pa.RecordBatch, Int64s]]:
        """Each frame that has some of these messages, and which of its rows they are, ascending."""
        wanted = np.sort(seqs)
        for segment in self._segments.frames_between(int(wanted[0]), int(wanted[-1]) + 1) if len(wanted) else ():
            in_segment = wanted[np.searchsorted(wanted, segment.base) : np.searchsorted(wanted, segment.end_seq)]
            if not len(in_segment):
                continue
            first_seqs, positions = segment.frames
            frame = np.searchsorted(first_seqs, in_segment, "right") - 1
            starts = np.concatenate([[0], np.flatnonzero(np.diff(frame)) + 1])
            with SegmentReader(segment.path) as reader:
                for number, part in zip(frame[starts].tolist(), np.split(in_segment, starts[1:]), strict=True):
                    try:
                        _, _, batch = reader.read(int(positions[number]), SCHEMA)
                    except CorruptError as error:
                        if on_damage is None:
                            raise
                        on_damage(error, part)
                        continue
                    yield batch, part - int(first_seqs[number])

    def _slices(self, start: int, end: int) -> Iterator[pa.RecordBatch]:
        """Yield the messages with ``start <= seq < end``, one frame after the other."""
        for segment in self._segments.frames_between(start, end):
            with SegmentReader(segment.path) as reader:
                for position in _positions_between(segment, start, end):
                    header, _, batch = reader.read(position, SCHEMA)
                    low, high = max(start - header.base, 0), min(end - header.base, batch.num_rows)
                    yield batch.slice(low, high - low)


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


def _positions_between(segment: SegmentFrames, start: int, end: int) -> list[int]:
    first_seqs, positions = segment.frames
    first = max(0, int(np.searchsorted(first_seqs, start, "right")) - 1)
    last = int(np.searchsorted(first_seqs, end, "left"))
    within: list[int] = positions[first:last].tolist()
    return within
