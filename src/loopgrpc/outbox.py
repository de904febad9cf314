"""The sending side of a connection: the peer's windows, who writes next, and one write a loop turn.

Frames gather in a list. While bytes that arrived are worked through, it is written at their end; what handlers answer
later is written by one callback, so that the answers of a whole group commit share a system call.

A call's DATA waits in its stream (``pending``) for three things: the stream's window, the connection's, and a socket
that takes more. ``_ready`` has the streams that wait for the last two alone, so that a WINDOW_UPDATE for the connection
costs as much as it lets go, and not as much as there are streams whose own window is shut (a peer could open a thousand
of them and then send updates of one byte). They take turns of ``_TURN_BYTES``.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from loopgrpc.answers import PREFIX_BYTES, START, block_frames, data_head, one_message
from loopgrpc.frames import FRAME_BYTES_MAX, WINDOW_DEFAULT, WINDOW_MAX, ConnectionFault, ErrorCode
from loopgrpc.guard import Guard
from loopgrpc.limits import Limits

if TYPE_CHECKING:
    from loopgrpc.stream import Stream

_TURN_BYTES: Final = 65_536
_HIGH_WATER_BYTES: Final = 262_144
_EMPTY_TABLE: Final = b"\x20"
"""A dynamic table size of 0 at the start of a header block, RFC 7541, section 6.3."""


class Outbox:
    """What one connection has to send. Everything is on the event loop's thread."""

    __slots__ = (
        "_limits",
        "_loop",
        "_must_shrink",
        "_parts",
        "_ready",
        "_shrunk",
        "_transport",
        "corked",
        "guard",
        "initial_window",
        "paused",
        "paused_at",
        "pending_bytes",
        "unsent_bytes",
        "window",
    )  # fmt: skip

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop, guard: Guard, limits: Limits):
        self._transport = transport
        self._loop = loop
        self._limits = limits
        self._parts: list[bytes | memoryview] = []
        self._ready: dict[int, Stream] = {}
        self._must_shrink = False
        self._shrunk = False
        self.guard = guard
        self.corked = False
        """True while somebody will call :meth:`flush` for sure."""
        self.paused = False
        """True while the socket takes no more."""
        self.paused_at = 0.0
        self.window = WINDOW_DEFAULT
        """Bytes of DATA that the peer takes on the whole connection."""
        self.initial_window = WINDOW_DEFAULT
        """The same for a new stream."""
        self.pending_bytes = 0
        self.unsent_bytes = 0
        """DATA since the last flush: handlers that never wait are made to, by it."""
        transport.set_write_buffer_limits(high=_HIGH_WATER_BYTES)

    def add(self, data: bytes) -> None:
        """Send ``data``, whole frames, with what else there is in this turn."""
        self._parts.append(data)
        if not self.corked:
            self.corked = True
            self._loop.call_soon(self.flush)

    def flush(self) -> None:
        """Write all that has gathered. A peer that does not read it is not read any more either."""
        self.corked = False
        if not self._parts:
            return
        parts, self._parts, self.unsent_bytes = self._parts, [], 0
        if self._transport.is_closing():
            return
        self._transport.write(b"".join(parts) if len(parts) > 1 else parts[0])
        if self.paused and self._transport.get_write_buffer_size() > self._limits.write_bytes_max:
            self._transport.pause_reading()

    def answer(self, stream: Stream, message: bytes) -> bool:
        """Send a whole good answer at once, if nothing is in its way: this is how nearly all calls end."""
        length = len(message) + PREFIX_BYTES
        if (
            length > self.window
            or length > stream.send_window
            or length > FRAME_BYTES_MAX
            or self.paused
            or self._must_shrink
        ):
            return False
        self.window -= length
        self.guard.work += 1
        self.add(one_message(stream.id, message))
        return True

    def block(self, stream_id: int, block: bytes, *, end: bool) -> None:
        """Send a header block."""
        if self._must_shrink:
            self._must_shrink = False
            block = _EMPTY_TABLE + block
        self.add(block_frames(stream_id, block, end=end))

    def shrink_table(self) -> None:
        """The peer wants a smaller table for our header blocks. We use none, but have to say so once, as the peer's
        decoder would else refuse the next block (RFC 7541, section 4.2)."""
        self._must_shrink = not self._shrunk
        self._shrunk = True

    def data(self, stream: Stream, message: bytes) -> bool:
        """Send ``message``, framed, on ``stream``; what is in the way stays pending there. True: nothing was."""
        if not stream.started:
            stream.started = True
            self.block(stream.id, START, end=False)
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
            self.guard.work += 1
            self.add(data_head(stream.id, length) + message)
            return True
        stream.pending.append(memoryview(message))
        self.pending_bytes += length
        self._offer(stream)
        self.pump()
        if not stream.pending:
            return True
        if self.pending_bytes > self._limits.pending_bytes_max:
            raise ConnectionFault(ErrorCode.ENHANCE_YOUR_CALM, "too many answers wait for a window")
        return False

    def pump(self) -> None:
        """Let streams write in turns, as long as the connection's window and the socket take it."""
        ready = self._ready
        while ready and self.window > 0 and not self.paused:
            stream = ready.pop(next(iter(ready)))
            self._write(stream)
            if self.unsent_bytes >= _TURN_BYTES:
                corked = self.corked
                self.flush()  # this is where the socket may say stop
                self.corked = corked

    def _write(self, stream: Stream) -> None:
        """One turn of a stream."""
        most, pending = _TURN_BYTES, stream.pending
        while pending:
            piece = pending[0]
            length = min(len(piece), self.window, stream.send_window, FRAME_BYTES_MAX, most)
            if length <= 0:
                break
            self.add(data_head(stream.id, length))
            self._parts.append(piece[:length])
            if length == len(piece):
                pending.popleft()
            else:
                pending[0] = piece[length:]
            most -= length
            self.window -= length
            stream.send_window -= length
            self.pending_bytes -= length
            self.unsent_bytes += length
            self.guard.work += 1
        if pending:
            self._offer(stream)
        else:
            stream.drained()

    def _offer(self, stream: Stream) -> None:
        if stream.pending and stream.send_window > 0:
            self._ready[stream.id] = stream

    def forget(self, stream: Stream) -> None:
        """``stream`` has ended: what it has pending will not be sent."""
        self._ready.pop(stream.id, None)
        for piece in stream.pending:
            self.pending_bytes -= len(piece)
        stream.pending.clear()

    def widen(self, increment: int) -> None:
        """The connection's window grows. Raises ConnectionFault: beyond what there may be."""
        if self.window + increment > WINDOW_MAX:
            raise ConnectionFault(ErrorCode.FLOW_CONTROL_ERROR, f"a window above {WINDOW_MAX}")
        self.window += increment
        self.pump()

    def widened(self, stream: Stream) -> None:
        """A stream's window has changed."""
        self._offer(stream)
        self.pump()

    def pause(self) -> None:
        """The socket takes no more."""
        self.paused = True
        self.paused_at = self._loop.time()

    def resume(self) -> None:
        """The socket takes more again."""
        self.paused = False
        if not self._transport.is_closing():
            self._transport.resume_reading()
        self.pump()
