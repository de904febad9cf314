"""One connection: it passes each frame to the part in charge of it, from its preface to its end.

::

    preface ─▶ SETTINGS ─▶ serving ─▶ draining (GOAWAY, PING, GOAWAY) ─▶ closed
                              └── an error: GOAWAY, then what arrives is dropped for ``linger_s`` ─▶ closed

Nothing that a peer sends raises out of ``data_received``: a stream error ends the stream, a connection error the
connection, and a mistake of this server is logged and ends this connection, no other.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final, Protocol, cast

from loopgrpc.admission import Admission, Admit, host_of
from loopgrpc.byte_budget import ByteBudget
from loopgrpc.call import Call
from loopgrpc.control_frames import ControlFrames
from loopgrpc.flood import FloodLimiter, WorkCounter
from loopgrpc.frame_reader import FrameReader
from loopgrpc.frames import (
    ACK,
    DATA,
    HEADERS,
    SET_INITIAL_WINDOW_SIZE,
    SET_MAX_CONCURRENT_STREAMS,
    SET_MAX_HEADER_LIST_SIZE,
    SETTINGS,
    STREAM_MAX,
    WINDOW_DEFAULT,
    ConnectionFault,
    ErrorCode,
    StreamFault,
    goaway,
    ping,
    settings,
    window_update,
)
from loopgrpc.handlers import Handler
from loopgrpc.header_blocks import HeaderBlocks
from loopgrpc.keepalive import KeepAlive
from loopgrpc.limits import Limits
from loopgrpc.sender import Sender
from loopgrpc.status import Translate
from loopgrpc.streams import Streams
from loopgrpc.unread_bytes import UnreadBytes, UnreadOfConnection
from loopgrpc.usage import ConnectionUsage

log = logging.getLogger(__name__)

_DRAIN_PING: Final = b"draining"
_DRAIN_PING_S: Final = 2.0
"""Seconds a draining connection waits for its PING to return before it names its last stream anyway."""


class ConnectionOwner(Protocol):
    """The server, as its connections see it."""

    @property
    def handlers(self) -> Mapping[bytes, Handler]:
        """Handlers by their paths."""

    @property
    def limits(self) -> Limits:
        """Bounds of each connection."""

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The event loop of the server."""

    @property
    def tasks(self) -> set[asyncio.Task[Any]]:
        """Handlers that run, of all connections."""

    @property
    def budget(self) -> ByteBudget:
        """Bound on requests that handlers have not taken yet, of all connections."""

    @property
    def calls(self) -> ByteBudget:
        """Bound on open calls, of all connections."""

    @property
    def trusts(self) -> Callable[[Call], bool] | None:
        """Decides by the headers of a call if its connection may be trusted; None: each may."""

    @property
    def translate(self) -> Translate | None:
        """Says how calls end for an error; None: as they would."""

    @property
    def unread(self) -> UnreadBytes:
        """Bytes of responses that peers have not read, of all connections."""

    def add(self, connection: Connection) -> None:
        """Add a new connection."""

    def forget(self, connection: Connection) -> None:
        """Forget a connection that is lost."""


class NewConnection(asyncio.Protocol):
    """The protocol of a connection until asyncio gives it its transport, and with it ``admit`` its place.

    Then a :class:`Connection` is made with the two.
    """

    def __init__(self, owner: ConnectionOwner, admit: Admit) -> None:
        self._owner = owner
        self._admit = admit

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Put the connection in this protocol's place."""
        # A cast, as uvloop's transports are not derived from asyncio's.
        transport = cast(asyncio.Transport, transport)
        admission = self._admit(transport)
        if admission is None:
            transport.abort()
            return
        connection = Connection(self._owner, transport, admission)
        transport.set_protocol(connection)
        connection.begin()


