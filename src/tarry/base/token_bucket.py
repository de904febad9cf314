"""A rate limit: a token bucket. Times are in seconds, of one clock."""

from __future__ import annotations

BURST_S = 0.1
"""Seconds for which unused tokens are saved up, unless it is said otherwise."""


class TokenBucket:
    """A bucket that fills by ``per_second``; 0: no limit. Not for several threads at once."""

    __slots__ = ("_at_s", "_most", "_per_second", "_tokens")

    def __init__(self, per_second: float, now_s: float, burst_s: float = BURST_S) -> None:
        self._per_second = per_second
        self._most = max(1.0, per_second * burst_s)
        self._tokens = self._most
        self._at_s = now_s

    def available(self, now_s: float) -> int | None:
        """Return the number of tokens that may be taken now; None: any number. Negative: they are owed."""
        if not self._per_second:
            return None
        # A clock that is set back fills nothing.
        self._tokens = min(self._most, self._tokens + max(0.0, now_s - self._at_s) * self._per_second)
        self._at_s = now_s
        # A token that is a rounding error short is whole: otherwise the wait below would be 0.
        return int(self._tokens + 1e-6)

    def take(self, count: float) -> None:
        """Take tokens; if they are more than there are, later ones pay for them."""
        if self._per_second:
            self._tokens -= count

    def wait_s(self) -> float:
        """Return the seconds until the next token, as of the last call of :meth:`available`."""
        return max(0.0, (1.0 - self._tokens) / self._per_second) if self._per_second else 0.0

    def left(self, now_s: float) -> float:
        """Return the tokens that are left; negative: they are owed."""
        self.available(now_s)
        return self._tokens

    def set_left(self, tokens: float, now_s: float) -> None:
        """Have as many tokens as another bucket has that stands for this one, too."""
        self._tokens, self._at_s = min(self._most, tokens), now_s

    def debt_s(self, now_s: float) -> float:
        """Return the seconds until nothing is owed any more."""
        return max(0.0, -self.left(now_s) / self._per_second) if self._per_second else 0.0
