"""One port for clients with TLS and without, told apart by their first byte.

asyncio decides on TLS before a connection has its protocol, and cannot give back bytes that it has read; so connections
are accepted here, and the byte is read without being taken. It is 0x16 in TLS (RFC 8446, section 5.1: handshake) and
"P" in HTTP/2 (RFC 9113, section 3.4: the preface).
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from typing import Final

log = logging.getLogger(__name__)

TLS_HANDSHAKE: Final = b"\x16"
_FIRST_BYTE_S: Final = 10.0
"""Seconds for a connection to send anything; the time for its TLS handshake comes after that."""
_ACCEPT_AGAIN_S: Final = 1.0
"""Seconds to wait after an accept that failed, for example for lack of file descriptors."""


class TlsSniffingListener:
    """A socket that listens from :meth:`open` to :meth:`close`.

    ``new_protocol`` makes each connection's protocol.
    """

    def __init__(
        self,
        listening: socket.socket,
        loop: asyncio.AbstractEventLoop,
        new_protocol: Callable[[], asyncio.Protocol],
        tls: ssl.SSLContext,
        tls_handshake_s: float,
        beginning_max: int,
    ) -> None:
        self._socket = listening
        self._loop = loop
        self._new_protocol = new_protocol
        self._tls = tls
        self._tls_handshake_s = tls_handshake_s
        self._beginning_max = beginning_max
        self._beginning: dict[asyncio.Task[None], None] = {}
        """Connections that have sent nothing yet, or are in their TLS handshake; the oldest first."""
        self._accepting = loop.create_task(self._accept())

    @classmethod
    async def open(
        cls,
        host: str,
        port: int,
        *,
        backlog: int,
        new_protocol: Callable[[], asyncio.Protocol],
        tls: ssl.SSLContext,
        tls_handshake_s: float,
        beginning_max: int,
        listening: socket.socket | None = None,
    ) -> TlsSniffingListener:
        """Listen on the running loop.

        Of more than ``beginning_max`` connections that do not have their protocol yet, the oldest is closed.
        ``listening``: a socket that listens already. Raises OSError.
        """
        loop = asyncio.get_running_loop()
        if listening is not None:
            listening.setblocking(False)
            return cls(listening, loop, new_protocol, tls, tls_handshake_s, beginning_max)
        [(family, _, _, _, address), *_] = await loop.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        listening = socket.create_server(address[:2], family=family, backlog=backlog)
        listening.setblocking(False)
        return cls(listening, loop, new_protocol, tls, tls_handshake_s, beginning_max)

    @property
    def port(self) -> int:
        """The port it listens on."""
        return int(self._socket.getsockname()[1])

    def close(self) -> None:
        """Accept no more; connections that have sent nothing yet are closed."""
        for task in (self._accepting, *self._beginning):
            task.cancel()
        self._socket.close()

    async def _accept(self) -> None:
        while True:
            try:
                connection, _ = await self._loop.sock_accept(self._socket)
            except OSError as error:
                log.warning("a connection could not be accepted: %s", error)
                await asyncio.sleep(_ACCEPT_AGAIN_S)
                continue
            task = self._loop.create_task(self._begin(connection))
            self._beginning[task] = None
            task.add_done_callback(self._on_begun)
            if len(self._beginning) > self._beginning_max:
                oldest = next(iter(self._beginning))
                del self._beginning[oldest]
                oldest.cancel()

    def _on_begun(self, task: asyncio.Task[None]) -> None:
        self._beginning.pop(task, None)

    async def _begin(self, connection: socket.socket) -> None:
        try:
            connection.setblocking(False)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            async with asyncio.timeout(_FIRST_BYTE_S):
                first = await first_byte(self._loop, connection)
            if not first:
                connection.close()
            elif first == TLS_HANDSHAKE:
                await self._loop.connect_accepted_socket(
                    self._new_protocol, connection, ssl=self._tls, ssl_handshake_timeout=self._tls_handshake_s
                )
            else:
                await self._loop.connect_accepted_socket(self._new_protocol, connection)
        except (OSError, TimeoutError, ssl.SSLError) as error:
            log.debug("a connection did not begin: %s", error)
            connection.close()
        except asyncio.CancelledError:
            connection.close()
            raise


async def first_byte(loop: asyncio.AbstractEventLoop, connection: socket.socket) -> bytes:
    """Return the first byte without taking it; empty if the peer has closed."""
    while True:
        with suppress(BlockingIOError):
            return connection.recv(1, socket.MSG_PEEK)
        ready: asyncio.Future[None] = loop.create_future()
        loop.add_reader(connection.fileno(), _wake, ready)
        try:
            await ready
        finally:
            loop.remove_reader(connection.fileno())


def _wake(ready: asyncio.Future[None]) -> None:
    if not ready.done():
        ready.set_result(None)
