"""A request and its answer, for applications that need no more of HTTP than that: less costs less.

An application is a :data:`Handler`. :func:`as_app` makes an ASGI application of one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import NamedTuple, Protocol, TypeAlias

from tarry.fronts.http.app import App, Receive, Scope, Send

Headers: TypeAlias = list[tuple[bytes, bytes]]
"""Names in lower case."""


class BodyTooLargeError(Exception):
    """A request's body is larger than was allowed. What is left of it is not read: the connection ends."""


class DisconnectedError(Exception):
    """The client has gone: nobody waits for an answer."""


class Response(NamedTuple):
    """What a request is answered with."""

    status: int
    body: bytes = b""
    headers: tuple[tuple[bytes, bytes], ...] = ()


class Request(Protocol):
    """A request whose headers have come."""

    method: str
    path: str
    """Decoded."""
    query: bytes
    headers: Headers

    async def read(self, bytes_max: int) -> bytes:
        """The body.

        Raises:
            BodyTooLargeError: it is, or says that it is, larger. DisconnectedError: the rest of it will not come.
        """
        ...

    def on_disconnect(self, call: Callable[[], None]) -> None:
        """Have ``call`` called once when the client goes before it is answered."""
        ...


Handler: TypeAlias = Callable[[Request], Awaitable[Response]]


class _AsgiRequest:
    def __init__(self, scope: Scope, receive: Receive) -> None:
        self.method: str = scope["method"]
        self.path: str = scope["path"]
        self.query: bytes = scope["query_string"]
        self.headers: Headers = list(scope["headers"])
        self._receive = receive
        self._watch: asyncio.Task[None] | None = None

    async def read(self, bytes_max: int) -> bytes:
        length = dict(self.headers).get(b"content-length", b"0")
        if length.isdigit() and int(length) > bytes_max:
            raise BodyTooLargeError
        parts: list[bytes] = []
        size = 0
        while True:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                raise DisconnectedError
            parts.append(message.get("body", b""))
            size += len(parts[-1])
            if size > bytes_max:
                raise BodyTooLargeError
            if not message.get("more_body", False):
                return b"".join(parts) if len(parts) > 1 else parts[0]

    def on_disconnect(self, call: Callable[[], None]) -> None:
        self._watch = asyncio.ensure_future(self._watch_for_end(call))

    async def _watch_for_end(self, call: Callable[[], None]) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        call()

    async def end(self) -> None:
        if self._watch is not None:
            self._watch.cancel()
            with suppress(asyncio.CancelledError):
                await self._watch


def as_app(handler: Handler) -> App:
    """The ASGI application of a handler."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        request = _AsgiRequest(scope, receive)
        try:
            response = await handler(request)
        except DisconnectedError:
            return
        finally:
            await request.end()
        await send({"type": "http.response.start", "status": response.status, "headers": response.headers})
        await send({"type": "http.response.body", "body": response.body})

    return app
