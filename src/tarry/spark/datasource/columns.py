"""Checks on the driver that a DataFrame's columns are those of messages, by names and types alone.

Faults that only rows can show (nulls, topic names, limits) are found in the tasks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from pyspark.sql import types as t

from tarry.base.errors import InvalidMessageError
from tarry.message.options import OPTIONS, OptionKind

_MIXED = {"due_ms", "delay_ms", "delay_level"}
WAYS = ("due", "due_ms", "delay", "delay_ms", "delay_level")
"""Columns of the due time; exactly one is needed.

Several of the numbers are allowed, too, with one of them in each row.
"""

_TEXTS = (t.StringType, t.CharType, t.VarcharType)
_INTEGERS = (t.ByteType, t.ShortType, t.IntegerType, t.LongType)
_JSON_LEAVES = (
    *_TEXTS, *_INTEGERS, t.BinaryType, t.BooleanType, t.FloatType, t.DoubleType, t.DecimalType, t.DateType,
    t.TimestampType, t.TimestampNTZType, t.NullType,
)  # fmt: skip


@dataclass(frozen=True)
class _Column:
    allowed: str
    fits: Callable[[t.DataType], bool]


def _is_text(kind: t.DataType) -> bool:
    return isinstance(kind, _TEXTS)


def _is_integer(kind: t.DataType) -> bool:
    return isinstance(kind, _INTEGERS)


def _is_body(kind: t.DataType) -> bool:
    return isinstance(kind, t.BinaryType) or _is_text(kind) or misfit(kind) is None


def _is_properties(kind: t.DataType) -> bool:
    return isinstance(kind, t.MapType) and _is_text(kind.keyType) and _is_text(kind.valueType)


_TEXT = _Column("string", _is_text)
_INTEGER = _Column("bigint (or int, smallint, tinyint)", _is_integer)
_BY_KIND = {
    OptionKind.TEXT: _TEXT,
    OptionKind.CHOICE: _TEXT,
    OptionKind.WHOLE: _INTEGER,
    OptionKind.DURATION: _INTEGER,
    OptionKind.TEXTS: _Column("map<string,string>", _is_properties),
}
COLUMNS = {
    "topic": _TEXT,
    "body": _Column("binary, string, or a struct, array or map, which is written as JSON", _is_body),
    "due": _Column("timestamp", lambda kind: isinstance(kind, t.TimestampType)),
    "due_ms": _INTEGER,
    "delay": _Column("interval day to second", lambda kind: isinstance(kind, t.DayTimeIntervalType)),
    "delay_ms": _INTEGER,
    "delay_level": _INTEGER,
    "expire_ms": _INTEGER,
    **{option.column: _BY_KIND[option.kind] for option in OPTIONS if not option.not_in_bulk},
}
_REFUSED = {
    **{option.column: option.not_in_bulk for option in OPTIONS if option.not_in_bulk},
    "seq": "the broker numbers messages: leave the column out",
}


def check_columns(schema: t.StructType, defaults: Mapping[str, object]) -> None:
    """Refuse a DataFrame without the columns that messages need.

    ``defaults`` are the columns that options give. As in Spark, ``Topic`` is ``topic``.

    Raises:
        InvalidMessageError: names the column, its type, and what is allowed.
    """
    seen: set[str] = set()
    for field in schema.fields:
        name = field.name.lower()
        if name in _REFUSED:
            raise InvalidMessageError(f"column {field.name!r} is not for bulk: {_REFUSED[name]}")
        if name not in COLUMNS:
            close = next((column for column in COLUMNS if column == name.strip()), None)
            hint = f" (did you mean {close!r}?)" if close else ""
            raise InvalidMessageError(f"unknown column {field.name!r}{hint}; allowed: {', '.join(COLUMNS)}")
        if name in seen:
            raise InvalidMessageError(f"column {field.name!r} is there more than once: capitals do not count")
        seen.add(name)
        _check_type(field)
    for name in ("topic", "body"):
        if name not in seen and name not in defaults:
            option = f', or give .option("{name}", …)' if name == "topic" else ""
            raise InvalidMessageError(
                f"column {name!r} is missing; given: {', '.join(schema.names) or 'none'}; "
                f"needed: {COLUMNS[name].allowed}{option}"
            )
    _check_ways(seen, defaults)
    if {"ttl_ms", "expire_ms"} <= {*seen, *defaults}:
        raise InvalidMessageError("ttl_ms and expire_ms are both given; allowed: one of them")


def _check_type(field: t.StructField) -> None:
    name, kind = field.name.lower(), field.dataType
    column = COLUMNS[name]
    if column.fits(kind):
        return
    hint = ""
    if isinstance(kind, t.TimestampNTZType):
        hint = (
            "; a timestamp without a time zone names no instant: say which zone it is meant in, as in "
            f"F.to_utc_timestamp('{name}', 'Europe/Berlin').cast('timestamp') in a session of UTC, "
            f"or cast it to timestamp, which takes the session's time zone"
        )
    elif name == "due":
        hint = "; for milliseconds since 1970 name the column 'due_ms', for a delay 'delay' or 'delay_ms'"
    elif name == "delay" and _is_integer(kind):
        hint = "; for milliseconds name the column 'delay_ms'"
    elif name == "body" and (wrong := misfit(kind)) is not None:
        hint = f"; {wrong} has no place in JSON: cast it to string"
    raise InvalidMessageError(f"column {field.name!r} has type {kind.simpleString()}; allowed: {column.allowed}{hint}")


def _check_ways(seen: set[str], defaults: Mapping[str, object]) -> None:
    ways = [way for way in WAYS if way in seen]
    given = [way for way in WAYS if way in defaults]
    if len(ways) + len(given) == 1 or (len(ways) > 1 and not given and _MIXED.issuperset(ways)):
        return
    names = ", ".join([*ways, *(f"option {way}" for way in given)]) or "none"
    raise InvalidMessageError(f"exactly one of {', '.join(WAYS)} is needed, to say when; given: {names}")


def misfit(kind: t.DataType, *, top: bool = True) -> str | None:
    """Return the part of a body's type that JSON cannot express; None if it can express all.

    A single value is not a body.
    """
    if isinstance(kind, t.StructType):
        return next((m for f in kind.fields if (m := misfit(f.dataType, top=False))), None)
    if isinstance(kind, t.ArrayType):
        return misfit(kind.elementType, top=False)
    if isinstance(kind, t.MapType):
        if not isinstance(kind.keyType, (*_TEXTS, *_INTEGERS, t.BooleanType, t.DateType)):
            return f"a map key of type {kind.keyType.simpleString()}"
        return misfit(kind.valueType, top=False)
    if top or not isinstance(kind, _JSON_LEAVES):
        return str(kind.simpleString())
    return None
