"""The response of one call: its messages, as the peer's windows allow, and the trailers behind them."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, Final

from loopgrpc.frames import DATA, END_STREAM, ErrorCode, frame
from loopgrpc.framing import Framed, prefix
from loopgrpc.request import Refusal
from loopgrpc.responses import RESPONSE_HEADERS, encode_refusal, encode_trailers
from loopgrpc.status import StatusCode
from loopgrpc.stream_context import StreamContext

_NOTHING_PENDING: Final[deque[memoryview]] = deque(maxlen=0)
"""Shared by all responses that never have to wait, as most do not. It can hold nothing."""


class Response:
    """A :class:`loopgrpc.sender.SendingStream`.

    ``on_end`` is called when END_STREAM is on its way.
    """

    __slots__ = (
        "_context", "_on_end", "_trailers", "_waiter", "closed", "id", "pending", "send_window", "started",
        "unsent_since",
    )  # fmt: skip

    def __init__(self, context: StreamContext, stream_id: int, on_end: Callable[[], None]) -> None:
        self.id = stream_id
        self._context = context
        self._on_end: Callable[[], None] | None = on_end
        self.closed = False
        """True once nothing more is sent."""
        self.started = False
        """True once the first HEADERS are sent."""
        self.send_window = context.sender.initial_window
        """Bytes of DATA that the peer takes.

        Below 0 after it made its windows smaller (RFC 9113, section 6.9.2).
        """
        self.pending = _NOTHING_PENDING
        """Framed messages that no window or socket has taken yet."""
        self.unsent_since = 0.0
        """Time since which a whole response is pending, as the loop's time; 0: none is."""
        self._trailers: bytes | None = None
        """The trailers, once they are known; empty: an empty DATA frame ends the response."""
        self._waiter: asyncio.Future[None] | None = None

    @property
    def is_ending(self) -> bool:
        """True if its end is known, or it has ended: it takes no more."""
        return self.closed or self._trailers is not None

    def send_only(self, message: bytes, trailing: Any) -> None:
        """Send the one message, and end.

        Raises:
            TypeError: it is not bytes. ConnectionFault: too many responses wait.
        """
        _check(message)
        if self.closed or self._trailers is not None:
            return
        if not trailing and self._context.sender.send_unary_response(self, message):
            self._on_sent_whole()
            return
        self._send(message)
        # Only now: trailers that were known would follow the message on their own, if it goes at once after all.
        self._end_with(encode_trailers(StatusCode.OK, "", trailing))

    def send(self, message: bytes) -> asyncio.Future[None] | None:
        """Send one of many messages.

        A Future means that it waits for the peer, and that the next should wait for the Future. Raises as
        :meth:`send_only`.
        """
        _check(message)
        if self.closed or self._send(message):
            return None
        self._waiter = self._context.loop.create_future()
        return self._waiter

    def _send(self, message: bytes) -> bool:
        """Send a message; return False if a part of it waits for the peer."""
        if self.pending is _NOTHING_PENDING:
            self.pending = deque()
        return self._context.sender.send_data(self, message if isinstance(message, Framed) else prefix(message))

    def refuse(self, refusal: Refusal) -> None:
        """Respond to a request that is not gRPC, after its end.

        The response is HEADERS, a text, and empty DATA to end it, as HTTP clients that know no trailers expect.
        """
        block, body = encode_refusal(refusal)
        self._context.sender.send_headers(self.id, block, end=False)
        self.started = True
        self.pending = deque()
        self._context.sender.send_data(self, body)
        self._end_with(b"")

    def end(self, status: StatusCode, message: str = "", trailing: Any = ()) -> None:
        """End the response after its pending messages."""
        if not self.is_ending:
            self._end_with(encode_trailers(status, message, trailing))

    def _end_with(self, block: bytes) -> None:
        self._trailers = block
        if self.pending:
            self.unsent_since = self._context.loop.time()
        else:
            self._send_trailers()

    def _send_trailers(self) -> None:
        assert self._trailers is not None
        context = self._context
        if self._trailers:
            context.work.units += 1
            block = self._trailers if self.started else RESPONSE_HEADERS + self._trailers
            context.sender.send_headers(self.id, block, end=True)
        else:
            context.sender.add(frame(DATA, END_STREAM, self.id, b""))
        self._on_sent_whole()

    def _on_sent_whole(self) -> None:
        if self._on_end is not None:
            self._on_end()

    def cut_short(self, status: StatusCode, message: str, trailing: Any = ()) -> bool:
        """End now, even if messages are pending.

        Returns False if only a reset could end it, since half a message is sent.
        """
        if self.pending:
            self._context.send_reset(self.id, ErrorCode.CANCEL)
            return False
        block = encode_trailers(status, message, trailing)
        self._context.sender.send_headers(self.id, block if self.started else RESPONSE_HEADERS + block, end=True)
        return True

    def on_sent(self) -> None:
        """Go on after all pending messages are sent."""
        self._release_waiter()
        if self._trailers is not None:
            self._send_trailers()

    def close(self) -> None:
        """Drop what is pending, and wake the one that waits for it: the call is over."""
        self.closed = True
        self._on_end = None  # its owner's method: without this cycle, neither needs the garbage collector
        if self.pending:
            self._context.sender.discard(self)
        self._release_waiter()

    def _release_waiter(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


def _check(message: object) -> None:
    if type(message) is not bytes and not isinstance(message, bytes):
        raise TypeError(f"an answer of {type(message).__name__}; allowed: bytes")
