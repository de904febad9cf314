"""Messages travel past the library: it opens connections and channels; what they carry goes by here.

aiormq makes some thirty objects and four tasks of each message, and decodes its headers. It loses their kinds, and a
value that it cannot decode ends the connection, with all that is under way on it; the message comes again and ends the
next one. So frames of messages and of confirms, on channels that somebody listens to, are taken out of what the library
reads. What goes out is written to the connection, whole frames at a time.
"""

from __future__ import annotations

import asyncio
import logging
import struct
from collections.abc import Sequence
from typing import Any, Protocol

from aiormq.abc import AbstractChannel
from aiormq.connection import Connection, TCPTransportFactory, TLSTransportFactory, TransportFactory
from yarl import URL

from tarry.bridge import frames

log = logging.getLogger(__name__)

READ_BYTES = 256 << 10
FRAME_BYTES_MAX = 128 << 20
"""Of a server that sets no bound, or has not yet."""
TELL_S = 1.0
"""The library takes a connection on which it reads nothing for dead: so often it is told of life."""


class ChannelListener(Protocol):
    """Gets what comes on one channel."""

    def on_message(self, method: bytes, raw: bytes, body: bytes) -> None:
        """Take a message: its Basic.Deliver or Basic.Return, its encoded properties, its body."""
        ...

    def on_confirm(self, tag: int, *, multiple: bool, is_taken: bool) -> None:
        """Take a confirm, by the number of a message on the channel."""
        ...

    def on_closing(self) -> None:
        """Send nothing more: RabbitMQ closes the channel.

        It takes what still comes on it for an error of the whole connection, once the library has answered.
        """
        ...


class AmqpWire(TransportFactory):
    """The stream of one connection."""

    def __init__(self) -> None:
        self._writer: asyncio.StreamWriter | None = None
        self.listeners: dict[int, ChannelListener] = {}
        """By number of the channel."""
        self.closed: tuple[int, str] | None = None
        """Code and text by which RabbitMQ has closed the connection, which the library does not tell."""
        self.frame_max = FRAME_BYTES_MAX
        """Bytes of the largest frame that may come."""
        self.is_blocked = False
        """RabbitMQ does not read what is published: its memory or disk is full."""

    async def create(self, url: URL, **kwargs: Any) -> tuple[Any, asyncio.StreamWriter]:
        """Connect, by TLS if the URL says so."""
        factory = TLSTransportFactory() if url.scheme == "amqps" else TCPTransportFactory()
        reader, self._writer = await factory.create(url, **kwargs)
        return AmqpReader(reader, self), self._writer

    def write(self, parts: Sequence[bytes]) -> None:
        """Send frames, all of one message at once; where the connection has ended, nothing."""
        writer = self._writer
        if writer is not None and not writer.is_closing():
            writer.write(b"".join(parts))

    def abort(self) -> None:
        """End the connection without a word."""
        if self._writer is not None:
            self._writer.transport.abort()

    def on_method(self, payload: bytes) -> None:
        """Look at a method of the connection itself."""
        if payload.startswith(frames.CONNECTION_CLOSE):
            code, length = struct.unpack_from(">HB", payload, 4)
            self.closed = code, payload[7 : 7 + length].decode(errors="replace")
        elif payload.startswith(frames.BLOCKED):
            self.is_blocked = True
        elif payload.startswith(frames.UNBLOCKED):
            self.is_blocked = False


class WiredConnection(Connection):
    """A connection of the library with its :class:`AmqpWire`."""

    def __init__(self, url: str, **more: Any) -> None:
        self.wire = AmqpWire()
        super().__init__(url, transport_factory=self.wire, **more)

    @property
    def frame_max(self) -> int:
        """Bytes of the largest frame."""
        return int(self.connection_tune.frame_max or frames.FRAME_MAX)

    def listen(self, channel: AbstractChannel, listener: ChannelListener) -> None:
        """Give what comes on a channel to ``listener``, until the channel ends."""
        self.wire.frame_max = self.connection_tune.frame_max or FRAME_BYTES_MAX
        listeners, number = self.wire.listeners, channel.number
        listeners[number] = listener
        channel.closing.add_done_callback(lambda _: _forget(listeners, number, listener))


def _forget(listeners: dict[int, ChannelListener], number: int, listener: ChannelListener) -> None:
    if listeners.get(number) is listener:
        del listeners[number]


class _Content:
    """A message of which a part has come."""

    __slots__ = ("body", "left", "listener", "method", "raw")

    def __init__(self, listener: ChannelListener, method: bytes) -> None:
        self.listener, self.method, self.raw, self.left = listener, method, b"", 0
        self.body: list[bytes] = []


