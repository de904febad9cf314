"""Header blocks, put together from HEADERS and CONTINUATION frames.

Source: RFC 9113, sections 6.2 and 6.10.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from loopgrpc.frames import (
    CONTINUATION,
    END_HEADERS,
    END_STREAM,
    FRAME_BYTES_MAX,
    PADDED,
    PRIORITIZED,
    ConnectionFault,
    ErrorCode,
    depends_on_itself,
    strip_priority,
    unpad,
)
from loopgrpc.limits import Limits


class OnHeaders(Protocol):
    """Callback for a whole header block; ``end``: END_STREAM was set.

    Raises ConnectionFault, StreamFault.
    """

    def __call__(self, stream_id: int, block: bytes, *, end: bool, depends_on_itself: bool) -> None: ...


class HeaderBlocks:
    """The header blocks of one connection, each passed to ``on_headers``. ``clock`` returns seconds."""

    __slots__ = (
        "_block", "_block_bytes_max", "_clock", "_continuations", "_continuations_max", "_depends_on_itself", "_flags",
        "_on_headers", "incomplete_since", "incomplete_stream_id",
    )  # fmt: skip

    def __init__(self, limits: Limits, clock: Callable[[], float], on_headers: OnHeaders) -> None:
        self._continuations_max = limits.continuations_max
        # A block is no longer than its fields, except in the worst case of Huffman coding; up to four times is decoded.
        self._block_bytes_max = 4 * limits.header_list_bytes_max + FRAME_BYTES_MAX
        self._clock = clock
        self._on_headers = on_headers
        self._block = bytearray()
        self._flags = 0
        self._depends_on_itself = False
        self._continuations = 0
        self.incomplete_stream_id = 0
        """The stream with an unfinished header block; 0: there is none."""
        self.incomplete_since = 0.0
        """Start of that block, in seconds of the clock."""

    def on_headers_frame(self, flags: int, stream_id: int, payload: bytes) -> None:
        """Handle HEADERS. Raises ConnectionFault, StreamFault."""
        if stream_id % 2 == 0:
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, f"HEADERS on stream {stream_id}; clients open odd ones")
        if flags & PADDED:
            payload = unpad(payload, "HEADERS")
        itself = False
        if flags & PRIORITIZED:
            itself = depends_on_itself(payload, stream_id)
            payload = strip_priority(payload)
        if flags & END_HEADERS:
            self._on_headers(stream_id, payload, end=bool(flags & END_STREAM), depends_on_itself=itself)
        else:
            self.incomplete_stream_id = stream_id
            self.incomplete_since = self._clock()
            self._flags, self._depends_on_itself = flags, itself
            self._block += payload
            self._continuations = 0

    def on_next_frame(self, kind: int, flags: int, stream_id: int, payload: bytes) -> None:
        """Handle the frame after an incomplete header block: only its CONTINUATION is allowed.

        Raises ConnectionFault, StreamFault.
        """
        if kind != CONTINUATION or stream_id != self.incomplete_stream_id:
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "a header block is interrupted")
        self._continuations += 1
        self._block += payload
        if self._continuations > self._continuations_max or len(self._block) > self._block_bytes_max:
            raise ConnectionFault(ErrorCode.ENHANCE_YOUR_CALM, "a header block without end")
        if flags & END_HEADERS:
            block = bytes(self._block)
            self._block.clear()
            self.incomplete_stream_id = 0
            end = bool(self._flags & END_STREAM)
            self._on_headers(stream_id, block, end=end, depends_on_itself=self._depends_on_itself)
