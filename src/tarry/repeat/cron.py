"""Instants at which a cron rule fires: matching wall-clock times, in a zone whose clocks shift.

The rule for shifts is that of Debian's cron, which cronsim follows too:

A rule **at fixed times** (none of its second, minute and hour begins with ``*``: ``30 2 * * *``, ``0 9-17 * * *``,
``0 0,12 * * *``) fires once for each matching time of the day. Where clocks go back and show the time twice, it fires
the first time only. Where clocks go forward and skip the time, it fires at the end of the gap, the moment at which
they jump; several skipped times, and one that is that moment itself, are one firing.

A **running** rule (any other: ``*/15 * * * *``, ``0 * * * *``, ``0 */2 * * *``) fires whenever the clocks show a
matching time: twice in a fold, not at all in a gap. So ``*/15`` stays a quarter of an hour of elapsed time, and
``0 * * * *`` an hour, wherever clocks shift by a multiple of that. ``0 0-23 * * *`` is a rule at fixed times: its
firings of a fold's hour are one, and an hour without any follows.

``gap="skip"`` is EventBridge Scheduler's way: what clocks skip does not fire at all.

What differs from cronsim, on purpose: six fields follow the same rule as five (cronsim would skip ``0 30 2 * * *`` in
a gap and fire it twice in a fold); a running rule misses nothing next to a shift, also to one of half an hour; and the
instants do not depend on where the search began, so that catching up after downtime finds what was due in it.

All instants are whole seconds since the epoch, from 1970 to the year 9998.
"""

from __future__ import annotations

from bisect import bisect_left
from functools import lru_cache
from typing import Protocol

from tarry.base.errors import InvalidArgumentError
from tarry.repeat.local_times import LocalTimes, local_times
from tarry.repeat.zones import LAST_S, Zone, zone

_NEVER_S = 50 * 366 * 86_400
"""As in cronsim, a rule that does not fire for 50 years never fires.

Five Mondays in February come every 28 or 40 years.
"""


class Cron(Protocol):
    """An increasing sequence of instants."""

    def next(self, instant: int) -> int | None:
        """Return the first firing after ``instant``; None: there is none in 50 years."""
        ...

    def last(self, after: int, by: int) -> int | None:
        """Return the last firing after ``after`` and not after ``by``, or None."""
        ...

    def count(self, after: int, by: int) -> int:
        """Return the number of firings after ``after`` and not after ``by``."""
        ...


class Fixed:
    """A rule at fixed times. Its instants rise with their local times: see ``Zone.instant``."""

    def __init__(self, times: LocalTimes, zone: Zone, *, skips: bool = False) -> None:
        """``skips``: what the clocks skip does not fire."""
        self._times, self._zone, self._skips = times, zone, skips

    def next(self, instant: int) -> int | None:
        local_s = self._times.next(self._zone.passed(instant))
        while local_s is not None and self._is_skipped(local_s):
            local_s = self._times.next(local_s)
        return None if local_s is None else self._zone.instant(local_s)

    def last(self, after: int, by: int) -> int | None:
        local_s = self._times.last(self._zone.passed(by))
        while local_s is not None and self._is_skipped(local_s):
            local_s = self._times.last(local_s - 1)
        instant = None if local_s is None else self._zone.instant(local_s)
        return instant if instant is not None and instant > after else None

    def count(self, after: int, by: int) -> int:
        count = self._times.count(self._zone.passed(after), self._zone.passed(by))
        for at, before, behind in self._zone.shifts(after, by):
            if behind <= before:
                continue
            if self._skips:
                count -= self._times.count(at + before - 1, at + behind - 1)
            else:  # all of the gap, and the moment at its end, are one firing
                count -= max(0, self._times.count(at + before - 1, at + behind) - 1)
        return count

    def _is_skipped(self, local_s: int) -> bool:
        if not self._skips:
            return False
        instant = self._zone.instant(local_s)
        return instant + self._zone.offset(instant) != local_s


class Running:
    """A rule that fires whenever the clocks show a matching time."""

    def __init__(self, times: LocalTimes, zone: Zone) -> None:
        self._times, self._zone = times, zone

    def next(self, instant: int) -> int | None:
        for after, by, offset in self._zone.spans(instant, min(instant + _NEVER_S, LAST_S)):
            local_s = self._times.next(after + offset)
            if local_s is not None and local_s - offset <= by:
                return local_s - offset
        return None

    def last(self, after: int, by: int) -> int | None:
        for begin, end, offset in reversed(list(self._zone.spans(after, by))):
            local_s = self._times.last(end + offset)
            if local_s is not None and local_s - offset > begin:
                return local_s - offset
        return None

    def count(self, after: int, by: int) -> int:
        return sum(self._times.count(a + offset, b + offset) for a, b, offset in self._zone.spans(after, by))


@lru_cache(maxsize=4096)
def cron(expression: str, zone_name: str, gap: str = "end") -> Cron:
    """Return the firings of a valid expression.

    Raises:
        InvalidArgumentError: the zone is not known (any more).
    """
    times, where = local_times(expression), zone(zone_name)
    if where is None:
        raise InvalidArgumentError(f"zone {zone_name!r} is not known; allowed: an IANA name such as 'Europe/Berlin'")
    return Fixed(times, where, skips=gap == "skip") if times.fixed else Running(times, where)


# Many series share a rule and are due at the same instant: the herd of 9 o'clock is one search.
@lru_cache(maxsize=4096)
def next_firing(expression: str, zone_name: str, instant: int, gap: str = "end") -> int | None:
    """Return the first firing after ``instant``; None: none until the year 9998, or for 50 years."""
    # Before 1970 there is nothing to be due, and half of it has no calendar.
    if instant >= LAST_S:
        return None
    following = cron(expression, zone_name, gap).next(max(instant, -1))
    return following if following is not None and following <= LAST_S else None


def last_firing(expression: str, zone_name: str, after: int, by: int, gap: str = "end") -> tuple[int, int]:
    """Return the last firing after ``after`` and not after ``by``, and their number; ``(after, 0)``: none."""
    rule = cron(expression, zone_name, gap)
    last = rule.last(after, by) if by > after else None
    return (after, 0) if last is None else (last, rule.count(after, by))


def firing(expression: str, zone_name: str, after: int, by: int, number: int, gap: str = "end") -> int:
    """Return the ``number``-th firing after ``after``, from 1; there must be so many until ``by``."""
    rule = cron(expression, zone_name, gap)
    instants = range(after + 1, by + 1)
    return instants[bisect_left(instants, number, key=lambda instant: rule.count(after, instant))]
