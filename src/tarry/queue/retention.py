"""Deletion of the ready log's oldest segments: when all readers are done, or when they are too old."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from tarry.log.engine import Log
from tarry.log.segment import segment_path
from tarry.queue.reader import FramesReader
from tarry.queue.topic import Topic
from tarry.queue.writer import SegmentsWriter


class RetentionGuard(Protocol):
    """Represents the readers of the queues when a segment is to be deleted."""

    def floor_of(self, topic: str) -> int | None:
        """Return the offset below which all readers of the topic are done; None if it has no readers."""
        ...

    def make_way(self, segment: int, topics: list[Topic]) -> bool:
        """Return whether a segment may be deleted for its age alone; ``topics`` are all topics.

        If so, whatever is still needed of it has been copied to newer segments.
        """
        ...

    def on_deleted(self, topic: Topic) -> None:
        """Note that a segment was deleted with which readers of the topic were not done.

        ``topic.first`` has changed.
        """
        ...


class Retention:
    """Deletes segments. One thread at a time."""

    def __init__(self, log: Log, topics: dict[str, Topic], writer: SegmentsWriter, reader: FramesReader) -> None:
        self._log = log
        self._topics = topics
        self._writer = writer
        self._reader = reader

    def delete(
        self,
        now_ms: int,
        retention_ms: int,
        guard: RetentionGuard,
        announce: Callable[[int], None],
        below: int,
    ) -> int:
        """Delete the oldest segments: see :meth:`tarry.queue.log.ReadyLog.delete_consumed`."""
        chosen: list[tuple[int, bool]] = []
        topics = list(self._topics.values())
        for base in self._writer.segments[:-1]:
            if base >= below:
                break
            consumed = self._is_consumed(base, guard)
            if not consumed and not (self._is_old(base, now_ms - retention_ms) and guard.make_way(base, topics)):
                break
            chosen.append((base, consumed))
        if not chosen:
            return 0
        announce(chosen[-1][0] + 1)
        deleted = 0
        for base, consumed in chosen:
            if consumed and not self._is_consumed(base, guard):
                break  # a group has gone back to it meanwhile
            self._delete_oldest(base, guard, consumed=consumed)
            deleted += 1
        return deleted

    def _is_consumed(self, base: int, guard: RetentionGuard) -> bool:
        """Return whether all readers are done with a segment."""
        return all(_consumed(topic, base, guard) for topic in list(self._topics.values()))

    def _is_old(self, base: int, before_ms: int) -> bool:
        # The messages' due times count as well: under a test clock, or after a restore, the file may look older than it
        # is.
        written_ms = segment_path(self._log.directory, base).stat().st_mtime_ns // 1_000_000
        return max(written_ms, self._writer.sealed_due_ms.get(base, 0)) < before_ms

    def _delete_oldest(self, base: int, guard: RetentionGuard, *, consumed: bool) -> None:
        for topic in list(self._topics.values()):
            topic.on_segment_deleted(base)
            self._reader.drop_table(base, topic.name)
            if not consumed:
                guard.on_deleted(topic)
        self._writer.segments.pop(0)
        self._writer.sealed_due_ms.pop(base, None)
        self._log.trim(base)


def _consumed(topic: Topic, segment: int, guard: RetentionGuard) -> bool:
    """Return whether all readers of the topic are done with its rows in the segment."""
    extent = topic.extent_in(segment)
    if extent is None:
        return True
    floor = guard.floor_of(topic.name)
    return floor is not None and floor >= extent.end
