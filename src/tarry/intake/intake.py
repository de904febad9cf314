"""The intake as everybody but its writer sees it: what was accepted, read back by seq or by due time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tarry.base.bulk import read_job_rows
from tarry.base.errors import CorruptError
from tarry.base.message import Kind, count_topics, messages_only
from tarry.base.types import Int64s, Key
from tarry.intake.index import Window
from tarry.intake.reader import Reader
from tarry.intake.segments import Segments, WrittenFrame


class Intake:
    """Any thread reads; :class:`tarry.intake.writer.IntakeWriter` alone calls :meth:`add`."""

    def __init__(self, segments: Segments) -> None:
        self._segments = segments
        self._reader = Reader(segments)
        self.accepted: Counter[str] = Counter()
        """Messages accepted, by topic."""
        self.cancelled: Counter[str] = Counter()
        """Messages cancelled, by topic."""
        self.published_seq = segments.end_seq
        """All messages below are durable and visible to the loader."""

    def add(
        self, frames: Sequence[WrittenFrame], accepted: Counter[str], cancelled: Counter[str], end_seq: int
    ) -> None:
        """These frames are durable and to be seen by readers; with them ``end_seq`` is the seq after the last message.
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
        """As :meth:`tarry.intake.reader.Reader.select`."""
        return self._reader.select(window, limit)

    def next_due(self, after: Key, seq_min: int) -> int | None:
        """The lowest due time from ``after`` on; None when nothing is left."""
        window = Window(after, Key(np.iinfo(np.int64).max, 0), seq_min, self.published_seq)
        due, _, _ = self._reader.select(window, 1)
        return int(due[0]) if len(due) else None

    def born_ms(self, seq: int) -> int:
        """When the message with this seq (or the first one after it) was accepted."""
        rows = self._reader.read_rows(np.array([max(seq, self.first_seq)], np.int64))
        assert rows is not None
        return int(rows.column("born_ms")[0].as_py())

    def read_rows(self, seqs: Int64s) -> pa.RecordBatch | None:
        """As :meth:`tarry.intake.reader.Reader.read_rows`."""
        return self._reader.read_rows(seqs)

    def read_columns(self, seqs: Int64s, names: Sequence[str]) -> pa.RecordBatch:
        """As :meth:`tarry.intake.reader.Reader.read_columns`."""
        return self._reader.read_columns(seqs, names)

    def columns_between(self, start: int, end: int, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """As :meth:`tarry.intake.reader.Reader.columns_between`."""
        return self._reader.columns_between(start, end, names)

    def read(self, start: int, end: int) -> Iterator[pa.RecordBatch]:
        """Messages with ``start <= seq < end`` in seq order; frames that are small are joined.

        Raises:
            CorruptError: while iterating, when the intake ends before ``end``, or a frame is damaged.
        """
        if end > self.published_seq:
            raise CorruptError(
                f"intake range [{start}, {end}) is not all here; here: [{self.first_seq}, {self.published_seq})"
            )
        yield from self._reader.read(start, end)

    # -- upkeep ------------------------------------------------------------------------------------------------------

    def seal(self) -> bool:
        """As :meth:`tarry.intake.segments.Segments.seal`."""
        return self._segments.seal()

    def kept(self) -> AbstractContextManager[None]:
        """As :meth:`tarry.intake.segments.Segments.kept`."""
        return self._segments.kept()

    def delete_below(self, committed_seq: int, fired_seq: int, fired_until_ms: int) -> int:
        """As :meth:`tarry.intake.segments.Segments.delete_below`."""
        return self._segments.delete_below(committed_seq, fired_seq, fired_until_ms)

    def close(self) -> None:
        """Close the files; what is not durable by then may be lost."""
        self._segments.close()


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
