"""The frames of no call: SETTINGS, PING, WINDOW_UPDATE, PRIORITY, GOAWAY and the unknown; and RST_STREAM.

Each is checked (RFC 9113, sections 6.3 to 6.9), counted by the guard, and answered or passed on.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from loopgrpc.calls import Calls
from loopgrpc.fields import TABLE_BYTES
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
    parse_long,
    parse_settings,
    ping,
)
from loopgrpc.guard import Guard
from loopgrpc.outbox import Outbox

log = logging.getLogger(__name__)


class Control:
    """The control frames of one connection; ``pong`` gets the bytes of each PING of ours that comes back."""

    __slots__ = ("_calls", "_guard", "_out", "_pong")

    def __init__(self, guard: Guard, out: Outbox, calls: Calls, pong: Callable[[bytes], None]) -> None:
        self._guard = guard
        self._out = out
        self._calls = calls
        self._pong = pong

    def frame(self, kind: int, flags: int, stream_id: int, payload: bytes) -> None:
        """Any frame but DATA, and those of header blocks in their place. Raises ConnectionFault, StreamFault."""
        if kind == WINDOW_UPDATE:
            self._window_update(stream_id, payload)
        elif kind == PING:
            self._ping(flags, stream_id, payload)
        elif kind == SETTINGS:
            self._settings(flags, stream_id, payload)
        elif kind == RST_STREAM:
            parse_long(payload, "RST_STREAM")
            _on_stream(stream_id, "RST_STREAM")
            self._calls.reset(stream_id)
        elif kind == PRIORITY:
            self._priority(stream_id, payload)
        elif kind == GOAWAY:
            self._goaway(stream_id, payload)
        elif kind in (PUSH_PROMISE, CONTINUATION):
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, f"a frame of type {kind} out of its place")
        else:
            self._guard.chatter.take(self._guard)  # of an unknown type: ignored

    def _settings(self, flags: int, stream_id: int, payload: bytes) -> None:
        _on_connection(stream_id, "SETTINGS")
        if flags & ACK:
            if payload:
                raise ConnectionFault(ErrorCode.FRAME_SIZE_ERROR, "an acknowledgement of SETTINGS with a payload")
            self._guard.chatter.take(self._guard)
            return
        self._guard.settings.take(self._guard)
        pairs = parse_settings(payload)
        # Before what the values let go, so that the peer knows by which values it comes.
        self._out.add(SETTINGS_ACK)
        # A larger MAX_FRAME_SIZE changes nothing: larger frames would only make streams wait longer for each other.
        for name, value in pairs:
            if name == SET_INITIAL_WINDOW_SIZE:
                self._calls.resize_windows(value)
            elif name == SET_HEADER_TABLE_SIZE and value < TABLE_BYTES:
                self._out.shrink_table()

    def _ping(self, flags: int, stream_id: int, payload: bytes) -> None:
        _on_connection(stream_id, "PING")
        if len(payload) != 8:
            raise ConnectionFault(ErrorCode.FRAME_SIZE_ERROR, f"PING of {len(payload)} bytes; allowed: 8")
        if not flags & ACK:
            self._guard.pings.take(self._guard)
            self._out.add(ping(payload, ack=True))
            return
        self._guard.chatter.take(self._guard)
        self._pong(payload)

    def _window_update(self, stream_id: int, payload: bytes) -> None:
        increment = parse_long(payload, "WINDOW_UPDATE") & STREAM_MAX
        self._guard.chatter.take(self._guard)
        if stream_id:
            self._calls.window_update(stream_id, increment)
        elif increment:
            self._out.widen(increment)
        else:
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "WINDOW_UPDATE of 0")

    def _priority(self, stream_id: int, payload: bytes) -> None:
        _on_stream(stream_id, "PRIORITY")
        self._guard.chatter.take(self._guard)
        if len(payload) != 5:
            raise StreamFault(stream_id, ErrorCode.FRAME_SIZE_ERROR, f"PRIORITY of {len(payload)} bytes; allowed: 5")
        if depends_on_itself(payload, stream_id):
            raise StreamFault(stream_id, ErrorCode.PROTOCOL_ERROR, "a stream that depends on itself")

    def _goaway(self, stream_id: int, payload: bytes) -> None:
        """The peer opens no more streams; those that there are go on, and the peer closes after them."""
        _on_connection(stream_id, "GOAWAY")
        self._guard.chatter.take(self._guard)
        if len(payload) < 8:
            raise ConnectionFault(ErrorCode.FRAME_SIZE_ERROR, f"GOAWAY of {len(payload)} bytes; allowed: 8 and more")
        log.debug("%s goes away with code %d", self._calls.peer, int.from_bytes(payload[4:8], "big"))


def _on_stream(stream_id: int, what: str) -> None:
    if stream_id == 0:
        raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, f"{what} on stream 0")


def _on_connection(stream_id: int, what: str) -> None:
    if stream_id != 0:
        raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, f"{what} on stream {stream_id}; it is the connection's")
