"""Lateness of messages: into their topic's queue, and into the hands of a waiting consumer.

The first is the broker's doing alone.

Lateness counts from the earliest moment at which a message could be had: its due time, or, if it was accepted later,
that moment. Messages accepted after their due time are also counted by themselves. A consumer that comes later than a
message, or holds all that it may, or gets a message for the second time, says nothing about the broker's lateness: such
rows are not counted.

On the way of a due message there is one subtraction and one append; the counting is done in bulk, later.
"""

from __future__ import annotations

import threading
from collections import deque

import numpy as np

from tarry.base.clock import Clock
from tarry.base.histogram import Histogram
from tarry.base.types import Int64s

TOPICS_MAX = 100
"""Topics with a histogram of their own; those that come later share one."""
OTHERS = ""
"""The name of that one. No topic is called so."""
WAITING_MAX = 2048
"""Most hand-outs that wait to be counted."""
MANY_ROWS = 1024
"""Rows that are counted at once: they would take memory, and counting them later would not be faster."""


class Lateness:
    """Histograms of milliseconds; thread-safe."""

    def __init__(self, clock: Clock) -> None:
        self.handed_out = 0
        """Messages given to consumers."""
        self._overdue = 0
        self._clock = clock
        self._in_queue = Histogram()
        self._by_topic: dict[str, Histogram] = {}
        self._herd, self._run = (0, 0), (0, 0)  # due time and rows: of the largest, and of what came last
        self._lock = threading.Lock()
        # Appending and popping are atomic.
        self._queued: deque[tuple[Int64s, Int64s, int]] = deque()
        self._delivered: deque[tuple[str, Int64s, int]] = deque()

    def on_queued(self, due_ms: Int64s, accepted_ms: Int64s) -> None:
        """Note that messages are in their queues. Called by the ready log."""
        self._queued.append((due_ms, accepted_ms, self._clock.now_ms()))
        if len(self._queued) >= WAITING_MAX or len(due_ms) >= MANY_ROWS:
            self._count()

    def on_handed_out(self, due_ms: Int64s, from_ms: Int64s, now_ms: int, topic: str, since_ms: int) -> None:
        """Note that a group gave messages to a consumer that has been waiting since ``since_ms``.

        ``from_ms``: the earliest moments at which they could be had, of those that no consumer of the group had before.
        """
        self.handed_out += len(due_ms)
        if len(from_ms):
            self._delivered.append((topic, now_ms - from_ms, now_ms - since_ms))
            if len(self._delivered) >= WAITING_MAX or len(from_ms) >= MANY_ROWS:
                self._count()

    def overdue(self) -> int:
        """Return the number of messages that were accepted after their due time, until now."""
        self._count()
        return self._overdue

    def queued(self) -> Histogram:
        """Return the lateness of all messages, until now."""
        self._count()
        return self._in_queue

    def delivered(self) -> Histogram:
        """Return the lateness of all topics' hand-outs, until now."""
        merged = Histogram()
        for histogram in self.by_topic().values():
            merged.merge(histogram)
        return merged

    def by_topic(self) -> dict[str, Histogram]:
        """Lateness of delivery, until now. :data:`OTHERS` has the topics that have none of their own."""
        self._count()
        with self._lock:
            return dict(self._by_topic)

    def take_herd(self) -> tuple[int, int]:
        """Return the due time that most messages had that came since the last call, and how many.

        Returns (0, 0) if none came.
        """
        self._count()
        with self._lock:
            herd, self._herd = self._herd, (0, 0)
            return herd

    def _count(self) -> None:
        with self._lock:
            queued = [self._queued.popleft() for _ in range(len(self._queued))]
            if queued:
                due, accepted = (np.concatenate([entry[column] for entry in queued]) for column in (0, 1))
                moments = np.repeat([now for *_, now in queued], [len(entry[0]) for entry in queued])
                self._in_queue.record(moments - np.maximum(due, accepted))
                self._overdue += int((accepted > due).sum())
                self._count_herd(due)
            by_name: dict[str, list[tuple[Int64s, int]]] = {}
            for _ in range(len(self._delivered)):
                topic, late, waited = self._delivered.popleft()
                by_name.setdefault(self._name(topic), []).append((late, waited))
            for name, entries in by_name.items():
                lates = np.concatenate([late for late, _ in entries])
                waits = np.repeat([waited for _, waited in entries], [len(late) for late, _ in entries])
                self._by_topic[name].record(lates[lates <= waits])

    def _count_herd(self, due: Int64s) -> None:
        """Count messages of one due time, which may be in several batches: they come by due time."""
        moments, rows = np.unique(due, return_counts=True)
        if moments[0] == self._run[0]:
            rows[0] += self._run[1]
        self._run = (int(moments[-1]), int(rows[-1]))
        most = int(rows.argmax())
        if rows[most] > self._herd[1]:
            self._herd = (int(moments[most]), int(rows[most]))

    def _name(self, topic: str) -> str:
        if topic in self._by_topic:
            return topic
        name = topic if len(self._by_topic) < TOPICS_MAX else OTHERS
        self._by_topic.setdefault(name, Histogram())
        return name
