"""The calls of one connection: which streams there are, and what a frame on each may be (RFC 9113, section 5.1).

Streams that are open or half-closed are in a table. Of the others a number alone tells most: above the last one they
are idle, below it closed. Two small memories tell the rest: numbers that the peer skipped (they were never opened), and
streams that we reset, whose frames may still be on their way and are ignored.

A whole header block that did not change the decoder's table is remembered with its request until the table changes:
clients that index all their fields send the same few bytes for each call. Of others, the former call of the same method
is remembered, and what is not as it was then is looked at alone.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping
from typing import Any, Final

from loopgrpc.answers import refusal_blocks
from loopgrpc.fields import Field, FieldDecoder
from loopgrpc.frames import (
    END_STREAM,
    PADDED,
    WINDOW_MAX,
    ConnectionFault,
    ErrorCode,
    StreamFault,
    rst_stream,
    unpad,
    window_update,
)
from loopgrpc.guard import Guard
from loopgrpc.handlers import Handler
from loopgrpc.limits import Limits
from loopgrpc.outbox import Outbox
from loopgrpc.request import (
    MalformedError,
    Refusal,
    Request,
    check_trailers,
    parse_alike,
    parse_request,
)
from loopgrpc.status import StatusCode
from loopgrpc.stream import Stream

log = logging.getLogger(__name__)

_MEMO_MAX: Final = 64
_GAPS_MAX: Final = 64
_HARD_FACTOR: Final = 4
"""Decoding stops at so many times the limit of a header list; up to there the request is answered with 431."""


class Calls:
    """All streams of one connection."""

    __slots__ = (
        "_decoder", "_empty", "_former", "_gaps", "_guard", "_handlers", "_memo", "_memo_generation", "_reset",
        "_unacked", "buffered_bytes", "fail", "last_id", "limits", "loop", "nothing", "orphans", "out", "peer",
        "refusing", "streams", "tasks",
    )  # fmt: skip

    def __init__(
        self,
        handlers: Mapping[bytes, Handler],
        limits: Limits,
        guard: Guard,
        out: Outbox,
        *,
        peer: str,
        loop: asyncio.AbstractEventLoop,
        tasks: set[asyncio.Task[Any]],
        fail: Callable[[ConnectionFault], None],
        empty: Callable[[], None],
    ) -> None:
        self._handlers = handlers
        self._guard = guard
        self._empty = empty
        self._decoder = FieldDecoder(_HARD_FACTOR * limits.header_list_bytes_max)
        self._memo: dict[bytes, Request] = {}
        self._memo_generation = 0
        self._former: dict[bytes, tuple[Request, list[Field]]] = {}
        self._gaps: deque[tuple[int, int]] = deque(maxlen=_GAPS_MAX)
        self._reset: OrderedDict[int, None] = OrderedDict()
        self._unacked = 0
        self.limits = limits
        self.out = out
        self.peer = peer
        self.loop = loop
        self.tasks = tasks
        self.fail = fail
        """Ends the connection, for what goes wrong outside of a frame."""
        self.streams: dict[int, Stream] = {}
        self.last_id = 0
        """The highest stream that the peer opened."""
        self.orphans = 0
        """Handlers that still run though their streams are closed."""
        self.buffered_bytes = 0
        """Bytes of requests that wait for handlers."""
        self.nothing: deque[memoryview] = deque(maxlen=0)
        self.refusing = False
        """True when no new streams are taken: the connection drains."""

    # HEADERS.

    def headers(self, stream_id: int, block: bytes, *, end: bool, depends_on_itself: bool) -> None:
        """A whole header block. It is decoded in any case, as the next one needs the table that it leaves behind.

        Raises ConnectionFault, StreamFault.
        """
        stream = self.streams.get(stream_id)
        if stream is not None:
            self._trailers(stream, block, end=end)
            return
        request: Request | MalformedError | None = None
        if stream_id > self.last_id:
            if stream_id > self.last_id + 2:
                self._gaps.append((self.last_id, stream_id))
            self.last_id = stream_id
            request = self._request(block)
        else:
            self._decoder.decode(block)
            self._late_headers(stream_id)
            return
        if depends_on_itself:
            raise StreamFault(stream_id, ErrorCode.PROTOCOL_ERROR, "a stream that depends on itself")
        if isinstance(request, MalformedError):
            raise StreamFault(stream_id, ErrorCode.PROTOCOL_ERROR, str(request))
        if self.refusing or len(self.streams) + self.orphans >= self.limits.streams_max:
            self._guard.resets.take(self._guard)
            self.out.add(rst_stream(stream_id, ErrorCode.REFUSED_STREAM))
            self.remember_reset(stream_id)
            return
        self._open(stream_id, request, end=end)

    def _request(self, block: bytes) -> Request | MalformedError:
        decoder = self._decoder
        if self._memo_generation == decoder.generation:
            found = self._memo.get(block)
            if found is not None:
                return found
        fields = decoder.decode(block)
        try:
            request = self._parse(fields)
        except MalformedError as error:
            return error
        if decoder.unchanged:
            if self._memo_generation != decoder.generation or len(self._memo) >= _MEMO_MAX:
                self._memo.clear()
                self._memo_generation = decoder.generation
            self._memo[block] = request
        return request

    def _parse(self, fields: list[Field]) -> Request:
        """Raises MalformedError."""
        if self._decoder.list_bytes > self.limits.header_list_bytes_max:
            return parse_request(fields, too_large=True)
        # A plain loop: it is run for each call.
        former = None
        for name, value in fields:
            if name == b":path":
                former = self._former.get(value)
                break
        request = None if former is None else parse_alike(fields, *former)
        if request is None:
            request = parse_request(fields)
        if request.path in self._handlers:
            self._former[request.path] = request, fields
        return request

    def _late_headers(self, stream_id: int) -> None:
        """HEADERS on a stream that is not open any more. Raises ConnectionFault."""
        if stream_id in self._reset:
            self._guard.chatter.take(self._guard)
        elif any(low < stream_id < high for low, high in self._gaps):
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, f"stream {stream_id} is opened after {self.last_id}")
        else:
            raise ConnectionFault(ErrorCode.STREAM_CLOSED, f"HEADERS on stream {stream_id}, which is closed")

    def _open(self, stream_id: int, request: Request, *, end: bool) -> None:
        refusal, handler = request.refusal, None
        if refusal is None:
            handler = self._handlers.get(request.path)
            if handler is None:
                refusal = Refusal(200, StatusCode.UNIMPLEMENTED, f"there is no method {request.path.decode('latin-1')}")
        if refusal is not None and refusal.http == 200:
            # At once: a client that streams would wait for the answer before it ends its request.
            block, _ = refusal_blocks(refusal)
            self.out.block(stream_id, block, end=True)
            if not end:
                self.out.add(rst_stream(stream_id, ErrorCode.NO_ERROR))
                self.remember_reset(stream_id)
            return
        # What is no gRPC is read to its end and answered then, as HTTP's clients expect.
        stream = self.streams[stream_id] = Stream(self, stream_id, request, handler)
        stream.open()
        if end:
            stream.end_of_request()

    def _trailers(self, stream: Stream, block: bytes, *, end: bool) -> None:
        fields = self._decoder.decode(block)
        if not stream.receiving:
            raise StreamFault(stream.id, ErrorCode.STREAM_CLOSED, "HEADERS after the end of the request")
        if not end:
            raise StreamFault(stream.id, ErrorCode.PROTOCOL_ERROR, "HEADERS within a request that do not end it")
        try:
            check_trailers(fields)
        except MalformedError as error:
            raise StreamFault(stream.id, ErrorCode.PROTOCOL_ERROR, str(error)) from error
        stream.end_of_request()

    def refuse_now(self, stream: Stream) -> None:
        """Answer a request that is no gRPC, now that it has ended."""
        assert stream.request.refusal is not None
        block, body = refusal_blocks(stream.request.refusal)
        self.out.block(stream.id, block, end=False)
        stream.send_body(body)

    # DATA.

    def data(self, flags: int, stream_id: int, payload: bytes) -> None:
        """DATA. Padding counts towards the windows. Raises ConnectionFault, StreamFault."""
        length = len(payload)
        self._unacked += length
        if self._unacked > self.limits.connection_window_bytes:
            raise ConnectionFault(ErrorCode.FLOW_CONTROL_ERROR, "more DATA than the connection's window")
        if self._unacked * 2 >= self.limits.connection_window_bytes:
            self.out.add(window_update(0, self._unacked))
            self._unacked = 0
        stream = self.streams.get(stream_id)
        if stream is None:
            self._late_data(stream_id)
            return
        if flags & PADDED:
            payload = unpad(payload, "DATA")
        if not stream.receiving:
            raise StreamFault(stream_id, ErrorCode.STREAM_CLOSED, "DATA after the end of the request")
        end = flags & END_STREAM
        if not payload and not end:
            self._guard.empties.take(self._guard)
        stream.data(payload, length, end=bool(end))

    def _late_data(self, stream_id: int) -> None:
        if self.is_idle(stream_id):
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, f"DATA on stream {stream_id}, which is idle")
        if stream_id not in self._reset:
            raise StreamFault(stream_id, ErrorCode.STREAM_CLOSED, "DATA on a stream that is closed")
        self._guard.chatter.take(self._guard)

    # The other frames of a stream.

    def reset(self, stream_id: int) -> None:
        """RST_STREAM. Raises ConnectionFault."""
        if self.is_idle(stream_id):
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, f"RST_STREAM on stream {stream_id}, which is idle")
        stream = self.streams.get(stream_id)
        if stream is None:
            self._guard.chatter.take(self._guard)
            return
        self._guard.resets.take(self._guard)
        stream.drop()

    def window_update(self, stream_id: int, increment: int) -> None:
        """WINDOW_UPDATE of a stream; on one that is closed it is ignored. Raises ConnectionFault, StreamFault."""
        if self.is_idle(stream_id):
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, f"WINDOW_UPDATE on stream {stream_id}, which is idle")
        if increment == 0:
            raise StreamFault(stream_id, ErrorCode.PROTOCOL_ERROR, "WINDOW_UPDATE of 0")
        stream = self.streams.get(stream_id)
        if stream is None:
            return
        if stream.send_window + increment > WINDOW_MAX:
            raise StreamFault(stream_id, ErrorCode.FLOW_CONTROL_ERROR, f"a window above {WINDOW_MAX}")
        stream.send_window += increment
        self.out.widened(stream)

    def resize_windows(self, size: int) -> None:
        """The peer's INITIAL_WINDOW_SIZE: all windows move by the difference, also below 0 (section 6.9.2).

        Raises ConnectionFault: one grows above what there may be.
        """
        difference = size - self.out.initial_window
        self.out.initial_window = size
        for stream in list(self.streams.values()):
            if stream.send_window + difference > WINDOW_MAX:
                raise ConnectionFault(ErrorCode.FLOW_CONTROL_ERROR, f"a window above {WINDOW_MAX}")
            stream.send_window += difference
            self.out.widened(stream)

    def fault(self, fault: StreamFault) -> None:
        """End the stream that broke a rule. Raises ConnectionFault: there were too many."""
        self._guard.resets.take(self._guard)
        log.debug("%s: stream %d: %s", self.peer, fault.stream, fault)
        self.out.add(rst_stream(fault.stream, fault.code))
        self.remember_reset(fault.stream)
        stream = self.streams.get(fault.stream)
        if stream is not None:
            stream.drop()

    # The table.

    def is_idle(self, stream_id: int) -> bool:
        """Whether the peer has not opened it yet; numbers that are even are ours, and we open none."""
        return stream_id > self.last_id or stream_id % 2 == 0

    def remember_reset(self, stream_id: int) -> None:
        """We reset it: what is on its way will be ignored. As many are remembered as there may be streams, and some."""
        self._reset[stream_id] = None
        if len(self._reset) > self.limits.streams_max + 64:
            self._reset.popitem(last=False)

    def forget(self, stream: Stream) -> None:
        """It is closed."""
        self.streams.pop(stream.id, None)
        if self.refusing and not self.streams:
            self._empty()

    def tick(self, now: float) -> None:
        """Once a second or so: calls whose requests never came whole, and answers that no window comes for."""
        for stream in list(self.streams.values()):
            stream.watch(now)
            if not stream.closed and stream.ended_at and now - stream.ended_at > self.limits.stall_s:
                log.debug("%s: stream %d: its answer found no window", self.peer, stream.id)
                stream.tell_reset(ErrorCode.ENHANCE_YOUR_CALM)
                stream.drop()

    def drop_all(self) -> None:
        """The connection is lost."""
        for stream in list(self.streams.values()):
            stream.drop()
