"""What a producer says about one message, checked where that is cheap, as a tuple; and many of them as columns.

A relative delay stays one (``delay_ms``), and a delay level a level: the broker's clock and table resolve them, so that
a client whose clock is wrong still gets the delay it asked for. Everything that would make Arrow refuse a whole batch
of other callers' messages is refused here, by ``values``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import fields
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, TypedDict, Unpack

import pyarrow as pa

from tarry.base.delay import Delay
from tarry.base.errors import DelayTooLongError, InvalidArgumentError, InvalidMessageError, MessageTooLargeError
from tarry.message.options import LateWay, OnKeyWay
from tarry.message.schema import LATE_WAYS, PROPERTIES, Message
from tarry.message.values import (
    ON_KEY,
    as_bytes,
    check_topic_name,
    one_of,
    pairs_of,
    repeat_json,
    text_of,
    tries_of,
    ttl_ms_of,
    when,
)

if TYPE_CHECKING:
    from tarry.repeat import Repeat

    RepeatLike = Repeat | Mapping[str, Any] | str

Row = tuple[str, bytes, int | None, int | None, str | None, *tuple[Any, ...]]
"""The values of :data:`COLUMNS`, in that order; or of the first :data:`SHORT` of them, where the others are None."""

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
    ("delay_level", pa.int32()),
    ("on_key", pa.string()),
    ("repeat", pa.string()),
    ("order_key", pa.string()),
    ("late", pa.string()),
)
BODY: Final = 1
DUE_MS: Final = 2
ID: Final = 4
"""Places in a row."""
LEVEL: Final = 10
SHORT: Final = 5
"""Most messages say no more: a producer of many single messages notices the difference."""

_ALWAYS = ("topic", "body")
_BODY_MAX = 1 << 30


class MessageOptions(TypedDict, total=False):
    """What one may say of a message beside its topic, its body and when it is due; None is as if it were left out.

    - ``id``: the producer's name for this message: sent again within the broker's dedupe window, it is scheduled once,
      and the second answer is the first one's.
    - ``key``: the producer's name for a schedule in the topic; ``on_key``: what to do when a message of this key is
      pending: "replace" it (the default), "keep" it (its receipt is the answer), or "refuse" this one.
    - ``tag``: a word that consumers filter by; ``properties``: texts by name.
    - ``ttl``: for how long from now it is of use: seconds, a timedelta, or a text such as "1h30m"; ``late``: what
    happens once that has passed before a consumer took it: "deliver", "drop" (the default), or "dead": to the dead
    letters.
    - ``tries``: how often it is delivered at most, before it is a dead letter.
    - ``repeat``: a :class:`tarry.Repeat` (or its dict, or its JSON): it comes again by that rule.
    - ``order_key``: messages of one order key are delivered one after the other by groups that keep order.
    """

    id: str | None
    key: str | None
    tag: str | None
    properties: Mapping[str, str] | None
    ttl: float | str | timedelta | None
    tries: int | None
    on_key: OnKeyWay | None
    repeat: RepeatLike | None
    order_key: str | None
    late: LateWay | None


_IN_MS = {"due_ms": "due", "delay_ms": "delay", "ttl_ms": "ttl"}
"""What a dict may say instead of an argument, as columns of a batch are called: whole milliseconds."""
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
    return _full_row(row, **options)


def _full_row(
    row: Row,
    *,
    id: str | None = None,
    key: str | None = None,
    tag: str | None = None,
    properties: Mapping[str, str] | None = None,
    ttl: float | str | timedelta | None = None,
    tries: int | None = None,
    on_key: OnKeyWay | None = "replace",
    repeat: RepeatLike | None = None,
    order_key: str | None = None,
    late: LateWay | None = None,
) -> Row:
    plain = id is None and key is None and tag is None and properties is None and ttl is None and tries is None
    if plain and repeat is None and order_key is None and late is None and on_key == "replace":
        return row
    policy = one_of("on_key", on_key, ON_KEY)
    return (
        *row[:ID],
        text_of("id", id),
        text_of("key", key),
        text_of("tag", tag),
        pairs_of(properties),
        ttl_ms_of(ttl),
        tries_of(tries),
        row[LEVEL] if len(row) > SHORT else None,
        # Replacing is what a key means without a word; a column that nobody needs costs the broker time.
        None if key is None or policy == "replace" else policy,
        repeat_json(repeat),
        text_of("order_key", order_key),
        one_of("late", late, LATE_WAYS),
    )


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
    return (topic, body, due_ms, delay_ms, None, None, None, None, None, None, level, None, None, None, None)


def row_of(message: Message | Mapping[str, Any]) -> Row:
    """The row of a :class:`~tarry.message.schema.Message`, or of a dict with the arguments of ``schedule``; or with
    ``due_ms``, ``delay_ms``, ``ttl_ms`` instead of those without ``_ms``.
    """
    if isinstance(message, Message):
        given: dict[str, Any] = {f.name: getattr(message, f.name) for f in fields(message)}
        ttl_ms = given.pop("ttl_ms")
        given["due"] = given.pop("due_ms")
        given["ttl"] = None if ttl_ms is None else timedelta(milliseconds=ttl_ms)
        return make_row(**given)
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


def rows_of(messages: Iterable[Message | Mapping[str, Any]]) -> Iterable[Row]:
    """Rows of many messages; an error names the place of its message."""
    for place, message in enumerate(messages):
        try:
            yield row_of(message)
        except InvalidMessageError as error:
            raise error.of_row(place) from error
        except InvalidArgumentError as error:
            raise InvalidMessageError(str(error), row=place) from error


def columns_of(rows: Sequence[Row]) -> list[str]:
    """The names of the columns that some row uses."""
    columns = zip(COLUMNS, _cells(rows), strict=False)
    return [name for (name, _), cells in columns if name in _ALWAYS or cells.count(None) < len(cells)]


def to_batch(rows: Sequence[Row], names: Collection[str] | None = None) -> pa.RecordBatch:
    """Columns of many messages, as the broker takes them: those of ``names``, or those that some message uses."""
    kept, arrays = [], []
    for (name, kind), cells in zip(COLUMNS, _cells(rows, whole=names is not None), strict=False):
        if (name in _ALWAYS or cells.count(None) < len(cells)) if names is None else name in names:
            kept.append(name)
            arrays.append(pa.array(cells, kind))
    return pa.RecordBatch.from_arrays(arrays, names=kept)


def _cells(rows: Sequence[Row], *, whole: bool = False) -> list[tuple[Any, ...]]:
    """By column; without those behind :data:`SHORT` where no row has them, unless ``whole``."""
    if not whole:
        try:
            return list(zip(*rows, strict=True))
        except ValueError:
            pass  # of both lengths; to ask each for its own takes as long as the rest of this
    return list(zip(*(row if len(row) > SHORT else (*row, *_NONES) for row in rows), strict=True))


_NONES = (None,) * (len(COLUMNS) - SHORT)
