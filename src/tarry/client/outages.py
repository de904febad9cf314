"""Logs that a broker is away or unable: once, now and then while that lasts, and at its end."""

from __future__ import annotations

import logging
import threading
import time
from functools import cache

log = logging.getLogger(__name__)

SAY_AGAIN_S = 60.0
"""While a broker is away, that is said so often."""
SAY_NEXT_S = 5.0
"""And of one that comes and goes, so often."""


class Outage:
    """Of one broker, or of one consumer's trouble with it. Any thread.

    ``meanwhile`` is said of what goes on while it lasts, ``over`` when it is over.
    """

    def __init__(
        self, address: str, *, meanwhile: str = "connecting again until it is back", over: str = "is back"
    ) -> None:
        self._address = address
        self._meanwhile, self._over = meanwhile, over
        self._lock = threading.Lock()
        self._since_s: float | None = None
        self._silent_until_s = 0.0
        self._is_said = False

    def begin(self, error: Exception, what: str) -> None:
        """Note that ``what`` cannot go on, or still cannot, for this error."""
        now = time.monotonic()
        with self._lock:
            if self._since_s is None:
                self._since_s, self._is_said = now, False
            if now < self._silent_until_s:
                return
            self._silent_until_s, self._is_said = now + SAY_AGAIN_S, True
        log.warning("%s: %s; %s", what, error, self._meanwhile)

    def end(self) -> None:
        """Note that it goes on."""
        if self._since_s is None:  # as nearly always
            return
        now = time.monotonic()
        with self._lock:
            since_s, self._since_s = self._since_s, None
            if since_s is None or not self._is_said:
                return
            self._silent_until_s = now + SAY_NEXT_S
        log.warning("the broker at %s %s after %.1f s", self._address, self._over, now - since_s)


def refusal_at(address: str) -> Outage:
    """Return the trouble of one consumer whose broker is there, and does not serve it now."""
    return Outage(address, meanwhile="asking again until it does", over="serves it again")


@cache
def outage_of(address: str) -> Outage:
    """Return the outage that all consumers of a broker share."""
    return Outage(address)
