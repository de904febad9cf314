"""Counting what costs us and brings the peer nothing: token buckets that real work fills.

The way of a good call does one increment (``Guard.work``). The clock is read only when a bucket is empty, so a bucket
is worth its burst, and what time and work have brought since it was last empty, but never more than its burst again.
"""

from __future__ import annotations

from collections.abc import Callable

from loopgrpc.frames import ConnectionFault, ErrorCode
from loopgrpc.limits import Allowance, Limits


class Bucket:
    """One allowance of one connection."""

    __slots__ = ("_allowance", "_at", "_left", "_what", "_work")

    def __init__(self, allowance: Allowance, what: str, now: float) -> None:
        self._allowance = allowance
        self._what = what
        self._left = allowance.burst
        self._at = now
        self._work = 0

    def take(self, guard: Guard) -> None:
        """One more of it. Raises ConnectionFault (ENHANCE_YOUR_CALM): it is too many."""
        self._left -= 1
        if self._left < 0:
            self._refill(guard.now(), guard.work)

    def _refill(self, now: float, work: int) -> None:
        allowance = self._allowance
        gained = int((now - self._at) * allowance.per_s) + (work - self._work) * allowance.per_work
        if gained < 1:
            raise ConnectionFault(ErrorCode.ENHANCE_YOUR_CALM, f"too many {self._what}")
        self._left = min(allowance.burst, gained) - 1
        self._at, self._work = now, work


class Guard:
    """The buckets of a connection. ``work`` grows by one with each message in, answer out and DATA frame out."""

    __slots__ = ("chatter", "empties", "now", "pings", "resets", "settings", "work")

    def __init__(self, limits: Limits, now: Callable[[], float]) -> None:
        self.now = now
        self.work = 0
        start = now()
        self.resets = Bucket(limits.resets, "reset streams", start)
        self.pings = Bucket(limits.pings, "PINGs", start)
        self.settings = Bucket(limits.settings, "SETTINGS", start)
        self.empties = Bucket(limits.empties, "empty DATA frames", start)
        self.chatter = Bucket(limits.chatter, "frames without use", start)
