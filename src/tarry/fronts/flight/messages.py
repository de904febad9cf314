"""Messages of Flight on the wire, by hand: bodies of megabytes are not to be copied for it.

Source: ``Flight.proto`` of apache/arrow; errors as its C++ server sends them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from loopgrpc import Framed, GrpcError, StatusCode, assembled
from tarry.api.wire import encode_error
from tarry.base.arrow_messages import PREFIX
from tarry.base.errors import (
    ForbiddenError,
    InvalidArgumentError,
    MessageTooLargeError,
    OverloadedError,
    OwnershipLostError,
    TarryError,
    UnauthenticatedError,
    UnavailableError,
)
from tarry.base.protobuf import head, read_fields
from tarry.fronts.kit.known_errors import known

DESCRIPTOR, HEADER, BODY = 1, 2, 1000
"""Fields of FlightData that are read; app metadata (3) says nothing here."""
RESULT = 1
"""The one field of a Result, and of a PutResult."""
PATH = 1
"""Type of a descriptor that is a path and not a command."""
IO_ERROR = "5"
"""Arrow's status of a server's error."""
_OWN = {StatusCode.RESOURCE_EXHAUSTED: MessageTooLargeError, StatusCode.UNAVAILABLE: OverloadedError}


@dataclass(frozen=True, slots=True)
class FlightData:
    """One message of a stream: an Arrow message, or none; the first with a descriptor."""

    path: list[bytes] | None
    command: bytes
    header: memoryview
    body: memoryview

    @property
    def asked(self) -> str:
        """The path or command, as an error's text shows it."""
        if self.path is None:
            return f"{self.command[:80]!r}"
        return f"{[part[:80].decode('utf-8', 'replace') for part in self.path[:8]]!r:.300}"


def read_data(raw: bytes) -> FlightData:
    """Read a FlightData. Raises InvalidArgumentError: it is none."""
    found, none = _fields(raw), [b""]
    path, command = None, b""
    if DESCRIPTOR in found:
        descriptor = found[DESCRIPTOR][-1]
        parts = _fields(descriptor)
        command = bytes(parts.get(2, none)[-1])
        if _fields(descriptor, int).get(1) == [PATH]:
            path = [bytes(part) for part in parts.get(3, [])]
    header, body = (memoryview(found.get(number, none)[-1]) for number in (HEADER, BODY))
    return FlightData(path, command, header, body)


_ENDS: dict[type[TarryError], tuple[str, StatusCode]] = {
    UnavailableError: ("Unavailable", StatusCode.UNAVAILABLE),
    OwnershipLostError: ("Unavailable", StatusCode.UNAVAILABLE),
    UnauthenticatedError: ("Unauthenticated", StatusCode.UNAUTHENTICATED),
    ForbiddenError: ("Unauthorized", StatusCode.PERMISSION_DENIED),
}
"""Flight's own kinds of errors, which clients raise as classes of their own."""


def read_pair(raw: bytes) -> tuple[bytes, memoryview]:
    """Read an Action's type and body, or a Ticket's ticket. Raises InvalidArgumentError: it is none."""
    found = _fields(raw)
    return bytes(found.get(1, [b""])[-1]), memoryview(found.get(2, [b""])[-1])


def field(number: int, value: bytes) -> bytes:
    """Return a field with what stands before it; of one field, that is a whole message."""
    return head(number, len(value)) + value


def arrow_data(message: pa.Buffer, *, has_body: bool = True) -> Framed:
    """Return the FlightData of an Arrow message: a batch, or a schema, which has no body."""
    view: memoryview = memoryview(message)
    end = PREFIX.size + PREFIX.unpack_from(view)[1]
    parts: list[bytes | memoryview] = [head(HEADER, end - PREFIX.size), view[PREFIX.size : end]]
    return assembled([*parts, head(BODY, len(view) - end), view[end:]] if has_body else parts)


def translate(error: Exception) -> GrpcError:
    """Return how a call ends: with the error's code in the details, pyarrow's ``extra_info``."""
    if isinstance(error, GrpcError) and error.status in _OWN:
        error = _OWN[error.status](error.message)  # the server's own, of what was too large, or too many
    if isinstance(error, GrpcError):
        return error
    error = known(error)
    kind, status = next((ends for of, ends in _ENDS.items() if isinstance(error, of)), ("Failed", StatusCode.UNKNOWN))
    trailing: dict[str, str | bytes] = {
        "grpc-status-details-bin": encode_error(error),
        "x-arrow-status": IO_ERROR,
        "x-arrow-status-detail-bin": kind.encode(),
        "x-arrow-status-message-bin": str(error).encode(errors="replace"),
    }
    return GrpcError(status, f"{error}. Detail: {kind}", trailing)


def _fields(raw: bytes | memoryview, kind: type = memoryview) -> dict[int, list[Any]]:
    """Return the values of each field, those of the wire type that is asked for."""
    found: dict[int, list[Any]] = {}
    try:
        for number, value in read_fields(raw):
            if isinstance(value, kind):
                found.setdefault(number, []).append(value)
    except ValueError as error:
        raise InvalidArgumentError(f"no message of Flight: {bytes(raw[:40])!r} ({len(raw)} bytes): {error}") from error
    return found
