"""Results of a batch request's messages, as compact as the broker gave them, and as an answer."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from tarry.api.operations.messages import receipt_to_json
from tarry.api.wire import encode_json
from tarry.base.errors import TarryError
from tarry.fronts.http.errors import error_json
from tarry.fronts.http.rest.rows import PART_BYTES, arrow_parts
from tarry.message.accepted import Accepted

SCHEMA = pa.schema(
    [
        *(("row", pa.int64()), ("id", pa.string()), ("seq", pa.int64()), ("due_ms", pa.int64())),
        *(("handle", pa.string()), ("outcome", pa.string()), ("error", pa.string()), ("message", pa.string())),
    ]
)
"""Receipts as Arrow: ``error`` and ``message`` are of a refused row, the others of an accepted one."""


@dataclass(frozen=True, slots=True)
class AcceptedRows:
    """Rows of the request that travelled together: ``rows`` are their numbers in it."""

    rows: Sequence[int]
    accepted: Accepted
    ids: Sequence[str | None] | pa.Array | None


@dataclass(frozen=True, slots=True)
class RefusedRows:
    """Rows that were refused, all for one reason."""

    rows: Sequence[int]
    error: TarryError


@dataclass(slots=True)
class RowResults:
    """The results of some consecutive rows."""

    parts: list[AcceptedRows | RefusedRows] = field(default_factory=list)

    def lines(self) -> list[dict[str, Any]]:
        """Return a dict a row, in order."""
        return sorted((line for part in self.parts for line in _lines(part)), key=lambda line: line["row"])


def _lines(part: AcceptedRows | RefusedRows) -> Iterator[dict[str, Any]]:
    if isinstance(part, RefusedRows):
        error = error_json(part.error)
        yield from ({**error, "row": row} for row in part.rows)
        return
    ids = [None] * len(part.rows) if part.ids is None else part.ids
    ids = ids.to_pylist() if isinstance(ids, pa.Array) else ids
    for row, receipt in zip(part.rows, part.accepted.receipts(ids), strict=True):
        yield {"row": row, **(receipt_to_json(receipt) or {})}


async def as_json_lines(chunks: Sequence[RowResults]) -> AsyncIterator[bytes]:
    """Yield the results as JSON lines: one object a row."""
    text = bytearray()
    for chunk in chunks:
        for line in chunk.lines():
            text += encode_json(line) + b"\n"
            if len(text) >= PART_BYTES:
                yield bytes(text)
                text.clear()
    yield bytes(text)


def as_arrow(chunks: Sequence[RowResults]) -> AsyncIterator[bytes]:
    """Return the results as an Arrow stream."""
    return arrow_parts(SCHEMA, (pa.RecordBatch.from_pylist(chunk.lines(), schema=SCHEMA) for chunk in chunks))