class AmqpReader:
    """The reader of the library's connection: it has what is for the library."""

    def __init__(self, reader: asyncio.StreamReader, wire: AmqpWire) -> None:
        self._reader, self._wire = reader, wire
        self._rest = b""
        """Of what came, the part of a frame."""
        self._ready = bytearray()
        """For the library."""
        self._contents: dict[int, _Content] = {}
        self._begun = False
        self._told_s = 0.0

    def at_eof(self) -> bool:
        """Return whether nothing more comes."""
        return not self._ready and self._reader.at_eof()

    async def read(self, size: int = -1) -> bytes:
        """Return what there is."""
        return await self.readexactly(len(self._ready)) or await self._reader.read(size)

    async def readexactly(self, size: int) -> bytes:
        """Return a part of a frame."""
        while len(self._ready) < size:
            came = await self._reader.read(READ_BYTES)
            if not came:
                raise asyncio.IncompleteReadError(bytes(self._ready), size)
            try:
                self._take(self._rest + came if self._rest else came)
            except (struct.error, IndexError) as error:
                raise ConnectionAbortedError(f"a frame cannot be read: {error}") from error
        part = bytes(self._ready[:size])
        del self._ready[:size]
        return part

    def _take(self, data: bytes) -> None:
        """Hand out the whole frames of ``data``, and keep the rest."""
        if not self._begun:
            if data.startswith(b"AMQP"):  # another version: the library says so
                self._ready += data
                return
            self._begun = True
        at, end, head, whole = 0, len(data), frames.HEAD, frames.HEAD.size + len(frames.END)
        while end - at >= whole:
            kind, channel, size = head.unpack_from(data, at)
            if size > self._wire.frame_max:
                raise ConnectionAbortedError(f"a frame has {size} bytes; allowed: {self._wire.frame_max}")
            if end - at < whole + size:
                break
            begin, at = at, at + whole + size
            if data[at - 1] != frames.END_BYTE:
                raise ConnectionAbortedError(f"a frame ends with {data[at - 1]:#04x}; allowed: {frames.END_BYTE:#04x}")
            if not self._is_taken(kind, channel, data[begin + head.size : at - 1]):
                self._ready += data[begin:at]
        self._rest = data[at:]
        self._tell()

    def _is_taken(self, kind: int, channel: int, payload: bytes) -> bool:
        """Take a frame that is not for the library."""
        if kind == frames.METHOD:
            listener = self._wire.listeners.get(channel)
            if listener is not None:
                return self._is_taken_method(listener, channel, payload)
            if channel == 0:
                self._wire.on_method(payload)
            return False
        content = self._contents.get(channel)
        if content is None:
            return False
        if kind == frames.HEADER:
            _, _, content.left = frames.CONTENT.unpack_from(payload)
            content.raw = payload[frames.CONTENT.size :]
        else:
            content.body.append(payload)
            content.left -= len(payload)
        if content.left < 0:
            raise ConnectionAbortedError(f"a body has {-content.left} bytes more than was said")
        if not content.left:
            del self._contents[channel]
            self._tell_of(content.listener.on_message, content.method, content.raw, b"".join(content.body))
        return True

    def _is_taken_method(self, listener: ChannelListener, channel: int, payload: bytes) -> bool:
        method = payload[:4]
        if method in (frames.DELIVER, frames.RETURN):
            if channel in self._contents:
                raise ConnectionAbortedError("a message begins before the end of the one before it")
            self._contents[channel] = _Content(listener, payload)
        elif method in (frames.ACK, frames.NACK):
            tag, bits = frames.CONFIRM.unpack_from(payload, 4)
            self._tell_of(listener.on_confirm, tag, multiple=bool(bits & 1), is_taken=method == frames.ACK)
        else:
            if method == frames.CHANNEL_CLOSE:
                self._tell_of(listener.on_closing)
            return False
        return True

    def _tell_of(self, tell: Any, *args: Any, **kwargs: Any) -> None:
        """Call a listener, whose error ends nothing else."""
        try:
            tell(*args, **kwargs)
        except Exception:
            log.exception("what RabbitMQ says cannot be handled")

    def _tell(self) -> None:
        """Have the library read a heartbeat: something has come."""
        now_s = asyncio.get_running_loop().time()
        if now_s - self._told_s >= TELL_S and self._wire.listeners and not self._ready:
            self._told_s = now_s
            self._ready += frames.HEARTBEAT
