"""The lease of an owner: until when it may hand messages out, and up to which due time.

Hand-outs are not in the log before they take place, so what keeps two owners from handing out the same is time: an
owner that was not answered for ``lease_s`` stops, and the next one waits a little longer than that. It keeps them from
that alone. That "done" holds rests on :attr:`OwnerLease.until_ms`, which comes from the log's own clock: whoever reads
the log knows it, whatever their clocks say.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from tarry.base.types import NEVER_MS

LEASE_S = 2.0
WAITED = 1.05
"""A new owner waits this many times as long: two clocks do not run alike."""


def boot_s() -> float:
    """Seconds since the machine was started; they pass while it sleeps, and nobody sets them."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class OwnerLease:
    """One owner's lease. Any thread asks; one extends it."""

    def __init__(self, now_s: Callable[[], float] = boot_s, lease_s: float = LEASE_S) -> None:
        self.now_s, self.lease_s = now_s, lease_s
        self._from_s, self._until_s, self._clock_ms = 0.0, 0.0, NEVER_MS
        self._is_ended = False

    def wait_for_former(self, claimed_s: float) -> None:
        """Have it begin only when any lease of before the claim is over, which was answered at ``claimed_s``."""
        self._from_s = claimed_s + self.lease_s * WAITED

    def extend(self, begun_s: float, clock_ms: int) -> None:
        """Note that a round is answered, whose first PUT began at ``begun_s``."""
        self._clock_ms = max(self._clock_ms, clock_ms)  # first: a lease that lasts never has a clock of before it
        self._until_s = max(self._until_s, begun_s + self.lease_s)

    def end(self) -> None:
        """Have it last no longer, for good."""
        self._is_ended = True

    @property
    def begins_in_s(self) -> float:
        """Seconds until former leases are over; 0 or less: they are."""
        return self._from_s - self.now_s()

    def lasts(self) -> bool:
        """Return whether messages may be handed out now."""
        return self._from_s <= self.now_s() < self._until_s and not self._is_ended

    @property
    def left_s(self) -> float:
        """Seconds for which it lasts, if nothing extends it; 0: it does not."""
        return self._until_s - self.now_s() if self.lasts() else 0.0

    def is_confirmed(self) -> bool:
        """Return whether it was certain within a lease that this is the owner; no former lease is waited for."""
        return self.now_s() < self._until_s and not self._is_ended

    @property
    def until_ms(self) -> int:
        """Latest due time of what may be handed out now; NEVER_MS: nothing may be."""
        return self._clock_ms + round(1000 * self.lease_s) if self.lasts() else NEVER_MS
