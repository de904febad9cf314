"""One port for clients that come with TLS and for those that do not, told apart by their first byte.

asyncio knows neither before a connection has its protocol, and cannot give back bytes that it has read; so connections
are accepted here, and the byte is looked at without taking it. It is 0x16 in TLS (RFC 8446, section 5.1: handshake) and
"P" in HTTP/2 (RFC 9113, section 3.4: the preface).
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Final

log = logging.getLogger(__name__)

_TLS: Final = b"\x16"
_FIRST_BYTE_S: Final = 10.0
"""For a connection to say anything; asyncio's own time for a TLS handshake comes after that."""
_AGAIN_S: Final = 1.0
"""After an accept that failed: for lack of file descriptors, say."""


class Doors:
    """Listens and accepts, on the running loop. ``make`` gives each connection its protocol."""

    def __init__(self, make: Callable[[], asyncio.Protocol], tls: ssl.SSLContext, handshake_s: float) -> None:
        self._make = make
        self._tls = tls
        self._handshake_s = handshake_s
        self._socket: socket.socket
        self._tasks: set[asyncio.Task[None]] = set()

    async def open(self, host: str, port: int, backlog: int) -> int:
        """Listen; the port. Raises OSError."""
        loop = asyncio.get_running_loop()
        [(family, _, _, _, place), *_] = await loop.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        self._socket = socket.create_server(place[:2], family=family, backlog=backlog)
        self._socket.setblocking(False)
        self._start(self._accept(loop))
        return int(self._socket.getsockname()[1])

    def close(self) -> None:
        """Take no more; those that have said nothing yet are closed."""
        for task in self._tasks:
            task.cancel()
        self._socket.close()

    async def _accept(self, loop: asyncio.AbstractEventLoop) -> None:
        while True:
            try:
                connection, _ = await loop.sock_accept(self._socket)
            except OSError as error:
                log.warning("a connection could not be accepted: %s", error)
                await asyncio.sleep(_AGAIN_S)
                continue
            self._start(self._begin(loop, connection))

    def _start(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _begin(self, loop: asyncio.AbstractEventLoop, connection: socket.socket) -> None:
        try:
            connection.setblocking(False)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            async with asyncio.timeout(_FIRST_BYTE_S):
                first = await _peek(loop, connection)
            if not first:
                connection.close()
            elif first == _TLS:
                await loop.connect_accepted_socket(
                    self._make, connection, ssl=self._tls, ssl_handshake_timeout=self._handshake_s
                )
            else:
                await loop.connect_accepted_socket(self._make, connection)
        except (OSError, TimeoutError, ssl.SSLError) as error:
            log.debug("a connection did not begin: %s", error)
            connection.close()
        except asyncio.CancelledError:
            connection.close()
            raise


async def _peek(loop: asyncio.AbstractEventLoop, connection: socket.socket) -> bytes:
    """The first byte, left where it is; empty: the peer has closed."""
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
