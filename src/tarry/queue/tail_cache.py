"""The newest rows of all topics together, which stay in memory up to a number of bytes, or until they are written."""

from __future__ import annotations

from collections import deque

from tarry.queue.topic import Tail, Topic


class TailCache:
    """One thread adds, and one at a time evicts."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._tails: deque[tuple[Topic, Tail]] = deque()
        self._bytes = 0

    def add(self, topic: Topic, tail: Tail) -> None:
        """Rows that were appended to a topic."""
        self._tails.append((topic, tail))
        self._bytes += tail.size

    def evict(self) -> None:
        """Let topics forget the oldest of what is too much, as far as it is written."""
        while self._bytes > self._bytes_max and self._tails:
            topic, tail = self._tails[0]
            if not topic.evict(tail):
                return
            self._tails.popleft()
            self._bytes -= tail.size
