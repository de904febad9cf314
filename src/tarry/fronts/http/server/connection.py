"""One client's connection: its requests, one after the other, and when it has to end."""

from __future__ import annotations

import asyncio
import json
import logging
from collections import deque
from enum import Enum
from typing import NoReturn, Protocol, cast

import httptools

from loopgrpc import UnreadBytes, UnreadOfConnection
from tarry.fronts.http.exchange import DisconnectedError, Handler, Headers, HttpApplication, HttpResponse, Work
from tarry.fronts.http.server.known_heads import Head, KnownHeads
from tarry.fronts.http.server.limits import HttpLimits
from tarry.fronts.http.server.message import HttpExchange
from tarry.fronts.http.server.upgrades import without_offer
from tarry.fronts.kit.admission import Admission
from tarry.fronts.kit.peer_proof import PeerProof

log = logging.getLogger(__name__)

PIPELINED_MAX = 16
"""Requests that wait for the answer to an earlier one; then no more is read."""
JSON = ((b"content-type", b"application/json; charset=utf-8"),)
BAD_REQUEST = HttpResponse(400, b'{"error":"bad request"}', JSON)
HEADERS_TOO_LARGE = HttpResponse(431, b'{"error":"request headers too large"}', JSON)
TIMEOUT = HttpResponse(408, b'{"error":"request timeout"}', JSON)
OVERLOADED = ((b"retry-after", b"1"), *JSON)
INTERNAL = HttpResponse(500, b'{"error":"internal error"}', JSON)


class ConnectionOwner(Protocol):
    """The parts of the server that a connection uses."""

    limits: HttpLimits
    loop: asyncio.AbstractEventLoop
    date: bytes
    """A header line with the time."""
    heads: KnownHeads
    unread: UnreadBytes

    def add(self, connection: HttpConnection) -> None: ...
    def forget(self, connection: HttpConnection) -> None: ...
    def application_for(self, path: str) -> HttpApplication: ...
    def keep(self, task: asyncio.Task[None]) -> None: ...


class Doing(Enum):
    """The event that a connection waits for."""

    REQUEST = "the next request"
    HEADERS = "the rest of a request's headers"
    BODY = "the rest of a body"
    ANSWER = "the answer"
    END = "its end"


