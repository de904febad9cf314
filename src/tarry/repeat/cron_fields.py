"""Fields of a cron expression as ``cronsim`` reads them, and two things that other schedulers add.

A seventh field is the year (1970 to 2199), and ``15W`` as day of the month is the weekday (Monday to Friday) next to
the 15th, in the same month. Naive datetimes only: zones are left to ``cron``.
"""

from __future__ import annotations

import calendar
import re
from bisect import bisect_left, bisect_right
from datetime import date, datetime

from cronsim import CronSim, CronSimError

YEARS = range(1970, 2200)
_DAY, _SIX = -3, 6
_NEAREST = re.compile("([0-9]{1,2})W")
_YEARS = re.compile(r"(\*|[0-9]{4}(?:-[0-9]{4})?)(?:/([0-9]{1,3}))?")


class CronFields(CronSim):
    """Iterates over the matches after a local time, or backwards over those before it."""

    def __init__(self, expression: str, local: datetime, reverse: bool = False) -> None:
        """Read the expression.

        Raises:
            CronSimError: it is not valid; the text says which field.
        """
        fields = expression.upper().split()
        self.years: list[int] | None = _years(fields.pop()) if len(fields) > _SIX else None
        """Years, sorted; None: all."""
        self.nearest: set[int] = set()
        """Days of the month whose nearest weekday matches."""
        given = fields[_DAY] if len(fields) >= -_DAY else ""
        others = self._take_nearest(fields)
        super().__init__(" ".join(fields), local, reverse)
        if self.nearest:
            if not others:
                self.days = set()
            self.parts[_DAY] = given

    def _take_nearest(self, fields: list[str]) -> bool:
        """Take the days of the form ``15W`` from the fields; return whether other days are left."""
        if len(fields) < -_DAY or "W" not in fields[_DAY]:
            return True
        terms = fields[_DAY].split(",")
        days = [int(found[1]) for term in terms if (found := _NEAREST.fullmatch(term)) is not None]
        if any(not 1 <= day <= 31 for day in days):
            raise CronSimError("Bad day-of-month")
        others = [term for term in terms if not _NEAREST.fullmatch(term)]
        self.nearest = set(days)
        # Which months have the days does not matter here: a 31W of April is found never to fire.
        fields[_DAY] = ",".join(others) or "1"
        return bool(others)

    def match_year(self, year: int) -> bool:
        """Return whether the year matches."""
        return self.years is None or year in self.years

    def match_dom(self, d: date) -> bool:
        """Return whether the day of the month matches."""
        return super().match_dom(d) or any(d.day == nearest_weekday(d.year, d.month, day) for day in self.nearest)

    def advance_month(self) -> None:
        """Go forward to a year and a month that match.

        Raises:
            StopIteration: there is none.
        """
        super().advance_month()
        while not self.match_year(self.dt.year):
            assert self.years is not None
            place = bisect_left(self.years, self.dt.year)
            if place == len(self.years):
                raise StopIteration
            self.dt = datetime(self.years[place], 1, 1)
            super().advance_month()

    def reverse_month(self) -> None:
        """Go back to a year and a month that match.

        Raises:
            StopIteration: there is none.
        """
        super().reverse_month()
        while not self.match_year(self.dt.year):
            assert self.years is not None
            place = bisect_right(self.years, self.dt.year)
            if not place:
                raise StopIteration
            self.dt = datetime(self.years[place - 1], 12, 31, 23, 59, 59)
            super().reverse_month()


def nearest_weekday(year: int, month: int, day: int) -> int | None:
    """Return the day of the weekday next to a day, in its month; None: the month has no such day."""
    first, last = calendar.monthrange(year, month)
    if day > last:
        return None
    match (first + day - 1) % 7:
        case calendar.SATURDAY:
            return day - 1 if day > 1 else day + 2
        case calendar.SUNDAY:
            return day + 1 if day < last else day - 2
    return day


def _years(field: str) -> list[int] | None:
    if field == "*":
        return None
    years: set[int] = set()
    for term in field.split(","):
        found = _YEARS.fullmatch(term)
        if found is None:
            raise CronSimError("Bad year")
        begin, _, end = found[1].partition("-")
        first, last = (YEARS[0], YEARS[-1]) if begin == "*" else (int(begin), int(end or begin))
        if found[2] is not None and not end and begin != "*":
            last = YEARS[-1]
        step = int(found[2] or 1)
        if first not in YEARS or last not in YEARS or last < first or not step:
            raise CronSimError("Bad year")
        years.update(range(first, last + 1, step))
    return sorted(years)
