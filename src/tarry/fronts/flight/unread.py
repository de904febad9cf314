"""Bounds what is on its way to consumers that do not read it: gRPC takes a batch only when the former ones are read,
and until then it is in memory, of each stream up to what one read of a queue gives.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

UNREAD_BYTES_MAX = 256 << 20
"""Of all streams together; one peer address has half."""
READ_BYTES = 16 << 20
"""About what one read of a queue gives at most."""
MUCH_BYTES = 1 << 20
"""Whoever got so much at once will get more."""


class UnreadBytes:
    """Any thread."""

    def __init__(self, bytes_max: int = UNREAD_BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._changed = threading.Condition()
        self._held = 0
        self._held_by: Counter[str] = Counter()

    def take(self, host: str, size: int, timeout_s: float) -> bool:
        """Hold ``size`` bytes for a peer address; False: there was no room for so long."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._has_room(host, size), timeout_s):
                return False
            self._add(host, size)
        return True

    def give_back(self, host: str, size: int) -> None:
        """They have been taken by gRPC, or are not to be sent."""
        with self._changed:
            self._add(host, -size)
            self._changed.notify_all()

    @contextmanager
    def sending(self, host: str, size: int) -> Iterator[None]:
        """So much is being sent, whether there is room or not."""
        with self._changed:
            self._add(host, size)
        try:
            yield
        finally:
            self.give_back(host, size)

    def _has_room(self, host: str, size: int) -> bool:
        # Nobody who holds nothing waits for ever, however small the bound is.
        mine = self._held_by[host]
        return not mine or (mine + size <= self._bytes_max // 2 and self._held + size <= self._bytes_max)

    def _add(self, host: str, size: int) -> None:
        self._held += size
        self._held_by[host] += size
        if not self._held_by[host]:
            del self._held_by[host]
