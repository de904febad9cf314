"""Pauses between tries that fail: each twice as long as the one before, up to a bound."""

from __future__ import annotations

import math
import time


class BackOff:
    """The pause after each failure, from ``first_s`` up to ``longest_s`` seconds.

    A try that lasted ``healthy_s`` seconds from :meth:`begin` ends the series of failures: the pause after it is the
    first one again.
    """

    __slots__ = ("_began_s", "_first_s", "_healthy_s", "_longest_s", "_next_s")

    def __init__(self, first_s: float, longest_s: float, healthy_s: float = math.inf) -> None:
        self._first_s = self._next_s = first_s
        self._longest_s, self._healthy_s = longest_s, healthy_s
        self._began_s = math.inf

    def begin(self) -> None:
        """Note that a try begins."""
        self._began_s = time.monotonic()

    def is_healthy(self) -> bool:
        """Return whether the try that began last has lasted for long enough by now."""
        return time.monotonic() - self._began_s >= self._healthy_s

    def fail(self) -> float:
        """Return the seconds to wait after a failure."""
        if self.is_healthy():
            self.reset()
        pause_s = self._next_s
        self._next_s = min(2 * pause_s, self._longest_s)
        return pause_s

    def lengthen(self) -> float:
        """Return the longest pause, which the following ones are, too."""
        self._next_s = self._longest_s
        return self._next_s

    def reset(self) -> None:
        """End the series of failures."""
        self._next_s = self._first_s
