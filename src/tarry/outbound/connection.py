"""One connection to a receiver: HTTP/1.1, one request at a time.

Answers are read by httptools' parser (llhttp). The status is what counts. Only the beginning of a body is read. If it
is longer, or its end is not known, or if anything arrives unasked, the connection is not used again.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import cast
from urllib.parse import urlsplit

import httptools

CONTENT_BYTES_MAX = 2048
"""Bytes of an answer's body that are kept, if nothing else is said."""
READ_BYTES_MAX = 64 << 10
"""Bytes of an answer that are read to keep the connection; after a longer one it is closed."""
HEAD_BYTES_MAX = 64 << 10
"""Maximum size of an answer's headers, together."""
SWITCHING_PROTOCOLS = 101
_LINE_BYTES = 4
"""Bytes of a header, beside its name and its value."""


class LostError(ConnectionError):
    """There is no answer; the connection is closed."""


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """The answer to one request.

    ``status`` None: there was no answer, and ``error`` has the reason. ``content``: the first bytes of the body.
    """

    status: int | None
    error: str | None = None
    content: bytes = b""
    retry_after: str | None = None


class HttpTarget:
    """The receiver of requests, with the parts of them that are the same each time."""

    def __init__(self, url: str, method: str = "POST") -> None:
        """Parse ``url``, whose form was checked."""
        parts = urlsplit(url)
        self.tls = parts.scheme == "https"
        self.host = parts.hostname or ""
        self.port = parts.port or (443 if self.tls else 80)
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        self.head = f"{method} {path} HTTP/1.1\r\nhost: {parts.netloc}\r\n"


class ReceiverConnection(asyncio.Protocol):
    """A connection to a receiver. On the loop's thread.

    Closed for good once :attr:`usable` is false.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, content_bytes_max: int = CONTENT_BYTES_MAX) -> None:
        self.usable = True
        """True if another request may be sent, when none is on its way."""
        self.used_s = 0.0
        """Time of the last answer, as the loop's time."""
        self.heard = False
        """True if any part of an answer to the last request has arrived."""
        self._loop = loop
        self._content_bytes_max = content_bytes_max
        self._read_bytes_max = max(READ_BYTES_MAX, content_bytes_max)
        self._transport: asyncio.Transport | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._waiter: asyncio.Future[HttpAnswer] | None = None
        self._begin()

    def _begin(self) -> None:
        self.heard = False
        self._status = 0
        self._complete = self._lasts = False
        self._bytes = self._head_bytes = 0
        self._content = b""
        self._retry_after: str | None = None

    async def send(self, request: bytes) -> HttpAnswer:
        """Send a request, and wait for its answer.

        If the wait is cancelled, the connection is closed.

        Raises:
            LostError: there is no answer; the text has the reason.
        """
        self._begin()
        waiter: asyncio.Future[HttpAnswer] = self._loop.create_future()
        self._waiter = waiter
        assert self._transport is not None
        self._transport.write(request)
        try:
            return await waiter
        except asyncio.CancelledError:
            self.close()
            raise
        finally:
            self._waiter = None

    def answer(self) -> HttpAnswer | None:
        """Return the answer as far as it has arrived; None until its status has."""
        return HttpAnswer(self._status, None, self._content, self._retry_after) if self._status else None

    def close(self) -> None:
        """Close at once, even if a request is on its way."""
        self.usable = False
        if self._transport is not None:
            self._transport.abort()

    # -- asyncio.Protocol --------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        if self._waiter is None or self._waiter.done():
            self.close()  # nobody has asked
            return
        self.heard = True
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._end("the answer switches to another protocol")
        except httptools.HttpParserError as error:
            self._end(f"the answer is no HTTP: {error}")
        else:
            # Count everything: the parser keeps a header, and a trailer, until its end.
            self._bytes += len(data)
            if not self._status and self._bytes > HEAD_BYTES_MAX:
                self._end(f"the answer has more than {HEAD_BYTES_MAX} bytes of headers")
            elif self._complete:
                self._end("", keep=self._lasts and self.usable)
            elif self._bytes >= self._read_bytes_max:
                self._end("")

    def connection_lost(self, exc: Exception | None) -> None:
        self._end("the connection was closed before an answer" if exc is None else f"{type(exc).__name__}: {exc}")

    # -- httptools ---------------------------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        if self._complete:
            self.usable = False  # a second answer to one request

    def on_header(self, name: bytes, value: bytes) -> None:
        self._head_bytes += len(name) + len(value) + _LINE_BYTES
        if name.lower() == b"retry-after" and not self._complete:
            self._retry_after = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        if self._complete:
            return
        if status < 200 and status != SWITCHING_PROTOCOLS:  # interim, on the way to an answer
            self._retry_after = None
        elif self._head_bytes <= HEAD_BYTES_MAX:
            self._status = status

    def on_body(self, body: bytes) -> None:
        if not self._complete:
            self._content += body[: self._content_bytes_max - len(self._content)]

    def on_message_complete(self) -> None:
        if self._status and not self._complete:
            self._complete = True
            self._lasts = self._parser.should_keep_alive()  # it is known only now

    # -- inside ------------------------------------------------------------------------------------------------------

    def _end(self, error: str, *, keep: bool = False) -> None:
        """Give the waiting call its answer: the status, if it has arrived, whatever became of the rest."""
        if not keep:
            self.close()
        self.used_s = self._loop.time()
        if self._waiter is None or self._waiter.done():
            return
        if (answer := self.answer()) is not None:
            self._waiter.set_result(answer)
        else:
            self._waiter.set_exception(LostError(error))
