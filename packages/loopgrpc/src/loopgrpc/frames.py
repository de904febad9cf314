"""Frames of HTTP/2 as bytes: layout, numbers, and the two kinds of errors that a peer can make.

::

    +-----------------------------------------------+
    | length of the payload (24)                    |
    +---------------+---------------+---------------+
    | type (8)      | flags (8)     |
    +-+-------------+---------------+-------------------------------+
    |R| stream (31)                                                 |
    +=+=============================================================+
    | payload (0 ... 2^14 bytes, as this server never raises the limit)

Sources: RFC 9113, sections 4 (layout), 6 (each frame) and 7 (codes). Nothing here knows a connection or gRPC.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import Final

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
FRAME_HEADER_BYTES: Final = 9
FRAME_BYTES_MAX: Final = 16_384
"""The largest payload that this server takes; RFC 9113 allows no smaller limit."""
WINDOW_MAX: Final = 2**31 - 1
WINDOW_DEFAULT: Final = 65_535
STREAM_MAX: Final = 2**31 - 1

FRAME_HEADER: Final = struct.Struct(">IBI")
"""The nine bytes before a payload, as three numbers: ``length << 8 | type``, flags, stream."""

DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = range(10)

END_STREAM: Final = 0x1
ACK: Final = 0x1
END_HEADERS: Final = 0x4
PADDED: Final = 0x8
PRIORITIZED: Final = 0x20

SET_HEADER_TABLE_SIZE: Final = 1
SET_ENABLE_PUSH: Final = 2
SET_MAX_CONCURRENT_STREAMS: Final = 3
SET_INITIAL_WINDOW_SIZE: Final = 4
SET_MAX_FRAME_SIZE: Final = 5
SET_MAX_HEADER_LIST_SIZE: Final = 6

_SETTING = struct.Struct(">HI")
_UINT32 = struct.Struct(">I")


class ErrorCode(IntEnum):
    """Codes for the end of a stream or a connection (RFC 9113, section 7)."""

    NO_ERROR = 0x0
    PROTOCOL_ERROR = 0x1
    INTERNAL_ERROR = 0x2
    FLOW_CONTROL_ERROR = 0x3
    SETTINGS_TIMEOUT = 0x4
    STREAM_CLOSED = 0x5
    FRAME_SIZE_ERROR = 0x6
    REFUSED_STREAM = 0x7
    CANCEL = 0x8
    COMPRESSION_ERROR = 0x9
    CONNECT_ERROR = 0xA
    ENHANCE_YOUR_CALM = 0xB
    INADEQUATE_SECURITY = 0xC
    HTTP_1_1_REQUIRED = 0xD


class ConnectionFault(Exception):  # noqa: N818 - what the peer did, not what we did
    """A connection error (RFC 9113, section 5.4.1): the connection ends with GOAWAY and ``code``."""

    def __init__(self, code: ErrorCode, text: str) -> None:
        super().__init__(text)
        self.code = code


class StreamFault(Exception):  # noqa: N818
    """A stream error (RFC 9113, section 5.4.2).

    The stream ends with RST_STREAM and ``code``, the others go on.
    """

    def __init__(self, stream_id: int, code: ErrorCode, text: str) -> None:
        super().__init__(text)
        self.stream_id = stream_id
        self.code = code


def frame(kind: int, flags: int, stream_id: int, payload: bytes) -> bytes:
    """Return one frame; ``kind`` is its type.

    ``payload`` has at most ``FRAME_BYTES_MAX`` bytes.
    """
    return FRAME_HEADER.pack(len(payload) << 8 | kind, flags, stream_id) + payload


def rst_stream(stream_id: int, code: ErrorCode) -> bytes:
    """Return RST_STREAM (section 6.4)."""
    return frame(RST_STREAM, 0, stream_id, _UINT32.pack(code))


def goaway(last_stream_id: int, code: ErrorCode, text: str = "") -> bytes:
    """Return GOAWAY (section 6.8).

    Streams above ``last_stream_id`` were not and will not be processed. ``text`` is for people.
    """
    return frame(
        GOAWAY, 0, 0, _UINT32.pack(last_stream_id) + _UINT32.pack(code) + text.encode("ascii", "replace")[:256]
    )


def window_update(stream_id: int, increment: int) -> bytes:
    """Return WINDOW_UPDATE (section 6.9); ``increment`` is in bytes, above 0.

    Stream 0 is the connection.
    """
    return frame(WINDOW_UPDATE, 0, stream_id, _UINT32.pack(increment))


def ping(opaque: bytes, *, ack: bool = False) -> bytes:
    """Return PING (section 6.7) with its eight bytes."""
    return frame(PING, ACK if ack else 0, 0, opaque)


def settings(values: dict[int, int]) -> bytes:
    """Return SETTINGS (section 6.5)."""
    return frame(SETTINGS, 0, 0, b"".join(_SETTING.pack(*item) for item in values.items()))


SETTINGS_ACK: Final = frame(SETTINGS, ACK, 0, b"")


def parse_settings(payload: bytes) -> list[tuple[int, int]]:
    """Return the pairs of a SETTINGS frame in their order, each checked against section 6.5.2.

    Raises ConnectionFault: a length that is not a multiple of six, or a value out of its range.
    """
    if len(payload) % 6:
        raise ConnectionFault(ErrorCode.FRAME_SIZE_ERROR, f"SETTINGS of {len(payload)} bytes; allowed: multiples of 6")
    pairs = list(_SETTING.iter_unpack(payload))
    for name, value in pairs:
        if name == SET_ENABLE_PUSH and value > 1:
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, f"ENABLE_PUSH {value}; allowed: 0, 1")
        if name == SET_INITIAL_WINDOW_SIZE and value > WINDOW_MAX:
            raise ConnectionFault(ErrorCode.FLOW_CONTROL_ERROR, f"INITIAL_WINDOW_SIZE {value}; at most {WINDOW_MAX}")
        if name == SET_MAX_FRAME_SIZE and not FRAME_BYTES_MAX <= value < 1 << 24:
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, f"MAX_FRAME_SIZE {value}; allowed: 16384 to 16777215")
    return pairs


def parse_uint32(payload: bytes, what: str) -> int:
    """Return the one 32-bit number that RST_STREAM and WINDOW_UPDATE carry.

    Raises ConnectionFault: a length other than four.
    """
    if len(payload) != 4:
        raise ConnectionFault(ErrorCode.FRAME_SIZE_ERROR, f"{what} of {len(payload)} bytes; allowed: 4")
    return int.from_bytes(payload, "big")


def unpad(payload: bytes, what: str) -> bytes:
    """Return a PADDED payload without its padding (section 6.1).

    Raises ConnectionFault: the padding is as long as the payload, or longer.
    """
    if not payload or payload[0] >= len(payload):
        raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, f"{what} with more padding than payload")
    return payload[1 : len(payload) - payload[0]]


def strip_priority(payload: bytes) -> bytes:
    """Return a HEADERS payload without the five bytes of priority, which RFC 9113 deprecated.

    Raises ConnectionFault: there are fewer than five.
    """
    if len(payload) < 5:
        raise ConnectionFault(ErrorCode.FRAME_SIZE_ERROR, "a frame too short for the priority that its flags announce")
    return payload[5:]


def depends_on_itself(priority: bytes, stream_id: int) -> bool:
    """Return whether a priority of five bytes makes ``stream_id`` depend on itself.

    Source: RFC 7540, section 5.3.1.
    """
    return int.from_bytes(priority[:4], "big") & STREAM_MAX == stream_id
