"""The body of one request: DATA to messages, and the flow control and memory that they take.

The stream's window bounds what a peer may send ahead of the handler (RFC 9113, section 5.2). Bytes of an incomplete
message are given back to the window on arrival, as a message may be larger than the window and nobody can take a part
of it; those of a complete one when the handler has it. So a stream holds at most a window of complete messages and one
incomplete one. The one message of a request that comes whole in one DATA frame, as nearly all do, needs none of this:
see :meth:`loopgrpc.stream.Stream.on_data`.
"""

from __future__ import annotations

from typing import Final

from loopgrpc.frames import ErrorCode, StreamFault, window_update
from loopgrpc.framing import Deframer
from loopgrpc.request_messages import RequestMessages
from loopgrpc.status import GrpcError, StatusCode
from loopgrpc.stream_context import StreamContext

_MESSAGE_COST_BYTES: Final = 64
"""Memory of a kept message beside its bytes: a window of empty ones is not free."""


class RequestBody:
    """The part of one request that has arrived.

    ``deframer`` is None if the request is only read to its end, to be refused then. ``messages`` is the iterator of a
    handler that takes many messages, None for one that takes one.
    """

    __slots__ = (
        "_context", "_counted_bytes", "_deframer", "_ended", "_held_bytes", "_message", "_stream_id",
        "_ungranted_bytes", "completed", "messages", "received_bytes",
    )  # fmt: skip

    def __init__(self, context: StreamContext, stream_id: int, deframer: Deframer | None, *, many: bool) -> None:
        self._context = context
        self._stream_id = stream_id
        self._deframer = deframer
        self._message: bytes | None = None
        self._ended = False
        self._ungranted_bytes = 0
        """DATA with its padding for which the peer's window was not widened again."""
        self._held_bytes = 0
        """Complete messages that the handler has not taken, each with its cost."""
        self._counted_bytes = 0
        """Bytes of this request that are counted in ``context.buffered_bytes``."""
        self.received_bytes = 0
        """DATA without its padding, as content-length counts it."""
        self.completed = 0
        """Number of complete messages so far."""
        self.messages = RequestMessages(self._on_read) if many else None

    def add(self, payload: bytes, length: int) -> None:
        """Take DATA: ``payload`` without its padding, ``length`` bytes with it.

        Raises:
            StreamFault: the peer had no window for it.
            GrpcError: it is not a message, or too large, or too much waits for the connection's handlers.
        """
        self._ungranted_bytes += length
        if self._ungranted_bytes > self._context.limits.stream_window_bytes:
            raise StreamFault(self._stream_id, ErrorCode.FLOW_CONTROL_ERROR, "more DATA than the stream's window")
        self.received_bytes += len(payload)
        if self._deframer is not None:
            for message in self._deframer.feed(payload):
                self._context.work.units += 1
                self.completed += 1
                if self.messages is not None:
                    self._held_bytes += len(message) + _MESSAGE_COST_BYTES
                    self.messages.put(message)
                elif self._message is None:
                    self._message = message
                else:
                    raise GrpcError(StatusCode.INTERNAL, "a second message for a method that takes one")
            self._count_held()
        self._widen_window()

    @property
    def is_within_message(self) -> bool:
        """True if a part of a message has arrived, and not all of it."""
        return self._deframer is not None and self._deframer.incomplete_bytes > 0

    @property
    def is_taken(self) -> bool:
        """True if the handler has taken all messages that are complete."""
        return not self._held_bytes

    def _count_held(self) -> None:
        """Add the bytes that this request holds to the connection's.

        Raises GrpcError: they are too many.
        """
        incomplete = self._deframer.incomplete_bytes if self._deframer else 0
        held = self._held_bytes + incomplete + len(self._message or b"")
        more = held - self._counted_bytes
        if more > 0:
            if (refusal := self._context.hold(more)) is not None:
                raise GrpcError(StatusCode.RESOURCE_EXHAUSTED, refusal)
        elif more:
            self._context.release(-more)
        self._counted_bytes = held

    def _widen_window(self) -> None:
        """Widen the peer's window by the bytes that are not held, once that is worth a frame."""
        free = self._ungranted_bytes - self._held_bytes
        if not self._ended and free * 2 >= self._context.limits.stream_window_bytes:
            self._ungranted_bytes -= free
            self._context.sender.add(window_update(self._stream_id, free))

    def _on_read(self, message: bytes) -> None:
        """Give back the bytes of ``message``, which the handler has taken out of ``messages``."""
        self._held_bytes -= len(message) + _MESSAGE_COST_BYTES
        self._count_held()
        self._widen_window()

    def end(self) -> bytes | None:
        """Note the end of the request; return the message of a method that takes one, else None.

        Raises GrpcError: the request ends within a message, or has none where one is needed.
        """
        self._ended = True
        if self._deframer is not None and self._deframer.incomplete_bytes:
            raise GrpcError(StatusCode.INTERNAL, "a request that ends within a message")
        if self.messages is not None:
            self.messages.end()
            return None
        message, self._message = self._message, None
        if message is None:
            raise GrpcError(StatusCode.INTERNAL, "a request without a message")
        return message

    def close(self) -> None:
        """Drop what was not taken, as the call has ended, and send nothing any more."""
        self._ended = True
        self._context.release(self._counted_bytes)
        self._counted_bytes = 0
        if self.messages is not None:
            self.messages.close()
