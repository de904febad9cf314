"""The end of a gRPC call: its status code, its text, and the error with which handlers choose them.

Sources: the gRPC documents ``statuscodes.md`` and ``PROTOCOL-HTTP2.md`` (Status-Message is percent-encoded UTF-8).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import IntEnum
from typing import TypeAlias
from urllib.parse import quote

_UNESCAPED = " !\"#$&'()*+,-./:;<=>?@[\\]^_`{|}~"
"""Printable ASCII but ``%``; ``quote`` leaves letters and digits as they are in any case."""
MESSAGE_CHARACTERS_MAX = 1_024


class StatusCode(IntEnum):
    """The status codes of gRPC."""

    OK = 0
    CANCELLED = 1
    UNKNOWN = 2
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    ALREADY_EXISTS = 6
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    ABORTED = 10
    OUT_OF_RANGE = 11
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14
    DATA_LOSS = 15
    UNAUTHENTICATED = 16


class GrpcError(Exception):
    """Error that a handler raises to end its call with ``status`` and ``message``.

    ``trailing``: fields that are sent beside them, in place of those of :meth:`loopgrpc.Call.set_trailing_metadata`.
    """

    def __init__(
        self, status: StatusCode, message: str = "", trailing: Mapping[str, str | bytes] | None = None
    ) -> None:
        super().__init__(f"{status.name}: {message}" if message else status.name)
        self.status = status
        self.message = message
        self.trailing = trailing


Translate: TypeAlias = Callable[[Exception], GrpcError]
"""Returns how a call ends in the words of a protocol.

It gets the exception of a handler, or a GrpcError of the server's own.
"""


def encode_message(message: str) -> bytes:
    """Encode ``message`` for ``grpc-message``, cut to ``MESSAGE_CHARACTERS_MAX`` characters."""
    return quote(message[:MESSAGE_CHARACTERS_MAX], safe=_UNESCAPED, errors="replace").encode("ascii")
