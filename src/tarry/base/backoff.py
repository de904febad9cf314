"""Pauses between tries that grow while these fail."""

from __future__ import annotations

import math


class Backoff:
    """Pauses in seconds: the first is ``least_s``, each other twice the one before, up to ``most_s``. One thread."""

    def __init__(self, least_s: float, most_s: float = math.inf) -> None:
        self._least_s = least_s
        self._most_s = most_s
        self.pause_s = least_s
        """The next pause."""

    def next_s(self) -> float:
        """Return the pause before the next try; the one after it is longer."""
        pause_s = self.pause_s
        self.pause_s = min(2 * pause_s, self._most_s)
        return pause_s

    def reset(self) -> None:
        """Begin with the shortest pause again, after a success."""
        self.pause_s = self._least_s
