"""An Arrow stream as it comes in, in pieces of any size: its batches, one by one, in bounded memory.

pyarrow reads a stream by waiting for it, which would take a thread for each client that sends. So the messages of the
stream are divided here, by their lengths alone, and pyarrow reads each with the schema and dictionaries before it.
Format: Arrow's "Encapsulated message format": 0xFFFFFFFF, the length of the metadata, the metadata (a flatbuffer, which
says the length of the body), the body.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from tarry.base.errors import InvalidArgumentError, MessageTooLargeError

METADATA_BYTES_MAX = 1 << 20
BODY_BYTES_MAX = 64 << 20
DICTIONARIES_BYTES_MAX = 16 << 20
_CONTINUATION = 0xFFFFFFFF
_END = struct.pack("<Ii", _CONTINUATION, 0)
_PREFIX = 8
_SCHEMA, _DICTIONARY, _BATCH = 1, 2, 3
"""Kinds of messages: MessageHeader in Arrow's Message.fbs."""


class ArrowStream:
    """:meth:`feed` it, and take what is complete from :meth:`streams`."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._head: list[bytes] = []
        self._dictionaries = 0
        self._is_ended = False

    @property
    def held(self) -> int:
        """Bytes that wait for the rest of their message."""
        return len(self._buffer)

    @property
    def is_whole(self) -> bool:
        """True if the stream may end here."""
        return not self._buffer

    def feed(self, chunk: bytes) -> None:
        """Add a chunk of the stream.

        Raises:
            InvalidArgumentError: something comes after its end.
        """
        if self._is_ended and chunk:
            raise InvalidArgumentError("the Arrow stream goes on after its end; allowed: one stream")
        self._buffer += chunk

    def streams(self) -> Iterator[list[bytes]]:
        """Yield each complete batch: the messages of a stream of its own, for :func:`read`.

        Raises:
            InvalidArgumentError: it is no Arrow stream, or compressed. MessageTooLargeError: a message is too large.
        """
        while (message := self._next()) is not None:
            kind = _kind(message)
            if kind == _SCHEMA and not self._head:
                self._head.append(message)
            elif not self._head:
                raise _no_stream("its first message is no schema")
            elif kind == _DICTIONARY:
                self._dictionaries += len(message)
                if self._dictionaries > DICTIONARIES_BYTES_MAX:
                    raise MessageTooLargeError(f"its dictionaries are above {DICTIONARIES_BYTES_MAX} bytes")
                self._head.append(message)
            elif kind == _BATCH:
                yield [*self._head, message, _END]
            else:
                raise _no_stream(f"it has a message of kind {kind}")

    def _next(self) -> bytes | None:
        buffer = self._buffer
        if len(buffer) < _PREFIX or self._is_ended:
            return None
        mark, size = struct.unpack_from("<Ii", buffer)
        if mark != _CONTINUATION or size < 0:
            raise _no_stream(f"a message begins with {bytes(buffer[:_PREFIX])!r}")
        if size == 0:
            self._is_ended = True
            rest = bytes(buffer[_PREFIX:])
            buffer.clear()
            self.feed(rest)
            return None
        if size > METADATA_BYTES_MAX:
            raise MessageTooLargeError(f"metadata of {size} bytes; allowed: {METADATA_BYTES_MAX}")
        if len(buffer) < _PREFIX + size:
            return None
        body = _body_bytes(bytes(buffer[_PREFIX : _PREFIX + size]))
        if not 0 <= body <= BODY_BYTES_MAX:
            raise MessageTooLargeError(f"a record batch of {body} bytes; allowed: {BODY_BYTES_MAX}: send smaller ones")
        whole = _PREFIX + size + body
        if len(buffer) < whole:
            return None
        message = bytes(buffer[:whole])
        del buffer[:whole]
        return message


def read(messages: list[bytes]) -> pa.RecordBatch:
    """Read a stream of one batch.

    Raises:
        InvalidArgumentError: it cannot be read.
    """
    try:
        with pa.ipc.open_stream(pa.BufferReader(b"".join(messages))) as reader:
            batch = reader.read_next_batch()
        _ = batch.schema.names
    except (pa.ArrowException, OSError, StopIteration) as error:
        raise InvalidArgumentError(f"the Arrow stream could not be read: {str(error)[:300]}") from error
    except UnicodeDecodeError as error:
        raise InvalidArgumentError(f"the name of a column is {error.object!r}; allowed: UTF-8") from error
    return batch


# -- flatbuffers: the few fields that lengths and kinds are in ---------------------------------------------------------


def _kind(message: bytes) -> int:
    metadata = message[_PREFIX:]
    try:
        table = _root(metadata)
        at = _field(metadata, table, 1)
        kind = 0 if at is None else metadata[at]
        if kind in (_DICTIONARY, _BATCH) and _is_compressed(metadata, table, kind):
            raise InvalidArgumentError("the Arrow stream is compressed; allowed: no compression of its buffers")
    except (struct.error, IndexError) as error:
        raise _no_stream("its metadata could not be read") from error
    return kind


def _is_compressed(metadata: bytes, table: int, kind: int) -> bool:
    # A few bytes could say that they are gigabytes.
    batch = _table(metadata, table, 2)
    if kind == _DICTIONARY and batch is not None:
        batch = _table(metadata, batch, 1)
    return batch is not None and _field(metadata, batch, 3) is not None


def _body_bytes(metadata: bytes) -> int:
    try:
        at = _field(metadata, _root(metadata), 3)
        return 0 if at is None else int(_unpack("<q", metadata, at))
    except struct.error as error:
        raise _no_stream("its metadata could not be read") from error


def _root(metadata: bytes) -> int:
    return int(_unpack("<I", metadata, 0))


def _table(metadata: bytes, table: int, slot: int) -> int | None:
    at = _field(metadata, table, slot)
    return None if at is None else at + int(_unpack("<I", metadata, at))


def _field(metadata: bytes, table: int, slot: int) -> int | None:
    """Return the offset of a table's field; None: the table does not have it."""
    vtable = table - int(_unpack("<i", metadata, table))
    if 4 + 2 * slot >= _unpack("<H", metadata, vtable):
        return None
    offset = _unpack("<H", metadata, vtable + 4 + 2 * slot)
    return table + int(offset) if offset else None


def _unpack(kind: str, metadata: bytes, at: int) -> Any:
    if at < 0:  # which struct would count from the end
        raise struct.error("outside")
    return struct.unpack_from(kind, metadata, at)[0]


def _no_stream(why: str) -> InvalidArgumentError:
    return InvalidArgumentError(f"the body is no Arrow stream: {why}; allowed: Arrow's IPC streaming format")
