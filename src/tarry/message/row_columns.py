"""Rows of :mod:`tarry.message.rows` as columns, which travel to the broker."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import pyarrow as pa

from tarry.message.options import INT32_MAX, OPTIONS, OptionKind
from tarry.message.rows import NONES, SHORT, Row
from tarry.message.schema import PROPERTIES

_TYPES = {
    OptionKind.TEXT: pa.string(),
    OptionKind.WHOLE: pa.int32(),
    OptionKind.DURATION: pa.int64(),
    OptionKind.CHOICE: pa.string(),
    OptionKind.TEXTS: PROPERTIES,
    OptionKind.RULE: pa.string(),
}
COLUMNS: tuple[tuple[str, pa.DataType], ...] = (
    ("topic", pa.string()),
    ("body", pa.binary()),
    ("due_ms", pa.int64()),
    ("delay_ms", pa.int64()),
    *((option.column, pa.int64() if option.high > INT32_MAX else _TYPES[option.kind]) for option in OPTIONS),
    ("delay_level", pa.int32()),
)
_ALWAYS = ("topic", "body")


def columns_of(rows: Sequence[Row]) -> list[str]:
    """Return the names of the columns that some row uses."""
    columns = zip(COLUMNS, _cells(rows), strict=False)
    return [name for (name, _), cells in columns if name in _ALWAYS or cells.count(None) < len(cells)]


def to_batch(rows: Sequence[Row], names: Collection[str] | None = None) -> pa.RecordBatch:
    """Return messages as columns for the broker: those of ``names``, or those that some message uses."""
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
    return list(zip(*(row if len(row) > SHORT else (*row, *NONES) for row in rows), strict=True))
