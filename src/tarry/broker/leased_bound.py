"""The bound of hand-outs where machines share the logs: their clock, and a lease.

Whoever takes over reads that clock in the log, so nothing else has to be written (``docs/formats-log-store.md``).
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from tarry.base.types import NEVER_MS
from tarry.log.engine import SharedLogs


class LeasedBound:
    """A :class:`tarry.broker.hand_out_bound.HandOutBound` of shared logs."""

    def __init__(self, logs: SharedLogs) -> None:
        self._logs = logs
        self.left_ms = self._floor_ms = logs.left_ms
        self._lock = threading.Lock()
        self._is_closed = False

    @property
    def until_ms(self) -> int:
        """The latest due time that may be handed out now; NEVER_MS without a lease."""
        return self._logs.until_ms

    def cover(self, now_ms: int) -> None:
        """Move the bound to a clock that a test, or a leap, set ahead. Else the rounds of each second move it.

        Raises:
            OwnershipLostError: another one owns the logs.
        """
        if NEVER_MS < self.until_ms < now_ms:
            self._logs.renew()

    def keep_ahead(self, now_ms: int, handed_ms: Callable[[], int]) -> None:
        """Do nothing: the engine's rounds move the bound."""

    def release(self, fired_until_ms: int) -> None:
        """Note that the ready log durably has all that is due before ``fired_until_ms``."""
        with self._lock:
            if fired_until_ms > self._floor_ms:
                self._floor_ms = NEVER_MS

    def close(self, *, is_durable: bool) -> None:
        """Say in the log, if ``is_durable``, that nothing more is handed out, and what may have been before."""
        with self._lock:
            is_last, self._is_closed = is_durable and not self._is_closed, True
            if is_last:
                self._logs.hand_over(self._floor_ms)
