"""Clocks of a zone: instants to local times and back, and the shifts between them.

An instant is a whole number of seconds since the Unix epoch, UTC. A local time is what a local clock shows,
counted in the same way as if it were UTC, so that ``local_s = instant + offset``. When clocks go forward, some local
times are skipped (a *gap*); when they go back, some are shown twice (a *fold*).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import NamedTuple
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

LAST_MS = 253_370_764_799_999
"""Last moment at which an occurrence may be due: the end of the year 9998.

So no search runs over the end of the calendar.
"""

LAST_S = LAST_MS // 1000

# A look every third day finds every shift: since 1970 no zone has shifted its clocks twice in less than a week.
_LOOK_S = 3 * 86_400
_EPOCH = datetime(1970, 1, 1)


class Shift(NamedTuple):
    """At the instant ``at`` the offset becomes ``after``; all in seconds."""

    at: int
    before: int
    after: int


class OffsetSpan(NamedTuple):
    """Instants after ``after`` up to and including ``by``, with the same ``offset`` in all of them."""

    after: int
    by: int
    offset: int


class Zone:
    """One zone of the IANA database."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._info = ZoneInfo(name)

    def offset(self, instant: int) -> int:
        """By how many seconds the zone's clocks are ahead of UTC."""
        return _seconds(datetime.fromtimestamp(instant, self._info).utcoffset())

    def instant(self, local_s: int) -> int:
        """Return the instant of ``local_s``: the first, in a fold; the end of the gap, for one skipped."""
        shown = local_datetime(local_s).replace(tzinfo=self._info)
        before, after = _seconds(shown.utcoffset()), _seconds(shown.replace(fold=1).utcoffset())
        # Outside of gaps and folds the two are equal; in a gap the clock jumps over it, so ``after`` is greater.
        return local_s - before if before >= after else self._turn(local_s - after, local_s - before)

    def passed(self, instant: int) -> int:
        """Return the greatest local time whose :meth:`instant` is not after ``instant``."""
        shown = datetime.fromtimestamp(instant, self._info)
        offset = _seconds(shown.utcoffset())
        if not shown.fold:
            return instant + offset
        first = _seconds(shown.replace(fold=0).utcoffset())
        return self._turn(instant - (first - offset), instant) + first - 1

    def shifts(self, after: int, by: int) -> Iterator[Shift]:
        """Yield the shifts at instants after ``after`` up to and including ``by``, in order."""
        for year in range(_year(after), _year(by) + 1):
            yield from (shift for shift in _shifts(self._name, year) if after < shift.at <= by)

    def spans(self, after: int, by: int) -> Iterator[OffsetSpan]:
        """Yield spans of the instants after ``after`` up to and including ``by``, cut at shifts. Lazy."""
        offset = self.offset(after)
        for shift in self.shifts(after, by):
            yield OffsetSpan(after, shift.at - 1, offset)
            after, offset = shift.at - 1, shift.after
        yield OffsetSpan(after, by, offset)

    def _turn(self, after: int, by: int) -> int:
        """Find the instant in (``after``, ``by``] from which on the offset differs from that at ``after``."""
        former = self.offset(after)
        instants = range(after + 1, by + 1)
        return instants[bisect_left(instants, True, key=lambda instant: self.offset(instant) != former)]

    def shifts_of(self, year: int) -> Iterator[Shift]:
        begin, end = (int(datetime(y, 1, 1, tzinfo=UTC).timestamp()) for y in (year, year + 1))
        before = self.offset(begin)
        for look in range(begin, end, _LOOK_S):
            upto = min(look + _LOOK_S, end)
            if (after := self.offset(upto)) != before:
                yield Shift(self._turn(look, upto), before, after)
            before = after


@lru_cache(maxsize=1024)
def zone(name: str) -> Zone | None:
    """Return the zone of this IANA name, or None if there is none."""
    try:
        return Zone(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):  # OSError: the name of a directory, such as "America"
        return None


@lru_cache(maxsize=1024)
def _shifts(name: str, year: int) -> tuple[Shift, ...]:
    where = zone(name)
    return () if where is None else tuple(where.shifts_of(year))


def local_datetime(local_s: int) -> datetime:
    """Return a local time as a naive datetime."""
    return _EPOCH + timedelta(seconds=local_s)


def local_seconds(shown: datetime) -> int:
    """Invert :func:`local_datetime`."""
    return (shown - _EPOCH) // timedelta(seconds=1)


def _seconds(offset: timedelta | None) -> int:
    return 0 if offset is None else offset.days * 86_400 + offset.seconds


def _year(instant: int) -> int:
    return local_datetime(instant).year
