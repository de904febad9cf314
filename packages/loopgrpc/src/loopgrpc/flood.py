"""Bounds on frames that cost the server work and are of no use: token buckets that real work refills.

A good call costs one increment (:attr:`WorkCounter.units`). The clock is read only when a bucket is empty: the bucket
then gets what time and work have earned since it was last empty, but never more than its burst.
"""

from __future__ import annotations

from collections.abc import Callable

from loopgrpc.frames import ConnectionFault, ErrorCode
from loopgrpc.limits import Allowance, Limits


class WorkCounter:
    """Work done for one peer.

    ``units`` grows by one with each response and each DATA frame sent, and with each request message but those that
    come whole in the only DATA frame of their call.
    """

    __slots__ = ("units",)

    def __init__(self) -> None:
        self.units = 0


class TokenBucket:
    """One allowance of one connection. ``clock`` returns seconds."""

    __slots__ = ("_allowance", "_clock", "_refilled_at_s", "_refilled_at_work", "_tokens", "_what", "_work")

    def __init__(self, allowance: Allowance, what: str, work: WorkCounter, clock: Callable[[], float]) -> None:
        self._allowance = allowance
        self._what = what
        self._work = work
        self._clock = clock
        self._tokens = allowance.burst
        self._refilled_at_s = clock()
        self._refilled_at_work = work.units

    def take(self) -> None:
        """Count one frame. Raises ConnectionFault (ENHANCE_YOUR_CALM): there were too many."""
        self._tokens -= 1
        if self._tokens < 0:
            self._refill(self._clock(), self._work.units)

    def _refill(self, now_s: float, work: int) -> None:
        allowance = self._allowance
        earned_by_time = int((now_s - self._refilled_at_s) * allowance.per_s)
        earned = earned_by_time + (work - self._refilled_at_work) * allowance.per_work
        if earned < 1:
            raise ConnectionFault(ErrorCode.ENHANCE_YOUR_CALM, f"too many {self._what}")
        self._tokens = min(allowance.burst, earned) - 1
        self._refilled_at_s, self._refilled_at_work = now_s, work


class FloodLimiter:
    """The buckets of one connection, named by the frames they count (see :class:`loopgrpc.Limits`)."""

    __slots__ = ("empty_data", "other_frames", "pings", "resets", "settings")

    def __init__(self, limits: Limits, work: WorkCounter, clock: Callable[[], float]) -> None:
        self.resets = TokenBucket(limits.resets, "reset streams", work, clock)
        self.pings = TokenBucket(limits.pings, "PINGs", work, clock)
        self.settings = TokenBucket(limits.settings, "SETTINGS", work, clock)
        self.empty_data = TokenBucket(limits.empty_data, "empty DATA frames", work, clock)
        self.other_frames = TokenBucket(limits.other_frames, "frames without use", work, clock)
