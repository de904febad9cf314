"""What was met of damage while serving: said once in the log, and shown in status and metrics until the broker ends."""

from __future__ import annotations

import logging
import threading

from tarry.base.errors import CorruptError

log = logging.getLogger(__name__)

PLACES_MAX = 100
"""So many are said one by one."""


class Damage:
    """Any thread. Of a damaged file that keeps the broker from serving at all, :class:`tarry.broker.health.Health`
    hears instead.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._texts: dict[str, None] = {}

    @property
    def texts(self) -> list[str]:
        """What is damaged: each with file and offset, in the order in which it was met."""
        with self._lock:
            return list(self._texts)

    def report(self, error: CorruptError) -> None:
        """Something that is damaged was met, maybe again."""
        text = str(error)
        with self._lock:
            if text in self._texts or len(self._texts) >= PLACES_MAX:
                return
            self._texts[text] = None
            is_last = len(self._texts) == PLACES_MAX
        log.error("damaged: %s; everything else goes on (docs/operations.md says how to go on here)", text)
        if is_last:
            log.error("%d places are damaged; further ones are not said", PLACES_MAX)
