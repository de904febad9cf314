"""Arrow's reader of streams, fed message by message, where they come in frames of another protocol."""

from __future__ import annotations

from collections import deque

import pyarrow as pa

from tarry.base.arrow_memory import unpacking_pool
from tarry.base.arrow_messages import BATCH, CONTINUATION, DICTIONARY, PREFIX, SCHEMA, body_bytes, look_at
from tarry.base.errors import InvalidArgumentError, MessageTooLargeError

QUICK_BYTES = 1 << 16
"""Messages above this are for a thread."""
WAITING_BYTES_MAX = 256 << 20
"""Dictionaries that wait for their batch."""


class _Feed:
    """A file that ends where the messages given so far end. Arrow takes its views without a copy."""

    closed = False

    def __init__(self) -> None:
        self.parts: deque[memoryview] = deque()

    def readable(self) -> bool:
        return True

    def read_buffer(self, size: int) -> memoryview:
        if not self.parts:
            return memoryview(b"")
        part = self.parts.popleft()
        if size < len(part):
            self.parts.appendleft(part[size:])
        return part[:size]

    read = read_buffer


class BatchReader:
    """The batches of one stream, whose schema comes first. One thread at a time."""

    def __init__(self) -> None:
        self._feed = _Feed()
        self._reader: pa.RecordBatchStreamReader | None = None

    @property
    def names(self) -> list[str] | None:
        """Names of the columns; None: there is no schema yet."""
        return None if self._reader is None else list(self._reader.schema.names)

    def is_quick(self, header: memoryview, body: memoryview) -> bool:
        """Return whether a message takes no time to read: it is small, and nothing is to be unpacked.

        Raises:
            InvalidArgumentError: the header cannot be read.
        """
        return len(body) <= QUICK_BYTES and not self._feed.parts and not look_at(header)[1]

    def read(self, header: memoryview, body: memoryview) -> pa.RecordBatch | None:
        """Return the batch of a message; None: it is another Arrow message.

        Nothing of the batch is checked: its buffers may be too short.

        Raises:
            InvalidArgumentError: it does not belong into the stream. MessageTooLargeError: it is compressed, and what
            it unpacks to has no room.
        """
        kind, _ = look_at(header)
        if kind not in ((SCHEMA,) if self._reader is None else (DICTIONARY, BATCH)):
            raise InvalidArgumentError(f"the stream of batches has an Arrow message of kind {kind} out of its place")
        # Arrow reads a body as long as the header says; a rest would come before the next message.
        parts = memoryview(PREFIX.pack(CONTINUATION, len(header))), header, body[: max(0, body_bytes(header))]
        self._feed.parts += [part for part in parts if part]
        if kind == DICTIONARY and (size := sum(map(len, self._feed.parts))) > WAITING_BYTES_MAX:
            raise MessageTooLargeError(f"dictionaries of {size} bytes; allowed: {WAITING_BYTES_MAX} before a batch")
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
        except (pa.ArrowException, OSError, StopIteration) as error:
            raise InvalidArgumentError(f"the stream of batches could not be read: {error}") from error
        return None
