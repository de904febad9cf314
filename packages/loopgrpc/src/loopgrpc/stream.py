"""One call on the wire, from its HEADERS to its trailers: the states of a stream.

RFC 9113, section 5.1::

    receiving ── END_STREAM ──▶ half-closed ── the response's END_STREAM ──▶ closed
        │                            │
        └── reset by either, deadline, error, connection lost ────────────▶ closed, its handler cancelled

A stream whose response ends before its request is told to stop with RST_STREAM(NO_ERROR), RFC 9113, section 8.1.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any, Final, cast

from loopgrpc.call import Call
from loopgrpc.frames import ConnectionFault, ErrorCode, StreamFault
from loopgrpc.framing import PREFIX_BYTES, Deframer, is_one_message
from loopgrpc.handlers import Bidi, Handler, ServerStream, send_all
from loopgrpc.promise import Promise, Responses
from loopgrpc.request import Request
from loopgrpc.request_body import RequestBody
from loopgrpc.request_messages import RequestMessages
from loopgrpc.response import Response
from loopgrpc.status import GrpcError, StatusCode
from loopgrpc.stream_context import StreamContext

log = logging.getLogger(__name__)

_TIMER_S: Final = 2.0
"""Seconds; a deadline nearer than this gets a timer.

It is some ticks of the server, and less than clients' default time-outs.
"""
_DEADLINE_TEXT: Final = "the deadline of the call has passed"
_HALF_TEXT: Final = "the request has not come in time"
_CANCELLED_TEXT: Final = "the server cancelled the call"


class Stream:
    """One call. ``handler`` is None for a request that is only read to its end before it is refused."""

    __slots__ = (
        "_body", "_context", "_half", "_half_since", "_handler", "_running", "_timer", "call", "closed", "id",
        "receiving", "request", "response",
    )  # fmt: skip

    def __init__(self, context: StreamContext, stream_id: int, request: Request, handler: Handler | None) -> None:
        self.id = stream_id
        self.request = request
        self._context = context
        self._handler = handler
        timeout_s = request.timeout_s
        deadline = None if timeout_s is None else context.loop.time() + timeout_s
        self.call = Call(request, context.peer, deadline, context.principal)
        self.receiving = True
        """True until the peer has ended its request."""
        self.closed = False
        self.response = Response(context, stream_id, self._on_response_end)
        self._body: RequestBody | None = None
        self._running: asyncio.Future[Any] | Promise | None = None
        """The source of the response."""
        self._timer: asyncio.TimerHandle | None = None
        self._half, self._half_since = -1, 0.0
        """Number of the message that was seen to be incomplete, and the time since when."""

    # The request.

    def on_headers(self) -> None:
        """Begin after the request's HEADERS; a handler that takes many messages starts now."""
        handler, context = self._handler, self._context
        if context.trusts is not None:
            context.look_at(self.call)
        if handler is not None and handler.streams_requests:
            self._body = body = self._make_body(many=True)
            assert body.messages is not None
            self._start(body.messages)

    def on_data(self, payload: bytes, length: int, *, end: bool) -> None:
        """Take DATA: ``payload`` without its padding, ``length`` bytes with it.

        Raises StreamFault, ConnectionFault.
        """
        body = self._body
        if body is None:
            # Nearly all calls: the one message of a request is its one DATA frame, and no window is too small for it.
            if end and self._handler is not None and is_one_message(payload, self._context.limits.message_bytes_max):
                self._end_receiving(len(payload))
                self._start(payload[PREFIX_BYTES:])
                return
            body = self._body = self._make_body(many=False)
        try:
            body.add(payload, length)
        except GrpcError as error:
            self.fail(error.status, error.message)
            return
        if end:
            self.on_request_end()

    def _make_body(self, *, many: bool) -> RequestBody:
        message_bytes_max = self._context.limits.message_bytes_max
        deframer = None if self._handler is None else Deframer(self.request.encoding, message_bytes_max)
        return RequestBody(self._context, self.id, deframer, many=many)

    def on_request_end(self) -> None:
        """Handle END_STREAM, which came with DATA or with trailers.

        Raises StreamFault: content-length said otherwise.
        """
        body = self._body
        self._end_receiving(body.received_bytes if body else 0)
        if self._handler is None:
            assert self.request.refusal is not None
            self.response.refuse(self.request.refusal)
            return
        try:
            message = (body or self._make_body(many=False)).end()
        except GrpcError as error:
            self.fail(error.status, error.message)
            return
        if message is not None:
            self._start(message)

    def _end_receiving(self, received_bytes: int) -> None:
        self.receiving = False
        expected = self.request.content_length
        if expected >= 0 and expected != received_bytes:
            text = f"{received_bytes} bytes of DATA after a content-length of {expected}"
            raise StreamFault(self.id, ErrorCode.PROTOCOL_ERROR, text)

    # The handler.

    def _start(self, argument: bytes | RequestMessages) -> None:
        """Start the handler; an exception ends this call alone."""
        if self.call.deadline is not None and self.call.deadline <= self._context.loop.time():
            self._expire()
            return
        try:
            assert self._handler is not None
            self._handler.start(self, argument)
        except ConnectionFault:
            raise
        except asyncio.CancelledError:
            self._end(StatusCode.CANCELLED, _CANCELLED_TEXT)
        except Exception as error:  # noqa: BLE001 - a handler may raise anything
            self._end_with_error(error)

    def run(self, work: Coroutine[Any, Any, bytes | None]) -> None:
        """Run a coroutine as this call's handler."""
        context = self._context
        task = context.loop.create_task(work)
        context.tasks.add(task)
        task.add_done_callback(context.tasks.discard)
        self.wait_for(task)

    def wait_for(self, future: asyncio.Future[Any]) -> None:
        """Respond with the result of ``future``; None from a handler that has sent its responses itself."""
        self._set_running(future)
        future.add_done_callback(self._on_future_done)

    def wait_for_promise(self, promise: Promise) -> None:
        """Wait until ``promise`` calls :meth:`on_promise_kept`."""
        self._set_running(promise)

    def _set_running(self, running: Promise | asyncio.Future[Any]) -> None:
        self._running = running
        if self.call.deadline is not None:
            self.check_deadline(self._context.loop.time())

    def _on_future_done(self, future: asyncio.Future[Any]) -> None:
        self._running = None
        if self.closed:
            # Reset meanwhile. Until now it counted as one of the connection's calls.
            self._context.late_handlers -= 1
            if not future.cancelled() and (error := future.exception()) is not None:
                log.debug("%s failed after its call had ended: %r", self.call.method, error)
            return
        try:
            message = future.result()
            if message is None and isinstance(self._handler, ServerStream | Bidi):
                self._end(StatusCode.OK)
            else:
                self.respond(message)
        except ConnectionFault as fault:
            self._context.fail(fault)
        except asyncio.CancelledError:
            self._end(StatusCode.CANCELLED, _CANCELLED_TEXT)
        except Exception as error:  # noqa: BLE001 - a handler may raise anything
            self._end_with_error(error)

    def on_promise_kept(self, responses: Responses) -> None:
        """Send the promised responses."""
        self._running = None
        if self.closed:
            self._context.late_handlers -= 1
            return
        try:
            self.respond_all(responses)
        except ConnectionFault as fault:
            self._context.fail(fault)
        except Exception as error:  # noqa: BLE001 - it may be no response at all
            self._end_with_error(error)

    def _end_with_error(self, error: Exception) -> None:
        if self._context.translate is not None:
            error = self._context.translate(error)
        if isinstance(error, GrpcError):
            if error.trailing is not None:
                self.call.set_trailing_metadata(error.trailing)
            self._end(error.status, error.message)
        else:
            log.error("%s failed", self.call.method, exc_info=error)
            self._end(StatusCode.UNKNOWN, "the method failed: see the server's log")

    # The response.

    def respond(self, message: bytes) -> None:
        """Send the one response, and end the call.

        Raises:
            TypeError: it is not bytes. ConnectionFault: too many responses wait.
        """
        self.response.send_only(message, self.call.trailing)

    def respond_all(self, responses: Responses) -> None:
        """Send all responses, one by one in a Task, or in one piece now. Raises as :meth:`respond`."""
        if not isinstance(self._handler, ServerStream):
            self.respond(cast(bytes, responses))
        elif not isinstance(responses, bytes):
            self.run(send_all(self, responses))
        elif not self.closed:
            self.response.send(responses)
            self._end(StatusCode.OK)

    @property
    def unsent_bytes(self) -> int:
        """DATA of the connection that waits for the event loop's next turn."""
        return self._context.sender.unsent_bytes

    def send(self, message: bytes) -> asyncio.Future[None] | None:
        """Send one of many responses; see :meth:`loopgrpc.response.Response.send`."""
        return self.response.send(message)

    def _end(self, status: StatusCode, message: str = "") -> None:
        self.response.end(status, message, self.call.trailing)

    def _on_response_end(self) -> None:
        """Close the stream, as the response's END_STREAM is on its way."""
        if self.receiving:
            self._context.send_reset(self.id, ErrorCode.NO_ERROR)
        self._close(cancelled=False)

    # Early ends.

    def fail(self, status: StatusCode, message: str) -> None:
        """End the call with ``status``, whatever its handler does.

        After half a message it is reset.
        """
        if self.closed:
            return
        error = self._context.early_end(status, message)
        self.call.set_trailing_metadata(error.trailing or {})
        if self.response.cut_short(error.status, error.message, self.call.trailing) and self.receiving:
            self._context.send_reset(self.id, ErrorCode.NO_ERROR)
        self._close(cancelled=True)

    def check_deadline(self, now: float) -> None:
        """End the call at its deadline; set a timer once that is near.

        Nearly all calls are over before, and a timer for each would cost more than checking the others at each tick.
        """
        deadline = self.call.deadline
        if deadline is None or deadline - now > _TIMER_S or self._timer is not None:
            return
        if self._running is not None:
            self._timer = self._context.loop.call_at(deadline, self._expire)
        elif deadline <= now:
            self._expire()

    def check_request(self, now: float) -> None:
        """End the call if its request, or a message of it, does not become complete in time.

        Called about once a second.
        """
        body = self._body
        streams = self._handler is not None and self._handler.streams_requests
        # Where messages wait for the handler, the peer may have no window for the rest of the next one.
        is_half = self.receiving and (not streams or (body is not None and body.is_within_message and body.is_taken))
        half = -1 if not is_half else 0 if body is None else body.completed
        if half != self._half:
            self._half, self._half_since = half, now
        elif is_half and now - self._half_since > self._context.limits.request_s:
            self.fail(StatusCode.DEADLINE_EXCEEDED, _HALF_TEXT)

    def _expire(self) -> None:
        self.fail(StatusCode.DEADLINE_EXCEEDED, _DEADLINE_TEXT)

    def drop(self) -> None:
        """Close the stream without sending anything.

        Nobody waits: it was reset by the peer or for its error, or the connection is lost.
        """
        self._close(cancelled=True)

    def _close(self, *, cancelled: bool) -> None:
        if self.closed:
            return
        self.closed = True
        context = self._context
        self.response.close()
        if self._timer is not None:
            self._timer.cancel()
        if self._body is not None:
            self._body.close()
        if self._running is not None:
            context.late_handlers += 1
            if isinstance(self._running, asyncio.Task):
                self._running.cancel()
        if self._handler is not None:
            context.calls.give_back(1, context.host)
        context.on_closed(self.id)
        self.call.end(cancelled=cancelled)
