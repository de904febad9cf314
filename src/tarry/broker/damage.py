"""Damaged files found while serving: each logged once, listed in status and metrics until the end."""

from __future__ import annotations

import logging
import threading

from tarry.base.errors import CorruptError

log = logging.getLogger(__name__)

PLACES_MAX = 100
"""Damaged places that are logged and listed; further ones are not."""


class Damage:
    """Collects damage. Any thread.

    A damaged file that keeps the broker from serving at all is reported to :class:`tarry.broker.health.Health` instead.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._texts: dict[str, None] = {}

    @property
    def texts(self) -> list[str]:
        """Descriptions of damaged places, each with file and offset, in the order in which they were found."""
        with self._lock:
            return list(self._texts)

    def report(self, error: CorruptError) -> None:
        """Report a damaged place, which may have been reported before."""
        text = str(error)
        with self._lock:
            if text in self._texts or len(self._texts) >= PLACES_MAX:
                return
            self._texts[text] = None
            is_last = len(self._texts) == PLACES_MAX
        log.error("damaged: %s; everything else goes on (docs/operations.md says how to go on here)", text)
        if is_last:
            log.error("%d places are damaged; further ones are not said", PLACES_MAX)
