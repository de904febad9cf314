"""Schedule expressions: ``at(…)``, ``rate(…)`` and ``cron(…)``, as a moment or a rule of recurrence.

AWS's cron has six fields, ``minute hour day-of-month month day-of-week year``. One of the two days is ``?``.
Sunday is 1, and ``L`` as day of the week is Saturday. What the clocks skip in spring does not fire; what they show
twice in autumn fires once (https://docs.aws.amazon.com/scheduler/latest/UserGuide/schedule-types.html).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime

from tarry.base.errors import InvalidArgumentError
from tarry.fronts.http.scheduler.errors import SchedulerError, invalid
from tarry.repeat import Repeat
from tarry.repeat.local_times import problem
from tarry.repeat.zones import local_seconds, zone

EXPRESSION_CHARS_MAX = 256
_FORM = re.compile(r"\s*(at|rate|cron)\((.*)\)\s*", re.DOTALL)
_RATE = re.compile(r"\s*([0-9]{1,9})\s+(minute|hour|day)s?\s*")
_UNITS_MS = {"minute": 60_000, "hour": 3_600_000, "day": 86_400_000}
_DAYS = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
_DAY = f"(?:[1-7]|{'|'.join(_DAYS)})"
_WEEKDAYS = re.compile(f"({_DAY})(?:-({_DAY}))?(?:/([1-7]))?")
_LAST, _NTH = re.compile(f"({_DAY})L"), re.compile(f"({_DAY})#([1-5])")


@dataclass(frozen=True, slots=True)
class Expression:
    """An expression, read: a moment of local time, an interval, or a cron rule."""

    at_ms: int | None = None
    """Of ``at``: UTC milliseconds."""
    every_ms: int | None = None
    cron: str | None = None
    """As :class:`tarry.repeat.Repeat` has it, with seconds and a year."""
    zone: str = "UTC"

    def rule(self, until_ms: int | None, spread_ms: int, seed: int) -> Repeat:
        """Return the rule of ``rate`` or ``cron``."""
        if self.cron is None:
            return Repeat(self.every_ms, until_ms=until_ms, spread_ms=spread_ms, seed=seed)
        return Repeat(*(None, self.cron, self.zone), until_ms=until_ms, spread_ms=spread_ms, seed=seed, gap="skip")


def expression_of(text: object, zone_name: object) -> Expression:
    """Read an expression, in a zone.

    Raises:
        SchedulerError: it is none.
    """
    found = _FORM.fullmatch(text) if isinstance(text, str) and len(text) <= EXPRESSION_CHARS_MAX else None
    if found is None:
        raise _bad(text)
    if not isinstance(zone_name, str) or len(zone_name) > 50 or zone(zone_name) is None:
        raise invalid(
            f"Invalid Schedule Expression Timezone {zone_name!r:.80}; allowed: a name of the IANA database, "
            "as in Europe/Berlin"
        )
    kind, inner = found[1], found[2]
    if kind == "at":
        return Expression(at_ms=_at_ms(inner.strip(), zone_name, text), zone=zone_name)
    if kind == "rate":
        return Expression(every_ms=_every_ms(inner, text))
    expression = _cron(inner, text)
    if (wrong := problem(expression)) is not None:
        raise _bad(text, wrong.lower())
    try:
        Repeat(None, expression, zone_name)
    except InvalidArgumentError as error:
        raise _bad(text, str(error)) from error
    return Expression(cron=expression, zone=zone_name)


def _at_ms(inner: str, zone_name: str, text: object) -> int:
    try:
        shown = datetime.strptime(inner, "%Y-%m-%dT%H:%M:%S")
    except ValueError:
        raise _bad(text) from None
    if shown.year < 1970:
        raise _bad(text, f"its year is {shown.year}, before 1970")
    where = zone(zone_name)
    assert where is not None
    local_s = local_seconds(shown)
    instant = where.instant(local_s)
    return instant * 1000


def _every_ms(inner: str, text: object) -> int:
    found = _RATE.fullmatch(inner)
    if found is None or not int(found[1]):
        raise _bad(text)
    return int(found[1]) * _UNITS_MS[found[2]]


def _cron(inner: str, text: object) -> str:
    fields = inner.upper().split()
    if len(fields) != 6:
        raise _bad(text, f"cron has {len(fields)} fields")
    minute, hour, day, month, weekday, year = fields
    if (day == "?") == (weekday == "?"):
        raise _bad(text, "one of day-of-month and day-of-week has to be ?, and not both")
    day = "*" if day == "?" else day
    weekday = "*" if weekday == "?" else ",".join(_weekday(each, text) for each in weekday.split(","))
    return f"0 {minute} {hour} {day} {month} {weekday} {year}"


def _weekday(term: str, text: object) -> str:
    """Return days of the week as ``cronsim`` has them: Sunday is 0, and a range does not go over Saturday."""
    if term == "*":
        return term
    if term == "L":
        return "6"
    if (last := _LAST.fullmatch(term)) is not None:
        return f"{_number(last[1])}L"
    if (nth := _NTH.fullmatch(term)) is not None:
        return f"{_number(nth[1])}#{nth[2]}"
    found = _WEEKDAYS.fullmatch(term)
    if found is None:
        raise _bad(text, f"day-of-week is {term!r:.40}")
    first, step = _number(found[1]), int(found[3] or 1)
    last_day = _number(found[2]) if found[2] else 6 if found[3] else first
    days = range(first, (last_day if last_day >= first else last_day + 7) + 1, step)
    return ",".join(str(each % 7) for each in days)


def _number(day: str) -> int:
    return _DAYS.index(day) if day in _DAYS else int(day) - 1


def _bad(text: object, why: str = "") -> SchedulerError:
    return invalid(
        f"Invalid Schedule Expression {text!s:.256}{f': {why}' if why else ''}. Allowed: at(yyyy-mm-ddThh:mm:ss), "
        "rate(value minutes|hours|days), cron(minutes hours day-of-month month day-of-week year)."
    )
