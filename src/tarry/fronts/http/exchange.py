"""A request and its answer, for applications that need no more of HTTP than that: less costs less.

An application is a :data:`Handler`, with a :data:`Begin` for what needs no task of its own.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import NamedTuple, Protocol, TypeAlias

Headers: TypeAlias = list[tuple[bytes, bytes]]
"""Names in lower case."""


class BodyTooLargeError(Exception):
    """A request's body is larger than was allowed. What is left of it is not read: the connection ends."""


class DisconnectedError(Exception):
    """The client has gone: nobody waits for an answer."""


class HttpResponse(NamedTuple):
    """What a request is answered with."""

    status: int
    body: bytes = b""
    headers: tuple[tuple[bytes, bytes], ...] = ()
    lines: bytes = b""
    """More headers, as lines that are written as they are."""


class HttpRequest(Protocol):
    """A request whose headers have come."""

    method: str
    path: str
    """Decoded."""
    query: bytes
    headers: Headers

    @property
    def host(self) -> str:
        """The client's address, without its port."""
        ...

    async def read(self, bytes_max: int) -> bytes:
        """The body.

        Raises:
            BodyTooLargeError: it is, or says that it is, larger. DisconnectedError: the rest of it will not come.
        """
        ...

    def on_disconnect(self, call: Callable[[], None]) -> None:
        """Have ``call`` called once when the client goes before it is answered."""
        ...


Handler: TypeAlias = Callable[[HttpRequest], Awaitable[HttpResponse]]


class WholeRequest(HttpRequest, Protocol):
    """A request that has come whole, and is answered by a call-back."""

    target: bytes
    """Path and query, as they came."""
    gone: bool
    """The client has left: nobody waits for an answer."""

    def whole(self) -> bytes:
        """The body."""
        ...

    def answer(self, response: HttpResponse) -> None:
        """Answer it, once."""
        ...

    def carry_out(self) -> None:
        """Have the handler called after all, in a task: it answers, and this is to be forgotten."""
        ...


Begin: TypeAlias = Callable[[WholeRequest], bool]
"""Carries out what needs no task of its own, which costs more than most requests: the answer comes at once or later.
False: nothing was done, and the :data:`Handler` is called.
"""


class DirectHandler(NamedTuple):
    """What serves requests without ASGI. ``begin`` gets those whose body is small."""

    handler: Handler
    begin: Begin | None = None
