"""The queue of one topic: offsets, newest rows in memory, extents on disk, and listeners for new rows."""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from tarry.base.types import Int64s
from tarry.message.schema import concat

READ_BYTES = 16 << 20
"""Approximate limit of what one read returns."""
GAP_MAX = 64
"""Gaps of up to this many rows are read and dropped, rather than split into two reads."""


@dataclass(frozen=True, slots=True)
class Tail:
    """Rows in memory; the first has offset ``base``."""

    base: int
    batch: pa.RecordBatch
    size: int


def _base(tail: Tail) -> int:
    return tail.base


def _cut(batch: pa.RecordBatch, bytes_max: int) -> pa.RecordBatch:
    """Return the first rows of a batch that have about so many bytes, and one at least."""
    size = batch.nbytes
    return batch if size <= bytes_max else batch.slice(0, batch.num_rows * bytes_max // size or 1)


_EVICTED = Tail(-1, pa.RecordBatch.from_arrays([], names=[]), 0)


@dataclass(slots=True)
class Extent:
    """Offsets ``first … end-1`` of the topic are in segment ``segment`` of the ready log."""

    segment: int
    first: int
    end: int


ReadFrame = Callable[[str, int, int, int], tuple[int, pa.RecordBatch]]
"""``(topic, segment, offset, rows_max)`` → (first offset of the frame with ``offset``, its rows).

Raises FileNotFoundError if the segment was deleted.
"""

ReadRows = Callable[[Int64s], tuple[int, Int64s, pa.RecordBatch | None]]
"""Type of :meth:`Topic.read_rows`."""


@dataclass(slots=True)
class Topic:
    """The queue of one topic. The dispatcher alone appends; any thread reads. ``lock`` guards all fields."""

    name: str
    read_frame: ReadFrame
    end: int = 0
    """The offset that the next row gets, which is how many messages of the topic ever became due."""
    written: int = 0
    """Offsets below are in a file (not necessarily fsynced)."""
    lock: threading.Lock = field(default_factory=threading.Lock)
    tails: list[Tail] = field(default_factory=list)
    evicted: int = 0
    """Number of entries at the head of ``tails`` are not in memory any more.

    The list is cut only now and then, so that both ends are cheap.
    """
    extents: list[Extent] = field(default_factory=list)
    listeners: tuple[Callable[[], None], ...] = ()

    @property
    def first(self) -> int:
        """The lowest offset that can still be read."""
        with self.lock:
            return self._first()

    @property
    def is_empty(self) -> bool:
        """True if the topic keeps no rows."""
        with self.lock:
            return self._first() == self.end

    def _first(self) -> int:
        if self.extents:
            return self.extents[0].first
        return self.tails[self.evicted].base if self._in_memory else self.end

    @property
    def _in_memory(self) -> int:
        """Number of ``tails`` in memory."""
        return len(self.tails) - self.evicted

    def append(self, batch: pa.RecordBatch, size: int) -> Tail:
        """Give the rows the next offsets."""
        with self.lock:
            tail = Tail(self.end, batch, size)
            self.tails.append(tail)
            self.end += batch.num_rows
        return tail

    def on_written(self, segment: int, base: int, rows: int) -> None:
        """Note that rows from offset ``base`` on are in that segment."""
        with self.lock:
            last = self.extents[-1] if self.extents else None
            if last is not None and last.segment == segment:
                last.end = base + rows
            else:
                self.extents.append(Extent(segment, base, base + rows))
            self.written = max(self.written, base + rows)

    def evict(self, tail: Tail) -> bool:
        """Forget the oldest rows in memory, if they are ``tail`` and are written."""
        with self.lock:
            if tail.base + tail.batch.num_rows > self.written:
                return False
            assert self.tails[self.evicted] is tail
            self.tails[self.evicted] = _EVICTED
            self.evicted += 1
            if self.evicted > 1024 and self.evicted * 2 > len(self.tails):
                del self.tails[: self.evicted]
                self.evicted = 0
            return True

    def extent_in(self, segment: int) -> Extent | None:
        """Return the topic's part of that segment."""
        with self.lock:
            return next((e for e in self.extents if e.segment == segment), None)

    def on_segment_deleted(self, segment: int) -> None:
        """Note that nothing of the topic is in that segment any more."""
        with self.lock:
            self.extents = [e for e in self.extents if e.segment != segment]

    def read(self, offset: int, rows_max: int, bytes_max: int = READ_BYTES) -> tuple[int, pa.RecordBatch] | None:
        """Return up to ``rows_max`` rows in offset order, from ``offset`` on.

        They have about ``bytes_max``; there is one row at least.
        If that offset was deleted, the first row is the lowest that is left after it.

        Returns:
            (offset of the first row, rows), or None at the end of the queue.
        """
        while True:
            with self.lock:
                offset = max(offset, self._first())
                if offset >= self.end:
                    return None
                if self._in_memory and offset >= self.tails[self.evicted].base:
                    parts = self._from_memory(offset, rows_max, bytes_max)
                    break
                at = bisect_right([e.first for e in self.extents], offset) - 1
                segment = self.extents[at].segment
            try:
                base, batch = self.read_frame(self.name, segment, offset, rows_max)
            except FileNotFoundError:
                # The read was without the lock, so retention may have deleted the segment. Then `_first()` has changed.
                if self._has_segment(segment):
                    raise
                continue
            rows = min(rows_max, batch.num_rows - (offset - base))
            return offset, _cut(batch.slice(offset - base, rows), bytes_max)
        # Without the lock, so that the dispatcher need not wait.
        return offset, concat(parts)

    def read_range(self, start: int, end: int, rows_max: int) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Yield the rows with ``start <= offset < end`` that can still be read, in batches.

        A batch has up to ``rows_max`` rows, and comes with the offset of its first row.
        """
        while start < end and (rows := self.read(start, min(rows_max, end - start))) is not None and rows[0] < end:
            base, batch = rows
            batch = batch.slice(0, end - base)
            yield base, batch
            start = base + batch.num_rows

    def read_rows(self, offsets: Int64s, bytes_max: int = READ_BYTES) -> tuple[int, Int64s, pa.RecordBatch | None]:
        """Return the rows of these offsets (ascending) that can still be read.

        If they have more than about ``bytes_max``, only the first ones are read.

        Returns:
            (how many of ``offsets``, from the first on, were looked for; those of them that can be read; their rows in
            the same order, or None if there are none)
        """
        batches: list[pa.RecordBatch] = []
        kept = [np.empty(0, np.int64)]
        at, size, cuts = 0, 0, [*(np.flatnonzero(np.diff(offsets) > GAP_MAX) + 1).tolist(), len(offsets)]
        while at < len(offsets) and size < bytes_max:
            last = int(offsets[cuts[bisect_right(cuts, at)] - 1])
            rows = self.read(int(offsets[at]), last - int(offsets[at]) + 1, bytes_max - size)
            if rows is None:
                at = len(offsets)
                break
            base, batch = rows
            low, high = np.searchsorted(offsets, [base, base + batch.num_rows]).tolist()
            wanted = offsets[low:high]
            if len(wanted):
                batches.append(batch if len(wanted) == batch.num_rows else batch.take(pa.array(wanted - base)))
                kept.append(wanted)
                size += batches[-1].nbytes
            at = high
        return at, np.concatenate(kept), concat(batches) if batches else None

    def _has_segment(self, segment: int) -> bool:
        with self.lock:
            return any(e.segment == segment for e in self.extents)

    def _from_memory(self, offset: int, rows_max: int, bytes_max: int) -> list[pa.RecordBatch]:
        parts: list[pa.RecordBatch] = []
        rows = size = 0
        at = bisect_right(self.tails, offset, lo=self.evicted, key=_base) - 1
        for place in range(at, len(self.tails)):
            tail = self.tails[place]
            skip, wanted = offset + rows - tail.base, rows_max - rows
            if size + tail.size > bytes_max:  # one batch of a bulk load alone may have more than a read returns
                wanted = min(wanted, max(tail.batch.num_rows * (bytes_max - size) // tail.size, not parts))
                if not wanted:
                    break
            part = tail.batch
            if skip or part.num_rows > wanted:
                part = part.slice(skip, min(wanted, part.num_rows - skip))
            parts.append(part)
            rows += part.num_rows
            size += tail.size
            if rows >= rows_max or size >= bytes_max:
                break
        return parts

    def listen(self, on_rows: Callable[[], None]) -> Callable[[], None]:
        """Call ``on_rows`` when there are new rows (:meth:`notify`), until the returned function is called.

        The caller is mostly the dispatcher's thread, so ``on_rows`` must be quick and not raise.
        """

        def unsubscribe() -> None:
            with self.lock:
                self.listeners = tuple(listener for listener in self.listeners if listener is not on_rows)

        with self.lock:
            self.listeners = (*self.listeners, on_rows)
        return unsubscribe

    def notify(self) -> None:
        """Call all listeners."""
        for listener in self.listeners:
            listener()


class TailCache:
    """The newest rows of all topics together, which stay in memory up to a number of bytes.

    Rows that are not written yet stay beyond that. One thread adds, and one at a time evicts.
    """

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._tails: deque[tuple[Topic, Tail]] = deque()
        self._bytes = 0

    def add(self, topic: Topic, tail: Tail) -> None:
        """Add rows that were appended to a topic."""
        self._tails.append((topic, tail))
        self._bytes += tail.size

    def evict(self) -> None:
        """Make topics forget their oldest rows beyond the limit, as far as these are written."""
        while self._bytes > self._bytes_max and self._tails:
            topic, tail = self._tails[0]
            if not topic.evict(tail):
                return
            self._tails.popleft()
            self._bytes -= tail.size
