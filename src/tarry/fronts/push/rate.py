"""So many a second: a token bucket. Times are monotonic, in seconds."""

from __future__ import annotations

BURST_S = 0.1
"""What was not used is saved up for so long."""


class TokenBucket:
    """``per_second`` 0: no limit."""

    def __init__(self, per_second: float, now_s: float) -> None:
        self._per_second = per_second
        self._most = max(1.0, per_second * BURST_S)
        self._tokens = self._most
        self._at_s = now_s

    def available(self, now_s: float) -> int | None:
        """How many may be taken now; None: any number."""
        if not self._per_second:
            return None
        self._tokens = min(self._most, self._tokens + (now_s - self._at_s) * self._per_second)
        self._at_s = now_s
        # What is a rounding error short of one is one: else the wait below would be no wait.
        return int(self._tokens + 1e-6)

    def take(self, count: int) -> None:
        """They were taken; more than there are may be, and are paid for later."""
        if self._per_second:
            self._tokens -= count

    def wait_s(self) -> float:
        """How long until the next one, as it was when it was last looked at."""
        return max(0.0, (1.0 - self._tokens) / self._per_second) if self._per_second else 0.0
