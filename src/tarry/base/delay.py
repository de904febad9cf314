"""Due times: every way in which a producer may say one, resolved to UTC milliseconds.

A delay is a number of seconds, a ``timedelta``, a text such as ``"1h30m"`` or ``"500ms"``, an ISO 8601 instant with an
offset, an aware ``datetime``, or RocketMQ's delay level (:class:`DelayLevel`). Naive datetimes are refused: they mean
different instants on different machines.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from functools import lru_cache
from numbers import Integral

from tarry.base.errors import DelayTooLongError, InvalidArgumentError, InvalidMessageError

DELAY_MS_MAX = 40 * 366 * 86_400_000
"""The default limit of a delay: 40 years."""

ROCKETMQ_LEVELS = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
"""RocketMQ's default ``messageDelayLevel``; levels are counted from 1."""

DUE_MS_MIN = 946_684_800_000
"""2000-01-01: a lower number is most likely meant in seconds, and would be a time of 1970."""

INT64_MAX = 2**63 - 1

_UNIT_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 7 * 86_400_000}
_PART = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|[smhdw])")
_WHOLE = re.compile(r"(?:[0-9]+(?:\.[0-9]+)?(?:ms|[smhdw]))+")
_TEXT_MAX = 64
"""Characters of a duration; longer ones are no durations, and would be slow to compute."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_ALLOWED = 'seconds as a number, a timedelta, a text like "1h30m" or "500ms", an aware datetime, or DelayLevel(n)'


@dataclass(frozen=True, slots=True)
class DelayLevel:
    """RocketMQ's delay level: 1 is the table's first entry, above the last means the last, 0 at once."""

    level: int


Delay = float | int | str | timedelta | datetime | DelayLevel


def parse_levels(table: str) -> tuple[int, ...]:
    """Return the delays in milliseconds of a level table such as :data:`ROCKETMQ_LEVELS`."""
    if not table.split():
        raise InvalidArgumentError(f"delay levels {table!r}; allowed: at least one duration, as in {ROCKETMQ_LEVELS!r}")
    return tuple(parse_duration_ms(word) for word in table.split())


def parse_duration_ms(text: str) -> int:
    """Parse a duration such as ``"1h30m"``, ``"1.5s"`` or ``"250ms"``; units are ms, s, m, h, d and w.

    A fraction of a millisecond is rounded up, so that nothing is delivered before it.

    Raises:
        InvalidArgumentError: for anything else, a bare number included (its unit would be a guess).
    """
    compact = text.strip().replace(" ", "")
    if len(compact) > _TEXT_MAX or not _WHOLE.fullmatch(compact):
        raise InvalidArgumentError(
            f"not a duration: {text[:_TEXT_MAX]!r}; allowed: numbers with a unit, as in '1h30m', '2d', '500ms'"
        )
    return _whole_ms(compact)


@lru_cache(maxsize=1024)
def _whole_ms(compact: str) -> int:
    # Fractions: as floats, 0.1 would be a little more than it is, and rounding up would add a millisecond.
    return math.ceil(sum(Fraction(number) * _UNIT_MS[unit] for number, unit in _PART.findall(compact)))


def datetime_ms(when: datetime) -> int:
    """UTC milliseconds of an aware datetime, rounded up so that nothing is delivered before it.

    Raises:
        InvalidArgumentError: when ``when`` is naive.
    """
    if when.tzinfo is None or when.utcoffset() is None:
        raise InvalidArgumentError(
            f"naive datetime {when.isoformat()}: it names no instant; give it a time zone, "
            "for example datetime.now(timezone.utc) or datetime(..., tzinfo=ZoneInfo('Europe/Berlin'))"
        )
    return -((_EPOCH - when) // timedelta(milliseconds=1))


def due_after(delay_ms: int, now_ms: int, start_ms: int) -> int:
    """Return the due time of a message with this delay.

    Without a delay it is ``now_ms``. Else it is counted from ``start_ms``, the clock's reading rounded up: the delay of
    a message that comes within a millisecond ends within one.
    """
    return start_ms + delay_ms if delay_ms > 0 else now_ms


def due_from_delay(
    delay: Delay,
    now_ms: int,
    levels: tuple[int, ...] = parse_levels(ROCKETMQ_LEVELS),
    *,
    start_ms: int | None = None,
    name: str = "delay",
) -> int:
    """Return the due time in UTC milliseconds that ``delay`` means at ``now_ms``.

    ``start_ms``: see :func:`due_after` (None: ``now_ms``). ``name``: what an error calls it.

    Raises:
        InvalidArgumentError: a type or text that means no delay, NaN, infinity, or a negative duration; a naive
            datetime.
        DelayTooLongError: more than 2**63 ms, which is beyond every limit.
    """
    if start_ms is None:
        start_ms = now_ms
    match delay:
        case bool():
            raise InvalidArgumentError(f"{name} {delay!r} is a truth value; allowed: {_ALLOWED}")
        case int():
            delay_ms = delay * 1000
        case float():
            if not math.isfinite(delay):
                raise InvalidArgumentError(f"{name} {delay!r} is not a finite number of seconds")
            if delay > INT64_MAX:  # its product with 1000 may be infinite
                delay = float(INT64_MAX)
            # A nanosecond less: 1.1 * 1000 is a little more than 1100, and rounding that up would add a millisecond.
            delay_ms = -1 if delay < 0 else math.ceil(delay * 1000 - 1e-6)
        case timedelta():
            # Rounded up. Python cannot negate the largest timedelta.
            whole_ms, rest = divmod(delay, timedelta(milliseconds=1))
            delay_ms = whole_ms + bool(rest)
        case datetime():
            return datetime_ms(delay)
        case DelayLevel():
            return due_after(_level_ms(delay.level, levels), now_ms, start_ms)
        case str():
            if "T" in delay or re.match(r"\d{4}-", delay):
                return datetime_ms(_parse_instant(delay))
            delay_ms = parse_duration_ms(delay)
        case Integral():  # NumPy's integers, which are no int
            return due_from_delay(int(delay), now_ms, levels, start_ms=start_ms, name=name)
        case _:
            raise InvalidArgumentError(f"{name} of type {type(delay).__name__}: {delay!r}; allowed: {_ALLOWED}")
    if delay_ms > INT64_MAX - max(start_ms, 0):
        raise DelayTooLongError(f"{name} is more than 64 bits of milliseconds; the limit is delay_ms_max")
    if delay_ms < 0:
        given = f"{delay} " if delay_ms > -INT64_MAX else ""  # Python writes out no number of thousands of digits
        raise InvalidArgumentError(f"{name} {given}is negative; allowed: 0 (at once) or more")
    return due_after(delay_ms, now_ms, start_ms)


def check_due(due_ms: int, now_ms: int, delay_ms_max: int) -> int:
    """``due_ms`` itself, when it is within the limits.

    Raises:
        DelayTooLongError: when it is more than ``delay_ms_max`` after ``now_ms``. InvalidMessageError: when it lies
            before 2000, and the clock does not.
    """
    if due_ms < DUE_MS_MIN <= now_ms:
        raise InvalidMessageError(
            f"due is {due_ms} ({format_ms(due_ms)}); allowed: milliseconds since 1970, from {DUE_MS_MIN} "
            f"({format_ms(DUE_MS_MIN)}) on; are these seconds for milliseconds?"
        )
    if due_ms - now_ms > delay_ms_max:
        raise DelayTooLongError(
            f"due {format_ms(due_ms)} is {_days(due_ms - now_ms)} days away; "
            f"the limit (delay_ms_max) is {_days(delay_ms_max)} days"
        )
    return due_ms


def format_ms(ms: int) -> str:
    """Format an instant as ISO 8601 in UTC with milliseconds; as a number where no calendar reaches."""
    try:
        return (_EPOCH + timedelta(milliseconds=ms)).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    except OverflowError:
        return f"{ms} ms" if abs(ms) <= INT64_MAX else "beyond 2**63 ms"


def _days(ms: int) -> str:
    # Whole numbers: a float has no room for what a caller may have multiplied.
    tenths = min(ms, INT64_MAX) * 10 // 86_400_000
    return f"{tenths // 10:,}.{tenths % 10}"


def _level_ms(level: int, levels: tuple[int, ...]) -> int:
    if isinstance(level, bool) or not isinstance(level, int):
        raise InvalidArgumentError(f"delay level {level!r} is not a whole number; allowed: 0 to {len(levels)}")
    # As in RocketMQ's ScheduleMessageService: above the table clamps to its last entry, 0 and below is immediate.
    return 0 if level <= 0 else levels[min(level, len(levels)) - 1]


def _parse_instant(text: str) -> datetime:
    try:
        return datetime.fromisoformat(text)
    except ValueError as error:
        raise InvalidArgumentError(
            f"not an instant: {text!r}; allowed: ISO 8601 with an offset, '2026-12-01T00:00:00Z'"
        ) from error
