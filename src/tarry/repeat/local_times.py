"""Local times that match a cron expression: what the local clocks show, without zones.

Gaps and folds are left to ``cron``.

The ``cronsim`` library reads the expression and finds the next and the former match; it is given naive datetimes only.
(Given a zone, it advances in steps of an hour or of minutes at once and so passes over times near a shift of the
clocks, above all one of half an hour; and it treats six fields otherwise than five.) Counting is done here, from the
sets that it has read: a minutely rule has half a million matches a year.

The fields are ``[second] minute hour day-of-month month day-of-week [year]``, a year only after all six; ``*``, lists,
ranges, steps; months and days of the week by name (``JAN``, ``MON``), Sunday is 0 and 7; ``L`` (last day), ``LW`` (last
weekday) and ``15W`` (the weekday next to the 15th, in the same month) as day of the month;
``5L`` (last Friday) and ``MON#2`` (second Monday) as day of the week. A range ends above its begin: ``FRI-MON`` is
refused. As in Debian's cron, a day must match both day fields when one of them begins with ``*``, else either.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from datetime import date, datetime, timedelta
from functools import lru_cache
from itertools import accumulate

from cronsim import CronSimError

from tarry.repeat.cron_fields import CronFields
from tarry.repeat.zones import local_datetime, local_seconds

_DAY_S = 86_400
_EPOCH_DAY = date(1970, 1, 1).toordinal()
# Weekdays and leap years come round after 28 years, 2100 and its like apart, in which nothing new begins.
_CYCLE = range(2000, 2028)


class LocalTimes:
    """The local times, in whole seconds (see ``zones``), that match a cron expression."""

    def __init__(self, expression: str) -> None:
        """Read the expression.

        Raises:
            CronSimError, ValueError: it is not valid; the text says which field.
        """
        self._sim = CronFields(expression, datetime(2000, 1, 1))
        self._expression = expression
        self._any_year = " ".join(self._sim.parts)
        self._hours, self._minutes, self._seconds = (
            sorted(s) for s in (self._sim.hours, self._sim.minutes, self._sim.seconds)
        )
        self._a_day = len(self._hours) * len(self._minutes) * len(self._seconds)
        # cronsim's own rule for Debian's "runs at a specific time", for seconds as well.
        self.fixed = not any(field.startswith("*") for field in self._sim.parts[:3])

    @property
    def begins(self) -> datetime:
        """A day from which on it fires within 50 years, if it ever does."""
        years = self._sim.years
        return datetime(2000 if years is None else min(years), 1, 1)

    def next(self, local_s: int) -> int | None:
        """Return the first match after ``local_s``; None: none within 50 years, or in the calendar."""
        try:
            return local_seconds(next(CronFields(self._expression, local_datetime(local_s))))
        except (StopIteration, OverflowError, ValueError):
            return None

    def last(self, local_s: int) -> int | None:
        """Return the last match not after ``local_s``; None: none within 50 years."""
        try:
            return local_seconds(next(CronFields(self._expression, local_datetime(local_s + 1), reverse=True)))
        except (StopIteration, OverflowError, ValueError):
            return None

    def count(self, after: int, by: int) -> int:
        """Return the number of matches after ``after`` and not after ``by``."""
        if by <= after:
            return 0
        (first, first_s), (last, last_s) = divmod(after, _DAY_S), divmod(by, _DAY_S)
        whole = self._days(first, last) * self._a_day
        return whole + self._of_day(last, last_s) - self._of_day(first, first_s)

    def closer_than(self, least_s: float) -> bool:
        """Return whether two matches are ever less than ``least_s`` seconds apart."""
        import numpy as np  # the broker's alone: a client may have none

        hours, minutes = np.array(self._hours) * 3600, np.array(self._minutes) * 60
        times = np.add.outer(np.add.outer(hours, minutes), np.array(self._seconds)).ravel()
        if len(times) > 1 and int(np.diff(times).min()) < least_s:
            return True
        over_night = int(times[0] - times[-1])
        if _DAY_S + over_night >= least_s:
            return False
        days = np.concatenate([np.diff(_days_of_year(self._any_year, year)) for year in _CYCLE]).nonzero()[0]
        return len(days) > 1 and int(np.diff(days).min()) * _DAY_S + over_night < least_s

    def _days(self, first: int, last: int) -> int:
        """Count the matching days from ``first`` on and before ``last``; days since the epoch."""
        begin, end = date.fromordinal(_EPOCH_DAY + first), date.fromordinal(_EPOCH_DAY + last)
        years = sum(_days_of_year(self._expression, year)[-1] for year in range(begin.year, end.year))
        return years + self._before(end) - self._before(begin)

    def _before(self, day: date) -> int:
        """Count the matching days of the same year before ``day``."""
        return _days_of_year(self._expression, day.year)[day.timetuple().tm_yday - 1]

    def _of_day(self, day: int, second: int) -> int:
        """Count the matches of ``day`` up to and including its ``second``."""
        if not self.matches(date.fromordinal(_EPOCH_DAY + day)):
            return 0
        hour, minute, second = second // 3600, second // 60 % 60, second % 60
        matches = bisect_left(self._hours, hour) * len(self._minutes) * len(self._seconds)
        if hour in self._sim.hours:
            matches += bisect_left(self._minutes, minute) * len(self._seconds)
            if minute in self._sim.minutes:
                matches += bisect_right(self._seconds, second)
        return matches

    def matches(self, day: date) -> bool:
        """Return whether the date fields match ``day``."""
        return day.month in self._sim.months and self._sim.match_year(day.year) and self._sim.match_day(day)


@lru_cache(maxsize=4096)
def local_times(expression: str) -> LocalTimes:
    """Return the matches of an expression; raises as :class:`LocalTimes` does."""
    return LocalTimes(expression)


@lru_cache(maxsize=1024)
def _days_of_year(expression: str, year: int) -> array[int]:
    """Count the matching days of a year before its first, second, … day; the last entry is the total."""
    matches, first = local_times(expression).matches, date(year, 1, 1)
    days = date(year + 1, 1, 1).toordinal() - first.toordinal()
    return array("H", accumulate((matches(first + timedelta(days=d)) for d in range(days)), initial=0))


@lru_cache(maxsize=1024)
def closer_than(expression: str, least_s: float) -> bool:
    """Return whether two matches of an expression are ever less than ``least_s`` seconds apart."""
    return local_times(expression).closer_than(least_s)


@lru_cache(maxsize=1024)
def problem(expression: str) -> str | None:
    """Return the fault of a cron expression; None: it is valid, and fires some time."""
    try:
        times = local_times(expression)
    except (CronSimError, ValueError) as error:
        return str(error)[:80]
    return "it never fires" if times.next(local_seconds(times.begins) - 1) is None else None
