"""A circuit breaker: after many failures in a row nothing is sent for a while, then one request tries whether it goes.

    closed ── failures_max failures in a row ──▶ open ── a wait ──▶ half open ── success ──▶ closed
                                                  ▲                    │
                                                  └───── failure, and a wait twice as long

Times are monotonic, in seconds.
"""

from __future__ import annotations

import random

WAIT_S_MIN = 1.0
WAIT_S_MAX = 60.0
JITTER = 0.2
"""Up to this part of a wait is taken off, so that brokers do not try together."""


class CircuitBreaker:
    """``failures_max`` 0: it never opens."""

    def __init__(self, failures_max: int) -> None:
        self.failures_max = failures_max
        self.failures_in_a_row = 0
        self.opened = 0
        """How often it has opened."""
        self.is_half_open = False
        self._open_until_s: float | None = None
        self._wait_s = WAIT_S_MIN

    @property
    def open_until_s(self) -> float | None:
        """Until when it is open; None while it is closed, or half open."""
        return self._open_until_s

    def look(self, now_s: float) -> None:
        """Half open it, where its wait is over."""
        if self._open_until_s is not None and now_s >= self._open_until_s:
            self._open_until_s, self.is_half_open = None, True

    def on_success(self) -> None:
        """A request was answered well: also one that had begun before it opened."""
        self.failures_in_a_row = 0
        self.close()

    def on_failure(self, now_s: float) -> None:
        """A request failed."""
        self.failures_in_a_row += 1
        if self._open_until_s is not None or not self.failures_max:
            return  # one that had begun before it opened
        if self.is_half_open:
            self._wait_s = min(2 * self._wait_s, WAIT_S_MAX)
            self._open(now_s)
        elif self.failures_in_a_row >= self.failures_max:
            self._open(now_s)

    def close(self) -> None:
        """Whatever was: send again."""
        self._open_until_s, self.is_half_open, self._wait_s = None, False, WAIT_S_MIN

    def _open(self, now_s: float) -> None:
        self.is_half_open = False
        self.opened += 1
        self._open_until_s = now_s + self._wait_s * (1 - JITTER * random.random())
