"""Listening, and looking after all connections of one port."""

from __future__ import annotations

import asyncio
import socket
from collections import Counter
from collections.abc import Mapping
from email.utils import formatdate

from loopgrpc import UnreadBytes
from tarry.base.clock import Clock
from tarry.base.descriptors import ConnectionLimits
from tarry.fronts.http.exchange import HttpApplication
from tarry.fronts.http.server.connection import HttpConnection
from tarry.fronts.http.server.known_heads import KnownHeads
from tarry.fronts.http.server.limits import LOOK_S, HttpLimits

BACKLOG = 1024
STOP_LOOK_S = 0.01


class HttpServer:
    """On the loop's thread. ``by_prefix`` are for paths that begin with theirs, ``app`` is for all others."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        app: HttpApplication,
        by_prefix: Mapping[str, HttpApplication],
        connections: ConnectionLimits,
        unread: UnreadBytes,
        limits: HttpLimits | None = None,
    ) -> None:
        self.loop = loop
        self.limits = limits or HttpLimits()
        self.unread = unread
        self.date = b""
        """The header with the broker's time, of the last look."""
        self.heads = KnownHeads()
        self._clock = clock
        self._app = app
        self._by_prefix = list(by_prefix.items())
        self._bounds = connections
        self._connections: set[HttpConnection] = set()
        self._by_peer: Counter[str] = Counter()
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server
        self._timer: asyncio.TimerHandle

    async def listen(self, listening: socket.socket) -> None:
        """Take connections of a bound socket."""
        self._look()
        self._server = await self.loop.create_server(lambda: HttpConnection(self), sock=listening, backlog=BACKLOG)

    async def stop(self, grace_s: float) -> None:
        """Take no more, answer what is being asked for up to ``grace_s`` seconds, then cut what is left."""
        self._timer.cancel()
        self._server.close()
        for connection in list(self._connections):
            connection.stop()
        end_s = self.loop.time() + grace_s
        while self._connections and self.loop.time() < end_s:
            await asyncio.sleep(STOP_LOOK_S)
        for connection in list(self._connections):
            connection.abort()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # -- for connections -----------------------------------------------------------------------------------------------

    def admit(self, connection: HttpConnection) -> bool:
        """Count a new connection; whether there is room for it."""
        host = connection.peer[0]
        fits = len(self._connections) < self._bounds.in_all and self._by_peer[host] < self._bounds.per_peer
        self._connections.add(connection)
        self._by_peer[host] += 1
        return fits

    def forget(self, connection: HttpConnection) -> None:
        """A connection is lost."""
        if connection in self._connections:
            self._connections.remove(connection)
            host = connection.peer[0]
            self._by_peer[host] -= 1
            if not self._by_peer[host]:
                del self._by_peer[host]

    def application_for(self, path: str) -> HttpApplication:
        """Who answers requests for a path."""
        for prefix, application in self._by_prefix:
            if path.startswith(prefix):
                return application
        return self._app

    def keep(self, task: asyncio.Task[None]) -> None:
        """A task that answers a request: the loop itself keeps none alive."""
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _look(self) -> None:
        self.date = f"date: {formatdate(self._clock.now_ms() / 1000, usegmt=True)}\r\n".encode()
        now_s = self.loop.time()
        for connection in list(self._connections):
            connection.look(now_s)
        self._timer = self.loop.call_later(LOOK_S, self._look)
