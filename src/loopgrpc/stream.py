"""A call on the wire, from its HEADERS to its trailers.

::

    receiving ── END_STREAM ──▶ half-closed ── answer's END_STREAM ──▶ closed
        │                            │
        └── reset by either, deadline, fault, connection lost ────────▶ closed, its handler cancelled

A stream whose answer ends before its request is told to stop with RST_STREAM(NO_ERROR), RFC 9113, section 8.1.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, Final, cast

from loopgrpc.answers import PREFIX_BYTES, START, Framed, prefix, trailers
from loopgrpc.call import Call
from loopgrpc.frames import (
    DATA,
    END_STREAM,
    ConnectionFault,
    ErrorCode,
    StreamFault,
    frame,
    rst_stream,
    window_update,
)
from loopgrpc.handlers import Answers, Bidi, Handler, Promise, ServerStream, send_all
from loopgrpc.inbox import Inbox
from loopgrpc.messages import Deframer
from loopgrpc.request import Request
from loopgrpc.status import GrpcError, StatusCode

if TYPE_CHECKING:
    from loopgrpc.calls import Calls

log = logging.getLogger(__name__)

_MESSAGE_COST_BYTES: Final = 64
"""What keeping a message costs beside its bytes: a window of empty ones is not for free."""
_CANCELLED: Final = "the server cancelled the call"
NEAR_S: Final = 3.0
"""A deadline that is nearer than this has a timer: some ticks of the server."""
_LATE: Final = "the deadline of the call has passed"
Ran = Coroutine[Any, Any, bytes | None]


class Stream:
    """One call. ``handler`` is None for a request that is only read to its end before it is refused."""

    __slots__ = (
        "_calls", "_cost", "_deframer", "_handler", "_held", "_inbox", "_message", "_received", "_running", "_timer",
        "_trailers", "_unacked", "_waiter", "call", "closed", "ended_at", "id", "pending", "receiving", "request",
        "send_window", "started",
    )  # fmt: skip

    def __init__(self, calls: Calls, stream_id: int, request: Request, handler: Handler | None) -> None:
        self.id = stream_id
        self.request = request
        self._calls = calls
        self._handler = handler
        timeout_s = request.timeout_s
        self.call = Call(request, calls.peer, None if timeout_s is None else calls.loop.time() + timeout_s)
        self.receiving = True
        """The peer has not ended its request."""
        self.closed = False
        self.started = False
        """The answer's first HEADERS are sent."""
        self.send_window = calls.out.initial_window
        """Bytes of DATA that the peer takes; below 0 after it made its windows smaller (RFC 9113, section 6.9.2)."""
        self.pending: deque[memoryview] = calls.nothing
        """Framed messages that no window or socket has taken yet."""
        self.ended_at = 0.0
        """Since when a whole answer is pending, as the loop's time; 0: it is not."""
        self._trailers: bytes | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._running: asyncio.Future[Any] | Promise | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._deframer: Deframer | None = None
        self._inbox: Inbox | None = None
        self._message: bytes | None = None
        self._received = 0
        self._unacked = 0
        self._held = 0
        self._cost = 0

    # What arrives.

    def open(self) -> None:
        """The request's HEADERS are there; a handler that streams in begins now."""
        handler = self._handler
        if handler is not None and handler.streams_in:
            self._inbox = Inbox(self)
            self._guarded(self._inbox)

    def data(self, payload: bytes, length: int, *, end: bool) -> None:
        """DATA: ``payload`` without its padding, ``length`` bytes with it. Raises StreamFault, ConnectionFault."""
        self._unacked += length
        if self._unacked > self._calls.limits.stream_window_bytes:
            raise StreamFault(self.id, ErrorCode.FLOW_CONTROL_ERROR, "more DATA than the stream's window")
        self._received += len(payload)
        if end and self._handler is not None and self._is_whole(payload):
            # Nearly all calls: the one message of a request is its one DATA frame.
            self._message = payload[PREFIX_BYTES:]
        elif self._handler is None:
            self._give_back()
        else:
            try:
                self._feed(payload)
            except GrpcError as error:
                self.fail(error.status, error.message)
                return
        if end:
            self.end_of_request()

    def _is_whole(self, payload: bytes) -> bool:
        return (
            self._deframer is None
            and self._inbox is None
            and len(payload) >= PREFIX_BYTES
            and payload[0] == 0
            and int.from_bytes(payload[1:PREFIX_BYTES], "big") == len(payload) - PREFIX_BYTES
            and len(payload) - PREFIX_BYTES <= self._calls.limits.message_bytes_max
        )

    def _feed(self, payload: bytes) -> None:
        if self._deframer is None:
            self._deframer = Deframer(self.request.encoding, self._calls.limits.message_bytes_max)
        for message in self._deframer.feed(payload):
            self._calls.out.guard.work += 1
            if self._inbox is not None:
                self._held += len(message) + _MESSAGE_COST_BYTES
                self._inbox.put(message)
            elif self._message is None:
                self._message = message
            else:
                raise GrpcError(StatusCode.INTERNAL, "a second message for a method that takes one")
        self._account()
        self._give_back()

    def _account(self) -> None:
        """Tell the connection what this stream holds. Raises GrpcError: all of its streams hold too much."""
        held = self._held + (self._deframer.held if self._deframer else 0) + len(self._message or b"")
        self._calls.buffered_bytes += held - self._cost
        grown, self._cost = held > self._cost, held
        if grown and self._calls.buffered_bytes > self._calls.limits.buffer_bytes_max:
            raise GrpcError(StatusCode.RESOURCE_EXHAUSTED, "too much of this connection's requests waits for handlers")

    def _give_back(self) -> None:
        """Widen the peer's window by what is not held, once that is worth a frame."""
        free = self._unacked - self._held
        if self.receiving and not self.closed and free * 2 >= self._calls.limits.stream_window_bytes:
            self._unacked -= free
            self._calls.out.add(window_update(self.id, free))

    def taken(self, message: bytes) -> None:
        """The handler has taken ``message`` out of its inbox."""
        if self.closed:
            return
        self._held -= len(message) + _MESSAGE_COST_BYTES
        self._account()
        self._give_back()

    def end_of_request(self) -> None:
        """END_STREAM has come, with DATA or with trailers. Raises StreamFault: content-length said otherwise."""
        self.receiving = False
        expected = self.request.content_length
        if expected >= 0 and expected != self._received:
            text = f"{self._received} bytes of DATA after a content-length of {expected}"
            raise StreamFault(self.id, ErrorCode.PROTOCOL_ERROR, text)
        if self._handler is None:
            self._calls.refuse_now(self)
        elif self._deframer is not None and self._deframer.held:
            self.fail(StatusCode.INTERNAL, "a request that ends within a message")
        elif self._inbox is not None:
            self._inbox.end()
        elif self._message is None:
            self.fail(StatusCode.INTERNAL, "a request without a message")
        else:
            message, self._message = self._message, None
            self._guarded(message)

    # How its handler runs.

    def _guarded(self, argument: bytes | Inbox) -> None:
        """Start the handler; whatever it raises ends this call alone."""
        if self.call.deadline is not None and self.call.deadline <= self._calls.loop.time():
            self.fail(StatusCode.DEADLINE_EXCEEDED, _LATE)
            return
        try:
            assert self._handler is not None
            self._handler.start(self, argument)
        except ConnectionFault:
            raise
        except asyncio.CancelledError:
            self.end(StatusCode.CANCELLED, _CANCELLED)
        except Exception as error:  # noqa: BLE001 - a handler may raise anything
            self._failed(error)

    def run(self, work: Ran) -> None:
        """Run a coroutine as this call's handler."""
        task = self._calls.loop.create_task(work)
        self._calls.tasks.add(task)
        task.add_done_callback(self._calls.tasks.discard)
        self.wait_for(task)

    def wait_for(self, future: asyncio.Future[Any]) -> None:
        """``future`` gives the answer; a handler that sends by itself gives None."""
        self.promised(future)
        future.add_done_callback(self._finished)

    def _finished(self, future: asyncio.Future[Any]) -> None:
        self._running = None
        if self.closed:
            # Reset meanwhile. Until now it counted as one of the connection's calls.
            self._calls.orphans -= 1
            if not future.cancelled() and (error := future.exception()) is not None:
                log.debug("%s failed after its call had ended: %r", self.call.method, error)
            return
        try:
            message = future.result()
            if message is None and isinstance(self._handler, ServerStream | Bidi):
                self.end(StatusCode.OK)
            else:
                self.answer(message)
        except ConnectionFault as fault:
            self._calls.fail(fault)
        except asyncio.CancelledError:
            self.end(StatusCode.CANCELLED, _CANCELLED)
        except Exception as error:  # noqa: BLE001 - a handler may raise anything
            self._failed(error)

    def promised(self, running: Promise | asyncio.Future[Any]) -> None:
        """The handler runs on; a Promise gives the answer, or answers, by :meth:`told`."""
        self._running = running
        if self.call.deadline is not None:
            self.watch(self._calls.loop.time())

    def told(self, found: Answers) -> None:
        """What was promised."""
        self._running = None
        if self.closed:
            self._calls.orphans -= 1
            return
        try:
            self.answers(found)
        except ConnectionFault as fault:
            self._calls.fail(fault)
        except Exception as error:  # noqa: BLE001 - it may be no answer at all
            self._failed(error)

    def _failed(self, error: Exception) -> None:
        if isinstance(error, GrpcError):
            self.end(error.status, error.message)
        else:
            log.error("%s failed", self.call.method, exc_info=error)
            self.end(StatusCode.UNKNOWN, "the method failed: see the server's log")

    # What is sent.

    def answer(self, message: bytes) -> None:
        """The one answer, and the end. Raises TypeError: it is not bytes. ConnectionFault: too many answers wait."""
        if not isinstance(message, bytes):
            raise TypeError(f"an answer of {type(message).__name__}; allowed: bytes")
        if self.closed or self._trailers is not None:
            return
        if not self.call.trailing and self._calls.out.answer(self, message):
            self._close()
            return
        self._send_or_keep(message)
        # Only now: trailers that were known would follow the message on their own, if it goes at once after all.
        self._end_with(trailers(StatusCode.OK, "", self.call.trailing))

    def answers(self, found: Answers) -> None:
        """All there is to answer: one by one in a Task, or in one piece, now. Raises as :meth:`answer`."""
        if not isinstance(self._handler, ServerStream):
            self.answer(cast(bytes, found))
        elif not isinstance(found, bytes):
            self.run(send_all(self, found))
        elif not self.closed:
            self._send_or_keep(found)
            self.end(StatusCode.OK)

    @property
    def unsent_bytes(self) -> int:
        """DATA of the connection that waits for the loop to turn."""
        return self._calls.out.unsent_bytes

    def send(self, message: bytes) -> asyncio.Future[None] | None:
        """One of many answers. A Future means that it waits for the peer, and the next should wait for it.

        Raises TypeError: it is not bytes. ConnectionFault: too many answers wait.
        """
        if not isinstance(message, bytes):
            raise TypeError(f"an answer of {type(message).__name__}; allowed: bytes")
        if self.closed or self._send_or_keep(message):
            return None
        self._waiter = self._calls.loop.create_future()
        return self._waiter

    def _send_or_keep(self, message: bytes) -> bool:
        if self.pending is self._calls.nothing:
            self.pending = deque()
        return self._calls.out.data(self, message if isinstance(message, Framed) else prefix(message))

    def send_body(self, body: bytes) -> None:
        """A text for who is no gRPC client. Its HEADERS are sent; empty DATA ends it, as there are no trailers."""
        self.started = True
        if self.pending is self._calls.nothing:
            self.pending = deque()
        self._calls.out.data(self, body)
        self._end_with(b"")

    def drained(self) -> None:
        """Nothing is pending any more."""
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
        if self._trailers is not None:
            self._send_trailers()

    def end(self, status: StatusCode, message: str = "") -> None:
        """The end of the answer, after what is pending."""
        if self.closed or self._trailers is not None:
            return
        self._end_with(trailers(status, message, self.call.trailing))

    def _end_with(self, block: bytes) -> None:
        self._trailers = block
        if self.pending:
            self.ended_at = self._calls.loop.time()
        else:
            self._send_trailers()

    def _send_trailers(self) -> None:
        assert self._trailers is not None
        out = self._calls.out
        if self._trailers:
            out.guard.work += 1
            out.block(self.id, self._trailers if self.started else START + self._trailers, end=True)
        else:
            out.add(frame(DATA, END_STREAM, self.id, b""))
        self._close()

    def _close(self) -> None:
        """The answer's END_STREAM is on its way."""
        if self.receiving:
            self.tell_reset(ErrorCode.NO_ERROR)
        self._over(cancelled=False)

    # How it ends early.

    def fail(self, status: StatusCode, message: str) -> None:
        """The call ends with ``status``, whatever its handler does. Half a message on the wire leaves only a reset."""
        if self.closed:
            return
        if self.pending:
            self.tell_reset(ErrorCode.CANCEL)
        else:
            block = trailers(status, message)
            self._calls.out.block(self.id, block if self.started else START + block, end=True)
            if self.receiving:
                self.tell_reset(ErrorCode.NO_ERROR)
        self._over(cancelled=True)

    def watch(self, now: float) -> None:
        """End the call at its deadline; with a timer from when that is near. Nearly all calls are over before, and a
        timer for each costs more than a look, once in a tick, at those that are not."""
        deadline = self.call.deadline
        if deadline is None or deadline - now > NEAR_S or self._timer is not None:
            return
        if self._running is not None:
            self._timer = self._calls.loop.call_at(deadline, self.expire)
        elif deadline <= now:
            self.expire()

    def expire(self) -> None:
        """The deadline has passed."""
        self.fail(StatusCode.DEADLINE_EXCEEDED, _LATE)

    def tell_reset(self, code: ErrorCode) -> None:
        """RST_STREAM; what the peer still sends on the stream is ignored."""
        self._calls.out.add(rst_stream(self.id, code))
        self._calls.remember_reset(self.id)

    def drop(self) -> None:
        """Nobody waits: reset by the peer or for its fault, or the connection is lost. Nothing is sent."""
        self._over(cancelled=True)

    def _over(self, *, cancelled: bool) -> None:
        if self.closed:
            return
        self.closed = True
        calls = self._calls
        if self.pending:
            calls.out.forget(self)
        if self._timer is not None:
            self._timer.cancel()
        if self._cost:
            calls.buffered_bytes -= self._cost
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
        if self._inbox is not None:
            self._inbox.close()
        if self._running is not None:
            calls.orphans += 1
            if isinstance(self._running, asyncio.Task):
                self._running.cancel()
        calls.forget(self)
        self.call.end(cancelled=cancelled)