class Connection(asyncio.Protocol):
    """One client's connection. Call :meth:`begin` once ``transport`` delivers to it."""

    def __init__(self, owner: ConnectionOwner, transport: asyncio.Transport, admission: Admission) -> None:
        self._owner = owner
        self._transport = transport
        self._admission = admission
        self._limits = limits = owner.limits
        self._loop = loop = owner.loop
        self.host, self._peer = _peer(transport)
        work = WorkCounter()
        trusts = None if owner.trusts is None else self._trusts
        flood = FloodLimiter(limits, work, loop.time)
        self._sender = sender = Sender(transport, loop, work, limits, UnreadOfConnection(owner.unread, self.host))
        self._streams = streams = Streams(
            owner.handlers, limits, flood, work, sender, peer=self._peer, host=self.host,
            principal=admission.principal, budget=owner.budget, calls=owner.calls, trusts=trusts,
            translate=owner.translate, loop=loop, tasks=owner.tasks, fail=self._fail, on_drained=self._on_drained,
        )  # fmt: skip
        self._control = ControlFrames(flood, sender, streams, self._peer, self._on_pong)
        self._header_blocks = HeaderBlocks(limits, loop.time, streams.on_headers)
        self._keepalive = KeepAlive(limits, sender, loop.time())
        self._reader = FrameReader(self._on_frame)
        self._began_at = loop.time()
        self._settings_received = False
        """True once the preface and the first SETTINGS have arrived."""
        self._over = False
        self._draining_since: float | None = None
        self._refusing = False
        """True once the last stream was named: new ones are refused."""

    def _trusts(self, call: Call) -> bool:
        trusts = self._owner.trusts
        is_trusted = trusts is None or trusts(call)
        if is_trusted:
            self._admission.trusted()
        return is_trusted

    def begin(self) -> None:
        """Send SETTINGS, or refuse the connection."""
        limits, admission = self._limits, self._admission
        admission.on_drain, admission.cut = self.drain, self.cut
        self._owner.add(self)
        values = {
            SET_MAX_CONCURRENT_STREAMS: limits.streams_max,
            SET_INITIAL_WINDOW_SIZE: limits.stream_window_bytes,
            SET_MAX_HEADER_LIST_SIZE: limits.header_list_bytes_max,
        }
        increment = limits.connection_window_bytes - WINDOW_DEFAULT
        self._sender.add(settings(values) + (window_update(0, increment) if increment else b""))
        if admission.refusal is not None:
            self._fail(ConnectionFault(ErrorCode.ENHANCE_YOUR_CALM, admission.refusal))
        elif not _speaks_h2(self._transport):
            # RFC 9113, section 3.2: over TLS, HTTP/2 is what ALPN chose, never a guess.
            self.give_up()

    # What asyncio calls.

    def data_received(self, data: bytes) -> None:
        """Take bytes, cut anywhere."""
        if self._over:
            return
        self._keepalive.received = True
        self._sender.corked = True
        try:
            self._reader.feed(data)
        except ConnectionFault as fault:
            self._fail(fault)
        except Exception:
            log.exception("%s: a frame could not be worked through", self._peer)
            self._fail(ConnectionFault(ErrorCode.INTERNAL_ERROR, "see the server's log"))
        finally:
            self._sender.flush()

    def pause_writing(self) -> None:
        """Note that the socket takes no more bytes."""
        self._sender.pause()

    def resume_writing(self) -> None:
        """Note that the socket takes bytes again."""
        try:
            self._sender.resume()
        except ConnectionFault as fault:  # pragma: no cover - what is pending only shrinks here
            self._fail(fault)

    def connection_lost(self, exc: Exception | None) -> None:
        """End all calls: nobody waits for them."""
        self._stop_reading()
        self._streams.drop_all()
        self._sender.unread.note(0)
        self._owner.forget(self)
        self._admission.released()

    # Frames.

    def _on_frame(self, kind: int, flags: int, stream_id: int, payload: bytes) -> None:
        """Pass one frame on. Raises ConnectionFault."""
        try:
            if self._header_blocks.incomplete_stream_id:
                self._header_blocks.on_next_frame(kind, flags, stream_id, payload)
            elif not self._settings_received and (kind != SETTINGS or flags & ACK):
                raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "the first frame is not SETTINGS")
            elif kind == DATA:
                self._streams.on_data(flags, stream_id, payload)
            elif kind == HEADERS:
                self._header_blocks.on_headers_frame(flags, stream_id, payload)
            else:
                if not self._settings_received:  # then these are SETTINGS
                    self._settings_received = True
                    self._admission.begun()
                self._control.on_frame(kind, flags, stream_id, payload)
        except StreamFault as fault:
            self._streams.on_fault(fault)

    def _on_pong(self, opaque: bytes) -> None:
        """Handle the acknowledgement of one of our PINGs."""
        if opaque == _DRAIN_PING and self._draining_since is not None:
            self._refuse_new_streams()

    # How it ends.

    def _stop_reading(self) -> None:
        self._over = True
        self._reader.stop()

    def _fail(self, fault: ConnectionFault) -> None:
        """Send GOAWAY, end all calls, and drop what still arrives for ``linger_s``."""
        if self._over:
            return
        self._stop_reading()
        log.debug("%s: %s: %s", self._peer, fault.code.name, fault)
        self._sender.add(goaway(self._streams.last_id, fault.code, str(fault)))
        self._sender.flush()
        self._streams.drop_all()
        if self._transport.is_closing():
            return
        self._transport.resume_reading()
        if self._transport.can_write_eof():
            # The peer may have reset the connection, which the loop has not seen yet: ENOTCONN.
            with suppress(OSError):
                self._transport.write_eof()
        self._loop.call_later(self._limits.linger_s, self._transport.abort)

    def drain(self) -> None:
        """Take no new calls, let those that run end, then close.

        Streams that are on their way when the peer reads the first GOAWAY are still taken; a PING tells when it has
        read it (RFC 9113, section 6.8).
        """
        if self._over or self._draining_since is not None:
            return
        self._draining_since = self._loop.time()
        self._sender.add(goaway(STREAM_MAX, ErrorCode.NO_ERROR, "the server stops"))
        if self._settings_received:
            self._sender.add(ping(_DRAIN_PING))
        else:
            self._refuse_new_streams()

    def _refuse_new_streams(self) -> None:
        if self._refusing:
            return
        self._refusing = True
        self._sender.add(goaway(self._streams.last_id, ErrorCode.NO_ERROR, "the server stops"))
        self._streams.refuse_new()

    def _on_drained(self) -> None:
        """Close after the last call has ended; what is written still goes out."""
        self._loop.call_soon(self._close)

    def _close(self) -> None:
        if not self._over:
            self._stop_reading()
            self._sender.flush()
            self._transport.close()

    def give_up(self) -> None:
        """Close at once: nobody is there to read a GOAWAY."""
        self._stop_reading()
        self._transport.abort()

    def cut(self) -> None:
        """Close at once, at the end of the grace period or to make room: calls that still run are reset."""
        if self._settings_received and not self._over:
            self._fail(ConnectionFault(ErrorCode.NO_ERROR, "the server has stopped"))
        self.give_up()

    def check_timeouts(self, now: float) -> None:
        """Check all time-outs, and end what is overdue. Call it about once a second with the loop's time."""
        if self._over:
            return
        limits, blocks = self._limits, self._header_blocks
        if blocks.incomplete_stream_id:
            waits_since = blocks.incomplete_since
        else:
            waits_since = now if self._settings_received else self._began_at
        if now - waits_since > limits.preface_s:
            self._fail(ConnectionFault(ErrorCode.PROTOCOL_ERROR, "a preface or a header block that does not end"))
            return
        if self._sender.paused and self._sender.is_stalled(now, limits.stall_s):
            self.give_up()
            return
        if self._draining_since is not None and now - self._draining_since > _DRAIN_PING_S:
            self._refuse_new_streams()
        self._streams.check_timeouts(now)
        if self._sender.is_stalled(now, limits.stall_s):  # though finished responses are reset by themselves
            self.give_up()
        if self._keepalive.is_dead(now):
            self.give_up()

    def usage(self) -> ConnectionUsage:
        """Return the connection's current usage."""
        return ConnectionUsage(
            peer=self._peer,
            streams=self._streams.open_count,
            late_handlers=self._streams.late_handlers,
            buffered_bytes=self._streams.buffered_bytes,
            pending_bytes=self._sender.pending_bytes,
            unwritten_bytes=self._transport.get_write_buffer_size(),
            writing_paused=self._sender.paused,
            reading_paused=not self._transport.is_reading(),
            draining=self._refusing,
        )


def _speaks_h2(transport: asyncio.Transport) -> bool:
    tls = transport.get_extra_info("ssl_object")
    return tls is None or tls.selected_alpn_protocol() == "h2"


def _peer(transport: asyncio.Transport) -> tuple[str, str]:
    """Return the peer's address, without and with its port."""
    host, name = host_of(transport), transport.get_extra_info("peername")
    if not isinstance(name, tuple) or len(name) < 2:
        return host, host
    return host, f"[{host}]:{name[1]}" if ":" in host else f"{host}:{name[1]}"
