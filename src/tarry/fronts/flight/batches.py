"""The batches of a stream of Flight, read by Arrow's own reader of streams, which is fed message by message."""

from __future__ import annotations

from collections import deque

import pyarrow as pa

from tarry.api.wire import STREAM_ERRORS
from tarry.base.arrow_memory import unpacking_pool
from tarry.base.arrow_messages import BATCH, CONTINUATION, DICTIONARY, PREFIX, SCHEMA, body_bytes, look_at
from tarry.base.errors import InvalidArgumentError, MessageTooLargeError
from tarry.fronts.flight.messages import FlightData

QUICK_BYTES = 1 << 16
"""Messages above this are for a thread."""


class _Feed:
    """A file that ends where the messages given so far end. Arrow takes its views as they are, without a copy."""

    closed = False

    def __init__(self) -> None:
        self._parts: deque[memoryview] = deque()

    @property
    def is_empty(self) -> bool:
        return not self._parts

    def add(self, data: FlightData) -> None:
        prefix = memoryview(PREFIX.pack(CONTINUATION, len(data.header)))
        body = data.body[: max(0, body_bytes(data.header))]  # Arrow reads so much; a rest would come before the next
        self._parts += [part for part in (prefix, data.header, body) if part]

    def readable(self) -> bool:
        return True

    def read_buffer(self, size: int) -> memoryview:
        if not self._parts:
            return memoryview(b"")
        part = self._parts.popleft()
        if size < len(part):
            self._parts.appendleft(part[size:])
        return part[:size]

    read = read_buffer


class BatchReader:
    """The reader of one stream; its schema comes first. One thread at a time."""

    def __init__(self) -> None:
        self._feed = _Feed()
        self._reader: pa.RecordBatchStreamReader | None = None

    @property
    def names(self) -> list[str] | None:
        """Names of the columns; None: there is no schema yet."""
        return None if self._reader is None else list(self._reader.schema.names)

    def is_quick(self, data: FlightData) -> bool:
        """Return whether a message takes no time to read: it is small, and nothing is to be unpacked.

        Raises:
            InvalidArgumentError: its Arrow message cannot be read.
        """
        return len(data.body) <= QUICK_BYTES and self._feed.is_empty and not look_at(data.header)[1]

    def read(self, data: FlightData) -> pa.RecordBatch | None:
        """Return the batch of a message; None: it is another Arrow message.

        Nothing of the batch was checked: its buffers may be too short.

        Raises:
            InvalidArgumentError: it does not belong into a stream. MessageTooLargeError: it is compressed, and what it
            unpacks to has no room.
        """
        kind, _ = look_at(data.header)
        if kind not in ((SCHEMA,) if self._reader is None else (DICTIONARY, BATCH)):
            raise InvalidArgumentError(f"the stream of batches has an Arrow message of kind {kind} out of its place")
        self._feed.add(data)
        try:
            if self._reader is None:
                self._reader = pa.ipc.open_stream(self._feed, memory_pool=unpacking_pool())
                _ = self._reader.schema.names
            elif kind == BATCH:
                return self._reader.read_next_batch()
        except pa.ArrowMemoryError as error:
            raise MessageTooLargeError(
                f"a compressed batch cannot be unpacked ({error}): all that are being read share some memory, and no "
                "larger ones are; allowed: batches without compression, or smaller ones"
            ) from None
        except UnicodeDecodeError as error:
            raise InvalidArgumentError(f"the name of a column is {error.object!r}; allowed: UTF-8") from error
        except (*STREAM_ERRORS, StopIteration) as error:
            raise InvalidArgumentError(f"the stream of batches could not be read: {error}") from error
        return None
