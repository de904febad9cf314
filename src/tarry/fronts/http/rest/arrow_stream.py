"""An Arrow stream as it comes in, in pieces of any size: its batches, one by one, in bounded memory.

pyarrow reads a stream by waiting for it, which would take a thread for each client that sends. So the messages of the
stream are divided here, by their lengths alone, and pyarrow reads each with the schema and dictionaries before it.
Format: see :mod:`tarry.base.arrow_messages`.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from tarry.base.arrow_messages import (
    BATCH,
    CONTINUATION,
    DICTIONARY,
    PREFIX,
    SCHEMA,
    body_bytes,
    kind_of,
    no_stream,
)
from tarry.base.errors import InvalidArgumentError, MessageTooLargeError

METADATA_BYTES_MAX = 1 << 20
BODY_BYTES_MAX = 64 << 20
DICTIONARIES_BYTES_MAX = 16 << 20
_END = PREFIX.pack(CONTINUATION, 0)


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
            kind = kind_of(memoryview(message)[PREFIX.size :])
            if kind == SCHEMA and not self._head:
                self._head.append(message)
            elif not self._head:
                raise no_stream("its first message is no schema")
            elif kind == DICTIONARY:
                self._dictionaries += len(message)
                if self._dictionaries > DICTIONARIES_BYTES_MAX:
                    raise MessageTooLargeError(f"its dictionaries are above {DICTIONARIES_BYTES_MAX} bytes")
                self._head.append(message)
            elif kind == BATCH:
                yield [*self._head, message, _END]
            else:
                raise no_stream(f"it has a message of kind {kind}")

    def _next(self) -> bytes | None:
        buffer = self._buffer
        if len(buffer) < PREFIX.size or self._is_ended:
            return None
        mark, size = PREFIX.unpack_from(buffer)
        if mark != CONTINUATION or size < 0:
            raise no_stream(f"a message begins with {bytes(buffer[: PREFIX.size])!r}")
        if size == 0:
            self._is_ended = True
            rest = bytes(buffer[PREFIX.size :])
            buffer.clear()
            self.feed(rest)
            return None
        if size > METADATA_BYTES_MAX:
            raise MessageTooLargeError(f"metadata of {size} bytes; allowed: {METADATA_BYTES_MAX}")
        if len(buffer) < PREFIX.size + size:
            return None
        body = body_bytes(bytes(buffer[PREFIX.size : PREFIX.size + size]))
        if not 0 <= body <= BODY_BYTES_MAX:
            raise MessageTooLargeError(f"a record batch of {body} bytes; allowed: {BODY_BYTES_MAX}: send smaller ones")
        whole = PREFIX.size + size + body
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
