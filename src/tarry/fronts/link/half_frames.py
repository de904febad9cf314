"""A bound on frames that have begun and not ended, of all gateways together."""

from __future__ import annotations

from typing import Generic, TypeVar

C = TypeVar("C")

HALF_BYTES_MAX = 640 << 20
"""Two of the largest frames."""


class HalfFrames(Generic[C]):
    """Bytes of unfinished frames, by connection. On the loop's thread."""

    def __init__(self, bytes_max: int = HALF_BYTES_MAX) -> None:
        self.bytes_max = bytes_max
        self._held: dict[C, int] = {}
        self._total = 0

    def note(self, connection: C, held: int) -> C | None:
        """Set a connection's bytes.

        Returns the connection to cut off if the total is too large: the one that holds most; else None.
        """
        self._total += held - self._held.get(connection, 0)
        if held:
            self._held[connection] = held
        else:
            self._held.pop(connection, None)
        return max(self._held, key=self._held.__getitem__) if self._total > self.bytes_max else None

    def forget(self, connection: C) -> None:
        """Forget a connection that has ended."""
        self._total -= self._held.pop(connection, 0)
