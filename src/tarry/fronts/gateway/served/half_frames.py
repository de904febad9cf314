"""A bound for frames that have begun and not ended, of all gateways together."""

from __future__ import annotations

from typing import Generic, TypeVar

C = TypeVar("C")

HALF_BYTES_MAX = 640 << 20
"""Two of the largest frames."""


class HalfFrames(Generic[C]):
    """Who holds how much. On the loop's thread."""

    def __init__(self, bytes_max: int = HALF_BYTES_MAX) -> None:
        self.bytes_max = bytes_max
        self._held: dict[C, int] = {}
        self._total = 0

    def note(self, connection: C, held: int) -> C | None:
        """A connection holds so many bytes now; who has to be cut off for that, if anybody: who holds most."""
        self._total += held - self._held.get(connection, 0)
        if held:
            self._held[connection] = held
        else:
            self._held.pop(connection, None)
        return max(self._held, key=self._held.__getitem__) if self._total > self.bytes_max else None

    def forget(self, connection: C) -> None:
        """It has ended."""
        self._total -= self._held.pop(connection, 0)
