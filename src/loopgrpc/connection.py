"""One connection: bytes to frames, frames to whom they concern, and the connection's own life.

::

    preface ─▶ SETTINGS ─▶ serving ─▶ draining (GOAWAY, PING, GOAWAY) ─▶ closed
                              └── a fault: GOAWAY, then what arrives is dropped for ``linger_s`` ─▶ closed

Nothing that a peer sends raises out of ``data_received``: a fault of a stream ends the stream, a fault of the
connection the connection, and what is a mistake of ours is logged and ends this connection, no other.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Any, Final, Protocol, cast

from loopgrpc.calls import Calls
from loopgrpc.control import Control
from loopgrpc.frames import (
    ACK,
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    FRAME_BYTES_MAX,
    HEAD,
    HEAD_BYTES,
    HEADERS,
    PADDED,
    PREFACE,
    PRIORITIZED,
    SET_INITIAL_WINDOW_SIZE,
    SET_MAX_CONCURRENT_STREAMS,
    SET_MAX_HEADER_LIST_SIZE,
    SETTINGS,
    STREAM_MAX,
    WINDOW_DEFAULT,
    ConnectionFault,
    ErrorCode,
    StreamFault,
    depends_on_itself,
    goaway,
    ping,
    settings,
    strip_priority,
    unpad,
    window_update,
)  # fmt: skip
from loopgrpc.guard import Guard
from loopgrpc.handlers import Handler
from loopgrpc.limits import Limits
from loopgrpc.outbox import Outbox

log = logging.getLogger(__name__)

_DRAIN_PING: Final = b"draining"
_ALIVE_PING: Final = b"alive?\0\0"
_DRAIN_PING_S: Final = 2.0
"""How long a draining connection waits for its PING to come back before it names its last stream anyway."""


class Owner(Protocol):
    """The server, as its connections know it."""

    limits: Limits
    tasks: set[asyncio.Task[Any]]
    loop: asyncio.AbstractEventLoop

    @property
    def handlers(self) -> Mapping[bytes, Handler]:
        """By their paths."""

    def joined(self, connection: Connection) -> bool:
        """A connection begins; False: there are too many."""

    def left(self, connection: Connection) -> None:
        """It is lost or closed."""


class Connection(asyncio.Protocol):
    """One client's connection."""

    def __init__(self, owner: Owner) -> None:
        self._owner = owner
        self._limits = owner.limits
        self._loop = owner.loop
        self._greeted = False
        """The preface and the first SETTINGS are there."""
        self._rest = bytearray()
        self._wanted = len(PREFACE)
        self._preface = True
        self._block = bytearray()
        self._block_head: tuple[int, int, bool] | None = None
        """Stream, flags, and whether it depends on itself, of a header block that is not whole."""
        self._continuations = 0
        self._over = False
        self._heard = True
        self._silent_since = self._since = owner.loop.time()
        self._asked = False
        self._draining_since: float | None = None

    # What asyncio calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Greet, or refuse."""
        # A cast, as uvloop's transports are not derived from asyncio's.
        self._transport = transport = cast(asyncio.Transport, transport)
        self._guard = Guard(self._limits, self._loop.time)
        self._out = Outbox(transport, self._loop, self._guard, self._limits)
        self._calls = Calls(
            self._owner.handlers, self._limits, self._guard, self._out, peer=_peer(transport), loop=self._loop,
            tasks=self._owner.tasks, fail=self._fail, empty=self._drained,
        )  # fmt: skip
        self._control = Control(self._guard, self._out, self._calls, self._pong)
        self._out.add(self._greeting())
        if not self._owner.joined(self):
            self._fail(ConnectionFault(ErrorCode.ENHANCE_YOUR_CALM, "too many connections"))
        elif not _speaks_h2(transport):
            # RFC 9113, section 3.2: over TLS, HTTP/2 is what ALPN chose, never a guess.
            self._over = True
            transport.abort()

    def data_received(self, data: bytes) -> None:
        """Bytes, cut anywhere."""
        if self._over:
            return
        self._heard = True
        rest = self._rest
        if rest:
            rest += data
            if len(rest) < self._wanted:
                return
            data = bytes(rest)
            rest.clear()
        self._out.corked = True
        try:
            self._consume(data)
        except ConnectionFault as fault:
            self._fail(fault)
        except Exception:
            log.exception("%s: a frame could not be worked through", self._calls.peer)
            self._fail(ConnectionFault(ErrorCode.INTERNAL_ERROR, "see the server's log"))
        finally:
            self._out.flush()

    def pause_writing(self) -> None:
        """The socket takes no more."""
        self._out.pause()

    def resume_writing(self) -> None:
        """The socket takes more again."""
        try:
            self._out.resume()
        except ConnectionFault as fault:  # pragma: no cover - what is pending only shrinks here
            self._fail(fault)

    def connection_lost(self, exc: Exception | None) -> None:
        """All calls end; nobody waits for them."""
        self._over = True
        self._calls.drop_all()
        self._owner.left(self)

    # Frames.

    def _greeting(self) -> bytes:
        limits = self._limits
        values = {
            SET_MAX_CONCURRENT_STREAMS: limits.streams_max,
            SET_INITIAL_WINDOW_SIZE: limits.stream_window_bytes,
            SET_MAX_HEADER_LIST_SIZE: limits.header_list_bytes_max,
        }
        more = limits.connection_window_bytes - WINDOW_DEFAULT
        return settings(values) + (window_update(0, more) if more else b"")

    def _consume(self, data: bytes) -> None:
        """All whole frames in ``data``; the rest waits for more."""
        at, end = 0, len(data)
        if self._preface:
            at = self._read_preface(data)
        while end - at >= HEAD_BYTES and not self._over:
            word, flags, stream_id = HEAD.unpack_from(data, at)
            start = at + HEAD_BYTES
            stop = start + (word >> 8)
            if stop - start > FRAME_BYTES_MAX:
                raise ConnectionFault(ErrorCode.FRAME_SIZE_ERROR, f"a frame of {stop - start} bytes; at most 16384")
            if stop > end:
                self._wanted = stop - at
                break
            at = stop
            try:
                self._frame(word & 0xFF, flags, stream_id & STREAM_MAX, data[start:stop])
            except StreamFault as fault:
                self._calls.fault(fault)
        else:
            self._wanted = HEAD_BYTES
        if at < end and not self._over and not self._preface:
            self._rest += data[at:] if at else data

    def _read_preface(self, data: bytes) -> int:
        if data[: len(PREFACE)] != PREFACE[: len(data)]:
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "this is HTTP/2 alone, by prior knowledge or ALPN")
        if len(data) < len(PREFACE):
            self._rest += data
            return len(data)
        self._preface = False
        return len(PREFACE)

    def _frame(self, kind: int, flags: int, stream_id: int, payload: bytes) -> None:
        if self._block_head is not None:
            self._continue(kind, flags, stream_id, payload)
        elif not self._greeted and (kind != SETTINGS or flags & ACK):
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "the first frame is not SETTINGS")
        elif kind == DATA:
            self._calls.data(flags, stream_id, payload)
        elif kind == HEADERS:
            self._headers(flags, stream_id, payload)
        else:
            self._greeted = True  # only SETTINGS get here before it is
            self._control.frame(kind, flags, stream_id, payload)

    def _pong(self, opaque: bytes) -> None:
        """A PING of ours has come back."""
        if opaque == _DRAIN_PING and self._draining_since is not None:
            self._last_call()

    def _headers(self, flags: int, stream_id: int, payload: bytes) -> None:
        if stream_id % 2 == 0:
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, f"HEADERS on stream {stream_id}; clients open odd ones")
        if flags & PADDED:
            payload = unpad(payload, "HEADERS")
        itself = False
        if flags & PRIORITIZED:
            itself = depends_on_itself(payload, stream_id)
            payload = strip_priority(payload)
        if flags & END_HEADERS:
            self._calls.headers(stream_id, payload, end=bool(flags & END_STREAM), depends_on_itself=itself)
        else:
            self._block_head = stream_id, flags, itself
            self._block += payload
            self._continuations = 0
            self._since = self._loop.time()

    def _continue(self, kind: int, flags: int, stream_id: int, payload: bytes) -> None:
        """The next frame of a header block, and nothing else may it be."""
        assert self._block_head is not None
        opened, opened_flags, itself = self._block_head
        if kind != CONTINUATION or stream_id != opened:
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "a header block is interrupted")
        self._continuations += 1
        self._block += payload
        # A block is no longer than its fields, but for Huffman's code at its worst; four times is what is decoded.
        if self._continuations > self._limits.continuations_max or len(self._block) > self._block_bytes_max:
            raise ConnectionFault(ErrorCode.ENHANCE_YOUR_CALM, "a header block without end")
        if flags & END_HEADERS:
            block = bytes(self._block)
            self._block.clear()
            self._block_head = None
            self._calls.headers(opened, block, end=bool(opened_flags & END_STREAM), depends_on_itself=itself)

    @property
    def _block_bytes_max(self) -> int:
        return 4 * self._limits.header_list_bytes_max + FRAME_BYTES_MAX

    # How it ends.

    def _fail(self, fault: ConnectionFault) -> None:
        """GOAWAY; all calls end; what still arrives is dropped for a while."""
        if self._over:
            return
        self._over = True
        log.debug("%s: %s: %s", self._calls.peer, fault.code.name, fault)
        self._out.add(goaway(self._calls.last_id, fault.code, str(fault)))
        self._out.flush()
        self._calls.drop_all()
        if self._transport.is_closing():
            return
        self._transport.resume_reading()
        if self._transport.can_write_eof():
            self._transport.write_eof()
        self._loop.call_later(self._limits.linger_s, self._transport.abort)

    def drain(self) -> None:
        """Take no new calls, let those that run end, then close. Streams that are on their way when the peer reads the
        first GOAWAY are still taken; a PING tells when it has (RFC 9113, section 6.8)."""
        if self._over or self._draining_since is not None:
            return
        self._draining_since = self._loop.time()
        self._out.add(goaway(STREAM_MAX, ErrorCode.NO_ERROR, "the server stops"))
        if self._greeted:
            self._out.add(ping(_DRAIN_PING))
        else:
            self._last_call()

    def _last_call(self) -> None:
        if self._calls.refusing:
            return
        self._calls.refusing = True
        self._out.add(goaway(self._calls.last_id, ErrorCode.NO_ERROR, "the server stops"))
        if not self._calls.streams:
            self._drained()

    def _drained(self) -> None:
        """The last call has ended: what is written still goes out."""
        self._loop.call_soon(self._close)

    def _close(self) -> None:
        if not self._over:
            self._over = True
            self._out.flush()
            self._transport.close()

    def _give_up(self) -> None:
        """Nobody is there to be told."""
        self._over = True
        self._transport.abort()

    def abort(self) -> None:
        """Grace is over: calls that still run are reset."""
        if not self._over:
            self._fail(ConnectionFault(ErrorCode.NO_ERROR, "the server has stopped"))
        self._transport.abort()

    def tick(self, now: float) -> None:
        """Once a second or so: what does not come, or does not go on, ends."""
        if self._over:
            return
        limits = self._limits
        waits_for_peer = not self._greeted or self._block_head is not None
        if waits_for_peer and now - self._since > limits.preface_s:
            self._fail(ConnectionFault(ErrorCode.PROTOCOL_ERROR, "a preface or a header block that does not end"))
            return
        if self._out.paused and now - self._out.paused_at > limits.stall_s:
            self._give_up()
            return
        if self._draining_since is not None and now - self._draining_since > _DRAIN_PING_S:
            self._last_call()
        self._calls.tick(now)
        self._ask_if_alive(now)

    def _ask_if_alive(self, now: float) -> None:
        if self._heard:
            self._heard = self._asked = False
            self._silent_since = now
        elif self._asked and now - self._silent_since > self._limits.keepalive_timeout_s:
            self._give_up()
        elif not self._asked and 0 < self._limits.keepalive_idle_s < now - self._silent_since:
            self._asked = True
            self._silent_since = now
            self._out.add(ping(_ALIVE_PING))


def _speaks_h2(transport: asyncio.Transport) -> bool:
    tls = transport.get_extra_info("ssl_object")
    return tls is None or tls.selected_alpn_protocol() == "h2"


def _peer(transport: asyncio.Transport) -> str:
    name = transport.get_extra_info("peername")
    if isinstance(name, tuple) and len(name) >= 2:
        host, port = name[0], name[1]
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    return str(name or "unknown")
