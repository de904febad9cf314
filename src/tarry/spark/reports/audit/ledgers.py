"""The input of an audit: ledgers of any format, brought into the columns that it compares.

A ledger is a table of JSON lines, CSV, Parquet or Delta, with a column for each thing it records. :func:`accepted_of`
and :func:`delivered_of` are pure: they choose the columns, and convert texts, timestamps, seconds and nanoseconds to
milliseconds. A value that cannot be read becomes null, and is counted; it is never guessed.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812  as everybody writes it

from tarry.base.errors import CorruptError, InvalidArgumentError, NotFoundError

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

FORMATS = ("json", "csv", "parquet", "delta")
_SUFFIXES = {".json": "json", ".jsonl": "json", ".ndjson": "json", ".csv": "csv", ".parquet": "parquet"}
_UNITS = {"_ns": 1e-6, "_us": 1e-3, "_ms": 1.0, "_s": 1000.0}
"""Milliseconds in one unit, by the end of a column's name; `_ns` before `_s`."""
_COMPRESSED = (".gz", ".zst", ".bz2")

ACCEPTED = ("topic", "id", "seq", "due", "accepted", "cancelled", "expire", "answered")
"""Columns of an accepted row.

``answered``: false if the producer had no answer, so that the message may come or not.
"""
DELIVERED = ("topic", "id", "seq", "delivered", "due", "group", "attempt")
"""Columns of a delivered row."""
MOMENTS = frozenset({"due", "accepted", "cancelled", "expire", "delivered"})
_ALSO = {"accepted": ("born",), "delivered": ("handed_out", "received")}


def read_ledger(spark: SparkSession, path: str, format: str | None = None) -> DataFrame:
    """Read a file, a directory of files, or a Delta table (at its newest version now).

    Args:
        format: json (a JSON object a line), csv (with a line of names), parquet, delta; None: by the name, and
            a directory with a ``_delta_log`` is a Delta table.

    Raises:
        NotFoundError: nothing is there. InvalidArgumentError: the format is unknown.
        CorruptError: it cannot be read.
    """
    chosen = format or _format_of(path)
    if chosen not in FORMATS:
        raise InvalidArgumentError(f"format is {chosen!r:.80}; allowed: {', '.join(FORMATS)}")
    if "://" not in path and not Path(path).exists():
        raise NotFoundError(f"{path} is not there")
    from pyspark.errors import PySparkException

    try:
        if chosen == "delta":
            return _read_delta(spark, path)
        if chosen == "json":
            # As texts: an id of digits must not lose its zeros, and a number its last places.
            return spark.read.option("primitivesAsString", True).json(path)
        if chosen == "csv":
            return spark.read.option("header", True).option("inferSchema", False).csv(path)
        return spark.read.parquet(path)
    except PySparkException as error:
        raise CorruptError(f"{path} cannot be read as {chosen}: {str(error).splitlines()[0]:.300}") from error


def _format_of(path: str) -> str:
    if (Path(path) / "_delta_log").is_dir():
        return "delta"
    name = Path(path).name
    for ending in _COMPRESSED:
        name = name.removesuffix(ending)
    format = _SUFFIXES.get(Path(name).suffix)
    if format is None and Path(path).is_dir():
        kinds = {_SUFFIXES.get(Path(p.name).suffix) for p in Path(path).rglob("*.*")} - {None}
        format = kinds.pop() if len(kinds) == 1 else None
    if format is None:
        raise InvalidArgumentError(
            f"{path}: its name does not say what format it has; allowed: {', '.join(_SUFFIXES)}, a Delta table, "
            f"or the format as an option ({', '.join(FORMATS)})"
        )
    return format


def _read_delta(spark: SparkSession, path: str) -> DataFrame:
    # delta-rs lists the files, Spark reads the rows: no jar is needed, and files that come later are left out.
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError

    try:
        table = DeltaTable(path)
        files = table.file_uris()
        partitioned = bool(table.metadata().partition_columns)
    except DeltaError as error:
        raise CorruptError(f"the Delta table {path} cannot be read: {error}") from error
    if not files:
        raise NotFoundError(f"the Delta table {path} has no rows")
    reader = spark.read.option("mergeSchema", True)
    return (reader.option("basePath", path) if partitioned else reader).parquet(*files)


def accepted_of(rows: DataFrame, columns: Mapping[str, str] | None = None) -> DataFrame:
    """Return an accepted ledger with the columns of an audit; null for those that ``rows`` lacks.

    They are ``topic``, ``id``, ``seq``, ``due_ms``, ``accepted_ms``, ``cancelled_ms``, ``expire_ms``, ``answered``.

    Args:
        columns: which column is for what (``{"due": "deliver_at"}``); the others are looked for by their names, with
            the unit after it: ``due_ms``, ``due_s``, ``accepted_ns``. A timestamp, or a text that is one, needs none.

    Raises:
        InvalidArgumentError: a column is named that does not exist, or there is none for ``due``.
    """
    return _shaped(rows, ACCEPTED, columns, needed="due")


