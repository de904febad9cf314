"""A circuit breaker: after many failures in a row it stops sending for a while, then tries again.

    closed ── failures_max failures in a row ──▶ open ── a wait ──▶ half open ── success ──▶ closed
                                                  ▲                    │
                                                  └───── failure, and a wait twice as long

Times are seconds that pass evenly, as `Clock.elapsed_s` has them.
"""

from __future__ import annotations

import random

from tarry.base.back_off import BackOff

WAIT_S_MIN = 1.0
WAIT_S_MAX = 60.0
JITTER = 0.2
"""Up to this part is taken off a wait, so that brokers do not try together."""


class CircuitBreaker:
    """The circuit breaker of a subscription. ``failures_max`` 0: it never opens."""

    def __init__(self, failures_max: int) -> None:
        self.failures_max = failures_max
        self.failures_in_a_row = 0
        self.opened = 0
        """Number of times it has opened."""
        self.is_half_open = False
        self._open_until_s: float | None = None
        self._back_off = BackOff(WAIT_S_MIN, WAIT_S_MAX)

    @property
    def open_until_s(self) -> float | None:
        """Time until which it is open; None while it is closed, or half open."""
        return self._open_until_s

    def look(self, now_s: float) -> None:
        """Half open the breaker if its wait is over."""
        if self._open_until_s is not None and now_s >= self._open_until_s:
            self._open_until_s, self.is_half_open = None, True

    def on_success(self) -> None:
        """Close the breaker after a good answer, also one to a request that had begun before it opened."""
        self.failures_in_a_row = 0
        self.close()

    def on_failure(self, now_s: float) -> None:
        """Count a failed request, and open the breaker after too many."""
        self.failures_in_a_row += 1
        if self._open_until_s is not None or not self.failures_max:
            return  # the request had begun before it opened
        if self.is_half_open or self.failures_in_a_row >= self.failures_max:
            self._open(now_s)

    def close(self) -> None:
        """Close the breaker, whatever its state."""
        self._open_until_s, self.is_half_open = None, False
        self._back_off.reset()

    def _open(self, now_s: float) -> None:
        self.is_half_open = False
        self.opened += 1
        self._open_until_s = now_s + self._back_off.fail() * (1 - JITTER * random.random())
