"""Properties of messages travel past the library, which gets their bytes and does not read them.

aiormq decodes each message's headers as it reads frames. It loses their kinds, and a value that it cannot decode ends
the connection, with all that is under way on it; the message comes again and ends the next one. So the frame of a
content header is exchanged on its way: its properties become one header of bytes. Others see no difference.
"""

from __future__ import annotations

import asyncio
import struct
from typing import Any

from aiormq.connection import TCPTransportFactory, TLSTransportFactory, TransportFactory
from pamqp.commands import Basic
from yarl import URL

from tarry.bridge.amqp_fields import name_of

RAW = "raw"
_FRAME_METHOD, _FRAME_HEADER, _END = 1, 2, b"\xce"
_MESSAGE_ID_AND_HEADERS = 0x2080
_BASIC_RETURN, _CONNECTION_CLOSE = struct.pack(">HH", 60, 50), struct.pack(">HH", 10, 50)


class RawTransport(TransportFactory):
    """A connection whose content headers are exchanged."""

    def __init__(self) -> None:
        self._reader: RawReader | None = None

    async def create(self, url: URL, **kwargs: Any) -> tuple[Any, asyncio.StreamWriter]:
        """Connect, by TLS if the URL says so."""
        factory = TLSTransportFactory() if url.scheme == "amqps" else TCPTransportFactory()
        reader, writer = await factory.create(url, **kwargs)
        self._reader = RawReader(reader)
        return self._reader, writer

    @property
    def closed(self) -> tuple[int, str] | None:
        """Code and text by which RabbitMQ has closed the connection, which the library does not tell."""
        return None if self._reader is None else self._reader.closed


class RawReader:
    """Reader of aiormq's connection: whole frames, those of content headers exchanged."""

    def __init__(self, reader: asyncio.StreamReader) -> None:
        self._reader, self._ready = reader, b""
        self._returned: int | None = None
        """The channel whose next content header is of a message that RabbitMQ returns."""
        self.closed: tuple[int, str] | None = None

    def at_eof(self) -> bool:
        """Return whether nothing more comes."""
        return not self._ready and self._reader.at_eof()

    async def read(self, size: int = -1) -> bytes:
        """Return what there is."""
        return self._ready or await self._reader.read(size)

    async def readexactly(self, size: int) -> bytes:
        """Return a part of a frame."""
        if not self._ready:
            self._ready = await self._frame()
        part, self._ready = self._ready[:size], self._ready[size:]
        return part

    async def _frame(self) -> bytes:
        head = await self._reader.readexactly(7)
        if head.startswith(b"AMQP"):  # another version: the library says so
            return head
        kind, channel, size = struct.unpack(">BHI", head)
        rest = await self._reader.readexactly(size + 1)
        if kind != _FRAME_HEADER:
            if rest.startswith(_BASIC_RETURN):
                self._returned = channel
            elif rest.startswith(_CONNECTION_CLOSE) and kind == _FRAME_METHOD:
                code, length = struct.unpack_from(">HB", rest, 4)
                self.closed = code, rest[7 : 7 + length].decode(errors="replace")
            return head + rest
        is_returned, self._returned = self._returned == channel, None
        exchanged = exchanged_header(rest[:-1], is_returned=is_returned)
        return struct.pack(">BHI", kind, channel, len(exchanged)) + exchanged + _END


def exchanged_header(payload: bytes, *, is_returned: bool) -> bytes:
    """Return a content header that has its properties as one header, :data:`RAW`.

    One of a message that RabbitMQ returns has its name (:func:`name_of`), too.
    """
    raw = payload[12:]
    table = bytes([len(RAW)]) + RAW.encode() + b"x" + struct.pack(">I", len(raw)) + raw
    name = name_of(raw).encode() if is_returned else b""
    fields = struct.pack(">HI", _MESSAGE_ID_AND_HEADERS, len(table)) + table + bytes([len(name)]) + name
    return payload[:12] + fields


def raw_of(properties: Basic.Properties) -> bytes:
    """Return the bytes that properties came as."""
    headers: Any = properties.headers
    return bytes(headers[RAW])


class RawProperties(Basic.Properties):
    """Properties that are sent as the bytes that they are."""

    def __init__(self, raw: bytes) -> None:
        super().__init__(message_id=name_of(raw))
        self.raw = raw

    def marshal(self) -> bytes:
        """Return them as they go out."""
        return self.raw
