"""A call as its handler sees it: caller, method, metadata, deadline, and cancellation."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Protocol

from loopgrpc.header_table import Field
from loopgrpc.metadata import decode_binary, encode_metadata, join_metadata
from loopgrpc.status import GrpcError, StatusCode

log = logging.getLogger(__name__)


class RequestHeaders(Protocol):
    """The part of a request's header fields that a handler may ask for."""

    @property
    def path(self) -> bytes:
        """``/package.Service/Method``."""

    @property
    def metadata(self) -> list[Field]:
        """The caller's own fields in their order."""

    def value(self, name: bytes) -> bytes:
        """Return the last field with this name; empty if there is none."""


class Call:
    """One call, as its handler sees it.

    It may be kept after its end (see :meth:`on_done`): it then still says what it said before, and what is set on it is
    not sent.
    """

    __slots__ = (
        "_callbacks",
        "_metadata",
        "_request",
        "cancelled",
        "deadline",
        "done",
        "peer",
        "principal",
        "trailing",
    )

    def __init__(self, request: RequestHeaders, peer: str, deadline: float | None, principal: object = None) -> None:
        self._request = request
        self._metadata: Mapping[str, str] | None = None
        self._callbacks: list[Callable[[Call], None]] | None = None
        self.peer = peer
        """The client's address with its port: ``127.0.0.1:1234``, ``[::1]:1234``."""
        self.principal = principal
        """The identity that the connection proved: that of its :class:`loopgrpc.Admission`; None without one."""
        self.deadline = deadline
        """The time at which the client stops waiting, as the event loop's time, in seconds; None: never."""
        self.cancelled = False
        """True once nobody waits for the response: reset by the client, late, or its connection lost."""
        self.done = False
        """True once the call has ended, in whichever way."""
        self.trailing: list[Field] = []
        """The fields set by :meth:`set_trailing_metadata`, as they are sent."""

    @property
    def host(self) -> str:
        """The client's address without its port."""
        return self.peer.rpartition(":")[0].strip("[]")

    @property
    def method(self) -> str:
        """The path of the call: ``/package.Service/Method``."""
        return self._request.path.decode("latin-1")

    @property
    def metadata(self) -> Mapping[str, str]:
        """The caller's own fields by their names in lower case.

        Values that arrived separately under one name are joined with ``,``. Values of ``-bin`` names are in base64: see
        :meth:`binary`. Fields of gRPC itself are left out.
        """
        if self._metadata is None:
            self._metadata = join_metadata(self._request.metadata)
        return self._metadata

    def value(self, name: bytes) -> bytes:
        """Return one of the caller's fields as it came, the last of that name; empty if there is none.

        Faster than :attr:`metadata` for handlers that need a few fields of each of many calls.
        """
        return self._request.value(name)

    def binary(self, name: str) -> list[bytes]:
        """Return the values of a ``-bin`` field, decoded; none if there is no such field.

        Raises GrpcError (INVALID_ARGUMENT): one of them is not base64. A handler can let it pass to its caller.
        """
        text = self.metadata.get(name)
        if text is None:
            return []
        try:
            return decode_binary(text)
        except ValueError as error:
            raise GrpcError(StatusCode.INVALID_ARGUMENT, f"metadata {name!r} is no base64: {error}") from error

    def set_trailing_metadata(self, metadata: Mapping[str, str | bytes]) -> None:
        """Set the fields sent after the response beside its status; bytes for ``-bin`` names.

        They replace those set before. Raises ValueError: a name or a value that the wire cannot carry.
        """
        self.trailing = [encode_metadata(name, value) for name, value in metadata.items()]

    def on_done(self, callback: Callable[[Call], None]) -> None:
        """Call ``callback`` once when this call ends, or at once if it has ended; log its exceptions."""
        if self.done:
            _run_callback(callback, self)
        elif self._callbacks is None:
            self._callbacks = [callback]
        else:
            self._callbacks.append(callback)

    def end(self, *, cancelled: bool) -> None:
        """End the call; a second time, do nothing. For the server alone, and for tests of handlers."""
        if self.done:
            return
        self.done = True
        self.cancelled = cancelled
        callbacks, self._callbacks = self._callbacks, None
        for callback in callbacks or ():
            _run_callback(callback, self)


def _run_callback(callback: Callable[[Call], None], call: Call) -> None:
    try:
        callback(call)
    except Exception:
        log.exception("a callback at the end of %s failed", call.method)
