"""Warnings of the same trouble of many messages: one in ten seconds is told."""

from __future__ import annotations

import logging
import time

SAY_S = 10.0


class Saying:
    """The warnings of one logger."""

    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self._silent_until_s = 0.0

    def warn(self, text: str, *more: object) -> None:
        """Tell it, if nothing was told a moment ago."""
        if (now_s := time.monotonic()) >= self._silent_until_s:
            self._silent_until_s = now_s + SAY_S
            self._log.warning(text, *more)
