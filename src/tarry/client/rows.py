"""What a producer says about one message, checked where that is cheap, as a tuple; and many of them as columns.

A relative delay stays one (``delay_ms``): the broker's clock resolves it, so that a client whose clock is wrong still
gets the delay it asked for. Everything that would make Arrow refuse a whole batch of other callers' messages is
refused here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any, Final, TypedDict

import pyarrow as pa

from tarry.delay import Delay, datetime_ms, due_from_delay, parse_duration_ms
from tarry.errors import DelayTooLongError, InvalidArgumentError, InvalidMessageError, MessageTooLargeError, TarryError
from tarry.message import PROPERTIES, Message, check_topic

Row = tuple[
    str,
    bytes,
    int | None,
    int | None,
    str | None,
    str | None,
    str | None,
    list[tuple[str, str]] | None,
    int | None,
    int | None,
]
"""The values of :data:`COLUMNS`, in that order."""

COLUMNS: tuple[tuple[str, pa.DataType], ...] = (
    ("topic", pa.string()),
    ("body", pa.binary()),
    ("due_ms", pa.int64()),
    ("delay_ms", pa.int64()),
    ("id", pa.string()),
    ("key", pa.string()),
    ("tag", pa.string()),
    ("properties", PROPERTIES),
    ("ttl_ms", pa.int64()),
    ("tries", pa.int32()),
)
BODY: Final = 1
DUE_MS: Final = 2
ID: Final = 4
"""Places in a row."""

_ALWAYS = 2
_INT64 = 1 << 63
_BODY_MAX = 1 << 30


class MessageDict(TypedDict, total=False):
    """A message for ``schedule_many``: the arguments of ``schedule``."""

    topic: str
    body: bytes | str
    delay: Delay | None
    due: datetime | int | None
    id: str | None
    key: str | None
    tag: str | None
    properties: Mapping[str, str] | None
    ttl: float | str | timedelta | None
    tries: int | None


def make_row(
    topic: str,
    body: bytes | str,
    *,
    delay: Delay | None = None,
    due: datetime | int | None = None,
    id: str | None = None,
    key: str | None = None,
    tag: str | None = None,
    properties: Mapping[str, str] | None = None,
    ttl: float | str | timedelta | None = None,
    tries: int | None = None,
) -> Row:
    """One message; due at once without ``delay`` and ``due``.

    Raises:
        InvalidMessageError, InvalidArgumentError: names the value and what is allowed.
    """
    _topic(topic)
    if type(body) is not bytes:
        body = _as_bytes(body)
    if len(body) > _BODY_MAX:
        raise MessageTooLargeError(f"body has {len(body)} bytes; allowed: {_BODY_MAX}, or less by the broker's limit")
    due_ms, delay_ms = _when(delay, due)
    if id is None and key is None and tag is None and properties is None and ttl is None and tries is None:
        return (topic, body, due_ms, delay_ms, None, None, None, None, None, None)
    return (
        topic,
        body,
        due_ms,
        delay_ms,
        _text("id", id),
        _text("key", key),
        _text("tag", tag),
        _pairs(properties),
        None if ttl is None else _ttl_ms(ttl),
        _tries(tries),
    )


def row_of(message: Message | Mapping[str, Any]) -> Row:
    """The row of a :class:`~tarry.message.Message`, or of a dict with the arguments of ``schedule``."""
    if isinstance(message, Message):
        given: dict[str, Any] = {f.name: getattr(message, f.name) for f in fields(message)}
        ttl_ms = given.pop("ttl_ms")
        given["due"] = given.pop("due_ms")
        given["ttl"] = None if ttl_ms is None else timedelta(milliseconds=ttl_ms)
        return make_row(**given)
    if not isinstance(message, Mapping):
        raise InvalidMessageError(f"a message of type {type(message).__name__}; allowed: Message, or a dict")
    unknown = sorted(set(message) - MessageDict.__annotations__.keys(), key=str)
    missing = {"topic", "body"} - message.keys()
    if unknown or missing:
        problem = f"unknown field {unknown[0]!r}" if unknown else f"field {min(missing)!r} is missing"
        raise InvalidMessageError(f"{problem}; allowed: {', '.join(MessageDict.__annotations__)}")
    return make_row(**message)


def rows_of(messages: Iterable[Message | Mapping[str, Any]]) -> Iterable[Row]:
    """Rows of many messages; an error names the place of its message."""
    for place, message in enumerate(messages):
        try:
            yield row_of(message)
        except InvalidMessageError as error:
            raise _placed(error, place) from error
        except InvalidArgumentError as error:
            raise InvalidMessageError(str(error), row=place) from error


def to_batch(rows: Sequence[Row], *, all_columns: bool = False) -> pa.RecordBatch:
    """Columns of many messages, as the broker takes them, without those that no message uses."""
    names, arrays = [], []
    for place, ((name, kind), values) in enumerate(zip(COLUMNS, zip(*rows, strict=True), strict=True)):
        if all_columns or place < _ALWAYS or values.count(None) < len(values):
            names.append(name)
            arrays.append(pa.array(values, kind))
    return pa.RecordBatch.from_arrays(arrays, names=names)


def _placed(error: InvalidMessageError, row: int) -> InvalidMessageError:
    error.args = (f"row {row}: {error}",)
    error.row = row
    return error


@lru_cache(4096)
def _known_topic(topic: str) -> str:
    return check_topic(topic)


def _topic(topic: str) -> None:
    if type(topic) is str:
        _known_topic(topic)
    else:
        check_topic(topic)


def _as_bytes(body: object) -> bytes:
    if isinstance(body, str):
        try:
            return body.encode()
        except UnicodeEncodeError as error:
            raise InvalidMessageError(f"body is no UTF-8 text: {error}; allowed: bytes, or a text") from error
    if isinstance(body, bytes | bytearray | memoryview):
        return bytes(body)
    raise InvalidMessageError(f"body has type {type(body).__name__}; allowed: bytes or str")


def _when(delay: Delay | None, due: datetime | int | None) -> tuple[int | None, int | None]:
    """``(due_ms, delay_ms)``, one of them None."""
    if due is not None:
        if delay is not None:
            raise InvalidMessageError(f"delay {delay!r} and due {due!r} are both given; allowed: one of them")
        return _int64(_due_ms(due), "due", due), None
    if delay is None:
        return None, 0
    if isinstance(delay, str):
        due_ms, delay_ms = _text_delay(delay)
        return due_ms, delay_ms if delay_ms is None else _int64(delay_ms, "delay", delay)
    if isinstance(delay, datetime):
        return datetime_ms(delay), None
    return None, _int64(due_from_delay(delay, 0), "delay", delay)


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


def _text(name: str, value: object) -> str | None:
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


def _pairs(properties: object) -> list[tuple[str, str]] | None:
    if properties is None:
        return None
    if not isinstance(properties, Mapping):
        raise InvalidMessageError(f"properties are of type {type(properties).__name__}; allowed: a dict of texts")
    pairs = []
    for name, value in properties.items():
        key, text = _text("the name of a property", name), _text(f"property {name!r}", value)
        if key is None or text is None:
            raise InvalidMessageError(f"property {name!r} is {value!r}; allowed: a text")
        pairs.append((key, text))
    return pairs


def _ttl_ms(ttl: object) -> int:
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


def _tries(tries: object) -> int | None:
    if tries is None:
        return None
    if isinstance(tries, bool) or not isinstance(tries, int) or not 1 <= tries < 1 << 31:
        raise InvalidMessageError(f"tries is {tries!r}; allowed: a whole number from 1 to {(1 << 31) - 1}")
    return tries
