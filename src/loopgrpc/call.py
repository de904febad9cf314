"""What a handler sees of its call: who asks for what, until when, and whether anybody still waits."""

from __future__ import annotations

import logging
from base64 import b64decode
from binascii import Error as Base64Error
from collections.abc import Callable, Mapping
from typing import Protocol

from loopgrpc.answers import encode_metadata
from loopgrpc.fields import Field
from loopgrpc.status import GrpcError, StatusCode

log = logging.getLogger(__name__)


class _Asked(Protocol):
    @property
    def path(self) -> bytes: ...
    @property
    def metadata(self) -> list[Field]: ...


class Call:
    """One call. It outlives nothing: after its end (see :meth:`on_done`) it says what it said, and nothing is sent."""

    __slots__ = ("_callbacks", "_metadata", "_request", "cancelled", "deadline", "done", "peer", "trailing")

    def __init__(self, request: _Asked, peer: str, deadline: float | None) -> None:
        self._request = request
        self._metadata: dict[str, str] | None = None
        self._callbacks: list[Callable[[Call], None]] | None = None
        self.peer = peer
        """Where the client is: ``127.0.0.1:1234``, ``[::1]:1234``."""
        self.deadline = deadline
        """When the client stops waiting, as the event loop's time, in seconds; None: never."""
        self.cancelled = False
        """True once nobody waits for the answer: reset by the client, late, or its connection lost."""
        self.done = False
        """True once the call has ended, in whichever way."""
        self.trailing: list[Field] = []

    @property
    def method(self) -> str:
        """The path of the call: ``/package.Service/Method``."""
        return self._request.path.decode("latin-1")

    @property
    def metadata(self) -> Mapping[str, str]:
        """The caller's own fields by their names in lower case; values that came apart under one name are joined with
        ``,``. Values of ``-bin`` names are in base64: see :meth:`binary`. What belongs to gRPC itself is left out."""
        if self._metadata is None:
            joined: dict[str, str] = {}
            for raw_name, raw_value in self._request.metadata:
                name, value = raw_name.decode("ascii"), raw_value.decode("latin-1")
                joined[name] = f"{joined[name]},{value}" if name in joined else value
            self._metadata = joined
        return self._metadata

    def value(self, name: bytes) -> bytes:
        """One of the caller's fields as it came, the last of that name; empty if there is none. For who needs a few of
        them from each of many calls."""
        for known, value in reversed(self._request.metadata):
            if known == name:
                return value
        return b""

    def binary(self, name: str) -> list[bytes]:
        """The values of a ``-bin`` field, decoded; none if there is no such field.

        Raises GrpcError (INVALID_ARGUMENT): one is no base64. A handler lets it pass to its caller.
        """
        text = self.metadata.get(name)
        if text is None:
            return []
        try:
            # Senders may leave out the padding, and may join several values with commas.
            return [b64decode(part + "=" * (-len(part) % 4), validate=True) for part in text.split(",")]
        except (Base64Error, ValueError) as error:
            raise GrpcError(StatusCode.INVALID_ARGUMENT, f"metadata {name!r} is no base64: {error}") from error

    def set_trailing_metadata(self, metadata: Mapping[str, str | bytes]) -> None:
        """What is sent after the answer beside its status, instead of what was set before; bytes for ``-bin`` names.

        Raises ValueError: a name or a value that the wire cannot carry.
        """
        self.trailing = [encode_metadata(name, value) for name, value in metadata.items()]

    def on_done(self, callback: Callable[[Call], None]) -> None:
        """Call ``callback`` once when this call ends, at once if it has; what it raises is logged."""
        if self.done:
            _tell(callback, self)
        elif self._callbacks is None:
            self._callbacks = [callback]
        else:
            self._callbacks.append(callback)

    def end(self, *, cancelled: bool) -> None:
        """For the server alone: the call has ended."""
        if self.done:
            return
        self.done = True
        self.cancelled = cancelled
        callbacks, self._callbacks = self._callbacks, None
        for callback in callbacks or ():
            _tell(callback, self)


def _tell(callback: Callable[[Call], None], call: Call) -> None:
    try:
        callback(call)
    except Exception:
        log.exception("a callback at the end of %s failed", call.method)
