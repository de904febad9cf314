"""The server of one port: its door, its handlers, and the time of its connections."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Mapping
from email.utils import formatdate
from functools import partial

from loopgrpc import UnreadBytes
from tarry.base.clock import Clock
from tarry.base.descriptors import ConnectionLimits
from tarry.fronts.http.exchange import HttpApplication
from tarry.fronts.http.server.connection import HttpConnection
from tarry.fronts.http.server.known_heads import KnownHeads
from tarry.fronts.http.server.limits import LOOK_S, HttpLimits
from tarry.fronts.kit.door import Door
from tarry.fronts.kit.passing import NewProtocol, passed
from tarry.fronts.kit.tls_settings import PortTls

ALPN = ("http/1.1",)


class HttpServer:
    """An HTTP/1.1 server. On the event loop's thread.

    ``by_prefix``: applications for paths that begin with their prefixes; ``app`` is for all others.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        app: HttpApplication,
        by_prefix: Mapping[str, HttpApplication],
        connections: ConnectionLimits,
        unread: UnreadBytes,
        limits: HttpLimits | None = None,
        tls: PortTls | None = None,
        *,
        from_workers: bool = False,
    ) -> None:
        """Make a server that does not listen yet.

        ``from_workers``: all its connections are passed on by workers.
        """
        self.loop = loop
        self.limits = limits or HttpLimits()
        self.unread = unread
        self.date = b""
        """The header with the broker's time, of the last look."""
        self.heads = KnownHeads(self.limits.header_blocks_max)
        self._clock = clock
        self._app = app
        self._by_prefix = list(by_prefix.items())
        tls = tls or PortTls()
        new_protocol: NewProtocol = partial(HttpConnection, self)
        if from_workers:
            new_protocol = passed(new_protocol)
        self._door = Door(
            new_protocol,
            connections,
            tls=tls.context(ALPN),
            plain=tls.plain,
            on_clear=tls.on_clear,
            half_open_max=self.limits.half_open_max,
            begin_s=2 * self.limits.header_s,  # a slow client gets its timeout as an HTTP answer first
            asks=True,
        )
        self._connections: set[HttpConnection] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle

    def __len__(self) -> int:
        """Return the number of connections."""
        return len(self._door)

    async def listen(self, address: str | socket.socket) -> str:
        """Take connections at an address, or of a socket that listens.

        Return the address with the port that it has.

        Raises:
            OSError: it cannot be listened on.
        """
        listening = await self._door.listen(address)
        self._look()
        return listening

    async def stop(self, grace_s: float) -> None:
        """Take no more, answer current requests for up to ``grace_s`` seconds, then cut the rest."""
        self._timer.cancel()
        await self._door.drain(grace_s)
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # -- for connections -----------------------------------------------------------------------------------------------

    def add(self, connection: HttpConnection) -> None:
        """Look after a new connection."""
        self._connections.add(connection)

    def forget(self, connection: HttpConnection) -> None:
        """Forget a connection that is lost."""
        self._connections.discard(connection)

    def application_for(self, path: str) -> HttpApplication:
        """Return the application for requests to a path."""
        for prefix, application in self._by_prefix:
            if path.startswith(prefix):
                return application
        return self._app

    def keep(self, task: asyncio.Task[None]) -> None:
        """Keep a task that answers a request: the loop itself keeps none alive."""
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _look(self) -> None:
        self.date = f"date: {formatdate(self._clock.now_ms() / 1000, usegmt=True)}\r\n".encode()
        now_s = self.loop.time()
        for connection in list(self._connections):
            connection.look(now_s)
        self._timer = self.loop.call_later(LOOK_S, self._look)
