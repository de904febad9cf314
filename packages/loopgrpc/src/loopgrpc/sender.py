"""Sending side of a connection: flow control towards the peer, turns, and one write per loop turn.

Frames gather in a list. While bytes that arrived are processed, the list is written at the end of that; what handlers
respond later is written by one callback, so that the responses of a whole group commit share a system call.

A call's DATA waits in its stream (``pending``) for three things: the stream's window, the connection's, and a socket
that takes more. ``_ready`` has the streams that wait for the last two alone, so that a WINDOW_UPDATE for the connection
costs as much as it lets go, and not as much as there are streams whose own window is shut (a peer could open a thousand
of them and then send updates of one byte). They take turns of ``_TURN_BYTES``.
Source: RFC 9113, section 5.2.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final, Protocol

from loopgrpc.flood import WorkCounter
from loopgrpc.frames import FRAME_BYTES_MAX, WINDOW_DEFAULT, WINDOW_MAX, ConnectionFault, ErrorCode
from loopgrpc.framing import PREFIX_BYTES
from loopgrpc.limits import Limits
from loopgrpc.responses import RESPONSE_HEADERS, data_header, headers_frames, unary_response
from loopgrpc.unread_bytes import UnreadBytes, UnreadOfConnection

_TURN_BYTES: Final = 65_536
_LARGE_BYTES: Final = 32_768
_WRITE_BUFFER_BYTES: Final = 262_144
"""The transport pauses writing when more than this waits for the socket."""
_EMPTY_TABLE: Final = b"\x20"
"""A dynamic table size of 0 at the start of a header block, RFC 7541, section 6.3."""


class SendingStream(Protocol):
    """A stream as its sender sees it."""

    id: int
    started: bool
    """True once the response's first HEADERS are sent."""
    send_window: int
    """Bytes of DATA that the peer takes on this stream."""
    pending: deque[memoryview]
    """Framed messages that no window or socket has taken yet."""

    def on_sent(self) -> None:
        """Go on after all pending messages are sent."""


