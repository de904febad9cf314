"""Messages of an Arrow stream, told apart by a few fields of their metadata, without pyarrow.

Format: Arrow's "Encapsulated message format": 0xFFFFFFFF, the length of the metadata, the metadata (a flatbuffer, which
says the length of the body), the body.
"""

from __future__ import annotations

import struct
from typing import Any

from tarry.base.errors import InvalidArgumentError

Bytes = bytes | memoryview

CONTINUATION = 0xFFFFFFFF
PREFIX = struct.Struct("<Ii")
SCHEMA, DICTIONARY, BATCH = 1, 2, 3
"""Kinds of messages: MessageHeader in Arrow's Message.fbs."""


def kind_of(metadata: Bytes) -> int:
    """Return the kind of a message.

    Raises:
        InvalidArgumentError: its body is compressed, or the metadata cannot be read.
    """
    kind, is_compressed = look_at(metadata)
    if is_compressed:
        raise InvalidArgumentError("the Arrow stream is compressed; allowed: no compression of its buffers")
    return kind


def look_at(metadata: Bytes) -> tuple[int, bool]:
    """Return the kind of a message, and whether its body is compressed.

    Raises:
        InvalidArgumentError: the metadata cannot be read.
    """
    try:
        table = _root(metadata)
        at = _field(metadata, table, 1)
        kind = 0 if at is None else metadata[at]
        return kind, kind in (DICTIONARY, BATCH) and _is_compressed(metadata, table, kind)
    except (struct.error, IndexError) as error:
        raise no_stream("its metadata could not be read") from error


def body_bytes(metadata: Bytes) -> int:
    """Return the length of a message's body.

    Raises:
        InvalidArgumentError: the metadata cannot be read.
    """
    try:
        at = _field(metadata, _root(metadata), 3)
        return 0 if at is None else int(_unpack("<q", metadata, at))
    except struct.error as error:
        raise no_stream("its metadata could not be read") from error


def refuse_compressed(stream: memoryview) -> None:
    """Refuse a whole stream with a compressed body: a few bytes could say that they are gigabytes.

    Raises:
        InvalidArgumentError: it is compressed, or no Arrow stream.
    """
    at, end = 0, len(stream)
    while end - at >= PREFIX.size:
        mark, size = PREFIX.unpack_from(stream, at)
        if mark != CONTINUATION or size < 0:
            raise no_stream(f"a message begins with {bytes(stream[at : at + PREFIX.size])!r}")
        if not size:
            return
        at += PREFIX.size
        metadata = stream[at : at + size]
        kind_of(metadata)
        length = body_bytes(metadata)
        if length < 0:
            raise no_stream(f"a body of {length} bytes")
        at += size + length


def no_stream(why: str) -> InvalidArgumentError:
    """Return the error for bytes that are no Arrow stream."""
    return InvalidArgumentError(f"the body is no Arrow stream: {why}; allowed: Arrow's IPC streaming format")


def _is_compressed(metadata: Bytes, table: int, kind: int) -> bool:
    batch = _table(metadata, table, 2)
    if kind == DICTIONARY and batch is not None:
        batch = _table(metadata, batch, 1)
    return batch is not None and _field(metadata, batch, 3) is not None


def _root(metadata: Bytes) -> int:
    return int(_unpack("<I", metadata, 0))


def _table(metadata: Bytes, table: int, slot: int) -> int | None:
    at = _field(metadata, table, slot)
    return None if at is None else at + int(_unpack("<I", metadata, at))


def _field(metadata: Bytes, table: int, slot: int) -> int | None:
    """Return the offset of a table's field; None: the table does not have it."""
    vtable = table - int(_unpack("<i", metadata, table))
    if 4 + 2 * slot >= _unpack("<H", metadata, vtable):
        return None
    offset = _unpack("<H", metadata, vtable + 4 + 2 * slot)
    return table + int(offset) if offset else None


def _unpack(kind: str, metadata: Bytes, at: int) -> Any:
    if at < 0:  # which struct would count from the end
        raise struct.error("outside")
    return struct.unpack_from(kind, metadata, at)[0]
