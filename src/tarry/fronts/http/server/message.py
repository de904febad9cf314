"""One request and its answer. It is what a handler gets, and serves ASGI applications."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, MutableMapping
from http import HTTPStatus
from typing import Any, Protocol
from urllib.parse import unquote

from tarry.fronts.http.app import Scope
from tarry.fronts.http.exchange import BodyTooLargeError, DisconnectedError, Headers, HttpResponse, Work
from tarry.fronts.kit.peer_proof import PeerProof

LINES = {status.value: b"HTTP/1.1 %d %s\r\n" % (status, status.phrase.encode()) for status in HTTPStatus}
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_BODILESS = (204, 304)
_END = b"0\r\n\r\n"


class Wire(Protocol):
    """The parts of a connection that a message uses."""

    body_bytes_ahead: int
    peer: tuple[str, int]
    local: tuple[str, int]
    scheme: str

    @property
    def principal(self) -> PeerProof | None: ...
    def trusted(self) -> None: ...
    @property
    def loop(self) -> asyncio.AbstractEventLoop: ...
    @property
    def date(self) -> bytes: ...
    def write(self, data: bytes) -> None: ...
    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...
    def carry_out(self, message: HttpExchange, work: Work) -> None: ...
    async def drain(self) -> None: ...
    def on_answered(self, message: HttpExchange) -> None: ...


class HttpExchange:
    """On the event loop's thread."""

    __slots__ = (
        *(
            "_body",
            "_bodiless",
            "_chunked",
            "_disconnect",
            "_expects",
            "_read",
            "_size",
            "_started",
            "_taken",
        ),
        *(
            "_waiter",
            "_wire",
            "_old",
            "answered",
            "complete",
            "gone",
            "headers",
            "keep_alive",
            "method",
            "path",
            "query",
            "raw_path",
            "target",
        ),
    )

    def __init__(
        self, wire: Wire, method: str, target: bytes, headers: Headers, *, keep_alive: bool, old: bool = False
    ) -> None:
        self._wire = wire
        self.method = method
        self.target = target
        self.raw_path, _, self.query = target.partition(b"?")
        path = self.raw_path.decode("latin-1")
        self.path = unquote(path) if "%" in path else path
        self.headers = headers
        self.keep_alive = keep_alive
        """True if another request may follow; see :meth:`close_after`."""
        self.answered = False
        self.gone = False
        """The client has left."""
        self._expects = False
        self._body: list[bytes] = []
        self._size = 0
        """Bytes of the body that have come."""
        self._read = 0
        """Bytes of the body that were taken."""
        self._taken = False
        """All of it was taken."""
        self._old = old
        """True for HTTP/1.0, which has no chunked bodies."""
        self.complete = False
        """All of the body has come."""
        self._waiter: asyncio.Future[None] | None = None
        self._disconnect: Callable[[], None] | None = None
        self._started = self._chunked = self._bodiless = False

    @property
    def host(self) -> str:
        return self._wire.peer[0]

    @property
    def principal(self) -> PeerProof | None:
        """See :class:`tarry.fronts.http.exchange.HttpRequest`."""
        return self._wire.principal

    def trusted(self) -> None:
        """See :class:`tarry.fronts.http.exchange.HttpRequest`."""
        self._wire.trusted()

    # -- what the connection tells -----------------------------------------------------------------------------------

    def expect_continue(self) -> None:
        """Note that the client waits for ``100 Continue`` before it sends the body."""
        self._expects = True

    def on_body(self, data: bytes) -> None:
        self._body.append(data)
        self._size += len(data)
        if self._size - self._read > self._wire.body_bytes_ahead and self._waiter is None:
            self._wire.pause_reading()
        self._wake()

    def take(self, body: bytes) -> None:
        """All of the body at once, before anybody has looked."""
        if body:
            self._body.append(body)
            self._size = len(body)
        self.complete = True

    def on_complete(self) -> None:
        self.complete = True
        self._wake()

    def on_gone(self) -> None:
        """Handle the loss of the connection."""
        self.gone = True
        self._wake()
        self.stop_waiting()

    def stop_waiting(self) -> None:
        """See :class:`tarry.fronts.http.exchange.HttpRequest`."""
        call, self._disconnect = self._disconnect, None
        if call is not None and not self.answered:
            call()

    @property
    def received(self) -> int:
        """Bytes of the body that have come."""
        return self._size

    # -- for handlers ------------------------------------------------------------------------------------------------

    async def read(self, bytes_max: int) -> bytes:
        """See :class:`tarry.fronts.http.exchange.HttpRequest`."""
        if not self.complete:
            for name, value in self.headers:
                if name == b"content-length" and int(value) > bytes_max:
                    self.keep_alive = False
                    raise BodyTooLargeError
            while not self.complete and self._size <= bytes_max:
                await self._more()
        if self._size > bytes_max:
            self.keep_alive = self.keep_alive and self.complete
            raise BodyTooLargeError
        return self.whole()

    def on_disconnect(self, call: Callable[[], None]) -> None:
        """See :class:`tarry.fronts.http.exchange.HttpRequest`."""
        self._disconnect = call
        if self.gone:
            self._disconnect = None
            call()

    def whole(self) -> bytes:
        """See :class:`tarry.fronts.http.exchange.HttpRequest`."""
        self._read, self._taken = self._size, True
        return self._body[0] if len(self._body) == 1 else b"".join(self._body)

    def carry_out(self, work: Work) -> None:
        """See :class:`tarry.fronts.http.exchange.HttpRequest`."""
        self._disconnect = None
        self._wire.carry_out(self, work)

    def answer(self, response: HttpResponse, lines: bytes = b"") -> None:
        """See :class:`tarry.fronts.http.exchange.HttpRequest`."""
        if self.gone:
            self._end()
            return
        status, body, headers, own_lines = response
        parts = [LINES[status], self._wire.date, own_lines, lines]
        for name, value in headers:
            parts += (name, b": ", value, b"\r\n")
        if status not in _BODILESS:
            parts.append(b"content-length: %d\r\n" % len(body))
        if not self.complete:
            self.keep_alive = False  # what is left of the body would be taken for the next request
        parts.append(b"\r\n" if self.keep_alive else b"connection: close\r\n\r\n")
        if self.method != "HEAD":
            parts.append(body)
        self._started = True
        self._wire.write(b"".join(parts))
        self._end()

    # -- for ASGI ----------------------------------------------------------------------------------------------------

    @property
    def scope(self) -> Scope:
        """Return the request as an ASGI application gets it."""
        return {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "method": self.method,
            "scheme": self._wire.scheme,
            "path": self.path,
            "raw_path": self.raw_path,
            "query_string": self.query,
            "root_path": "",
            "headers": list(self.headers),
            "client": self._wire.peer,
            "server": self._wire.local,
            "state": {"principal": self._wire.principal, "trusted": self._wire.trusted},
        }

    async def receive(self) -> MutableMapping[str, Any]:
        """Return the next part of the body.

        After the body: wait until nobody waits for more of the answer, and return that.
        """
        try:
            while not self.gone and not self.answered:
                if not self._taken and (self._body or self.complete):
                    return self._take()
                await self._more()
        except DisconnectedError:
            pass
        return {"type": "http.disconnect"}

    def _take(self) -> MutableMapping[str, Any]:
        body, self._body = b"".join(self._body), []
        self._read, self._taken = self._size, self.complete
        if not self.complete:
            self._wire.resume_reading()
        return {"type": "http.request", "body": body, "more_body": not self.complete}

    async def send(self, event: MutableMapping[str, Any]) -> None:
        """Send a part of the answer. Waits while the client does not take earlier parts."""
        if self.gone or self.answered:
            return
        if event["type"] == "http.response.start":
            self._begin(event["status"], event.get("headers", ()))
        elif event["type"] == "http.response.body":
            self._send_body(event.get("body", b""), more=event.get("more_body", False))
            if not self.answered:
                await self._wire.drain()

    def _begin(self, status: int, headers: Any) -> None:
        parts = [LINES.get(status) or b"HTTP/1.1 %d \r\n" % status, self._wire.date]
        has_length = False
        for name, value in headers:
            if b"\n" in value or b"\r" in value or b"\n" in name or b"\r" in name:
                raise ValueError(f"header {name!r} has a line break")
            has_length |= name.lower() == b"content-length"
            parts += (name, b": ", value, b"\r\n")
        self._bodiless = self.method == "HEAD" or status in _BODILESS
        self._chunked = not has_length and not self._bodiless and not self._old
        if self._old or not self.complete:
            self.keep_alive = False
        if self._chunked:
            parts.append(b"transfer-encoding: chunked\r\n")
        parts.append(b"\r\n" if self.keep_alive else b"connection: close\r\n\r\n")
        self._started = True
        self._wire.write(b"".join(parts))

    def _send_body(self, body: bytes, *, more: bool) -> None:
        if not self._bodiless:
            if self._chunked and body:
                self._wire.write(b"%x\r\n%b\r\n" % (len(body), body))
            elif body:
                self._wire.write(body)
            if self._chunked and not more:
                self._wire.write(_END)
        if not more:
            self._end()

    @property
    def started(self) -> bool:
        """True if some of the answer was sent."""
        return self._started

    def cut(self) -> None:
        """End the answer here, whatever was promised: nothing may follow on this connection."""
        self.keep_alive = False
        self._end()

    # ----------------------------------------------------------------------------------------------------------------

    def _end(self) -> None:
        if not self.answered:
            self.answered = True
            self._wake()
            self._wire.on_answered(self)

    async def _more(self) -> None:
        """Wait for more of the body, its end, or the client's."""
        if self.gone:
            raise DisconnectedError
        if self._expects and not self._started:
            self._expects = False
            self._wire.write(CONTINUE)
        self._waiter = self._wire.loop.create_future()
        if not self.complete:
            self._wire.resume_reading()
        try:
            await self._waiter
        finally:
            self._waiter = None
        if self.gone:
            raise DisconnectedError

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
