"""Rules of recurrence. A :class:`Repeat` that exists is valid, whoever made it.

Only the broker's shortest interval is checked apart, by :func:`check_least`: a rule does not know the broker.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import datetime, timedelta
from numbers import Integral
from typing import Any, Literal, NoReturn, TypeAlias, get_args

from tarry.base.delay import INT64_MAX, datetime_ms, due_from_delay, parse_duration_ms
from tarry.base.errors import InvalidArgumentError
from tarry.repeat.local_times import closer_than, problem
from tarry.repeat.zones import zone

LEAST_MS = 1000
"""The default of the shortest interval."""

MOST_MS = 86_400_000
"""Default cap of a growing interval, as in Chronos: a day, or the first interval if that is longer."""

FACTOR_MIN = 1.01
"""The least factor above 1: an interval reaches any cap within 4,500 occurrences, and a search ends."""

SPREAD_MS_MAX = 86_400_000
"""The widest spread: a day."""

SEED_MAX = (1 << 53) - 1

CRON_CHARS_MAX = 1024
"""Characters of a cron expression: all values of all fields written out are fewer."""

Missed = Literal["all", "last", "none"]
"""Occurrences missed in downtime that are delivered, late."""

Gap = Literal["end", "skip"]
"""Choice of a cron rule at a time that the clocks skip: fire at the end of the gap, or not at all."""

Duration: TypeAlias = float | str | timedelta
"""Seconds, a text such as ``"1h30m"``, or a ``timedelta``."""

Moment: TypeAlias = int | str | datetime
"""UTC milliseconds, an ISO 8601 text with an offset, or an aware ``datetime``."""

_DURATION = 'seconds as a number, a timedelta, or a text like "1h30m" or "500ms"'
_MOMENT = "UTC milliseconds, an aware datetime, or ISO 8601 with an offset"
_CRON = (
    "5 fields 'minute hour day month weekday', or 6 with the second first, as in '0 9 * * MON-FRI', or 7 with the year "
    "last; "
    f"at most {CRON_CHARS_MAX} characters"
)


@dataclass(frozen=True, slots=True)
class Repeat:
    """A rule of recurrence: either ``every_ms`` or ``expression`` (cron), and what ends it.

    ``times`` counts all occurrences, the first included and those too that were missed (None: for ever); ``until_ms``
    is the last moment at which one may be due. With ``factor`` above 1, each interval is the former one times
    ``factor``, up to ``most_ms``. ``missed`` says what is delivered after downtime.

    With ``spread_ms``, each occurrence is due at some moment from its time on and before its time plus ``spread_ms``,
    which follows from ``seed`` and the occurrence's number: series with seeds of their own do not come as a herd.
    ``until_ms`` and the intervals are of the times, not of those moments.

    :meth:`every` and :meth:`cron` take durations and moments in all their spellings.

    Raises:
        InvalidArgumentError: names the field, its value and what is allowed.
    """

    every_ms: int | None = None
    expression: str | None = None
    zone: str = "UTC"
    times: int | None = None
    until_ms: int | None = None
    factor: int | float = 1
    most_ms: int | None = None
    missed: Missed = "all"
    spread_ms: int = 0
    seed: int = 0
    gap: Gap = "end"

    @classmethod
    def every(
        cls,
        interval: Duration,
        *,
        times: int | None = None,
        until: Moment | None = None,
        factor: int | float = 1,
        most: Duration | None = None,
        missed: Missed = "all",
        spread: Duration | None = None,
        seed: int = 0,
    ) -> Repeat:
        """Again and again after ``interval``, elapsed time: ``Repeat.every("1m", times=5)``.

        With ``factor=2``, after interval, 2·interval, 4·interval, … and at most ``most`` (default: a day).
        """
        every_ms, most_ms = _duration_ms("every", interval), None if most is None else _duration_ms("most", most)
        until_ms = _moment_ms(until)
        return cls(every_ms, None, "UTC", times, until_ms, factor, most_ms, missed, _spread_ms(spread), seed)

    @classmethod
    def cron(
        cls,
        expression: str,
        zone: str = "UTC",
        *,
        times: int | None = None,
        until: Moment | None = None,
        missed: Missed = "all",
        spread: Duration | None = None,
        seed: int = 0,
        gap: Gap = "end",
    ) -> Repeat:
        """Make a rule for matching times of ``zone``: ``Repeat.cron("0 9 * * MON-FRI", "Europe/Berlin")``."""
        if expression is None:
            refuse("cron", None, _CRON)
        until_ms, spread_ms = _moment_ms(until), _spread_ms(spread)
        return cls(None, expression, zone, times, until_ms, missed=missed, spread_ms=spread_ms, seed=seed, gap=gap)

    def __post_init__(self) -> None:
        if (self.every_ms is None) == (self.expression is None):
            given = "neither" if self.every_ms is None else "both"
            raise InvalidArgumentError(f"repeat: {given} of every and cron is given; allowed: exactly one of them")
        # The plain form of each value, so that rules that mean the same are equal, and have the same text.
        if self.every_ms is not None:
            self._set("every_ms", _whole("every", self.every_ms, 1, "a whole number of ms, 1 or more"))
            self._check_growth(self.every_ms)
        else:
            self._check_cron()
        if self.times is not None:
            self._set("times", _whole("times", self.times, 1, "a whole number from 1 on, or null: for ever"))
        if self.until_ms is not None:
            self._set("until_ms", _whole("until", self.until_ms, 0, _MOMENT))
        if not isinstance(self.missed, str) or self.missed not in get_args(Missed):
            refuse("missed", self.missed, ", ".join(repr(way) for way in get_args(Missed)))
        self._check_spread()

    def _check_spread(self) -> None:
        allowed = f"up to {SPREAD_MS_MAX} ms (a day); 0: none"
        spread_ms = _whole("spread", self.spread_ms, 0, allowed)
        if spread_ms > SPREAD_MS_MAX:
            refuse("spread", f"{spread_ms} ms", allowed)
        self._set("spread_ms", spread_ms)
        seed = _whole("seed", self.seed, 0, f"a whole number from 0 to {SEED_MAX}")
        if seed > SEED_MAX or (seed and not spread_ms):
            refuse("seed", seed, f"a whole number from 0 to {SEED_MAX}, with a spread only")
        self._set("seed", seed)
        if not isinstance(self.gap, str) or self.gap not in get_args(Gap):
            refuse("gap", self.gap, ", ".join(repr(way) for way in get_args(Gap)))
        if self.gap != "end" and self.expression is None:
            refuse("gap", self.gap, "with cron only: an interval is elapsed time")

    def _check_growth(self, every_ms: int) -> None:
        factor, most_ms = _factor(self.factor), self.most_ms
        self._set("factor", factor)
        if self.zone != "UTC":
            refuse("zone", self.zone, "a zone with cron only; an interval is elapsed time, the same in all zones")
        if factor == 1:
            if most_ms is not None:
                refuse("most", f"{most_ms} ms", "with a factor above 1 only: it caps intervals that grow")
        elif most_ms is None:
            self._set("most_ms", max(MOST_MS, every_ms))
        else:
            self._set("most_ms", _whole("most", most_ms, every_ms, f"at least the first interval, {every_ms} ms"))

    def _check_cron(self) -> None:
        text = self.expression
        if not isinstance(text, str) or len(text) > CRON_CHARS_MAX or not text.isascii():
            refuse("cron", text, _CRON)
        self._set("expression", " ".join(text.upper().split()))
        assert self.expression is not None
        if wrong := problem(self.expression):
            refuse("cron", text, _CRON, why=wrong)
        if not isinstance(self.zone, str) or len(self.zone) > 255 or zone(self.zone) is None:
            refuse("zone", self.zone, "a name of the IANA database, as in 'Europe/Berlin'")
        for name, given in (("factor", _factor(self.factor) != 1), ("most", self.most_ms is not None)):
            if given:
                value = self.factor if name == "factor" else self.most_ms
                refuse(name, value, "with every only; cron has no interval that could grow")
        self._set("factor", 1)

    def _set(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)


def check_least(repeat: Repeat, least_ms: int) -> Repeat:
    """``repeat`` itself, when it never comes oftener than every ``least_ms``, as the local clocks show it.

    Raises:
        InvalidArgumentError: otherwise.
    """
    if repeat.every_ms is not None and repeat.every_ms < least_ms:
        refuse("every", f"{repeat.every_ms} ms", f"at least {least_ms} ms")
    # Cron fires at whole seconds.
    text = repeat.expression
    if text is not None and least_ms > 1000 and closer_than(text, least_ms / 1000):
        refuse("cron", text, f"what fires at most every {least_ms} ms", why="it fires oftener than allowed")
    return repeat


def refuse(field: str, value: object, allowed: str, why: str = "") -> NoReturn:
    """Raise InvalidArgumentError, which names the field, its value and what is allowed."""
    why = f" ({why})" if why else ""
    raise InvalidArgumentError(f"repeat: {field} is {short(value)}{why}; allowed: {allowed}")


def short(value: object, most: int = 80) -> str:
    """Return a value for an error text."""
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001 - what a caller's own __repr__ raises; numbers of thousands of digits have none
        return f"a {type(value).__name__} that cannot be written out"
    return text if len(text) <= most else f"{text[:most]}… ({len(text)} characters)"


def _whole(field: str, value: object, least: int, allowed: str) -> int:
    if isinstance(value, bool) or not isinstance(value, Integral):
        refuse(field, value, allowed)
    number = int(value)
    if not least <= number <= INT64_MAX:
        refuse(field, number, f"{allowed}; at most 2**63 - 1")
    return number


def _factor(value: object) -> int | float:
    allowed = f"1 (no growth), or a finite number from {FACTOR_MIN} on, below 2**63"
    if isinstance(value, bool) or not isinstance(value, (Integral, float)):
        refuse("factor", value, allowed)
    number = int(value) if isinstance(value, Integral) else float(value)
    # Also false for NaN. Whole ones become integers: they are computed with exactly.
    if not (number == 1 or FACTOR_MIN <= number <= INT64_MAX):
        refuse("factor", value, allowed)
    return int(number) if number == math.floor(number) else number


def _duration_ms(field: str, value: Any) -> int:
    spelled = isinstance(value, (str, timedelta, float, Integral)) and not isinstance(value, bool)
    if not spelled:
        refuse(field, value, _DURATION)
    try:
        return parse_duration_ms(value) if isinstance(value, str) else due_from_delay(value, 0)
    except InvalidArgumentError as error:
        raise InvalidArgumentError(f"repeat: {field}: {error}") from error


def _spread_ms(value: Any) -> int:
    return 0 if value is None else _duration_ms("spread", value)


def _moment_ms(value: Any) -> int | None:
    """Return a moment in UTC milliseconds, rounded down: nothing may be due after it."""
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            refuse("until", value, _MOMENT)
    if not isinstance(value, datetime):
        return None if value is None else _whole("until", value, 0, _MOMENT)
    try:
        return datetime_ms(value.replace(microsecond=value.microsecond // 1000 * 1000))
    except InvalidArgumentError as error:
        raise InvalidArgumentError(f"repeat: until: {error}") from error
