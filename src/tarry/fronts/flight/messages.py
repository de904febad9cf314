"""Messages of Flight on the wire: protobuf by hand, since bodies of megabytes are not to be copied for it.

Source: ``Flight.proto`` of apache/arrow.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa

from loopgrpc import Framed, GrpcError, StatusCode, assembled
from tarry.api.wire import encode_error
from tarry.base.arrow_messages import PREFIX
from tarry.base.errors import InvalidArgumentError, MessageTooLargeError, TarryError, UnavailableError

PATH = 1
"""Type of a descriptor that is a path and not a command."""
DESCRIPTOR, HEADER, METADATA, BODY = 1, 2, 3, 1000
"""Fields of FlightData."""
METADATA_OF_PUT = BODY_OF_RESULT = 1
"""The fields of PutResult and Result."""
_LENGTH, _VARINT, _FIXED = 2, 0, {1: 8, 5: 4}
"""Kinds of fields; of the fixed ones, their bytes."""
_IO_ERROR, _NOT_IMPLEMENTED = "5", "10"
"""Codes of Arrow's statuses."""


@dataclass(frozen=True, slots=True)
class Descriptor:
    """A FlightDescriptor: a path, or a command."""

    path: list[bytes] | None
    command: bytes

    def __str__(self) -> str:
        """Return it as an error's text shows it."""
        if self.path is None:
            return f"{self.command[:80]!r}"
        return f"{[part[:80].decode('utf-8', 'replace') for part in self.path[:8]]!r:.300}"


@dataclass(frozen=True, slots=True)
class FlightData:
    """One message of a stream: an Arrow message, app metadata, or both."""

    descriptor: Descriptor | None
    header: memoryview
    metadata: bytes
    body: memoryview


def read_data(raw: bytes) -> FlightData:
    """Read a FlightData.

    Raises:
        InvalidArgumentError: it is none.
    """
    found = {number: value for number, value in _fields(raw) if isinstance(value, memoryview)}
    nothing = memoryview(b"")
    descriptor = found.get(DESCRIPTOR)
    return FlightData(
        None if descriptor is None else _read_descriptor(descriptor),
        found.get(HEADER, nothing),
        bytes(found.get(METADATA, nothing)),
        found.get(BODY, nothing),
    )


def read_pair(raw: bytes) -> tuple[bytes, memoryview]:
    """Read the first two fields: type and body of an Action, the ticket alone of a Ticket.

    Raises:
        InvalidArgumentError: they are none.
    """
    found = {number: value for number, value in _fields(raw) if isinstance(value, memoryview)}
    return bytes(found.get(1, b"")), found.get(2, memoryview(b""))


def field(number: int, value: bytes) -> bytes:
    """Return a field with its tag and length: alone, a Result, or the PutResult of app metadata."""
    return _head(number, len(value)) + value


def arrow_data(message: pa.Buffer, *, has_body: bool = True) -> Framed:
    """Return the FlightData of an Arrow message, a schema (which has no body) or a batch."""
    view: memoryview = memoryview(message)
    end = PREFIX.size + PREFIX.unpack_from(view)[1]
    header, body = view[PREFIX.size : end], view[end:]
    parts: list[bytes | memoryview] = [_head(HEADER, len(header)), header]
    return assembled([*parts, _head(BODY, len(body)), body] if has_body else parts)


def refusal(error: BaseException) -> GrpcError:
    """Return an error as Arrow's own server sends one, with its code in the details (``extra_info``)."""
    assert isinstance(error, TarryError)
    is_unavailable = isinstance(error, UnavailableError)
    text, kind = str(error), "Unavailable" if is_unavailable else "Failed"
    trailing: dict[str, str | bytes] = {
        "grpc-status-details-bin": encode_error(error),
        "x-arrow-status": _IO_ERROR,
        "x-arrow-status-detail-bin": kind.encode(),
        "x-arrow-status-message-bin": text.encode(errors="replace"),
    }
    return GrpcError(
        StatusCode.UNAVAILABLE if is_unavailable else StatusCode.UNKNOWN, f"{text}. Detail: {kind}", trailing
    )


def describe(status: StatusCode, text: str) -> Mapping[str, str | bytes]:
    """Return the trailers of a call that the gRPC server has ended: those of a message that is too large."""
    is_large = status is StatusCode.RESOURCE_EXHAUSTED
    return refusal(MessageTooLargeError(text)).trailing or {} if is_large else {}


def unimplemented(text: str) -> GrpcError:
    """Return the error of a call of Flight that there is not."""
    trailing: dict[str, str | bytes] = {
        "x-arrow-status": _NOT_IMPLEMENTED,
        "x-arrow-status-message-bin": text.encode(),
    }
    return GrpcError(StatusCode.UNIMPLEMENTED, text, trailing)


def _read_descriptor(raw: memoryview) -> Descriptor:
    kind, command, path = 0, b"", []
    for number, value in _fields(raw):
        if isinstance(value, int):
            kind = value if number == 1 else kind
        elif number == 2:
            command = bytes(value)
        elif number == 3:
            path.append(bytes(value))
    return Descriptor(path if kind == PATH else None, command)


def _fields(raw: bytes | memoryview) -> Iterator[tuple[int, int | memoryview]]:
    view, at, end = memoryview(raw), 0, len(raw)
    try:
        while at < end:
            tag, at = _read_varint(view, at)
            kind, size = tag & 7, 0
            if kind == _VARINT:
                value, at = _read_varint(view, at)
                yield tag >> 3, value
            elif kind == _LENGTH:
                size, at = _read_varint(view, at)
                yield tag >> 3, view[at : at + size]
            else:
                size = _FIXED[kind]
            at += size
        if at > end:
            raise IndexError
    except (IndexError, KeyError):
        raise InvalidArgumentError(f"no message of Flight: {bytes(view[:40])!r} ({end} bytes)") from None


def _read_varint(view: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while shift < 64:
        byte = view[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
    raise IndexError


def _head(number: int, length: int) -> bytes:
    return _varint(number << 3 | _LENGTH) + _varint(length)


def _varint(value: int) -> bytes:
    parts = []
    while value > 0x7F:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    return struct.pack(f"{len(parts) + 1}B", *parts, value)
