"""Lines of a log that strangers can cause: so many in a while, and how many more there were."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

LINES_MAX = 10
PERIOD_S = 10.0


class LogLimiter:
    """Limited writing to ``log``, on one thread.

    Of more than :data:`LINES_MAX` lines within :data:`PERIOD_S` the first are written, and later the number of the
    others.
    """

    def __init__(self, log: logging.Logger, level: int, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._log = log
        self._level = level
        self._clock_s = clock_s
        self._since_s = clock_s()
        self._lines = 0

    def say(self, text: str, *args: object) -> None:
        """Write a line, or count it."""
        now_s = self._clock_s()
        if now_s - self._since_s >= PERIOD_S:
            if self._lines > LINES_MAX:
                self._log.log(self._level, "%d more lines like the last ones were left out", self._lines - LINES_MAX)
            self._since_s, self._lines = now_s, 0
        self._lines += 1
        if self._lines <= LINES_MAX:
            self._log.log(self._level, text, *args)
