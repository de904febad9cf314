"""All frames but DATA and those of header blocks.

They are SETTINGS, PING, WINDOW_UPDATE, RST_STREAM, PRIORITY, GOAWAY, and unknown ones. Each is checked (RFC 9113,
sections 6.3 to 6.9), counted against floods, and answered or passed on.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from loopgrpc.flood import FloodLimiter
from loopgrpc.frames import (
    ACK,
    CONTINUATION,
    GOAWAY,
    PING,
    PRIORITY,
    PUSH_PROMISE,
    RST_STREAM,
    SET_HEADER_TABLE_SIZE,
    SET_INITIAL_WINDOW_SIZE,
    SETTINGS,
    SETTINGS_ACK,
    STREAM_MAX,
    WINDOW_UPDATE,
    ConnectionFault,
    ErrorCode,
    StreamFault,
    depends_on_itself,
    parse_settings,
    parse_uint32,
    ping,
)
from loopgrpc.header_table import TABLE_BYTES
from loopgrpc.sender import Sender
from loopgrpc.streams import Streams

log = logging.getLogger(__name__)


class ControlFrames:
    """The control frames of one connection.

    ``on_pong`` gets the eight bytes of each PING of ours that comes back.
    """

    __slots__ = ("_flood", "_on_pong", "_peer", "_sender", "_streams")

    def __init__(
        self, flood: FloodLimiter, sender: Sender, streams: Streams, peer: str, on_pong: Callable[[bytes], None]
    ) -> None:
        self._flood = flood
        self._sender = sender
        self._streams = streams
        self._peer = peer
        self._on_pong = on_pong

    def on_frame(self, kind: int, flags: int, stream_id: int, payload: bytes) -> None:
        """Handle any frame but DATA, HEADERS, and CONTINUATION after HEADERS.

        Raises ConnectionFault, StreamFault.
        """
        if kind == WINDOW_UPDATE:
            self._on_window_update(stream_id, payload)
        elif kind == PING:
            self._on_ping(flags, stream_id, payload)
        elif kind == SETTINGS:
            self._on_settings(flags, stream_id, payload)
        elif kind == RST_STREAM:
            parse_uint32(payload, "RST_STREAM")
            _require_stream(stream_id, "RST_STREAM")
            self._streams.on_reset(stream_id)
        elif kind == PRIORITY:
            self._on_priority(stream_id, payload)
        elif kind == GOAWAY:
            self._on_goaway(stream_id, payload)
        elif kind in (PUSH_PROMISE, CONTINUATION):
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, f"a frame of type {kind} out of its place")
        else:
            self._flood.other_frames.take()  # of an unknown type: ignored

    def _on_settings(self, flags: int, stream_id: int, payload: bytes) -> None:
        _require_connection(stream_id, "SETTINGS")
        if flags & ACK:
            if payload:
                raise ConnectionFault(ErrorCode.FRAME_SIZE_ERROR, "an acknowledgement of SETTINGS with a payload")
            self._flood.other_frames.take()
            return
        self._flood.settings.take()
        pairs = parse_settings(payload)
        # Before the DATA that a larger window releases, so that the peer knows which values applied to it.
        self._sender.add(SETTINGS_ACK)
        # A larger MAX_FRAME_SIZE changes nothing: larger frames would only make streams wait longer for each other.
        for name, value in pairs:
            if name == SET_INITIAL_WINDOW_SIZE:
                self._streams.on_initial_window(value)
            elif name == SET_HEADER_TABLE_SIZE and value < TABLE_BYTES:
                self._sender.on_smaller_table()

    def _on_ping(self, flags: int, stream_id: int, payload: bytes) -> None:
        _require_connection(stream_id, "PING")
        if len(payload) != 8:
            raise ConnectionFault(ErrorCode.FRAME_SIZE_ERROR, f"PING of {len(payload)} bytes; allowed: 8")
        if not flags & ACK:
            self._flood.pings.take()
            self._sender.add(ping(payload, ack=True))
            return
        self._flood.other_frames.take()
        self._on_pong(payload)

    def _on_window_update(self, stream_id: int, payload: bytes) -> None:
        increment = parse_uint32(payload, "WINDOW_UPDATE") & STREAM_MAX
        self._flood.other_frames.take()
        if stream_id:
            self._streams.on_window_update(stream_id, increment)
        elif increment:
            self._sender.on_window_update(increment)
        else:
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "WINDOW_UPDATE of 0")

    def _on_priority(self, stream_id: int, payload: bytes) -> None:
        _require_stream(stream_id, "PRIORITY")
        self._flood.other_frames.take()
        if len(payload) != 5:
            raise StreamFault(stream_id, ErrorCode.FRAME_SIZE_ERROR, f"PRIORITY of {len(payload)} bytes; allowed: 5")
        if depends_on_itself(payload, stream_id):
            raise StreamFault(stream_id, ErrorCode.PROTOCOL_ERROR, "a stream that depends on itself")

    def _on_goaway(self, stream_id: int, payload: bytes) -> None:
        """Note that the peer opens no more streams.

        Open ones go on; the peer closes the connection after them.
        """
        _require_connection(stream_id, "GOAWAY")
        self._flood.other_frames.take()
        if len(payload) < 8:
            raise ConnectionFault(ErrorCode.FRAME_SIZE_ERROR, f"GOAWAY of {len(payload)} bytes; allowed: 8 and more")
        log.debug("%s goes away with code %d", self._peer, int.from_bytes(payload[4:8], "big"))


def _require_stream(stream_id: int, what: str) -> None:
    if stream_id == 0:
        raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, f"{what} on stream 0")


def _require_connection(stream_id: int, what: str) -> None:
    if stream_id != 0:
        raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, f"{what} on stream {stream_id}; it is the connection's")
