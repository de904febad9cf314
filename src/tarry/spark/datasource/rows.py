"""Converts a task's Arrow batches to messages, checked by the same function as any producer's.

Runs in the tasks. An error about a refused row has its values. Columns stay columns; only a row that is refused becomes
a Python value.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tarry.base.errors import InvalidMessageError
from tarry.base.printable import shown
from tarry.message.admission import MessageLimits, admit
from tarry.spark.datasource.bodies import to_json

_TYPES = {"topic": pa.string(), "tag": pa.string()}
_ROW = re.compile(r"^row \d{1,18}: ")
_NESTED = (pa.types.is_struct, pa.types.is_map, pa.types.is_list, pa.types.is_large_list)
_SPARE = 2
"""A batch may have this part of one call's limit: JSON may be longer than its source."""


@dataclass(frozen=True)
class RowChecker:
    """Checks rows in the tasks of a bulk job.

    ``now_ms`` is the job's: a delay counts from its start.
    """

    now_ms: int
    limits: MessageLimits
    defaults: Mapping[str, str | int]

    def admitted(self, batches: Iterable[pa.RecordBatch], partition: int) -> Iterator[pa.RecordBatch]:
        """Yield batches of :data:`tarry.message.schema.UNNUMBERED`.

        Raises:
            InvalidMessageError: names the partition, the row in it, its values, what is wrong and what is allowed.
        """
        before = 0
        for whole in batches:
            for batch in self._pieces(whole):
                if batch.num_rows:
                    yield self._admit(batch, partition, before)
                    before += batch.num_rows

    def _pieces(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        size = max(1, batch.nbytes)
        rows = min(
            self.limits.batch_rows_max, max(1, self.limits.batch_bytes_max // _SPARE * max(1, batch.num_rows) // size)
        )
        if batch.num_rows <= rows:
            yield batch
            return
        for start in range(0, batch.num_rows, rows):
            yield batch.slice(start, rows)

    def _admit(self, batch: pa.RecordBatch, partition: int, before: int) -> pa.RecordBatch:
        try:
            return admit(self._producers(batch), self.now_ms, self.limits)
        except InvalidMessageError as error:
            if error.row is None:
                raise type(error)(f"partition {partition}, rows from {before} on: {error}") from None
            text = _ROW.sub("", str(error))
            raise type(error)(
                f"row {before + error.row} of partition {partition} is refused: {text}; "
                f"the row: {row_shown(batch, error.row)}; nothing of the DataFrame is scheduled"
            ) from None

    def _producers(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the batch as :func:`tarry.message.admission.admit` takes it."""
        named = zip(map(str.lower, batch.schema.names), batch.columns, strict=True)  # to Spark, capitals do not count
        columns = {name: _plain(name, column) for name, column in named}
        for name, value in self.defaults.items():
            scalar = pa.scalar(value, _TYPES.get(name, pa.int64()))
            if name not in columns:
                columns[name] = pa.repeat(scalar, batch.num_rows)
            elif columns[name].null_count:
                columns[name] = pc.fill_null(columns[name].cast(scalar.type), scalar)
        return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))


def _plain(name: str, column: pa.Array) -> pa.Array:
    if name == "body" and any(test(column.type) for test in _NESTED):
        return to_json(column)
    return column


def row_shown(batch: pa.RecordBatch, row: int) -> str:
    """Return the values of a row by column, long ones cut."""
    return ", ".join(f"{name}={_value(batch.column(name)[row])}" for name in batch.schema.names)


def _value(scalar: Any) -> str:
    try:
        return shown(scalar.as_py())
    except (ValueError, OverflowError):  # an instant that Python's calendar does not have
        return shown(str(scalar))
