"""Requests that a worker passes on to the HTTP front in the broker's process, and their answers.

Each has a connection of its own there. When the client leaves, it ends, and when it ends early, so does the answer: the
home sees of a client what it would see without workers.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import MutableMapping
from contextlib import suppress
from typing import Any

import httptools

from tarry.base.endpoint import socket_path
from tarry.base.errors import UnavailableError
from tarry.fronts.http.app import Receive, Scope, Send
from tarry.fronts.http.errors import error_body, error_headers
from tarry.fronts.http.exchange import Headers
from tarry.fronts.kit.passing import Origin, pass_on

READ_BYTES = 64 << 10
_OF_A_CONNECTION = frozenset(
    (b"connection", b"keep-alive", b"proxy-connection", b"upgrade", b"expect", b"te", b"transfer-encoding", b"date")
)
"""Headers that say something of one connection, or that each server writes by itself."""
_UNANSWERED = "the broker's process has not answered; what was asked for may have been done"
_JSON: Headers = [(b"content-type", b"application/json; charset=utf-8")]


class PassOn:
    """An ASGI application: the home's, at its socket ``unix:PATH``."""

    def __init__(self, home: str) -> None:
        self._path = socket_path(home) or ""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(READ_BYTES, loop)
        protocol = asyncio.StreamReaderProtocol(reader, loop=loop)
        try:
            transport = await pass_on(self._path, _origin(scope), protocol)
        except UnavailableError as error:
            await _refuse(send, error)
            return
        writer = asyncio.StreamWriter(transport, protocol, reader, loop)
        writer.write(_head(scope))
        asking = asyncio.ensure_future(_ask(scope, receive, writer))
        try:
            if not await _Answer(scope["method"]).pass_back(reader, send):
                await _refuse(send, UnavailableError(_UNANSWERED))
        finally:
            asking.cancel()
            transport.abort()


def _origin(scope: Scope) -> Origin:
    return Origin(scope["client"], scope["server"], scope["state"]["principal"], scope["scheme"] == "https")


def _head(scope: Scope) -> bytes:
    query: bytes = scope["query_string"]
    lines = [
        b"%b %b%b HTTP/1.1\r\n" % (scope["method"].encode(), scope["raw_path"], b"?" + query if query else b""),
        *(b"%b: %b\r\n" % header for header in scope["headers"] if header[0] not in _OF_A_CONNECTION),
        b"transfer-encoding: chunked\r\n" if _is_chunked(scope) else b"",
        b"connection: close\r\n\r\n",
    ]
    return b"".join(lines)


def _is_chunked(scope: Scope) -> bool:
    return any(name == b"transfer-encoding" for name, _ in scope["headers"])


async def _ask(scope: Scope, receive: Receive, writer: asyncio.StreamWriter) -> None:
    """Pass the body on, and end the connection when the client leaves."""
    chunked = _is_chunked(scope)
    with suppress(OSError):
        while (event := await receive())["type"] == "http.request":
            body, more = event.get("body", b""), event.get("more_body", False)
            if body:
                writer.write(b"%x\r\n%b\r\n" % (len(body), body) if chunked else body)
            if chunked and not more:
                writer.write(b"0\r\n\r\n")
            await writer.drain()
    writer.transport.abort()


class _Answer:
    """One answer on its way. The parser's callbacks are its methods ``on_…``."""

    def __init__(self, method: str) -> None:
        self._parser = httptools.HttpResponseParser(self)
        self._is_bodiless = method == "HEAD"
        self._headers: Headers = []
        self._events: deque[MutableMapping[str, Any]] = deque()
        self._is_begun = self._is_complete = False

    async def pass_back(self, reader: asyncio.StreamReader, send: Send) -> bool:
        """Pass the answer on as it comes; return False if there was none of it."""
        with suppress(OSError, httptools.HttpParserError):
            while not self._is_complete and (data := await reader.read(READ_BYTES)):
                self._parser.feed_data(data)
                while self._events:
                    await send(self._events.popleft())
        # An answer that has begun and not ended is cut by whoever called: its client must not take it for whole.
        return self._is_begun

    def on_header(self, name: bytes, value: bytes) -> None:
        name = name.lower()
        if name not in _OF_A_CONNECTION:
            self._headers.append((name, value))

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        self._is_begun = True
        self._events.append({"type": "http.response.start", "status": status, "headers": self._headers})
        if self._is_bodiless:
            self.on_message_complete()

    def on_body(self, body: bytes) -> None:
        self._events.append({"type": "http.response.body", "body": body, "more_body": True})

    def on_message_complete(self) -> None:
        if not self._is_complete:
            self._is_complete = True
            self._events.append({"type": "http.response.body", "body": b"", "more_body": False})


async def _refuse(send: Send, error: UnavailableError) -> None:
    body = error_body(error)
    more = [(name.encode(), value.encode()) for name, value in error_headers(error).items()]
    headers = [*_JSON, *more, (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": 503, "headers": headers})
    await send({"type": "http.response.body", "body": body})
