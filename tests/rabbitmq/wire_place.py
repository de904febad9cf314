"""A connection to RabbitMQ of which the other side is a test."""

from __future__ import annotations

import asyncio
import struct
from dataclasses import dataclass, field
from typing import Any

from tarry.bridge import frames
from tarry.bridge.wire import AmqpWire

CHANNEL = 7


@dataclass
class Heard:
    """What a listener was told."""

    messages: list[tuple[bytes, bytes, bytes]] = field(default_factory=list)
    confirms: list[tuple[int, bool, bool]] = field(default_factory=list)
    closing: int = 0

    def on_message(self, method: bytes, raw: bytes, body: bytes) -> None:
        self.messages.append((method, raw, body))

    def on_confirm(self, tag: int, *, multiple: bool, is_taken: bool) -> None:
        self.confirms.append((tag, multiple, is_taken))

    def on_closing(self) -> None:
        self.closing += 1


class FakeChannel:
    """A channel, as far as the bridge asks it."""

    def __init__(self) -> None:
        self.number = CHANNEL
        self.closing: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    @property
    def is_closed(self) -> bool:
        return self.closing.done()


class FakeConnection:
    """A connection whose written frames are kept."""

    def __init__(self, frame_max: int = 4096) -> None:
        self.frame_max, self.wire, self.written = frame_max, self, bytearray()

    def write(self, parts: list[bytes]) -> None:
        self.written += b"".join(parts)

    def listen(self, channel: Any, listener: Any) -> None:
        """Nothing comes."""

    def take_written(self) -> list[tuple[int, bytes]]:
        """Return, by kind, the payloads of what was written since the last call."""
        found, at, data = [], 0, bytes(self.written)
        while at < len(data):
            kind, channel, size = frames.HEAD.unpack_from(data, at)
            at += frames.HEAD.size
            assert channel == CHANNEL
            assert size + 8 <= self.frame_max
            assert data[at + size : at + size + 1] == frames.END
            found.append((kind, data[at : at + size]))
            at += size + 1
        self.written.clear()
        return found


def sized(text: bytes) -> bytes:
    return bytes([len(text)]) + text


def method_frame(method: bytes, arguments: bytes = b"", channel: int = CHANNEL) -> bytes:
    return frames.frame(frames.METHOD, channel, method + arguments)


def confirm_frame(method: bytes, tag: int, *, multiple: bool = False) -> bytes:
    return method_frame(method, struct.pack(">QB", tag, multiple))


def deliver_arguments(tag: int, exchange: bytes = b"orders.delayed", key: bytes = b"new") -> bytes:
    return sized(b"ctag1") + struct.pack(">QB", tag, 0) + sized(exchange) + sized(key)


def return_arguments(text: bytes, exchange: bytes = b"orders", key: bytes = b"new") -> bytes:
    return struct.pack(">H", 312) + sized(text) + sized(exchange) + sized(key)


async def read_by_library(wire: AmqpWire, pieces: list[bytes]) -> tuple[bytes, int]:
    """Give a wire these pieces of a stream; return what the library reads, and how often it was told it lives."""
    from tarry.bridge.wire import AmqpReader

    stream = asyncio.StreamReader()
    reader, found = AmqpReader(stream, wire), bytearray()

    async def read() -> None:
        while True:
            found.extend(await reader.readexactly(1))

    task = asyncio.create_task(read())
    for piece in pieces:
        stream.feed_data(piece)
        for _ in range(3):
            await asyncio.sleep(0)
    stream.feed_eof()
    try:
        await task
    except asyncio.IncompleteReadError:
        pass
    return bytes(found).replace(frames.HEARTBEAT, b""), bytes(found).count(frames.HEARTBEAT)
