"""Finding messages in the ready log, which has an index of due times by frame and none of messages.

Of a message whose due time is known, about one frame is read: what became due in time lies in the order of due times.
Without it, all that is kept may have to be read; then it is read from the newest on, for a limited time.
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
    """A message that has fallen due: its topic's queue, its place in it, and the message (a batch of one row)."""

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
    """The messages that ``wanted`` picks (from a batch, a mask of its rows), and whether everything was looked at that
    may have one.

    Args:
        topic, due_ms: only of this topic, only what was due then.
        deadline_s: by ``time.monotonic()``, how long to look.
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
    """Queues and offsets that may have it; the newest first."""
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
