"""Order by key within a group: one message of each ordering key is on its way, later ones wait.

A message is *on its way* from when it may be handed out until it is settled: leased, waiting for its next try, or being
copied to the dead letters. When the last one of a key is settled, the next of that key may go. Only the offsets of
waiting messages are kept; after a restart they are found again in the log, in the same order.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

HELD_MAX = 100_000
"""Messages of a group that are held back at most; behind them, nothing of the topic is looked at."""


class Order:
    """Guarded by the group's lock. Where it is not ``active``, it holds nothing back and knows nothing."""

    def __init__(self, *, active: bool) -> None:
        self.active = active
        self.held = 0
        """Number of messages that are held back."""
        self._keys: dict[int, str] = {}  # offset on its way → key
        self._on_way: dict[str, int] = {}  # key → how many
        self._behind: dict[str, deque[int]] = {}  # key → offsets held back, ascending

    @property
    def full(self) -> bool:
        """True if no more messages may be held back."""
        return self.held >= HELD_MAX

    def enter(self, offset: int, key: str) -> bool:
        """Take up the next message of a key. Whether it may be handed out; if not, it is held back."""
        if key in self._on_way:
            self._behind.setdefault(key, deque()).append(offset)
            self.held += 1
            return False
        self.note(offset, key)
        return True

    def note(self, offset: int, key: str) -> None:
        """Note that this message is on its way already."""
        if offset not in self._keys:
            self._keys[offset] = key
            self._on_way[key] = self._on_way.get(key, 0) + 1

    def leave(self, offsets: Iterable[int]) -> list[int]:
        """Settle offsets; return those, ascending, that were held back for them and are on their way now."""
        freed = []
        for offset in offsets:
            key = self._keys.pop(offset, None)
            if key is None:
                continue
            self._on_way[key] -= 1
            if not self._on_way[key]:
                del self._on_way[key]
                if key in self._behind:
                    freed.append(self._next(key))
        return sorted(freed)

    def _next(self, key: str) -> int:
        queue = self._behind[key]
        offset = queue.popleft()
        if not queue:
            del self._behind[key]
        self.held -= 1
        self.note(offset, key)
        return offset

    def below(self, first: int) -> set[int]:
        """Return the offsets below ``first`` that are on their way."""
        return {offset for offset in self._keys if offset < first}

    def drop_below(self, first: int) -> list[int]:
        """Forget what is held back below ``first``; which they were, ascending."""
        dropped = []
        for key in list(self._behind):
            queue = self._behind[key]
            while queue and queue[0] < first:
                dropped.append(queue.popleft())
            if not queue:
                del self._behind[key]
        self.held -= len(dropped)
        return sorted(dropped)

    def reset(self, *, active: bool) -> list[int]:
        """Forget everything, and hold back from now on or not. The offsets that had been held back, ascending."""
        held = sorted(offset for queue in self._behind.values() for offset in queue)
        self.active, self.held = active, 0
        for index in (self._keys, self._on_way, self._behind):
            index.clear()
        return held
