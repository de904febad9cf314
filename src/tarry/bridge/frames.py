"""Frames of AMQP 0-9-1 that carry messages, as bytes.

Sections 2.3.5, 4.2.3 and 4.2.6 of its specification, and class ``basic``, 60.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

METHOD, HEADER, BODY = 1, 2, 3
END = b"\xce"
END_BYTE = 0xCE
HEAD = struct.Struct(">BHI")
"""Before each frame: its kind, its channel, and how many bytes it has without :data:`END`."""
HEARTBEAT = HEAD.pack(8, 0, 0) + END
DELIVER, RETURN, ACK, NACK = (struct.pack(">HH", 60, number) for number in (60, 50, 80, 120))
CONNECTION_CLOSE, BLOCKED, UNBLOCKED = (struct.pack(">HH", 10, number) for number in (50, 60, 61))
CHANNEL_CLOSE = struct.pack(">HH", 20, 40)
CONTENT = struct.Struct(">HHQ")
"""Begins a content header: class, weight, and bytes of the body. The properties follow."""
CONFIRM = struct.Struct(">QB")
FRAME_MAX = 128 << 10
"""Of a server that sets no bound."""

_PUBLISH = struct.pack(">HHH", 60, 40, 0)
_MANDATORY = b"\x01"
_ACK = struct.Struct(">BHI4sQBB")


@dataclass(frozen=True, slots=True)
class DeliverArguments:
    """Arguments of Basic.Deliver, by which a queue gives a message."""

    tag: int
    exchange: str
    routing_key: str


def delivered_of(method: bytes) -> DeliverArguments:
    """Return what a Basic.Deliver says."""
    at = 5 + method[4]
    [tag] = struct.unpack_from(">Q", method, at)
    exchange, at = _short(method, at + 9)
    return DeliverArguments(tag, exchange, _short(method, at)[0])


def returned_of(method: bytes) -> tuple[str, str]:
    """Return why a message is returned by Basic.Return, and its routing key."""
    text, at = _short(method, 6)
    _, at = _short(method, at)
    return text, _short(method, at)[0]


def publish_frame(channel: int, exchange: str, routing_key: str) -> bytes:
    """Return a Basic.Publish, mandatory."""
    payload = b"".join((_PUBLISH, _sized(exchange), _sized(routing_key), _MANDATORY))
    return frame(METHOD, channel, payload)


def content_frames(channel: int, raw: bytes, body: bytes, frame_max: int) -> list[bytes]:
    """Return the frames of a message behind its Basic.Publish; ``raw``: its properties, encoded."""
    size = len(body)
    frames = [frame(HEADER, channel, CONTENT.pack(60, 0, size) + raw)]
    step = frame_max - HEAD.size - len(END)
    if size <= step:
        if size:
            frames.append(frame(BODY, channel, body))
        return frames
    return frames + [frame(BODY, channel, body[at : at + step]) for at in range(0, size, step)]


def ack_frame(channel: int, tag: int, *, multiple: bool) -> bytes:
    """Return a Basic.Ack; ``multiple``: of this tag and all before it."""
    return _ACK.pack(METHOD, channel, 13, ACK, tag, multiple, END_BYTE)


def frame(kind: int, channel: int, payload: bytes) -> bytes:
    """Return a frame."""
    return b"".join((HEAD.pack(kind, channel, len(payload)), payload, END))


def _short(method: bytes, at: int) -> tuple[str, int]:
    """Return a short text, and where it ends."""
    end = at + 1 + method[at]
    return method[at + 1 : end].decode("utf-8", "surrogateescape"), end


def _sized(text: str) -> bytes:
    data = text.encode("utf-8", "surrogateescape")
    if len(data) > 255:
        raise ValueError(f"{text!r:.80} has {len(data)} bytes; allowed: 255")
    return bytes((len(data),)) + data