class Sender:
    """The frames that one connection has to send.

    Everything is on the event loop's thread.
    """

    __slots__ = (
        "_empty_table_announced", "_loop", "_must_announce_empty_table", "_parts", "_pending_bytes_max", "_ready",
        "_sent_seen", "_transport", "_work", "_write_bytes_max", "corked", "initial_window", "paused", "pending_bytes",
        "sent", "unread", "unsent_bytes", "window",
    )  # fmt: skip

    def __init__(
        self,
        transport: asyncio.Transport,
        loop: asyncio.AbstractEventLoop,
        work: WorkCounter,
        limits: Limits,
        unread: UnreadOfConnection | None = None,
    ) -> None:
        self.unread = unread or UnreadOfConnection(UnreadBytes(), "")
        """Bytes that the peer has not read, as far as they wait for a window or for the socket."""
        self.sent = self._sent_seen = 0
        """Number of DATA frames written."""
        self._transport = transport
        self._loop = loop
        self._work = work
        self._pending_bytes_max = limits.pending_bytes_max
        self._write_bytes_max = limits.write_bytes_max
        self._parts: list[bytes | memoryview] = []
        self._ready: dict[int, SendingStream] = {}
        self._must_announce_empty_table = False
        self._empty_table_announced = False
        self.corked = False
        """True while :meth:`flush` is certain to be called."""
        self.paused = False
        """True while the socket takes no more."""
        self.window = WINDOW_DEFAULT
        """Bytes of DATA that the peer takes on the whole connection."""
        self.initial_window = WINDOW_DEFAULT
        """Bytes of DATA that the peer takes on a new stream."""
        self.pending_bytes = 0
        """DATA of all streams that waits for a window or the socket."""
        self.unsent_bytes = 0
        """DATA since the last flush; handlers that never wait are made to wait by it."""
        transport.set_write_buffer_limits(high=_WRITE_BUFFER_BYTES)

    def add(self, frames: bytes) -> None:
        """Send whole frames, together with all others of this turn of the loop."""
        self._parts.append(frames)
        if not self.corked:
            self.corked = True
            self._loop.call_soon(self.flush)

    def flush(self) -> None:
        """Write all gathered frames.

        Nothing more is read from a peer that does not read them.
        """
        self.corked = False
        if not self._parts:
            return
        parts, self._parts, size, self.unsent_bytes = self._parts, [], self.unsent_bytes, 0
        if self._transport.is_closing():
            return
        try:
            if size >= _LARGE_BYTES:
                self._transport.writelines(parts)  # to join them would be one more copy
            else:
                self._transport.write(b"".join(parts) if len(parts) > 1 else parts[0])
        except RuntimeError:
            # uvloop's transport closes on a socket error before it reports it: connection_lost follows.
            return
        if self.paused:
            self._count_unread()
            if self._transport.get_write_buffer_size() > self._write_bytes_max:
                self._transport.pause_reading()

    def send_unary_response(self, stream: SendingStream, message: bytes) -> bool:
        """Send a whole good response at once, if nothing is in its way; return whether it was sent.

        Nearly all calls end this way.
        """
        length = len(message) + PREFIX_BYTES
        if (
            length > self.window
            or length > stream.send_window
            or length > FRAME_BYTES_MAX
            or self.paused
            or self._must_announce_empty_table
        ):
            return False
        self.window -= length
        self.sent += 1
        self._work.units += 1
        self.add(unary_response(stream.id, message))
        return True

    def send_headers(self, stream_id: int, block: bytes, *, end: bool) -> None:
        """Send a header block."""
        if self._must_announce_empty_table:
            self._must_announce_empty_table = False
            block = _EMPTY_TABLE + block
        self.add(headers_frames(stream_id, block, end=end))

    def on_smaller_table(self) -> None:
        """Announce an empty dynamic table, as the peer wants a smaller one for our header blocks.

        We use none, but have to say so once: otherwise the peer's decoder would refuse the next block (RFC 7541,
        section 4.2).
        """
        self._must_announce_empty_table = not self._empty_table_announced
        self._empty_table_announced = True

    def send_data(self, stream: SendingStream, message: bytes) -> bool:
        """Send ``message``, framed, on ``stream``. Returns False if a part of it stays pending.

        Raises ConnectionFault (ENHANCE_YOUR_CALM): too much is pending.
        """
        if not stream.started:
            stream.started = True
            self.send_headers(stream.id, RESPONSE_HEADERS, end=False)
        length = len(message)
        if (
            length <= FRAME_BYTES_MAX
            and length <= self.window
            and length <= stream.send_window
            and not stream.pending
            and not self.paused
        ):
            self.window -= length
            stream.send_window -= length
            self.unsent_bytes += length
            self.sent += 1
            self._work.units += 1
            self.add(data_header(stream.id, length) + message)
            return True
        stream.pending.append(memoryview(message))
        self.pending_bytes += length
        self.on_stream_window(stream)
        if not stream.pending:
            return True
        if self.pending_bytes > self._pending_bytes_max:
            raise ConnectionFault(ErrorCode.ENHANCE_YOUR_CALM, "too many answers wait for a window")
        return False

    def _send_ready(self) -> None:
        """Let streams write in turns, while the connection's window and the socket take more."""
        ready = self._ready
        while ready and self.window > 0 and not self.paused:
            stream = ready.pop(next(iter(ready)))
            self._send_turn(stream)
            if self.unsent_bytes >= _TURN_BYTES:
                corked = self.corked
                self.flush()  # here the socket may pause writing
                self.corked = corked
        self._count_unread()

    def _send_turn(self, stream: SendingStream) -> None:
        """Send up to ``_TURN_BYTES`` of one stream."""
        turn_bytes, pending = _TURN_BYTES, stream.pending
        while pending:
            piece = pending[0]
            length = min(len(piece), self.window, stream.send_window, FRAME_BYTES_MAX, turn_bytes)
            if length <= 0:
                break
            self.add(data_header(stream.id, length))
            self._parts.append(piece[:length])
            if length == len(piece):
                pending.popleft()
            else:
                pending[0] = piece[length:]
            turn_bytes -= length
            self.window -= length
            stream.send_window -= length
            self.pending_bytes -= length
            self.unsent_bytes += length
            self.sent += 1
            self._work.units += 1
        if pending:
            self._make_ready(stream)
        else:
            stream.on_sent()

    def _count_unread(self) -> None:
        size = self.pending_bytes + (self._transport.get_write_buffer_size() if self.paused else 0)
        if size and not self.unread.size:
            self.unread.begin(self._loop.time())
        self.unread.note(size)

    def is_stalled(self, now: float, stall_s: float) -> bool:
        """Return whether the peer has taken nothing of what waits for it, for ``stall_s`` seconds."""
        if not self.unread.size:
            return False
        self._count_unread()
        if not self.paused and self.sent != self._sent_seen:
            self.unread.begin(now)  # data that waits for the window of its own stream does not stand for the connection
        self._sent_seen = self.sent
        return self.unread.is_stalled(self._transport, now, stall_s)

    def _make_ready(self, stream: SendingStream) -> None:
        if stream.pending and stream.send_window > 0:
            self._ready[stream.id] = stream

    def discard(self, stream: SendingStream) -> None:
        """Drop the pending data of ``stream``, which has ended."""
        self._ready.pop(stream.id, None)
        for piece in stream.pending:
            self.pending_bytes -= len(piece)
        stream.pending.clear()
        self._count_unread()

    def on_window_update(self, increment: int) -> None:
        """Widen the connection's window.

        Raises ConnectionFault: it grows above the maximum.
        """
        if self.window + increment > WINDOW_MAX:
            raise ConnectionFault(ErrorCode.FLOW_CONTROL_ERROR, f"a window above {WINDOW_MAX}")
        self.window += increment
        self._send_ready()

    def on_stream_window(self, stream: SendingStream) -> None:
        """Send what a stream can, after its window has changed or it has more to send."""
        self._make_ready(stream)
        self._send_ready()

    def pause(self) -> None:
        """Note that the socket takes no more bytes."""
        self.paused = True
        self._count_unread()

    def resume(self) -> None:
        """Note that the socket takes bytes again."""
        self.paused = False
        if not self._transport.is_closing():
            self._transport.resume_reading()
        self._send_ready()
