"""A rate limit: a token bucket. Times are monotonic, in seconds."""

from __future__ import annotations

BURST_S = 0.1
"""Seconds for which unused tokens are saved up."""


class TokenBucket:
    """The token bucket of a subscription. ``per_second`` 0: no limit."""

    def __init__(self, per_second: float, now_s: float) -> None:
        self._per_second = per_second
        self._most = max(1.0, per_second * BURST_S)
        self._tokens = self._most
        self._at_s = now_s

    def available(self, now_s: float) -> int | None:
        """Return the number of tokens that may be taken now; None: any number."""
        if not self._per_second:
            return None
        self._tokens = min(self._most, self._tokens + (now_s - self._at_s) * self._per_second)
        self._at_s = now_s
        # A token that is a rounding error short is whole: otherwise the wait below would be 0.
        return int(self._tokens + 1e-6)

    def take(self, count: int) -> None:
        """Take tokens; if they are more than there are, later ones pay for them."""
        if self._per_second:
            self._tokens -= count

    def wait_s(self) -> float:
        """Return the seconds until the next token, as of the last call of :meth:`available`."""
        return max(0.0, (1.0 - self._tokens) / self._per_second) if self._per_second else 0.0