def delivered_of(rows: DataFrame, columns: Mapping[str, str] | None = None) -> DataFrame:
    """Return a delivered ledger with the columns of an audit; arguments as :func:`accepted_of`.

    They are ``topic``, ``id``, ``seq``, ``delivered_ms`` (with its fraction), ``due_ms``, ``group``, ``attempt``.
    """
    return _shaped(rows, DELIVERED, columns, needed="delivered")


def identity(accepted: DataFrame, delivered: DataFrame, by: str | None) -> str:
    """Return the identity of a message: ``by``, or "seq" if both ledgers (as read) have it, else "id".

    Raises:
        InvalidArgumentError: they have nothing in common.
    """
    if by not in (None, "seq", "id"):
        raise InvalidArgumentError(f"by is {by!r:.80}; allowed: seq, id")
    for name in [by] if by else ["seq", "id"]:
        # An id that the broker made is its seq in other digits, so a seq alone can be compared with ids.
        enough = ("id", "seq") if name == "id" else ("seq",)
        if all(any(_has(side, column) for column in enough) for side in (accepted, delivered)):
            return name
    raise InvalidArgumentError(
        f"messages cannot be told apart: accepted has the columns {', '.join(accepted.columns)}, delivered "
        f"{', '.join(delivered.columns)}; needed: {by or 'seq or id'} in both"
    )


def _has(rows: DataFrame, column: str) -> bool:
    from pyspark.sql.types import NullType

    return not isinstance(rows.schema[column].dataType, NullType)


def _shaped(rows: DataFrame, names: tuple[str, ...], columns: Mapping[str, str] | None, needed: str) -> DataFrame:
    given = {name.removesuffix("_ms"): column for name, column in (columns or {}).items()}
    for name, column in given.items():
        if name not in names:
            raise InvalidArgumentError(f"{name!r:.80} is not what a column may be for; allowed: {', '.join(names)}")
        if column not in rows.columns:
            raise InvalidArgumentError(f"there is no column {column!r:.80}; there are: {', '.join(rows.columns)}")
    chosen = {name: given.get(name) or _find(rows, name) for name in names}
    if chosen[needed] is None:
        raise InvalidArgumentError(
            f"no column says when a message was {needed}: there are {', '.join(rows.columns)}; allowed: {needed}_ms, "
            f"or another one by name"
        )
    return rows.select(
        *(
            (F.lit(None) if column is None else _value(rows, name, column)).alias(
                f"{name}_ms" if name in MOMENTS else name
            )
            for name, column in chosen.items()
        )
    )


def _find(rows: DataFrame, name: str) -> str | None:
    wanted = [name]
    if name in MOMENTS:
        wanted = [f"{n}{unit}" for n in (name, *_ALSO.get(name, ())) for unit in ("_ms", "_ns", "_us", "_s", "")]
    return next((column for column in wanted if column in rows.columns), None)


def _value(rows: DataFrame, name: str, column: str) -> Column:
    from pyspark.sql.types import BinaryType

    value = F.col(f"`{column}`")
    if name in MOMENTS:
        return _moment(rows, column, exact=name == "delivered")
    if name in ("seq", "attempt"):
        return value.try_cast("long")
    if name == "answered":
        return value.try_cast("boolean")
    if isinstance(rows.schema[column].dataType, BinaryType):
        value = F.decode(value, "UTF-8")
    # CSV turns a missing text into an empty one.
    return F.nullif(value.cast("string"), F.lit(""))


def _moment(rows: DataFrame, column: str, *, exact: bool) -> Column:
    """Return a moment in milliseconds: with their fraction, or whole."""
    from pyspark.sql.types import IntegralType, StringType, TimestampNTZType, TimestampType

    value, kind = F.col(f"`{column}`"), rows.schema[column].dataType
    unit = next((unit for unit in _UNITS if column.endswith(unit)), "_ms")
    if isinstance(kind, TimestampType | TimestampNTZType):
        ms = F.unix_micros(value.cast("timestamp")) / 1000.0
    else:
        ms = value.try_cast("double") * _UNITS[unit]
        if isinstance(kind, IntegralType | StringType):
            ms = F.coalesce(_whole(column, unit, exact=exact), ms)
        if isinstance(kind, StringType):
            ms = F.coalesce(ms, F.unix_micros(F.try_to_timestamp(value)) / 1000.0)
        elif isinstance(kind, IntegralType) and not exact:
            ms = _whole(column, unit, exact=False)
    return ms.try_cast("double") if exact else F.floor(ms).try_cast("long")


def _whole(column: str, unit: str, *, exact: bool) -> Column:
    """Convert whole numbers to milliseconds.

    Nanoseconds since 1970 do not fit a double: the fraction is computed separately.
    """
    number, parts = F.expr(f"try_cast(`{column}` AS BIGINT)"), round(1 / _UNITS[unit])
    if unit == "_s":
        return number * F.lit(1000)
    if parts == 1:
        return number
    whole = F.expr(f"try_cast(`{column}` AS BIGINT) div {parts}")
    return whole + F.pmod(number, F.lit(parts)) / float(parts) if exact else whole
