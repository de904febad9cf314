"""A front's door: it listens, decides on TLS, and admits connections up to its limits.

asyncio decides on TLS before a connection has its protocol, and cannot give back bytes that it has read. So a door with
TLS accepts connections itself, and each has its place from the accept on. It looks at the first byte without consuming
it: 0x16 in TLS (RFC 8446, section 5.1: handshake), another one in each protocol that is served here. Who comes without
TLS where that is not allowed is told so by an alert: asyncio closes such a connection without a word.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, cast

from tarry.api.clear_ports import ClearPort
from tarry.base.descriptors import ConnectionLimits
from tarry.base.endpoint import parse_address, socket_path
from tarry.base.exposure import is_exposed
from tarry.base.log_limiter import LogLimiter
from tarry.fronts.kit.admission import BEGIN_S, Admission, Admissions
from tarry.fronts.kit.listening import listen_at, listen_on
from tarry.fronts.kit.peer_proof import proof_of
from tarry.fronts.kit.tls import OnClear, ReloadedTls

log = logging.getLogger(__name__)

BACKLOG = 1024
TLS_HANDSHAKE = b"\x16"
TLS_NEEDED = b"\x15\x03\x03\x00\x02\x02\x46"
"""An alert of TLS: fatal, protocol_version (RFC 8446, section 6)."""
READ_BYTES = 64 << 10
ACCEPT_AGAIN_S = 1.0
"""Seconds to wait after an accept that failed, for lack of file descriptors, for example."""

T = TypeVar("T")


class Door:
    """Accepts connections on the running loop from :meth:`listen` until :meth:`drain`."""

    def __init__(
        self,
        new_protocol: Callable[[Admission], asyncio.Protocol],
        limits: ConnectionLimits,
        *,
        tls: ReloadedTls | None = None,
        plain: bool = False,
        on_clear: OnClear | None = None,
        half_open_max: int | None = None,
        begin_s: float | None = BEGIN_S,
        asks: bool = False,
    ) -> None:
        """Make a door that does not listen yet.

        Args:
            new_protocol: makes a connection's protocol, which tells the client the admission's refusal, calls its
                ``begun`` at the first data and its ``released`` when the connection is lost.
            limits: limits on all connections and on those of one peer.
            tls: TLS for clients; None: they connect without it.
            plain: with ``tls``, clients may connect without it, too.
            on_clear: called with each address at which other machines may speak without TLS.
            half_open_max: limit on connections that have sent nothing; None: a quarter of all.
            begin_s: seconds within which a connection must send something; None: no limit.
            asks: the protocol calls the admission's ``trusted`` once a request has shown whose it is, or need not.
        """
        self._new_protocol = new_protocol
        self._tls = tls
        self._plain, self._on_clear = plain, on_clear
        self._begin_s = begin_s
        self._loop = asyncio.get_running_loop()
        self._admissions = Admissions(limits, half_open_max, begin_s, asks=asks)
        self._listening: list[socket.socket] = []
        self._servers: list[asyncio.Server] = []
        self._tasks: set[asyncio.Task[Any]] = set()
        """Tasks that accept connections, and tasks that give a connection its protocol."""
        self._paths: list[str] = []
        self._failed = LogLimiter(log, logging.WARNING)
        """Limited log of handshakes that failed: strangers can cause thousands a second."""

    def __len__(self) -> int:
        """Return the number of connections."""
        return len(self._admissions)

    async def listen(self, address: str | socket.socket) -> str:
        """Listen, and return the address with the port that is actually listened on.

        Takes ``HOST:PORT``, ``unix:PATH`` or a socket that listens already. It may be called again, for another address
        under the same limits.

        Raises:
            InvalidArgumentError: the address cannot be parsed.
            OSError: the address cannot be listened on.
        """
        listening = address if isinstance(address, socket.socket) else self._open(address)
        listening.setblocking(False)
        self._listening.append(listening)
        self._warn_clear(_address_of(listening))
        if self._tls is not None:
            self._keep(self._accept(listening))
        else:
            make: Any = self._loop.create_server if _is_tcp(listening) else self._loop.create_unix_server
            self._servers.append(await make(lambda: _Entrance(self._enter), sock=listening, backlog=BACKLOG))
        return _address_of(listening)

    def _warn_clear(self, address: str) -> None:
        """Log, and have noted, that other machines may speak in the clear here."""
        if is_exposed(address) and (self._tls is None or self._plain):
            log.warning("%s", ClearPort("a port", address))
            if self._on_clear is not None:
                self._on_clear(address)

    def close(self) -> None:
        """Accept no more connections, and close those that have no protocol yet."""
        for server in self._servers:
            server.close()
        for task in list(self._tasks):
            task.cancel()
        for listening in self._listening:
            listening.close()
        for path in self._paths:
            with suppress(OSError):
                Path(path).unlink()
        self._servers, self._listening, self._paths = [], [], []

    async def drain(self, grace_s: float) -> None:
        """Accept no more, let connections end within ``grace_s`` seconds, then cut the rest."""
        self.close()
        await self._admissions.drain(grace_s)

    def _open(self, address: str) -> socket.socket:
        path = socket_path(address)
        if path is None:
            return listen_on(*parse_address(address), backlog=BACKLOG)
        listening = listen_at(path, backlog=BACKLOG)
        self._paths.append(path)
        return listening

    async def _accept(self, listening: socket.socket) -> None:
        while True:
            try:
                connection, address = await self._loop.sock_accept(listening)
            except OSError as error:
                log.warning("a connection could not be accepted: %s", error)
                await asyncio.sleep(ACCEPT_AGAIN_S)
                continue
            host = address[0] if _is_tcp(listening) else ""
            admission = self._admissions.admit(host, connection.close)
            if admission.refusal is not None and not self._admissions.has_room_to_refuse():
                admission.released()
                connection.close()
                continue
            task = self._keep(self._begin(connection, admission))
            admission.cut = task.cancel
            task.add_done_callback(partial(_end_unbegun, connection, admission))

    def _keep(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _begin(self, connection: socket.socket, admission: Admission) -> bool:
        """Give a connection its protocol, with TLS or without. Return whether that succeeded."""
        assert self._tls is not None
        try:
            connection.setblocking(False)
            if _is_tcp(connection):
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            first = await _first_byte(self._loop, connection)
            if not first:
                return False
            with_tls = first == TLS_HANDSHAKE
            if not with_tls and not self._plain:
                _tell_tls_is_needed(connection)
                return False
            await self._loop.connect_accepted_socket(
                lambda: _Entrance(self._enter, admission),
                connection,
                ssl=self._tls.context() if with_tls else None,
                ssl_handshake_timeout=self._begin_s if with_tls else None,
            )
        except ssl.SSLError as error:
            self._failed.say("a client at %s got no TLS: %s", admission.peer_host, error)
            return False
        except (OSError, TimeoutError) as error:
            log.debug("a connection did not begin: %s", error)
            return False
        return True

    def _enter(self, transport: asyncio.Transport, admission: Admission | None) -> None:
        """Give a connection its protocol."""
        if admission is None:
            peer = transport.get_extra_info("peername")
            admission = self._admissions.admit(peer[0] if isinstance(peer, tuple) else "", transport.abort)
        elif not admission.is_open:  # cut to make room for another, just when its handshake ended
            transport.abort()
            return
        admission.cut = transport.abort
        admission.principal = proof_of(transport)
        if admission.refusal is not None and not self._admissions.has_room_to_refuse():
            admission.released()
            transport.abort()
            return
        protocol = self._new_protocol(admission)
        transport.set_protocol(protocol)
        protocol.connection_made(transport)


class _Entrance(asyncio.Protocol):
    """A connection's protocol until it has its transport, and with it its peer."""

    def __init__(
        self, enter: Callable[[asyncio.Transport, Admission | None], None], admission: Admission | None = None
    ) -> None:
        self._enter = enter
        self._admission = admission

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Put the connection's own protocol in this one's place."""
        self._enter(cast(asyncio.Transport, transport), self._admission)  # uvloop's are not derived from asyncio's


def _end_unbegun(connection: socket.socket, admission: Admission, begun: asyncio.Task[bool]) -> None:
    """Close a connection that did not get its protocol, also if its task never ran."""
    if begun.cancelled() or begun.exception() is not None or not begun.result():
        admission.released()
        connection.close()


async def _first_byte(loop: asyncio.AbstractEventLoop, connection: socket.socket) -> bytes:
    """Return the first byte without consuming it; empty if the peer has closed."""
    while True:
        with suppress(BlockingIOError):
            return connection.recv(1, socket.MSG_PEEK)
        ready: asyncio.Future[None] = loop.create_future()
        loop.add_reader(connection.fileno(), _wake, ready)
        try:
            await ready
        finally:
            loop.remove_reader(connection.fileno())


def _tell_tls_is_needed(connection: socket.socket) -> None:
    """Answer who speaks without TLS."""
    connection.recv(READ_BYTES)  # to close with bytes unread would reset the connection, and the alert could be lost
    connection.send(TLS_NEEDED)
    connection.shutdown(socket.SHUT_WR)


def _wake(ready: asyncio.Future[None]) -> None:
    if not ready.done():
        ready.set_result(None)


def _is_tcp(connection: socket.socket) -> bool:
    return connection.family != socket.AF_UNIX


def _address_of(listening: socket.socket) -> str:
    name = listening.getsockname()
    if not _is_tcp(listening):
        return f"unix:{name}"
    return f"[{name[0]}]:{name[1]}" if ":" in name[0] else f"{name[0]}:{name[1]}"
