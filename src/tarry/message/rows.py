"""One message as a tuple of values, checked where that is cheap. Imports nothing slow.

A relative delay stays one (``delay_ms``), and a delay level a level: the broker's clock and table resolve them, so that
a client whose clock is wrong still gets the delay it asked for. Everything that would make Arrow refuse a whole batch
of other callers' messages is refused here, by ``values``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields
from datetime import datetime, timedelta
from typing import Any, Final, Unpack, cast

from tarry.base.delay import Delay
from tarry.base.errors import DelayTooLongError, InvalidArgumentError, InvalidMessageError, MessageTooLargeError
from tarry.message.message import Message
from tarry.message.options import OPTIONS, MessageOptions, Option, OptionKind
from tarry.message.values import (
    as_bytes,
    check_topic_name,
    duration_ms_of,
    one_of,
    pairs_of,
    repeat_json,
    text_of,
    when,
    whole_of,
)

Row = tuple[str, bytes, int | None, int | None, str | None, *tuple[Any, ...]]
"""Values of :data:`COLUMN_NAMES` in that order; or of the first :data:`SHORT`, if the others are None."""

COLUMN_NAMES = ("topic", "body", "due_ms", "delay_ms", *(option.column for option in OPTIONS), "delay_level")
"""Columns of a row; :data:`tarry.message.row_columns.COLUMNS` has their types."""
PLACES = {name: place for place, name in enumerate(COLUMN_NAMES)}
"""Places in a row, by the names of columns."""
BODY: Final = 1
DUE_MS: Final = 2
ID: Final = 4
"""Places in a row."""
SHORT: Final = 5
"""Most messages say no more: a producer of many single messages notices the difference."""

_BODY_MAX = 1 << 30


_IN_MS = {
    "due_ms": "due",
    "delay_ms": "delay",
    **{option.column: option.name for option in OPTIONS if option.kind is OptionKind.DURATION},
}
"""Fields of a dict in place of an argument, named as columns of a batch: whole milliseconds."""
_ARGUMENTS = ("topic", "body", "delay", "due", *MessageOptions.__annotations__, *_IN_MS)


def make_row(
    topic: str,
    body: bytes | str,
    *,
    delay: Delay | None = None,
    due: datetime | int | None = None,
    **options: Unpack[MessageOptions],
) -> Row:
    """One message; due at once without ``delay`` and ``due``.

    Raises:
        InvalidMessageError, InvalidArgumentError: names the value and what is allowed.
    """
    row = plain_row(topic, body, delay, due)
    if not options:
        return row
    return _full_row(row, options)


def _full_row(row: Row, options: Mapping[str, Any]) -> Row:
    cells: list[Any] | None = None
    for name, value in options.items():
        if name not in _CHECKS:
            raise TypeError(f"schedule() got an unexpected keyword argument {name!r}")
        place, check = _CHECKS[name]
        checked = check(value)
        if checked is None:
            continue
        if place in _ABOUT_KEYS and options.get("key") is None:
            raise InvalidArgumentError(f"{name} {value!r} without a key; allowed: with a key")
        if cells is None:
            cells = [*row, *NONES] if len(row) == SHORT else [*row]
        cells[place] = checked
    # A column that nobody needs costs the broker time, so a message that says nothing keeps its short row.
    return row if cells is None else cast(Row, tuple(cells))


def _check_of(option: Option) -> Callable[[Any], Any]:
    """Return what checks a value of an option, and brings it to what travels; None: nothing travels."""
    name = option.name
    match option.kind:
        case OptionKind.TEXT:
            return lambda value: text_of(name, value)
        case OptionKind.WHOLE:
            return lambda value: whole_of(name, value, option.low, option.high)
        case OptionKind.DURATION:
            return lambda value: duration_ms_of(name, value)
        case OptionKind.TEXTS:
            return pairs_of
        case OptionKind.RULE:
            return repeat_json
        case OptionKind.CHOICE:
            words = tuple(option.choices)
            return lambda value: None if value == option.default else one_of(name, value, words)


_ABOUT_KEYS = (PLACES["on_key"], PLACES["if_seq"])
_CHECKS = {option.name: (PLACES[option.column], _check_of(option)) for option in OPTIONS}
NONES = (None,) * (len(COLUMN_NAMES) - SHORT)


def plain_row(topic: str, body: bytes | str, delay: Delay | None, due: datetime | int | None) -> Row:
    """:func:`make_row` of a message without options."""
    check_topic_name(topic)
    if type(body) is not bytes:
        body = as_bytes(body)
    if len(body) > _BODY_MAX:
        raise MessageTooLargeError(f"body has {len(body)} bytes; allowed: {_BODY_MAX}, or less by the broker's limit")
    due_ms, delay_ms, level = when(delay, due)
    if level is None:
        return (topic, body, due_ms, delay_ms, None)
    return cast(Row, (topic, body, due_ms, delay_ms, None, *NONES[1:], level))


def row_of(message: Message | Mapping[str, Any]) -> Row:
    """Return the row of a :class:`~tarry.message.message.Message`, or of a dict.

    A dict has the arguments of ``schedule``; or ``due_ms``, ``delay_ms``, ``ttl_ms`` instead of those without ``_ms``.
    """
    if isinstance(message, Message):
        given: dict[str, Any] = {f.name: getattr(message, f.name) for f in fields(message)}
        return make_row(**_arguments(given))
    if not isinstance(message, Mapping):
        raise InvalidMessageError(f"a message of type {type(message).__name__}; allowed: Message, or a dict")
    unknown = sorted(set(message) - set(_ARGUMENTS), key=str)
    missing = {"topic", "body"} - message.keys()
    if unknown or missing:
        problem = f"unknown field {unknown[0]!r}" if unknown else f"field {min(missing)!r} is missing"
        raise InvalidMessageError(f"{problem}; allowed: {', '.join(_ARGUMENTS)}")
    return make_row(**message if _IN_MS.keys().isdisjoint(message) else _arguments(message))


def _arguments(message: Mapping[str, Any]) -> dict[str, Any]:
    given = {name: value for name, value in message.items() if name not in _IN_MS}
    for name, argument in _IN_MS.items():
        ms = message.get(name)
        if ms is None:
            continue
        if isinstance(ms, bool) or not isinstance(ms, int):
            raise InvalidMessageError(f"{name} is {ms!r:.80}; allowed: milliseconds as an int")
        if given.get(argument) is not None:
            other = f"{argument} {given[argument]!r:.80}"
            raise InvalidMessageError(f"{name} {ms} and {other} are both given; allowed: one of them")
        try:
            given[argument] = ms if name == "due_ms" else timedelta(milliseconds=ms)
        except OverflowError as error:
            raise DelayTooLongError(f"{name} is {ms!r:.60}; allowed: 40 years, or what the broker has") from error
    return given


def with_cells(row: Row, cells: Mapping[str, Any]) -> Row:
    """Return a short row with values of more columns, by their names, which the caller has checked."""
    whole: list[Any] = [*row, *NONES]
    for name, value in cells.items():
        whole[PLACES[name]] = value
    return cast(Row, tuple(whole))


def rows_of(messages: Iterable[Message | Mapping[str, Any]]) -> Iterable[Row]:
    """Rows of many messages; an error names the place of its message."""
    for place, message in enumerate(messages):
        try:
            yield row_of(message)
        except InvalidMessageError as error:
            raise error.of_row(place) from error
        except InvalidArgumentError as error:
            raise InvalidMessageError(str(error), row=place) from error
