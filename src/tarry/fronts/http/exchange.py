"""A request and its answer, for applications that need no more of HTTP than that: less costs less.

A :data:`Handler` answers at once, or later by a call-back, or returns what is to be awaited: a task of its own costs
more than most requests do. An application of ASGI is one, too, by way of :mod:`tarry.fronts.http.server.asgi`.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple, Protocol, TypeAlias

from tarry.fronts.kit.peer_proof import PeerProof

Headers: TypeAlias = list[tuple[bytes, bytes]]
"""Names in lower case."""


class BodyTooLargeError(Exception):
    """A request's body is larger than was allowed. What is left of it is not read: the connection ends."""


class DisconnectedError(Exception):
    """The client has gone: nobody waits for an answer."""


class HttpResponse(NamedTuple):
    """The answer to a request."""

    status: int
    body: bytes = b""
    headers: tuple[tuple[bytes, bytes], ...] = ()
    lines: bytes = b""
    """More headers, as lines that are written unchanged."""


class HttpRequest(Protocol):
    """A request whose headers have come, and its answer."""

    method: str
    path: str
    """Decoded."""
    query: bytes
    target: bytes
    """Path and query, as they came."""
    headers: Headers
    complete: bool
    """All of the body has come."""
    gone: bool
    """The client has left: nobody waits for an answer."""
    keep_alive: bool
    """True if another request may follow; a handler may set it to False before it answers."""

    @property
    def host(self) -> str:
        """The client's address, without its port."""
        ...

    @property
    def principal(self) -> PeerProof | None:
        """The identity that the client's connection has proved; None if it has proved none."""
        ...

    def trusted(self) -> None:
        """Note that the request has shown whose it is, or need not."""
        ...

    def whole(self) -> bytes:
        """Return the body of a request that is complete."""
        ...

    async def read(self, bytes_max: int) -> bytes:
        """Return the body, as soon as all of it has come.

        Raises:
            BodyTooLargeError: it is, or says that it is, larger. DisconnectedError: the rest of it will not come.
        """
        ...

    def on_disconnect(self, call: Callable[[], None]) -> None:
        """Have ``call`` called once if the client leaves before it is answered, or shall not wait any longer."""
        ...

    def stop_waiting(self) -> None:
        """Call what :meth:`on_disconnect` was given, as if the client had left: who waits is answered now."""
        ...

    def answer(self, response: HttpResponse, lines: bytes = b"") -> None:
        """Answer it, once. ``lines``: more headers, as those of the response."""
        ...

    def carry_out(self, work: Work) -> None:
        """Have ``work`` awaited in a task. When it ends, the request is answered, or it is cut."""
        ...


Work: TypeAlias = Coroutine[Any, Any, None]
Handler: TypeAlias = Callable[[HttpRequest], Work | None]
"""Answers a request, before it returns or later, by :meth:`HttpRequest.answer`.

Its result is carried out as by :meth:`HttpRequest.carry_out`.
"""


class HttpApplication(NamedTuple):
    """A handler, and the time when it is called."""

    handler: Handler
    whole: bool = True
    """True if small bodies have come when it is called; large ones are still to come.

    False: all bodies are still to come.
    """
