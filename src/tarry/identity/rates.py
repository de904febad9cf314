"""The rates of one identity: what is left of each, and what the broker has not been told of.

The account has the lock. What one request takes more than there is, later ones pay for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from tarry.api.accounts import HeldBack
from tarry.api.quotas import DELAY_S_MAX, FILTERING, RATES, RECEIVING, SENDING, Quotas
from tarry.base.token_bucket import TokenBucket

BURST_S = 1.0
"""Seconds for which what is not used of a rate is saved up."""


class Rates:
    """Buckets by the name of the quota. Not for several threads at once."""

    __slots__ = ("_buckets", "_delayed_until_s", "_limits", "_now_s", "_spent", "delayed_s")

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self._limits: dict[str, int] = {}
        self._buckets: dict[str, TokenBucket] = {}
        self._spent: dict[str, float] = {}
        """Let pass here, and not told to the broker yet."""
        self._delayed_until_s = 0.0
        """Up to then, delays of consumers are counted."""
        self.delayed_s = 0.0
        """Seconds by which requests were delayed; of consumers, during which one was."""

    def set(self, quotas: Quotas) -> None:
        """Have these limits from now on, and nothing used up."""
        now_s = self._now_s()
        self._limits = {name: limit for name in RATES if (limit := getattr(quotas, name)) is not None}
        self._buckets = {name: TokenBucket(limit, now_s, BURST_S) for name, limit in self._limits.items()}

    def take(self, used: Mapping[str, float]) -> bool:
        """Count what is let pass, by quota; return whether the broker has to be told from now on."""
        told_all = not self._spent
        for name, amount in used.items():
            if (bucket := self._buckets.get(name)) is not None:
                bucket.take(amount)
                self._spent[name] = self._spent.get(name, 0) + amount
        return told_all and bool(self._spent)

    # -- sending -------------------------------------------------------------------------------------------------------

    def debts(self) -> Iterable[tuple[str, float]]:
        """Return the rates of sending, each with the seconds until nothing is owed of it."""
        now_s = self._now_s()
        return [(name, self._buckets[name].debt_s(now_s)) for name in SENDING if name in self._buckets]

    def delay_s(self, waited_s: float) -> float:
        """Return the seconds by which a message is to be delayed that has waited for so many, and count them.

        Up to :data:`DELAY_S_MAX` in all.
        """
        debt_s = max((debt_s for _, debt_s in self.debts()), default=0.0)
        # Others that waited for the same moment may have been quicker: it is refused only when it has waited long.
        is_next = waited_s and debt_s <= DELAY_S_MAX
        wait_s = 0.0 if is_next else max(0.0, min(DELAY_S_MAX - waited_s, debt_s))
        self.delayed_s += wait_s
        return wait_s

    # -- consuming -----------------------------------------------------------------------------------------------------

    def held_back(self, *, filters: bool) -> HeldBack | None:
        """Return the used-up rate to wait for longest; ``filters``: that of conditions is among them."""
        now_s = self._now_s()
        longest: HeldBack | None = None
        for name in (*RECEIVING, FILTERING) if filters else RECEIVING:
            bucket = self._buckets.get(name)
            if bucket is None or (bucket.available(now_s) or 0) > 0:
                continue
            held = HeldBack(name, bucket.wait_s())
            if longest is None or held.wait_s > longest.wait_s:
                longest = held
        if longest is not None:
            # Several consumers may wait at once, and one asks more than once.
            until_s = now_s + min(longest.wait_s, DELAY_S_MAX)
            self.delayed_s += max(0.0, until_s - max(now_s, self._delayed_until_s))
            self._delayed_until_s = until_s
        return longest

    def receivable(self, rows_max: int) -> int:
        """Return how many messages may be handed out at once: 1 to ``rows_max``."""
        bucket = self._buckets.get(RECEIVING[0])
        return rows_max if bucket is None else max(1, min(rows_max, bucket.available(self._now_s()) or 0))

    # -- several processes ---------------------------------------------------------------------------------------------

    def take_spent(self) -> dict[str, float]:
        """Return what the broker has to be told; it is told then."""
        spent, self._spent = self._spent, {}
        return spent

    def left(self) -> dict[str, float]:
        """Return what is left of each rate; negative: it is owed."""
        now_s = self._now_s()
        return {name: bucket.left(now_s) for name, bucket in self._buckets.items()}

    def used(self) -> dict[str, int]:
        """Return what is used up of one second's worth of each rate; more than the limit: it is owed."""
        return {name: max(0, round(self._limits[name] - left)) for name, left in self.left().items()}

    def take_over(self, left: Mapping[str, float]) -> None:
        """Have as much left of each rate as the broker says, less what was spent since it was asked."""
        now_s = self._now_s()
        for name, bucket in self._buckets.items():
            if name in left:
                bucket.set_left(left[name] - self._spent.get(name, 0), now_s)
