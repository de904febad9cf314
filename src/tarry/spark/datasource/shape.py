"""The columns of DataFrames that are read: the schemas, and messages converted to them.

All columns are nullable in Spark's types; ``docs/spark.md`` lists those that are never null. A schema of the user's own
chooses among them, and the other columns are not read if that is possible.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import types as t

from tarry.base.errors import InvalidArgumentError
from tarry.message.accepted import ids_of

_LONG, _STRING, _TIME = t.LongType(), t.StringType(), t.TimestampType()
MESSAGE: dict[str, t.DataType] = {
    "topic": _STRING,
    "due": _TIME,
    "due_ms": _LONG,
    "id": _STRING,
    "key": _STRING,
    "tag": _STRING,
    "properties": t.MapType(_STRING, _STRING),
    "body": t.BinaryType(),
    "born_ms": _LONG,
    "expire_ms": _LONG,
    "tries": t.IntegerType(),
    "repeat": _STRING,
    "seq": _LONG,
}
OFFSET: dict[str, t.DataType] = {"offset": _LONG}
DEAD: dict[str, t.DataType] = {
    "group": _STRING,
    "cause": _STRING,
    "attempts": t.IntegerType(),
    "died": _TIME,
    "died_ms": _LONG,
}
SCHEMAS = {"pending": MESSAGE, "delivered": MESSAGE | OFFSET, "dead": MESSAGE | OFFSET | DEAD}
STREAM = MESSAGE | OFFSET

_SOURCES = {"due": ("due_ms",), "id": ("id", "seq"), "died": ("died_ms",)}


def chosen(columns: Mapping[str, t.DataType], names: Sequence[str]) -> Mapping[str, t.DataType]:
    """Return the columns of ``names``, in that order; all if there are no names.

    Raises:
        InvalidArgumentError: names the one that there is not, and what is allowed.
    """
    for name in names:
        if name not in columns:
            raise InvalidArgumentError(f"option 'columns' has {name!r}; allowed: {', '.join(columns)}")
    return {name: columns[name] for name in names} if names else columns


def struct(columns: Mapping[str, t.DataType]) -> t.StructType:
    """Return a Spark schema."""
    return t.StructType([t.StructField(name, kind) for name, kind in columns.items()])


@dataclass(frozen=True)
class Shape:
    """The columns that are read, in order.

    ``labels``: as the user writes them, as for Spark ``Topic`` is ``topic``.
    """

    names: tuple[str, ...]
    labels: tuple[str, ...]

    @classmethod
    def of(cls, schema: t.StructType, columns: Mapping[str, t.DataType]) -> Shape:
        """Return the columns of ``schema``, each of which must be one of ``columns``.

        Raises:
            InvalidArgumentError: names the column, its type and what is allowed.
        """
        for field in schema.fields:
            if field.name.lower() not in columns:
                raise InvalidArgumentError(f"unknown column {field.name!r}; allowed: {', '.join(columns)}")
            wanted = columns[field.name.lower()]
            if field.dataType != wanted:
                given = field.dataType.simpleString()
                raise InvalidArgumentError(
                    f"column {field.name!r} is to be read as {given}; allowed: {wanted.simpleString()}"
                )
        return cls(tuple(name.lower() for name in schema.names), tuple(schema.names))

    def needed(self, *also: str) -> list[str]:
        """Return the message's own columns from which these are made, and those of ``also``."""
        own = [column for name in self.names for column in _SOURCES.get(name, (name,))]
        return list(dict.fromkeys([*also, *own]))

    def shaped(self, given: Mapping[str, pa.Array]) -> pa.RecordBatch:
        """Return rows as Spark requires them: exactly these columns in exactly these types."""
        columns = [_column(name, given) for name in self.names]
        schema = arrow_schema(self.names)
        fields = [schema.field(i).with_name(label) for i, label in enumerate(self.labels)]
        return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))


def by_name(batch: pa.RecordBatch) -> dict[str, pa.Array]:
    """Return the columns of a batch by name."""
    return dict(zip(batch.schema.names, batch.columns, strict=True))


def arrow_schema(names: Sequence[str]) -> pa.Schema:
    """Return the Arrow schema in which Spark accepts these columns."""
    from pyspark.sql.pandas.types import to_arrow_schema

    types = SCHEMAS["dead"]  # it has all columns
    return to_arrow_schema(struct({name: types[name] for name in names}), timezone="UTC")


def _column(name: str, given: Mapping[str, pa.Array]) -> pa.Array:
    if name in ("due", "died"):
        return instants(given[f"{name}_ms"])
    column = given[name]
    if name == "id" and column.null_count:
        column = pc.coalesce(column, ids_of(given["seq"]))
    kind = arrow_schema((name,)).field(0).type
    return column if column.type == kind else column.cast(kind)


def instants(ms: pa.Array) -> pa.Array:
    """Convert milliseconds to timestamps; values that microseconds cannot express become null."""
    fits = pc.less_equal(pc.abs(ms), np.iinfo(np.int64).max // 1000)
    return pc.multiply(pc.if_else(fits, ms, None), 1000).cast(pa.timestamp("us", "UTC"))
