"""Messages of a group that are to be handed out from a moment on.

They are tries to come, messages that are early because the clock was set back, and messages that the order by key held
back until now.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from tarry.base.types import Int32s, Int64s
from tarry.groups.states import State, States


class UpcomingRows(NamedTuple):
    """Messages on their way to a consumer: arrays with an entry for each message, by ascending offset.

    ``attempts`` are the tries that come next.
    """

    offsets: Int64s
    attempts: Int32s
    states: States

    def pick(self, which: np.ndarray) -> UpcomingRows:
        """Return the rows of a mask, or at positions."""
        return UpcomingRows(self.offsets[which], self.attempts[which], self.states[which])


class Upcoming:
    """A heap of (moment, tie, offsets, attempts, state); guarded by the group's lock.

    An entry's rows share a state: WAITING after a try that failed, READY before the first.
    """

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Int64s, Int32s, State]] = []
        self._ties = itertools.count()

    def __iter__(self) -> Iterator[tuple[int, Int64s, Int32s]]:
        """(moment, offsets, attempts) of each entry, in no order."""
        for at_ms, _, offsets, attempts, _ in self._heap:
            yield at_ms, offsets, attempts

    @property
    def next_ms(self) -> int | None:
        """The earliest moment."""
        return self._heap[0][0] if self._heap else None

    def moments(self) -> list[int]:
        """Return the moments of all entries, in no order."""
        return [entry[0] for entry in self._heap]

    def due(self, now_ms: int) -> bool:
        """Return whether :meth:`take` would return messages."""
        return bool(self._heap) and self._heap[0][0] <= now_ms

    def waiting(self, now_ms: int) -> int:
        """Return the number of rows that are not due yet."""
        return sum(len(entry[2]) for entry in self._heap if entry[0] > now_ms)

    def push(self, at_ms: int, offsets: Int64s, attempts: Int32s, state: State) -> None:
        """Rows (offsets ascend) for one moment."""
        heapq.heappush(self._heap, (at_ms, next(self._ties), offsets, attempts, state))

    def push_each(self, at_ms: Int64s, offsets: Int64s, attempts: Int32s, state: State) -> None:
        """Rows, each for a moment of its own."""
        for moment in np.unique(at_ms).tolist():
            rows = at_ms == moment
            self.push(moment, offsets[rows], attempts[rows], state)

    def push_back(self, at_ms: int, rows: UpcomingRows) -> None:
        """Put back what :meth:`take` gave and is not handed out now."""
        for state in np.unique(rows.states).tolist():
            of_state = rows.states == state
            self.push(at_ms, rows.offsets[of_state], rows.attempts[of_state], State(state))

    def take(self, now_ms: int, room: int) -> UpcomingRows | None:
        """Up to ``room`` rows whose moment has come, those of the earliest moments."""
        parts: list[UpcomingRows] = []
        while room and self.due(now_ms):
            at_ms, _, offsets, attempts, state = heapq.heappop(self._heap)
            if len(offsets) > room:
                self.push(at_ms, offsets[room:], attempts[room:], state)
                offsets, attempts = offsets[:room], attempts[:room]
            parts.append(UpcomingRows(offsets, attempts, np.full(len(offsets), int(state), np.int8)))
            room -= len(offsets)
        if len(parts) <= 1:
            return parts[0] if parts else None
        joined = UpcomingRows(*(np.concatenate(column) for column in zip(*parts, strict=True)))
        return joined.pick(np.argsort(joined.offsets))

    def drop_below(self, offset: int) -> Int64s:
        """Forget the rows below ``offset``; their offsets, ascending."""
        dropped = [np.empty(0, np.int64)]
        kept = []
        for entry in self._heap:
            cut = int(np.searchsorted(entry[2], offset))
            if cut:
                dropped.append(entry[2][:cut])
                entry = (*entry[:2], entry[2][cut:], entry[3][cut:], entry[4])
            if len(entry[2]):
                kept.append(entry)
        self._heap = kept
        heapq.heapify(self._heap)
        return np.sort(np.concatenate(dropped))

    def clear(self) -> None:
        self._heap.clear()