class HttpConnection(asyncio.Protocol):
    """On the event loop's thread. The parser's callbacks are its methods ``on_…``."""

    def __init__(self, owner: ConnectionOwner, admission: Admission) -> None:
        self._admission = admission
        self.loop = owner.loop
        self.peer: tuple[str, int] = ("", 0)
        self.local: tuple[str, int] = ("", 0)
        self.scheme = "http"
        self.body_bytes_ahead = owner.limits.body_bytes_ahead
        self._header_bytes_max = owner.limits.header_bytes_max
        self._headers_max = owner.limits.headers_max
        self._owner = owner
        self._transport: asyncio.Transport
        self._parser = httptools.HttpRequestParser(self)
        self._url = b""
        self._headers: Headers = []
        self._header_bytes = 0
        self._host: bytes | None = None
        self._expects = False
        self._offers_upgrade = False
        self._body_bytes = 0
        """Length of the body by its headers; -1: they do not say how long it is."""
        self._receiving: HttpExchange | None = None
        """The request whose body is arriving."""
        self._parsed: list[HttpExchange] | None = None
        """The requests in a first piece of data, while it is being parsed; else None."""
        self._current: HttpExchange | None = None
        """The request that is being answered."""
        self._unbegun: Handler | None = None
        """The handler of the current request, if it waits for the end of the body."""
        self._waiting: deque[HttpExchange] = deque()
        self._paused_writing: asyncio.Future[None] | None = None
        self._paused_reading = False
        self._unread = UnreadOfConnection(owner.unread, "")
        self._began_s = 0.0
        self._doing = Doing.HEADERS
        self._thrown_away = 0
        """Bytes that came after the last request that is answered."""

    # -- the transport's -----------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self.peer = (transport.get_extra_info("peername") or ("", 0))[:2]
        self._unread.host = self.peer[0]
        self.local = (transport.get_extra_info("sockname") or ("", 0))[:2]
        if transport.get_extra_info("sslcontext") is not None:
            self.scheme = "https"
        self._wait_for(Doing.HEADERS)
        if self._admission.refusal is not None:
            self._transport.abort()
            return
        self._admission.on_drain = self.stop
        self._owner.add(self)

    def connection_lost(self, error: Exception | None) -> None:
        self._admission.released()
        self._owner.forget(self)
        self._doing = Doing.END
        self.resume_writing()
        self._unbegun = None
        for message in (self._current, self._receiving, *self._waiting):
            if message is not None and not message.gone:
                message.on_gone()

    def data_received(self, data: bytes) -> None:
        if self._doing is Doing.END:
            self._thrown_away += len(data)
            if self._thrown_away > self._owner.limits.linger_bytes_max:
                self.pause_reading()
            return
        if self._doing is not Doing.REQUEST:
            self._parse(data)
            return
        # Nothing is under way, and the parser is between two requests.
        head = self._owner.heads.find(data) if self._paused_writing is None else None
        if head is not None:
            self._take(head, data)
            return
        self._wait_for(Doing.HEADERS)
        self._parsed = []
        self._parse(data)
        parsed, self._parsed = self._parsed, None
        if len(parsed) == 1 and self._owner.heads.is_on:
            self._learn(data, parsed[0])

    def _parse(self, data: bytes) -> None:
        left: bytes | None = data
        while left is not None:
            left = self._feed(left)

    def _feed(self, data: bytes) -> bytes | None:
        """Have data parsed; return what is to be parsed next, or None."""
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            if self._offers_upgrade:
                self._offers_upgrade = False
                head = without_offer(self._parser, self._url, self._headers)
                self._parser = httptools.HttpRequestParser(self)
                return head + data[upgrade.args[0] :]
            self._last_request()
        except httptools.HttpParserError:
            self._refuse(BAD_REQUEST)
        return None

    def _take(self, head: Head, data: bytes) -> None:
        """Take a whole request that needs no parser."""
        message = HttpExchange(self, head.method, head.target, head.headers, keep_alive=True)
        message.take(data[head.body_at :])
        self._wait_for(Doing.ANSWER)
        self._start(message)

    def _learn(self, data: bytes, message: HttpExchange) -> None:
        """Remember a request's headers if the next one like it may bypass the parser."""
        whole = message.complete and message.keep_alive and self._body_bytes == message.received
        if whole and not self._expects and self._owner.application_for(message.path).whole:
            self._owner.heads.learn(data, message.headers, self._body_bytes)

    def pause_writing(self) -> None:
        self._paused_writing = self.loop.create_future()
        self._unread.begin(self.loop.time())
        self._unread.note(self._transport.get_write_buffer_size())

    def resume_writing(self) -> None:
        paused, self._paused_writing = self._paused_writing, None
        self._unread.note(0)
        if paused is not None and not paused.done():
            paused.set_result(None)
        if self._current is None and self._waiting and self._doing is not Doing.END:
            self._start_next()

    # -- the parser's --------------------------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        self._url, self._headers, self._header_bytes, self._expects, self._body_bytes = b"", [], 0, False, 0
        self._host = None

    def on_url(self, url: bytes) -> None:
        self._url += url
        self._header_bytes += len(url)
        if self._header_bytes > self._header_bytes_max:
            self._refuse_headers()

    def on_header(self, name: bytes, value: bytes) -> None:
        name = name.lower()
        self._headers.append((name, value))
        self._header_bytes += len(name) + len(value)
        if self._header_bytes > self._header_bytes_max or len(self._headers) > self._headers_max:
            self._refuse_headers()
        if name == b"content-length":
            self._body_bytes = int(value) if value.isdigit() else -1
        elif name == b"transfer-encoding":
            self._body_bytes = -1
        elif name == b"host":
            if self._host is not None:  # who asks and who answers may each mean another one (RFC 9112, section 3.2)
                self._refuse_request()
            self._host = value
        elif name == b"expect" and value.lower() == b"100-continue":
            self._expects = True

    def on_headers_complete(self) -> None:
        if self._doing is Doing.END:
            return
        self._offers_upgrade = self._parser.should_upgrade() and self._parser.get_method() != b"CONNECT"
        if self._offers_upgrade:
            return
        if self._admission.half_open:
            self._admission.begun()
        target = self._url if self._url.startswith(b"/") else _path_of(self._url, self._host)
        if target is None:
            self._refuse_request()
        method = self._parser.get_method().decode("ascii")
        keep_alive = self._parser.should_keep_alive() and not self._parser.should_upgrade()
        old = self._parser.get_http_version() == "1.0"
        message = HttpExchange(self, method, target, self._headers, keep_alive=keep_alive and not old, old=old)
        if self._expects:
            message.expect_continue()
        self._receiving = message
        if self._parsed is not None:
            self._parsed.append(message)
        self._wait_for(Doing.BODY)
        if self._current is None and not self._waiting and self._paused_writing is None:
            self._start(message)
        else:
            self._waiting.append(message)
            if len(self._waiting) >= PIPELINED_MAX:
                self.pause_reading()

    def on_body(self, data: bytes) -> None:
        if self._receiving is not None and self._doing is not Doing.END:
            self._receiving.on_body(data)

    def on_message_complete(self) -> None:
        message, self._receiving = self._receiving, None
        if message is not None:
            message.on_complete()
            if self._unbegun is not None and message is self._current:
                handler, self._unbegun = self._unbegun, None
                self._call(message, handler)
            if self._doing is Doing.BODY:
                self._wait_for(Doing.ANSWER if self._current is not None or self._waiting else Doing.REQUEST)

    def _refuse_headers(self) -> NoReturn:
        self._refuse(HEADERS_TOO_LARGE)
        raise ValueError("headers too large")  # which ends the parser's work; it comes out as an HttpParserError

    def _refuse_request(self) -> NoReturn:
        self._refuse(BAD_REQUEST)
        raise ValueError("bad request")

    # -- requests ------------------------------------------------------------------------------------------------------

    def _start(self, message: HttpExchange) -> None:
        self._current = message
        if message.method == "GET" and (refusal := self._owner.unread.refusal(self.peer[0])) is not None:
            # Its answer may be large; other clients go on sending and settling.
            body = json.dumps({"error": "overloaded", "message": refusal}).encode()
            message.answer(HttpResponse(503, body, OVERLOADED))
            return
        handler, whole = self._owner.application_for(message.path)
        if whole and not message.complete and self._is_short(message):
            self._unbegun = handler
        elif whole and not message.complete:
            # The rest of this data is parsed first: a handler that answers an incomplete request closes the connection.
            self.loop.call_soon(self._call, message, handler)
        else:
            self._call(message, handler)

    def _is_short(self, message: HttpExchange) -> bool:
        """Return whether the rest of the body is small, and comes without a word from the server."""
        return message is self._receiving and 0 <= self._body_bytes <= self.body_bytes_ahead and not self._expects

    def _call(self, message: HttpExchange, handler: Handler) -> None:
        try:
            work = handler(message)
        except Exception:
            log.exception("%s %s", message.method, message.path)
            self._fail(message)
            return
        if work is not None:
            self.carry_out(message, work)

    def carry_out(self, message: HttpExchange, work: Work) -> None:
        """Have work on a request done in a task."""
        self._owner.keep(self.loop.create_task(self._answer(message, work)))

    async def _answer(self, message: HttpExchange, work: Work) -> None:
        try:
            await work
        except (DisconnectedError, asyncio.CancelledError):
            message.keep_alive = False
        except Exception:
            log.exception("%s %s", message.method, message.path)
            self._fail(message)
        if not message.answered:
            message.cut()

    def _fail(self, message: HttpExchange) -> None:
        """There is a bug, which the log has."""
        if not message.started:
            message.keep_alive = False
            message.answer(INTERNAL)

    def on_answered(self, message: HttpExchange) -> None:
        """Go on after an answer is complete."""
        self._current = None
        if self._transport.is_closing() or self._doing is Doing.END or message.gone:
            return
        if not message.keep_alive:
            self._end()
        elif self._waiting:
            if self._paused_writing is None:  # else no answer is made before the last one was taken
                self._start_next()
        else:
            self._wait_for(Doing.REQUEST)
            if self._paused_reading:
                self.resume_reading()

    def _start_next(self) -> None:
        following = self._waiting.popleft()
        self._wait_for(Doing.ANSWER if following.complete else Doing.BODY)
        self._start(following)  # which may answer it at once, and wait for something else
        self.resume_reading()

    def _last_request(self) -> None:
        """Answer the requests so far, and read no more.

        The client wants to change to another protocol, and there is none.
        """
        for message in (self._current, *self._waiting):
            if message is not None:
                message.keep_alive = False
        self.pause_reading()

    def _refuse(self, response: HttpResponse) -> None:
        """Refuse a request that cannot be parsed, or took too long, and end; after the current answer."""
        if self._doing is Doing.END:
            return
        current = self._current
        if self._waiting or (current is not None and current is not self._receiving):
            self._last_request()
            return
        if current is not None:
            # The rest of its body will not come: tell the handler, which would wait for it for ever.
            self._current = self._unbegun = None
            current.on_gone()
            if current.started:
                self._transport.abort()
                return
        if not self._transport.is_closing():
            message = HttpExchange(self, "GET", b"/", [], keep_alive=False)
            message.answer(response)
        self._end()

    def _end(self) -> None:
        """Send no more; read on for a moment, so that the bytes sent arrive."""
        if self._doing is Doing.END:
            return
        self._wait_for(Doing.END)
        for message in (self._receiving, *self._waiting):
            if message is not None and message is not self._current and not message.gone:
                message.on_gone()
        self._waiting.clear()
        if self._transport.can_write_eof() and self._receiving is not None:
            self._transport.write_eof()
            self.resume_reading()
        else:
            self._transport.close()

    # -- for messages --------------------------------------------------------------------------------------------------

    @property
    def principal(self) -> PeerProof | None:
        """The identity that the connection has proved."""
        return self._admission.principal

    def trusted(self) -> None:
        """Note that a request has shown whose it is, or need not."""
        self._admission.trusted()

    @property
    def date(self) -> bytes:
        """A header line."""
        return self._owner.date

    def write(self, data: bytes) -> None:
        self._transport.write(data)
        if self._paused_writing is not None:
            self._unread.note(self._transport.get_write_buffer_size())

    async def drain(self) -> None:
        """Wait until the client takes more."""
        if self._paused_writing is not None:
            await self._paused_writing

    def pause_reading(self) -> None:
        if not self._paused_reading and not self._transport.is_closing():
            self._paused_reading = True
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        if self._paused_reading and len(self._waiting) < PIPELINED_MAX and not self._transport.is_closing():
            self._paused_reading = False
            self._transport.resume_reading()

    # -- time ----------------------------------------------------------------------------------------------------------

    def _wait_for(self, doing: Doing) -> None:
        self._doing = doing
        self._began_s = self.loop.time()

    def look(self, now_s: float) -> None:
        """End the connection if the client takes too long. Called now and then."""
        limits, spent_s = self._owner.limits, now_s - self._began_s
        if self._paused_writing is not None and self._is_stalled(now_s):
            self._transport.abort()
        elif self._doing is Doing.HEADERS and spent_s > limits.header_s:
            self._refuse(TIMEOUT)
        elif self._doing is Doing.REQUEST and spent_s > limits.idle_s:
            self._transport.close()
        elif self._doing is Doing.BODY and not self._paused_reading:
            received = self._receiving.received if self._receiving is not None else 0
            if spent_s > limits.body_s + received / limits.body_bytes_per_s:
                self._transport.abort()
        elif self._doing is Doing.END and spent_s > limits.linger_s:
            self._transport.abort()

    def _is_stalled(self, now_s: float) -> bool:
        self._unread.note(self._transport.get_write_buffer_size())
        return self._unread.is_stalled(self._transport, now_s, self._owner.limits.write_s)

    def stop(self) -> None:
        """Answer the current request, and nothing more."""
        if self._current is None:
            self._transport.close()
        else:
            self._current.keep_alive = False


def _path_of(url: bytes, host: bytes | None) -> bytes | None:
    """Return path and query of a target that is a whole URL, as proxies get it.

    None: its host is not the header's.
    """
    try:
        parsed = httptools.parse_url(url)
    except httptools.HttpParserInvalidURLError:
        return b"/"
    if parsed.host is not None and _authority(url) != (host or b"").strip().lower():
        return None
    return (parsed.path or b"/") + (b"?" + parsed.query if parsed.query else b"")


def _authority(url: bytes) -> bytes:
    """Return host and port as a URL has them.

    A client writes the same into the header (RFC 9112, section 3.2.2).
    """
    rest = url.partition(b"://")[2]
    for end in (b"/", b"?", b"#"):
        rest = rest.partition(end)[0]
    return rest.rpartition(b"@")[2].lower()
