"""The message: one Arrow schema for the whole system, and the checks at the only door into it.

Batches of columns move through the core. :class:`Message` exists for producers who send one at a time and for
consumers; :func:`rows_to_batch` turns many into columns at once. :func:`admit` is the door: it takes what a producer
sent, in any of the spellings below, checks every row with column operations, and gives back a batch of :data:`SCHEMA`
without ``seq``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tarry.columns import (
    Int64s,
    cast,
    check_lengths,
    check_memory,
    in_ms,
    integers,
    is_text,
    lengths_of,
    no_nulls,
    plain,
    shown,
)
from tarry.delay import DELAY_MS_MAX, INT64_MAX, check_due, format_ms
from tarry.errors import InvalidMessageError, MessageTooLargeError


class Kind(IntEnum):
    """What a row of the intake is."""

    MESSAGE = 0
    CANCEL = 1


PROPERTIES = pa.map_(pa.string(), pa.string())

SCHEMA = pa.schema(
    [
        ("seq", pa.int64()),
        ("topic", pa.string()),
        ("due_ms", pa.int64()),
        ("id", pa.string()),
        ("key", pa.string()),
        ("tag", pa.string()),
        ("properties", PROPERTIES),
        ("body", pa.binary()),
        ("born_ms", pa.int64()),
        ("expire_ms", pa.int64()),
        ("tries", pa.int32()),
        ("repeat", pa.string()),
        ("kind", pa.int8()),
    ]
)
"""A message, everywhere: intake frames, store files, ready frames, Flight, Spark."""

UNNUMBERED = pa.schema(list(SCHEMA)[1:])
"""What :func:`admit` gives: :data:`SCHEMA` before the intake has assigned ``seq``."""

TOPIC_PATTERN = r"^[A-Za-z0-9._%|/-]{1,255}$"
TOPIC_ALLOWED = "1 to 255 of A-Z a-z 0-9 . _ % | / -"
_TOPIC = re.compile(TOPIC_PATTERN)


@dataclass(frozen=True, slots=True)
class Limits:
    """What a message may be. ``delay_ms_max`` is the one documented limit of a delay."""

    delay_ms_max: int = DELAY_MS_MAX
    body_bytes_max: int = 4 << 20
    properties_bytes_max: int = 64 << 10
    name_bytes_max: int = 255
    batch_rows_max: int = 1_000_000
    batch_bytes_max: int = 256 << 20


@dataclass(frozen=True, slots=True)
class Message:
    """A message as a producer writes it, its due time resolved. ``ttl_ms`` counts from acceptance."""

    topic: str
    body: bytes
    due_ms: int
    id: str | None = None
    key: str | None = None
    tag: str | None = None
    properties: Mapping[str, str] | None = None
    ttl_ms: int | None = None
    tries: int | None = None


def check_topic(topic: str) -> str:
    """``topic`` itself, when its name is allowed.

    Raises:
        InvalidMessageError: otherwise.
    """
    if not isinstance(topic, str) or not _TOPIC.match(topic) or topic.endswith("\n"):
        raise InvalidMessageError(f"topic {topic!r} is not a topic name; allowed: {TOPIC_ALLOWED}")
    return topic


def rows_to_batch(messages: Sequence[Message]) -> pa.RecordBatch:
    """Columns of many messages, as :func:`admit` takes them. Columns that no message uses are left out.

    Raises:
        InvalidMessageError: a field has a type or value that its column cannot hold.
    """
    columns: dict[str, pa.Array] = {}
    for name, kind in _FIELDS.items():
        values = [getattr(m, name) for m in messages]
        if name in _ALWAYS or any(v is not None for v in values):
            columns[name] = _field(name, values, kind)
    return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))


_ALWAYS = ("topic", "due_ms", "body")
_FIELDS: dict[str, pa.DataType] = {
    "topic": pa.string(),
    "due_ms": pa.int64(),
    "body": pa.binary(),
    "id": pa.string(),
    "key": pa.string(),
    "tag": pa.string(),
    "properties": PROPERTIES,
    "ttl_ms": pa.int64(),
    "tries": pa.int32(),
}
# pa.array raises these for a value that does not fit; an AttributeError comes from properties that are no mapping.
_MISFIT = (pa.ArrowException, TypeError, ValueError, OverflowError, AttributeError)


def _field(name: str, values: list[Any], kind: pa.DataType) -> pa.Array:
    def build(some: list[Any]) -> pa.Array:
        if name == "properties":
            some = [None if v is None else list(v.items()) for v in some]
        return pa.array(some, kind)

    try:
        return build(values)
    except _MISFIT:
        for row, value in enumerate(values):
            try:
                build([value])
            except _MISFIT as error:
                text = f"{name} is {shown(value)} ({type(value).__name__}); allowed: {kind}"
                raise InvalidMessageError(text, row=row if len(values) > 1 else None) from error
        raise


def admit(data: pa.RecordBatch | pa.Table, now_ms: int, limits: Limits = Limits()) -> pa.RecordBatch:
    """Check a producer's batch and bring it to :data:`UNNUMBERED`; all of it is admitted or none.

    Columns by name: ``topic`` (string) and ``body`` (binary or string) and exactly one of ``due_ms`` (integer), ``due``
    (timestamp with a time zone), ``delay_ms`` (integer) or ``delay`` (Arrow duration), or both ``due_ms`` and
    ``delay_ms`` with exactly one of the two in each row; optional ``id``, ``key``, ``tag`` (string), ``properties``
    (map of strings), ``expire_ms`` or ``ttl_ms`` (integer), ``tries`` (integer). Texts may be large, view or dictionary
    types. Unknown columns are refused, so that a misspelt one is not silently dropped. Nothing about the memory behind
    the columns is taken on trust: they may have come over a wire.

    Raises:
        InvalidMessageError: names the column, or the first offending row, its value and what is allowed.
    """
    if not isinstance(data, (pa.RecordBatch, pa.Table)):
        raise InvalidMessageError(f"a batch of type {type(data).__name__}; allowed: a pyarrow RecordBatch or Table")
    rows = data.num_rows
    if rows == 0:
        raise InvalidMessageError("the batch has no rows; at least 1 is needed")
    if rows > limits.batch_rows_max:
        raise MessageTooLargeError(f"the batch has {rows} rows; allowed: {limits.batch_rows_max}")
    check_memory(data, limits.batch_bytes_max)
    given = _named_columns(data, limits.batch_bytes_max)
    topic = _required(given, "topic", pa.string())
    _check_topics(topic)
    body = _required(given, "body", pa.binary())
    check_lengths(body, "body", limits.body_bytes_max)
    due = _due(given, now_ms, limits)
    columns: dict[str, pa.Array] = {"topic": topic, "due_ms": due, "body": body}
    for name in ("id", "key", "tag"):
        if name in given:
            columns[name] = cast(given[name], name, pa.string())
            check_lengths(columns[name], name, limits.name_bytes_max)
    if "repeat" in given:
        _no_repeat(cast(given["repeat"], "repeat", pa.string()))
    if "properties" in given:
        columns["properties"] = _properties(given["properties"], limits)
    if "tries" in given:
        columns["tries"] = integers(given["tries"], "tries", pa.int32(), 1)
    expire = _expiry(given, now_ms, due)
    if expire is not None:
        columns["expire_ms"] = expire
    columns["born_ms"] = pa.array(np.full(rows, now_ms, np.int64), pa.int64())
    absent = _absent_few(rows) if rows <= _ABSENT_ROWS else _absent(rows)
    return pa.RecordBatch.from_arrays([columns.get(name, column) for name, column in absent.items()], schema=UNNUMBERED)


def _absent(rows: int) -> dict[str, pa.Array]:
    """Each column as it is when a producer gives none."""
    columns = {f.name: pa.nulls(rows, f.type) for f in UNNUMBERED}
    columns["kind"] = pa.array(np.full(rows, Kind.MESSAGE, np.int8), pa.int8())
    return columns


# Most columns of most batches; making them anew takes longer than the rest of a small one. Not slices of longer ones:
# written to a file, those take all of their length.
_absent_few = lru_cache(maxsize=256)(_absent)

_FEW_ROWS = 16
_ABSENT_ROWS = 256


_DUE_WAYS = ("due_ms", "due", "delay_ms", "delay")
_TEXTS = ("id", "key", "tag", "repeat")
_KNOWN = {"topic", "body", "properties", "expire_ms", "ttl_ms", "tries", *_TEXTS, *_DUE_WAYS}


def _named_columns(data: pa.RecordBatch | pa.Table, bytes_max: int) -> dict[str, pa.Array]:
    names = data.schema.names
    for name in names:
        if name not in _KNOWN:
            raise InvalidMessageError(f"unknown column {shown(name)}; allowed: {', '.join(sorted(_KNOWN))}")
    if len(set(names)) < len(names):
        twice = min(n for n in names if names.count(n) > 1)
        raise InvalidMessageError(f"column {twice!r} is there more than once")
    return {n: plain(c, n, bytes_max) for n, c in zip(names, data.columns, strict=True)}


def _required(given: dict[str, pa.Array], name: str, kind: pa.DataType) -> pa.Array:
    if name not in given:
        raise InvalidMessageError(f"column {name!r} is missing; given: {', '.join(given) or 'none'}")
    return no_nulls(cast(given[name], name, kind), name)


def _check_topics(topic: pa.Array) -> None:
    # Few distinct topics in a batch is the rule: check those, and look for the row only when one is refused.
    few = len(topic) <= _FEW_ROWS
    for name in dict.fromkeys(topic.to_pylist()) if few else pc.unique(topic).to_pylist():
        if not _TOPIC.match(name) or name.endswith("\n"):
            row = int(pc.index(topic, name).as_py())
            raise InvalidMessageError(f"topic {shown(name)} is not a topic name; allowed: {TOPIC_ALLOWED}", row=row)


def _no_repeat(repeat: pa.Array) -> None:
    # Taking it and delivering once would be to lose all but the first.
    row = int(pc.index(repeat.is_valid(), True).as_py())
    if row >= 0:
        raise InvalidMessageError(
            f"repeat is {shown(repeat[row].as_py())}; not in this version: leave it null", row=row
        )


def _due(given: dict[str, pa.Array], now_ms: int, limits: Limits) -> pa.Array:
    ways = [way for way in _DUE_WAYS if way in given]
    if ways == ["due_ms", "delay_ms"]:
        due = _either(given, now_ms)
    elif len(ways) != 1:
        given_ways = ", ".join(ways) or "none"
        raise InvalidMessageError(f"exactly one of {', '.join(_DUE_WAYS)} is needed; given: {given_ways}")
    elif ways == ["due_ms"]:
        due = no_nulls(integers(given["due_ms"], "due_ms", pa.int64(), 0), "due_ms")
    elif ways == ["delay_ms"]:
        due = _later(no_nulls(integers(given["delay_ms"], "delay_ms", pa.int64(), 0), "delay_ms"), now_ms)
    elif ways == ["due"]:
        kind = given["due"].type
        if not pa.types.is_timestamp(kind) or kind.tz is None:
            allowed = "a timestamp with a time zone (a naive one names no instant)"
            raise InvalidMessageError(f"column 'due' has type {kind}; allowed: {allowed}")
        due = in_ms(given["due"], "due")
    else:
        if not pa.types.is_duration(given["delay"].type):
            text = f"column 'delay' has type {given['delay'].type}; allowed: an Arrow duration, or use 'delay_ms'"
            raise InvalidMessageError(text)
        due = _later(in_ms(given["delay"], "delay"), now_ms)
    _check_limit(due, now_ms, limits)
    return due


def _check_limit(due: pa.Array, now_ms: int, limits: Limits) -> None:
    values = due.to_numpy(zero_copy_only=False)
    late = values > now_ms + limits.delay_ms_max
    if late.any():
        row = int(np.argmax(late))
        try:
            check_due(int(values[row]), now_ms, limits.delay_ms_max)
        except InvalidMessageError as error:
            raise type(error)(str(error), row=row) from None


def _either(given: dict[str, pa.Array], now_ms: int) -> pa.Array:
    due, delay = (integers(given[name], name, pa.int64(), 0) for name in ("due_ms", "delay_ms"))
    row = pc.index(pc.equal(due.is_null(), delay.is_null()), True).as_py()
    if row >= 0:
        raise InvalidMessageError("exactly one of due_ms and delay_ms is needed", row=row)
    return pc.coalesce(due, _later(delay, now_ms))


def _later(delay_ms: pa.Array, now_ms: int) -> pa.Array:
    """``now_ms`` plus each delay, or the greatest int64 where that overflows: beyond every limit, so refused by it."""
    if delay_ms.null_count:
        capped = pc.min_element_wise(delay_ms, INT64_MAX - max(now_ms, 0), skip_nulls=False)
        return pc.add(capped, now_ms)
    return pa.array(np.minimum(delay_ms.to_numpy(), INT64_MAX - max(now_ms, 0)) + now_ms)


def _expiry(given: dict[str, pa.Array], now_ms: int, due: pa.Array) -> pa.Array | None:
    if "ttl_ms" in given and "expire_ms" in given:
        raise InvalidMessageError("ttl_ms and expire_ms are both given; allowed: one of them")
    if "ttl_ms" in given:
        expire = _later(integers(given["ttl_ms"], "ttl_ms", pa.int64(), 1), now_ms)
    elif "expire_ms" in given:
        expire = integers(given["expire_ms"], "expire_ms", pa.int64(), 0)
    else:
        return None
    row = pc.index(pc.less_equal(expire, due), True).as_py()
    if row >= 0:
        ends, begins = format_ms(expire[row].as_py()), format_ms(due[row].as_py())
        raise InvalidMessageError(f"it would expire at {ends}, not after its due time {begins}", row=row)
    return expire


def _properties(column: pa.Array, limits: Limits) -> pa.Array:
    if pa.types.is_null(column.type):
        return pa.nulls(len(column), PROPERTIES)
    kind = column.type
    if not pa.types.is_map(kind) or not (is_text(kind.key_type) and is_text(kind.item_type)):
        raise InvalidMessageError(f"column 'properties' has type {kind}; allowed: {PROPERTIES}")
    # Of a slice, keys and items are those of the whole array, and offsets point into them; a null row may span some.
    offsets = column.offsets.to_numpy().astype(np.int64)
    starts, ends = offsets[:-1], offsets[1:]
    empty = column.is_null().to_numpy(zero_copy_only=False)
    if len(starts) and int(starts[0]) < int(ends[-1]):
        low, high = int(starts[0]), int(ends[-1])
        keys, items = column.keys.slice(low, high - low), column.items.slice(low, high - low)
        if keys.null_count or items.null_count:
            _check_no_null_property(keys, items, starts - low, ends - low, empty)
        sizes: Int64s = np.zeros(high - low, np.int64)
        for lengths in (lengths_of(keys), lengths_of(items)):
            assert lengths is not None
            sizes += lengths.fill_null(0).to_numpy(zero_copy_only=False)
        totals = np.concatenate([[0], np.cumsum(sizes)])
        if totals[-1] > limits.batch_bytes_max:
            raise MessageTooLargeError(f"properties have {totals[-1]} bytes in all; allowed: {limits.batch_bytes_max}")
        per_row = np.where(empty, 0, totals[ends - low] - totals[starts - low])
        if per_row.max() > limits.properties_bytes_max:
            row = int(per_row.argmax())
            text = f"properties have {int(per_row[row])} bytes; allowed: {limits.properties_bytes_max}"
            raise MessageTooLargeError(text, row=row)
    try:
        return column if kind == PROPERTIES else column.cast(PROPERTIES)
    except pa.ArrowException as error:
        raise InvalidMessageError(f"column 'properties' of type {kind} does not fit {PROPERTIES}: {error}") from error


def _check_no_null_property(keys: pa.Array, items: pa.Array, starts: Int64s, ends: Int64s, empty: Any) -> None:
    for side, entries in (("name", keys), ("value", items)):
        nulls = np.concatenate([[0], np.cumsum(entries.is_null().to_numpy(zero_copy_only=False))])
        bad = ~empty & (nulls[ends] > nulls[starts])
        if bad.any():
            raise InvalidMessageError(f"a property's {side} is null; a text is needed", row=int(np.argmax(bad)))


def concat(batches: Iterable[pa.RecordBatch]) -> pa.RecordBatch:
    """One batch of many; a single one is passed through."""
    several = list(batches)
    return several[0] if len(several) == 1 else pa.concat_batches(several)
