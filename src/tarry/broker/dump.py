"""A dump of a log file, for people: every frame, its rows, and where the file stops being readable."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from tarry.base.errors import CorruptError, NotFoundError
from tarry.log import frame
from tarry.log.frame import LogKind
from tarry.log.segment import SegmentReader
from tarry.message.schema import SCHEMA
from tarry.queue import entries


def dump_file(path: Path, *, rows: bool = True) -> Iterator[dict[str, Any]]:
    """Yield the content of a segment file as plain data.

    There is one entry for the file, one per frame, one per row, and one for damage or a torn tail. The content never
    makes this raise: a damaged part becomes an entry with ``"what": "damage"``, and reading goes on behind it.

    Raises:
        NotFoundError: there is no such file.
    """
    if not path.is_file():
        raise NotFoundError(f"no such file: {path}")
    with SegmentReader(path) as reader:
        size, (file_header, reason_unreadable) = reader.size, _file_header(reader)
        yield {
            "what": "file",
            "path": str(path),
            "bytes": size,
            "room": file_header[0].name.lower() if file_header else None,
            "base": file_header[1] if file_header else None,
        }
        if file_header is None:
            yield {"what": "damage", "offset": 0, "reason": reason_unreadable or "no valid file header"}
        schema = _schema(file_header[0] if file_header else None)
        position = frame.FILE_HEADER_BYTES
        while position < size:
            header = reader.header(position)
            if header is None or position + header.frame_bytes > size:
                after = _next_frame(reader, position + 8, size)
                yield {"what": "damage", "offset": position, "reason": "no whole frame here", "next_frame": after}
                if after is None:
                    return
                position = after
                continue
            yield from _dump_frame(reader, position, schema, rows=rows)
            position += header.frame_bytes


def _dump_frame(
    reader: SegmentReader, position: int, schema: pa.Schema | None, *, rows: bool
) -> Iterator[dict[str, Any]]:
    header = reader.header(position)
    assert header is not None
    body = reader.bytes_at(position + frame.HEADER_BYTES, header.body_bytes)
    entry = {
        "what": "frame",
        "offset": position,
        "bytes": header.frame_bytes,
        "rows": header.rows,
        "base": header.base,
        "kind": header.kind,
        "due_min_ms": header.due_min_ms,
        "due_max_ms": header.due_max_ms,
        "stored_rows": header.stored_rows,
        "durable_to": header.durable_to,
    }
    if not frame.body_is_valid(header, body):
        yield entry
        yield {"what": "damage", "offset": position, "reason": "the frame's checksum does not hold"}
        return
    topic, batch, reason = "", None, ""
    if schema is not None:
        try:
            topic, batch = frame.decode_body(header, body, schema)
        except CorruptError as error:
            reason = str(error)
    yield {**entry, "topic": topic} if topic else entry
    if reason:
        yield {"what": "damage", "offset": position, "reason": reason}
    if rows and batch is not None:
        yield from ({"what": "row", **row} for row in batch.to_pylist())


def _file_header(reader: SegmentReader) -> tuple[tuple[LogKind, int] | None, str]:
    try:
        return reader.file_header(), ""
    except CorruptError as error:
        return None, str(error)


def _schema(kind: LogKind | None) -> pa.Schema | None:
    return None if kind is None else entries.SCHEMA if kind is LogKind.ACKS else SCHEMA


def _next_frame(reader: SegmentReader, position: int, size: int) -> int | None:
    while position < size:
        if reader.header(position) is not None:
            return position
        position += 8
    return None
