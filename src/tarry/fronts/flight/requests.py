"""Requests of clients: descriptors, tickets, bodies and messages of Flight as operations and batches."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.flight as fl

from tarry.api.internal_topics import check_open
from tarry.api.operation import Action, Operation, Request, Rows
from tarry.api.operations import OPERATIONS
from tarry.api.operations.delivery import Subscribe
from tarry.api.parsing import from_json
from tarry.api.wire import CONSUME, CONSUME_PATH, STREAM_ERRORS, as_bytes, decode_request
from tarry.base.errors import InvalidArgumentError, MessageTooLargeError, NotFoundError
from tarry.fronts.flight.guard import ConnectionGuard

Q = TypeVar("Q", bound=Request)
ACTIONS = {o.wire.name: o for o in OPERATIONS if isinstance(o.wire, Action)}
TICKETS = {o.wire.name: o for o in OPERATIONS if isinstance(o.wire, Rows)}


class CountedReader:
    """Reader of a call's messages, of each of which the guard hears.

    Names of columns are checked once, for a stream has one schema.

    Raises:
        InvalidArgumentError: by :attr:`schema` and :meth:`read_chunk`, for a name that is not UTF-8.
        MessageTooLargeError: by :meth:`read_chunk`, for what is compressed and too large.
    """

    def __init__(self, reader: fl.MetadataRecordBatchReader, guard: ConnectionGuard, peer: str) -> None:
        self._reader = reader
        self._guard = guard
        self._peer = peer
        self._is_checked = False

    @property
    def schema(self) -> pa.Schema:
        schema = self._reader.schema
        self._check_names(schema)
        return schema

    def read_chunk(self) -> fl.FlightStreamChunk:
        try:
            chunk = self._reader.read_chunk()
        except pa.ArrowMemoryError as error:
            raise MessageTooLargeError(
                f"a compressed batch cannot be unpacked ({error}): all that are being read share some memory, and no "
                "larger ones are; allowed: batches without compression, or smaller ones"
            ) from None
        self._guard.on_message(self._peer)
        if chunk.data is not None and not self._is_checked:
            self._check_names(chunk.data.schema)
        return chunk

    def _check_names(self, schema: pa.Schema) -> None:
        try:
            _ = schema.names
        except UnicodeDecodeError as error:
            raise InvalidArgumentError(f"the name of a column is {error.object!r}; allowed: UTF-8") from error
        self._is_checked = True


def consume_command(descriptor: fl.FlightDescriptor, reader: CountedReader) -> bytes:
    """Return the command of a DoExchange, from its descriptor or its first message."""
    if descriptor.path is None:
        return bytes(descriptor.command or b"")
    if descriptor.path != CONSUME_PATH:
        raise NotFoundError(f"DoExchange of {shown(descriptor)}; allowed: the path ['consume'], or a command")
    try:
        return as_bytes(reader.read_chunk().app_metadata)
    except StopIteration:
        raise InvalidArgumentError(
            "the stream ended before its command, the app metadata of the first message"
        ) from None
    except STREAM_ERRORS as error:
        raise InvalidArgumentError(f"the command could not be read: {error}") from error


def put_command(command: Any) -> Any:
    """Return a descriptor's command; None: it is no JSON, so none that we know."""
    try:
        return decode_request(command or b"")
    except MessageTooLargeError:
        raise
    except InvalidArgumentError:
        return None


def action_request(kind: type[Operation[Any]], body: bytes | memoryview) -> Operation[Any]:
    """Return the operation of a DoAction.

    Of an operation without fields, the body is not read; without a body, all fields are at their defaults.
    """
    if kind.wire_fields() == {}:
        return kind()
    values = decode_request(body) if body else None
    return _opened(from_json(kind, {} if values is None else values))


def ticket_request(raw: bytes) -> Operation[Any]:
    """Return the operation of a DoGet."""
    values = decode_request(raw)
    op = values.pop("op", None) if isinstance(values, dict) else None
    if not isinstance(op, str) or op not in TICKETS:
        raise InvalidArgumentError(f"op of a ticket is {op!r}; allowed: {', '.join(TICKETS)}")
    return _opened(from_json(TICKETS[op], values))


def subscribe_request(raw: bytes) -> Subscribe:
    """Return the consumer of a DoExchange."""
    command = decode_request(raw)
    if isinstance(command, dict) and command.get("op", CONSUME) == CONSUME:
        command.pop("op", None)
    return _opened(from_json(Subscribe, command))


def _opened(request: Q) -> Q:
    check_open(request)
    return request


def batches_of(reader: CountedReader) -> Iterator[pa.RecordBatch]:
    """Yield the batches of a stream that have rows."""
    while True:
        try:
            chunk = reader.read_chunk()
        except StopIteration:
            return
        except STREAM_ERRORS as error:
            raise InvalidArgumentError(f"the stream could not be read: {error}") from error
        if chunk.data is not None and chunk.data.num_rows:
            yield chunk.data


def shown(descriptor: fl.FlightDescriptor) -> str:
    """Return a descriptor for an error's text."""
    if descriptor.path is None:
        return f"{bytes(descriptor.command or b'')[:80]!r}"
    return f"{[p[:80].decode('utf-8', 'replace') for p in descriptor.path[:8]]!r:.300}"
