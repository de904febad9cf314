"""The streams of one connection, and the meaning of each kind of frame in each state of a stream.

Source: RFC 9113, section 5.1. Streams that are open or half-closed are in a table. The numbers of the others tell if
they are idle or closed: see ``stream_ids``.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any

from loopgrpc.byte_budget import ByteBudget
from loopgrpc.call import Call
from loopgrpc.flood import FloodLimiter, WorkCounter
from loopgrpc.frames import (
    END_STREAM,
    PADDED,
    WINDOW_MAX,
    ConnectionFault,
    ErrorCode,
    StreamFault,
    unpad,
    window_update,
)
from loopgrpc.handlers import Handler
from loopgrpc.limits import Limits
from loopgrpc.metadata import encode_metadata
from loopgrpc.request import MalformedError, Refusal, Request, check_trailers
from loopgrpc.request_decoder import RequestDecoder
from loopgrpc.responses import encode_refusal
from loopgrpc.sender import Sender
from loopgrpc.status import GrpcError, StatusCode, Translate
from loopgrpc.stream import Stream
from loopgrpc.stream_context import StreamContext
from loopgrpc.stream_ids import StreamIds

log = logging.getLogger(__name__)


class Streams:
    """All streams of one connection.

    ``fail`` ends the connection, for errors that come up while no frame is processed; ``on_drained`` is called when,
    after :meth:`refuse_new`, the last stream has closed.
    """

    __slots__ = (
        "_context", "_decoder", "_flood", "_handlers", "_ids", "_limits", "_on_drained", "_refusing", "_sender",
        "_table", "_ungranted_bytes",
    )  # fmt: skip

    def __init__(
        self,
        handlers: Mapping[bytes, Handler],
        limits: Limits,
        flood: FloodLimiter,
        work: WorkCounter,
        sender: Sender,
        *,
        peer: str,
        host: str,
        principal: object,
        budget: ByteBudget,
        calls: ByteBudget,
        trusts: Callable[[Call], bool] | None,
        translate: Translate | None,
        loop: asyncio.AbstractEventLoop,
        tasks: set[asyncio.Task[Any]],
        fail: Callable[[ConnectionFault], None],
        on_drained: Callable[[], None],
    ) -> None:
        self._handlers = handlers
        self._limits = limits
        self._flood = flood
        self._sender = sender
        self._on_drained = on_drained
        self._decoder = RequestDecoder(handlers, limits.header_list_bytes_max)
        self._ids = StreamIds(limits.streams_max)
        self._table: dict[int, Stream] = {}
        self._refusing = False
        self._ungranted_bytes = 0
        """DATA, with its padding, for which the connection's window was not widened again."""
        self._context = StreamContext(
            sender=sender, ids=self._ids, work=work, limits=limits, loop=loop, tasks=tasks, peer=peer, fail=fail,
            host=host, principal=principal, budget=budget, calls=calls, trusts=trusts, translate=translate,
            on_closed=self._on_closed,
        )  # fmt: skip

    # Figures.

    @property
    def last_id(self) -> int:
        """The highest stream that the peer opened."""
        return self._ids.last

    @property
    def open_count(self) -> int:
        """Streams that are open or half-closed."""
        return len(self._table)

    @property
    def late_handlers(self) -> int:
        """Handlers that still run though their streams are closed."""
        return self._context.late_handlers

    @property
    def buffered_bytes(self) -> int:
        """Requests that wait for handlers, whole or in part."""
        return self._context.buffered_bytes

    # HEADERS.

    def on_headers(self, stream_id: int, block: bytes, *, end: bool, depends_on_itself: bool) -> None:
        """Handle a whole header block.

        It is decoded in any case, as the next one needs the table that it leaves behind. Raises ConnectionFault,
        StreamFault.
        """
        stream = self._table.get(stream_id)
        if stream is not None:
            self._on_trailers(stream, block, end=end)
            return
        if stream_id <= self._ids.last:
            self._decoder.decode_fields(block)
            self._on_late_headers(stream_id)
            return
        self._ids.open(stream_id)
        try:
            request = self._decoder.decode_request(block)
        except MalformedError as error:
            raise StreamFault(stream_id, ErrorCode.PROTOCOL_ERROR, str(error)) from error
        if depends_on_itself:
            raise StreamFault(stream_id, ErrorCode.PROTOCOL_ERROR, "a stream that depends on itself")
        if self._refusing or len(self._table) + self._context.late_handlers >= self._limits.streams_max:
            self._flood.resets.take()
            self._context.send_reset(stream_id, ErrorCode.REFUSED_STREAM)
            return
        self._open(stream_id, request, end=end)

    def _on_late_headers(self, stream_id: int) -> None:
        """Handle HEADERS on a stream that is not open any more. Raises ConnectionFault."""
        if self._ids.was_reset(stream_id):
            self._flood.other_frames.take()
        elif self._ids.was_skipped(stream_id):
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, f"stream {stream_id} is opened after {self._ids.last}")
        else:
            raise ConnectionFault(ErrorCode.STREAM_CLOSED, f"HEADERS on stream {stream_id}, which is closed")

    def _open(self, stream_id: int, request: Request, *, end: bool) -> None:
        refusal, handler = request.refusal, None
        if refusal is None:
            handler = self._handlers.get(request.path)
            if handler is None:
                refusal = Refusal(200, StatusCode.UNIMPLEMENTED, f"there is no method {request.path.decode('latin-1')}")
        if refusal is None and (reason := self._context.calls.take(1, self._context.host)) is not None:
            refusal = _as_refusal(self._context.early_end(StatusCode.UNAVAILABLE, reason))
        if refusal is not None and refusal.http_status == 200:
            # At once: a client that streams would wait for the response before it ends its request.
            block, _ = encode_refusal(refusal)
            self._sender.send_headers(stream_id, block, end=True)
            if not end:
                self._context.send_reset(stream_id, ErrorCode.NO_ERROR)
            return
        # A request that is not gRPC is read to its end before it is answered, as HTTP clients expect.
        stream = self._table[stream_id] = Stream(self._context, stream_id, request, handler)
        stream.on_headers()
        if end:
            stream.on_request_end()

    def _on_trailers(self, stream: Stream, block: bytes, *, end: bool) -> None:
        fields = self._decoder.decode_fields(block)
        if not stream.receiving:
            raise StreamFault(stream.id, ErrorCode.STREAM_CLOSED, "HEADERS after the end of the request")
        if not end:
            raise StreamFault(stream.id, ErrorCode.PROTOCOL_ERROR, "HEADERS within a request that do not end it")
        try:
            check_trailers(fields)
        except MalformedError as error:
            raise StreamFault(stream.id, ErrorCode.PROTOCOL_ERROR, str(error)) from error
        stream.on_request_end()

    # DATA.

    def on_data(self, flags: int, stream_id: int, payload: bytes) -> None:
        """Handle DATA. Padding counts towards the windows. Raises ConnectionFault, StreamFault."""
        length = len(payload)
        self._ungranted_bytes += length
        if self._ungranted_bytes > self._limits.connection_window_bytes:
            raise ConnectionFault(ErrorCode.FLOW_CONTROL_ERROR, "more DATA than the connection's window")
        if self._ungranted_bytes * 2 >= self._limits.connection_window_bytes:
            self._sender.add(window_update(0, self._ungranted_bytes))
            self._ungranted_bytes = 0
        stream = self._table.get(stream_id)
        if stream is None:
            self._on_late_data(stream_id)
            return
        if flags & PADDED:
            payload = unpad(payload, "DATA")
        if not stream.receiving:
            raise StreamFault(stream_id, ErrorCode.STREAM_CLOSED, "DATA after the end of the request")
        end = flags & END_STREAM
        if not payload and not end:
            self._flood.empty_data.take()
        stream.on_data(payload, length, end=bool(end))

    def _on_late_data(self, stream_id: int) -> None:
        if self._ids.is_idle(stream_id):
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, f"DATA on stream {stream_id}, which is idle")
        if not self._ids.was_reset(stream_id):
            raise StreamFault(stream_id, ErrorCode.STREAM_CLOSED, "DATA on a stream that is closed")
        self._flood.other_frames.take()

    # The other frames of a stream.

    def on_reset(self, stream_id: int) -> None:
        """Handle RST_STREAM. Raises ConnectionFault."""
        if self._ids.is_idle(stream_id):
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, f"RST_STREAM on stream {stream_id}, which is idle")
        stream = self._table.get(stream_id)
        if stream is None:
            self._flood.other_frames.take()
            return
        self._flood.resets.take()
        stream.drop()

    def on_window_update(self, stream_id: int, increment: int) -> None:
        """Handle WINDOW_UPDATE of a stream; it is ignored on a closed one.

        Raises ConnectionFault, StreamFault.
        """
        if self._ids.is_idle(stream_id):
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, f"WINDOW_UPDATE on stream {stream_id}, which is idle")
        if increment == 0:
            raise StreamFault(stream_id, ErrorCode.PROTOCOL_ERROR, "WINDOW_UPDATE of 0")
        stream = self._table.get(stream_id)
        if stream is None:
            return
        if stream.response.send_window + increment > WINDOW_MAX:
            raise StreamFault(stream_id, ErrorCode.FLOW_CONTROL_ERROR, f"a window above {WINDOW_MAX}")
        stream.response.send_window += increment
        self._sender.on_stream_window(stream.response)

    def on_initial_window(self, window_bytes: int) -> None:
        """Apply the peer's INITIAL_WINDOW_SIZE: all windows move by the difference, also below 0.

        Source: RFC 9113, section 6.9.2. Raises ConnectionFault: a window grows above the maximum.
        """
        difference = window_bytes - self._sender.initial_window
        self._sender.initial_window = window_bytes
        for stream in list(self._table.values()):
            if stream.response.send_window + difference > WINDOW_MAX:
                raise ConnectionFault(ErrorCode.FLOW_CONTROL_ERROR, f"a window above {WINDOW_MAX}")
            stream.response.send_window += difference
            self._sender.on_stream_window(stream.response)

    def on_fault(self, fault: StreamFault) -> None:
        """End the stream that broke a rule. Raises ConnectionFault: there were too many."""
        self._flood.resets.take()
        log.debug("%s: stream %d: %s", self._context.peer, fault.stream_id, fault)
        self._context.send_reset(fault.stream_id, fault.code)
        stream = self._table.get(fault.stream_id)
        if stream is not None:
            stream.drop()

    # All streams.

    def _on_closed(self, stream_id: int) -> None:
        self._table.pop(stream_id, None)
        if self._refusing and not self._table:
            self._on_drained()

    def refuse_new(self) -> None:
        """Take no new streams.

        Calls ``on_drained`` when there is none, now or later.
        """
        self._refusing = True
        if not self._table:
            self._on_drained()

    def check_timeouts(self, now: float) -> None:
        """Check deadlines, and responses that get no window from the peer.

        Called about once a second.
        """
        for stream in list(self._table.values()):
            stream.check_deadline(now)
            stream.check_request(now)
            unsent_since = stream.response.unsent_since
            if not stream.closed and unsent_since and now - unsent_since > self._limits.stall_s:
                log.debug("%s: stream %d: no window for its response", self._context.peer, stream.id)
                self._context.send_reset(stream.id, ErrorCode.ENHANCE_YOUR_CALM)
                stream.drop()

    def drop_all(self) -> None:
        """Drop all streams: the connection is lost."""
        for stream in list(self._table.values()):
            stream.drop()


def _as_refusal(error: GrpcError) -> Refusal:
    fields = (encode_metadata(*field) for field in (error.trailing or {}).items())
    return Refusal(200, error.status, error.message, *fields)
