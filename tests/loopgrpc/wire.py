"""A client of raw frames: what no library would send, and every frame that comes back."""

from __future__ import annotations

import asyncio
import ssl
from types import TracebackType
from typing import NamedTuple

from hpack import Decoder

from loopgrpc.frames import (
    ACK,
    DATA,
    END_HEADERS,
    END_STREAM,
    FRAME_HEADER,
    FRAME_HEADER_BYTES,
    GOAWAY,
    HEADERS,
    PING,
    PREFACE,
    RST_STREAM,
    ErrorCode,
    frame,
    ping,
    settings,
)
from loopgrpc.framing import prefix
from loopgrpc.responses import encode_literal

CALL = (
    (b":method", b"POST"),
    (b":scheme", b"http"),
    (b":path", b"/test.Test/Echo"),
    (b":authority", b"localhost"),
    (b"te", b"trailers"),
    (b"content-type", b"application/grpc"),
)


class Frame(NamedTuple):
    """One frame that came."""

    kind: int
    flags: int
    stream: int
    payload: bytes

    @property
    def code(self) -> ErrorCode:
        """Of RST_STREAM and GOAWAY."""
        assert self.kind in (RST_STREAM, GOAWAY), self
        return ErrorCode(int.from_bytes(self.payload[-4:] if self.kind == RST_STREAM else self.payload[4:8], "big"))


def block(*fields: tuple[bytes, bytes], path: str = "") -> bytes:
    """A header block of literals; ``path`` alone makes a call of it."""
    chosen = fields or CALL
    return b"".join(encode_literal(n, path.encode() if path and n == b":path" else v) for n, v in chosen)


def call(stream: int, message: bytes | None = b"hello", *, path: str = "", more: tuple[tuple[bytes, bytes], ...] = ()):
    """The frames of a whole unary call; without a ``message`` only its HEADERS, and the request goes on."""
    head = frame(HEADERS, END_HEADERS, stream, block(*CALL, *more, path=path))
    return head if message is None else head + frame(DATA, END_STREAM, stream, prefix(message))


class Wire:
    """A connection. ``async with`` greets and closes it."""

    def __init__(self, port: int, *, greet: bool = True, first: dict[int, int] | None = None, tls=None) -> None:
        self._port, self._greet, self._first = port, greet, first or {}
        self._tls: ssl.SSLContext | None = tls
        self.decoder = Decoder()
        self._pings = 1 << 60
        self.seen: list[Frame] = []

    async def __aenter__(self) -> Wire:
        self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self._port, ssl=self._tls)
        if self._greet:
            self.send(PREFACE + settings(self._first))
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        self.writer.close()

    def send(self, *frames: bytes) -> None:
        """Put them on their way."""
        self.writer.write(b"".join(frames))

    async def read(self) -> Frame | None:
        """The next frame; None at the end of the connection."""
        try:
            word, flags, stream = FRAME_HEADER.unpack(await self.reader.readexactly(FRAME_HEADER_BYTES))
            received = Frame(word & 0xFF, flags, stream, await self.reader.readexactly(word >> 8))
        except (asyncio.IncompleteReadError, ConnectionError):
            return None
        self.seen.append(received)
        return received

    async def until(self, kind: int, stream: int | None = None, *, flags: int = 0) -> Frame:
        """The next frame of ``kind``, on ``stream``, that has ``flags``."""
        while (received := await self.read()) is not None:
            if received.kind == kind and received.flags & flags == flags and stream in (None, received.stream):
                return received
        raise AssertionError(f"the connection ended before a frame of type {kind}: {self.seen}")

    async def settled(self) -> None:
        """All that was sent before is worked through: the server answers in order."""
        self._pings += 1
        opaque = self._pings.to_bytes(8, "big")
        self.send(ping(opaque))
        while (await self.until(PING, flags=ACK)).payload != opaque:
            pass

    async def goaway(self) -> ErrorCode:
        """The code of GOAWAY, after which the server ends the connection."""
        received = await self.until(GOAWAY)
        while await self.read() is not None:
            pass
        return received.code

    async def answer(self, stream: int) -> tuple[dict[str, str], bytes, dict[str, str]]:
        """HEADERS, DATA and trailers of ``stream``; an answer of trailers alone has them as its HEADERS too."""
        head: dict[str, str] | None = None
        body = b""
        while True:
            received = await self.read()
            assert received is not None, f"the connection ended before the answer: {self.seen}"
            if received.kind == RST_STREAM and received.stream == stream:
                raise AssertionError(f"reset with {received.code!r}")
            if received.kind == HEADERS:
                fields = {str(n): str(v) for n, v in self.decoder.decode(received.payload)}
                if received.stream == stream:
                    head = fields if head is None else head
                    if received.flags & END_STREAM:
                        return head, body, fields
            elif received.kind == DATA and received.stream == stream:
                body += received.payload
                if received.flags & END_STREAM:
                    return head or {}, body, {}
