"""Search for messages in the ready log, which indexes the due times of frames, but no messages.

For a message whose due time is known, about one frame is read, because messages that became due in time lie in the
order of due times. Without a due time, the whole log may have to be read; then it is read from the newest on, for a
limited time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from tarry.base.types import Mask
from tarry.queue.log import ReadyLog
from tarry.queue.topic import Topic

READ_ROWS = 8192


@dataclass(frozen=True, slots=True)
class ReadyPlace:
    """A message that has fallen due: its topic's queue, its offset there, and its row (a batch of one)."""

    topic: Topic
    offset: int
    row: pa.RecordBatch


def find(
    log: ReadyLog,
    wanted: Callable[[pa.RecordBatch], Mask],
    *,
    topic: str | None = None,
    due_ms: int | None = None,
    deadline_s: float,
) -> tuple[list[ReadyPlace], bool]:
    """Return the messages that ``wanted`` picks, and whether everything was searched.

    False means that the time was up before all places were searched that may have one.

    Args:
        wanted: returns a mask of the rows of a batch.
        topic, due_ms: only of this topic, only with this due time.
        deadline_s: when to stop, by ``time.monotonic()``.
    """
    places: list[ReadyPlace] = []
    for queue, first, end in _spans(log, topic, due_ms):
        for base, batch in queue.read_range(first, end, READ_ROWS):
            mask = wanted(batch)
            if due_ms is not None:
                mask = mask & (batch.column("due_ms").to_numpy() == due_ms)
            places += [ReadyPlace(queue, base + row, batch.slice(row, 1)) for row in np.flatnonzero(mask).tolist()]
            if time.monotonic() >= deadline_s:
                return places, False
    return places, True


def _spans(log: ReadyLog, topic: str | None, due_ms: int | None) -> Iterator[tuple[Topic, int, int]]:
    """Yield the ranges of offsets that may have a match: unwritten rows first, then the newest frames."""
    topics = list(log.topics.values()) if topic is None else [t for t in [log.topics.get(topic)] if t is not None]
    segments: set[int] = set()
    for queue in topics:
        with queue.lock:
            written, end, extents = queue.written, queue.end, list(queue.extents)
        segments |= {extent.segment for extent in extents}
        if end > written:
            yield queue, max(written, queue.first), end
    named = {queue.name: queue for queue in topics}
    for segment in sorted(segments, reverse=True):
        for entry in reversed(log.frames_in(segment)):
            if entry.topic in named and (due_ms is None or entry.due_min_ms <= due_ms <= entry.due_max_ms):
                yield named[entry.topic], entry.offset, entry.offset + entry.rows
