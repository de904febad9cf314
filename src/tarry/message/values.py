"""Values of one message as a producer writes them, checked and brought to what travels.

Checked here is what would make Arrow refuse a whole batch of other callers' messages, and what is cheap; limits are the
broker's, and it alone knows them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any

from tarry.base.delay import Delay, DelayLevel, datetime_ms, due_from_delay, parse_duration_ms
from tarry.base.errors import DelayTooLongError, InvalidArgumentError, InvalidMessageError, TarryError
from tarry.message.topics import INTERNAL_TOPIC, check_topic, is_internal

_INT64 = 1 << 63
_INT32 = 1 << 31
_DURATIONS = "more than 0: seconds as a number, a timedelta, or a text with units such as '1h30m' or '900s'"


def check_topic_name(name: str) -> None:
    """Check the name of a topic that is produced to; names that were checked before are remembered."""
    if type(name) is str:
        _checked_topic(name)
    else:
        check_topic(name)


@lru_cache(4096)
def _checked_topic(name: str) -> str:
    if is_internal(check_topic(name)):
        raise InvalidMessageError(f"topic {name!r}: {INTERNAL_TOPIC}")
    return name


def as_bytes(body: object) -> bytes:
    """Return the bytes of a body that is a text or another buffer."""
    if isinstance(body, str):
        try:
            return body.encode()
        except UnicodeEncodeError as error:
            raise InvalidMessageError(f"body is no UTF-8 text: {error}; allowed: bytes, or a text") from error
    if isinstance(body, bytes | bytearray | memoryview):
        return bytes(body)
    raise InvalidMessageError(f"body has type {type(body).__name__}; allowed: bytes or str")


def when(delay: Delay | None, due: datetime | int | None) -> tuple[int | None, int | None, int | None]:
    """Return ``(due_ms, delay_ms, delay_level)``, two of them None; the broker resolves the latter two."""
    if due is not None:
        if delay is not None:
            raise InvalidMessageError(f"delay {delay} and due {due} are both given; allowed: one of them")
        return _int64(_due_ms(due), "due", due), None, None
    if delay is None:
        return None, 0, None
    if isinstance(delay, str):
        due_ms, delay_ms = _text_delay(delay)
        return due_ms, delay_ms if delay_ms is None else _int64(delay_ms, "delay", delay), None
    if isinstance(delay, datetime):
        return datetime_ms(delay), None, None
    delay_ms = _int64(due_from_delay(delay, 0), "delay", delay)
    if isinstance(delay, DelayLevel):
        # As the table clamps: no level is too great.
        return None, None, max(-_INT32, min(delay.level, _INT32 - 1))
    return None, delay_ms, None


@lru_cache(1024)
def _text_delay(text: str) -> tuple[int | None, int | None]:
    # A text may be a duration or an instant; only a duration's result moves with the clock.
    at_0 = due_from_delay(text, 0)
    return (None, at_0) if due_from_delay(text, 1) != at_0 else (at_0, None)


def _due_ms(due: object) -> int:
    if isinstance(due, datetime):
        return datetime_ms(due)
    if isinstance(due, bool) or not isinstance(due, int):
        raise InvalidMessageError(f"due is {due!r}; allowed: an aware datetime, or UTC milliseconds as an int")
    return due


def _int64(value: int, name: str, given: object) -> int:
    if not -_INT64 <= value < _INT64:
        raise DelayTooLongError(f"{name} is {given!r:.60}, more than 64 bits of milliseconds; allowed: 40 years")
    return value


def text_of(name: str, value: object) -> str | None:
    """Return a text that Arrow can hold, or None."""
    if value is None:
        return None
    if not isinstance(value, str):
        raise InvalidMessageError(f"{name} is {value!r:.60}, of type {type(value).__name__}; allowed: a text")
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise InvalidMessageError(f"{name} is no UTF-8 text: {error}") from error
    return value


def one_of(name: str, value: object, allowed: Sequence[str]) -> str | None:
    """One of some texts, or None."""
    if value is None or (isinstance(value, str) and value in allowed):
        return value
    raise InvalidMessageError(f"{name} is {value!r:.60}; allowed: {', '.join(allowed)}")


def pairs_of(properties: object) -> list[tuple[str, str]] | None:
    """Properties as pairs of name and value, as a map column takes them."""
    if properties is None:
        return None
    if not isinstance(properties, Mapping):
        raise InvalidMessageError(f"properties are of type {type(properties).__name__}; allowed: a dict of texts")
    pairs = []
    for name, value in properties.items():
        key, content = text_of("the name of a property", name), text_of(f"property {name!r}", value)
        if key is None or content is None:
            raise InvalidMessageError(f"property {name!r} is {value!r}; allowed: a text")
        if not key:
            raise InvalidMessageError("the name of a property is empty; allowed: 1 character or more")
        pairs.append((key, content))
    return pairs


def whole_number(name: str, text: str, chars_max: int = 20) -> int:
    """Return the number that a text of up to ``chars_max`` characters is.

    It is as ``int`` reads it, without underscores and digits of other scripts.

    Raises:
        InvalidMessageError: it is none.
    """
    # Not of thousands of digits, which take long.
    if len(text) <= chars_max and text.isascii() and text.removeprefix("-").isdigit():
        return int(text)
    raise InvalidMessageError(f"{name} is {text!r:.60}; allowed: a whole number")


def duration_ms_of(name: str, given: object) -> int | None:
    """Return the milliseconds of a duration, or None.

    Raises:
        InvalidMessageError: it is no duration, or not more than 0.
    """
    if given is None:
        return None
    try:
        if isinstance(given, bool) or not isinstance(given, int | float | str | timedelta):
            raise InvalidArgumentError(f"of type {type(given).__name__}")
        duration_ms = parse_duration_ms(given) if isinstance(given, str) else due_from_delay(given, 0, name=name)
    except TarryError as error:
        why = str(error).partition("; allowed: ")[0]  # what is allowed of any duration, 0 for one
        raise InvalidMessageError(f"{name} is {given!r}: {why}; allowed: {_DURATIONS}") from error
    if duration_ms < 1:
        raise InvalidMessageError(f"{name} is {given!r}; allowed: {_DURATIONS}")
    return min(duration_ms, _INT64 - 1)


def whole_of(name: str, value: object, low: int, high: int) -> int | None:
    """Return a whole number within bounds, or None.

    Raises:
        InvalidMessageError: it is something else.
    """
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise InvalidMessageError(f"{name} is {value!r}; allowed: a whole number from {low} to {high}")
    return value


def repeat_json(rule: Any) -> str | None:
    """Return a rule (or its dict, or its JSON) as JSON. The broker knows the least interval."""
    if rule is None or isinstance(rule, str):
        return text_of("repeat", rule)
    from tarry.repeat import parse, to_json

    return to_json(parse(rule, least_ms=1))
