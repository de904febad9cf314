"""Rows as an answer: as JSON, a part at a time, or as an Arrow stream.

In JSON, a body that is UTF-8 stands as the text ``body``; any other one as ``body_base64``, in base64, and so do all
where the client asks for that (``encoding=base64``). Properties are an object; what is null is left out.
"""

from __future__ import annotations

import base64
import io
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from typing import Any

import pyarrow as pa

from tarry.api.wire import encode_json
from tarry.fronts.http.rest.description import Schema

PART_BYTES = 64 << 10
"""An answer leaves in parts of about this size."""
_SLICE_ROWS = 64
_PREFIX = "tarry."


def json_of(row: dict[str, Any], *, always_base64: bool = False) -> dict[str, Any]:
    """Return a row of messages as JSON."""
    values = {name: value for name, value in row.items() if value is not None and name != "kind"}
    if "properties" in values:
        values["properties"] = dict(values["properties"])
    body = values.pop("body", None)
    if body is not None:
        values |= body_json(body, always_base64=always_base64)
    return values


def body_json(body: bytes, *, always_base64: bool = False) -> dict[str, str]:
    """Return a body as the one field that it has in JSON."""
    if not always_base64:
        try:
            return {"body": body.decode()}
        except UnicodeDecodeError:
            pass
    return {"body_base64": base64.b64encode(body).decode("ascii")}


def details_of(schema: pa.Schema) -> dict[str, str]:
    """Return the details that accompany the rows, by name: of a page, its ``cursor``."""
    metadata = {key.decode(): value.decode() for key, value in (schema.metadata or {}).items()}
    return {key.removeprefix(_PREFIX): value for key, value in metadata.items() if key.startswith(_PREFIX)}


async def json_parts(
    schema: pa.Schema,
    batches: Iterable[pa.RecordBatch],
    adapt: Callable[[dict[str, Any]], dict[str, Any]],
    *,
    always_base64: bool = False,
) -> AsyncIterator[bytes]:
    """``{"messages": [...], "cursor": ...}``; ``adapt`` changes each message before it is written."""
    text = bytearray(b'{"messages":[')
    comma = b""
    for row in _rows(batches):
        text += comma + encode_json(adapt(json_of(row, always_base64=always_base64)))
        comma = b",\n"
        if len(text) >= PART_BYTES:
            yield bytes(text)
            text.clear()
    text += b"]"
    for name, value in details_of(schema).items():
        text += b"," + encode_json(name) + b":" + encode_json(value)
    yield bytes(text + b"}\n")


async def arrow_parts(schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> AsyncIterator[bytes]:
    """Yield an Arrow stream; the metadata of its schema has the details that accompany the rows."""
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, schema) as writer:
        for batch in batches:
            # Slices, so that no second copy of many large bodies is made.
            for start in range(0, batch.num_rows, step := max(1, _rows_in_part(batch))):
                writer.write_batch(batch.slice(start, step))
                yield _taken(sink)
    yield _taken(sink)


def _taken(sink: io.BytesIO) -> bytes:
    """Return the bytes written so far, and empty the buffer."""
    written = sink.getvalue()
    sink.seek(0)
    sink.truncate()
    return written


def _rows(batches: Iterable[pa.RecordBatch]) -> Iterator[dict[str, Any]]:
    for batch in batches:
        for start in range(0, batch.num_rows, step := max(1, min(_SLICE_ROWS, _rows_in_part(batch)))):
            yield from batch.slice(start, step).to_pylist()


def _rows_in_part(batch: pa.RecordBatch) -> int:
    rows: int = batch.num_rows * (1 << 20) // max(1, batch.nbytes)
    return rows


def schema_of(schema: pa.Schema) -> Schema:
    """Return the JSON Schema of an answer with such rows."""
    properties: Schema = {}
    for column in schema:
        if column.name not in ("kind", "body"):
            properties[column.name] = _schema_of_type(column.type)
    if "body" in schema.names:
        properties["body"] = {"type": "string", "description": "The body, where it is UTF-8."}
        properties["body_base64"] = {
            "type": "string",
            "contentEncoding": "base64",
            "description": "The body instead, where it is not.",
        }
    message = {"type": "object", "properties": properties}
    cursor = {"type": "string", "description": "To ask on with; not there: there are no more."}
    return {
        "type": "object",
        "properties": {"messages": {"type": "array", "items": message}, "cursor": cursor},
        "required": ["messages"],
    }


def _schema_of_type(kind: pa.DataType) -> Schema:
    if pa.types.is_integer(kind):
        return {"type": "integer"}
    if pa.types.is_map(kind):
        return {"type": "object", "additionalProperties": {"type": "string"}}
    return {"type": "string"}
