"""Warnings of the same trouble of many messages: of each cause, one in ten seconds is told."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

SAY_S = 10.0
CAUSES_MAX = 20
"""So many causes are told in that time: messages that each have one of their own do not fill the log."""


class Saying:
    """The warnings of one logger."""

    def __init__(self, log: logging.Logger, now: Callable[[], float] = time.monotonic) -> None:
        self._log, self._now = log, now
        self._silent_until_s: dict[str, float] = {}
        """By cause."""

    def warn(self, text: str, *more: object, cause: str | None = None) -> None:
        """Tell it, if nothing of this cause was told a moment ago; without ``cause``, it is the text."""
        now_s, cause = self._now(), text if cause is None else cause
        self._silent_until_s = {each: until_s for each, until_s in self._silent_until_s.items() if until_s > now_s}
        told = len(self._silent_until_s)
        if cause in self._silent_until_s or told > CAUSES_MAX:
            return
        if told == CAUSES_MAX:
            cause, text, more = "", "more than %d causes: the others are not told for a while", (CAUSES_MAX,)
        self._silent_until_s[cause] = now_s + SAY_S
        self._log.warning(text, *more)
