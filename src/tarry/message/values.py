"""The values of one message as a producer writes them, checked and brought to what travels. Used by ``rows``.

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
from tarry.message.schema import INTERNAL_TOPIC, check_topic, is_internal

ON_KEY = ("replace", "keep", "refuse")
"""What to do with a message whose key is pending in its topic already."""

_INT64 = 1 << 63
_INT32 = 1 << 31


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
    """The bytes of a body that is something else: a text, or another buffer."""
    if isinstance(body, str):
        try:
            return body.encode()
        except UnicodeEncodeError as error:
            raise InvalidMessageError(f"body is no UTF-8 text: {error}; allowed: bytes, or a text") from error
    if isinstance(body, bytes | bytearray | memoryview):
        return bytes(body)
    raise InvalidMessageError(f"body has type {type(body).__name__}; allowed: bytes or str")


def when(delay: Delay | None, due: datetime | int | None) -> tuple[int | None, int | None, int | None]:
    """``(due_ms, delay_ms, delay_level)``, two of them None. The broker's clock and table resolve the latter two."""
    if due is not None:
        if delay is not None:
            raise InvalidMessageError(f"delay {delay!r} and due {due!r} are both given; allowed: one of them")
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
    """A text that Arrow can hold, or None."""
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
        pairs.append((key, content))
    return pairs


def ttl_ms_of(ttl: object) -> int | None:
    """Milliseconds of a time to live."""
    if ttl is None:
        return None
    try:
        if isinstance(ttl, bool) or not isinstance(ttl, int | float | str | timedelta):
            raise InvalidArgumentError(f"of type {type(ttl).__name__}")
        ttl_ms = parse_duration_ms(ttl) if isinstance(ttl, str) else due_from_delay(ttl, 0)
    except TarryError as error:
        raise InvalidMessageError(
            f"ttl is {ttl!r}: {error}; allowed: seconds, a timedelta, or a text such as '1h30m'"
        ) from error
    if ttl_ms < 1:
        raise InvalidMessageError(f"ttl is {ttl!r}; allowed: more than 0")
    return min(ttl_ms, _INT64 - 1)


def tries_of(count: object) -> int | None:
    """How often a message is delivered at most."""
    if count is None:
        return None
    if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count < _INT32:
        raise InvalidMessageError(f"tries is {count!r}; allowed: a whole number from 1 to {_INT32 - 1}")
    return count


def repeat_json(rule: Any) -> str | None:
    """A rule of :mod:`tarry.repeat` (or its dict, or its JSON) as JSON. The broker knows the least interval."""
    if rule is None or isinstance(rule, str):
        return text_of("repeat", rule)
    from tarry.repeat import parse, to_json

    return to_json(parse(rule, least_ms=1))
