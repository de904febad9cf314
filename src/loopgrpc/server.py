"""The server: listens, and stops with grace. One timer looks after all connections: an idle one has none of its own."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Mapping
from typing import Any, Final

from loopgrpc.connection import Connection
from loopgrpc.doors import Doors
from loopgrpc.handlers import Handler
from loopgrpc.limits import Limits
from tarry.base.errors import ClosedError, InvalidArgumentError

log = logging.getLogger(__name__)

_TICK_S: Final = 1.0
_TLS_HANDSHAKE_S: Final = 10.0
_BACKLOG: Final = 1_024
_LAST_S: Final = 1.0
"""How long handlers that were cancelled may take, once grace is over."""


class GrpcServer:
    """Serves ``handlers``, by their paths (``/package.Service/Method``), on one port of the running event loop.

    ``tls`` needs a certificate; ALPN is set here. Without it clients come by prior knowledge (h2c); with
    ``tls_optional``, as they like.
    Raises InvalidArgumentError: a path that is none.
    """

    def __init__(
        self,
        handlers: Mapping[str, Handler],
        host: str,
        port: int,
        *,
        tls: ssl.SSLContext | None = None,
        tls_optional: bool = False,
        limits: Limits | None = None,
    ) -> None:
        for path in handlers:
            if not path.startswith("/") or path.count("/") != 2 or not path.isascii():
                raise InvalidArgumentError(f"method {path!r}; allowed: /package.Service/Method")
        self.handlers = {path.encode("ascii"): handler for path, handler in handlers.items()}
        self.limits = limits or Limits()
        self.tasks: set[asyncio.Task[Any]] = set()
        self.loop: asyncio.AbstractEventLoop
        self._host, self._port = host, port
        self._context = tls
        self._optional = tls_optional
        self._listener: asyncio.Server | Doors | None = None
        self._connections: set[Connection] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._stopping = False
        self._empty: asyncio.Event

    async def start(self) -> None:
        """Listen. Raises OSError: the address is taken, or is none. ClosedError: it was stopped, or has started."""
        if self._listener is not None or self._stopping:
            raise ClosedError("a gRPC server starts once")
        self.loop = asyncio.get_running_loop()
        self._empty = asyncio.Event()
        self._empty.set()
        if self._context is not None:
            self._context.set_alpn_protocols(["h2"])
        if self._context is not None and self._optional:
            doors = Doors(lambda: Connection(self), self._context, _TLS_HANDSHAKE_S)
            self._port = await doors.open(self._host, self._port, _BACKLOG)
            self._listener = doors
        else:
            self._listener = await self._listen()
            self._port = self._listener.sockets[0].getsockname()[1]
        self._timer = self.loop.call_later(_TICK_S, self._tick)

    async def _listen(self) -> asyncio.Server:
        return await self.loop.create_server(
            lambda: Connection(self),
            self._host,
            self._port,
            backlog=_BACKLOG,
            ssl=self._context,
            ssl_handshake_timeout=None if self._context is None else _TLS_HANDSHAKE_S,
        )

    @property
    def port(self) -> int:
        """Where it listens; what was chosen, if 0 was asked for."""
        return self._port

    @property
    def connections(self) -> int:
        """How many there are."""
        return len(self._connections)

    async def stop(self, grace_s: float = 5.0) -> None:
        """Take no more connections nor calls, let calls that run end within ``grace_s`` seconds, reset the others, and
        return when all connections are closed. Again: does nothing."""
        if self._listener is None or self._stopping:
            return
        self._stopping = True
        self._listener.close()
        for connection in list(self._connections):
            connection.drain()
        try:
            await asyncio.wait_for(self._empty.wait(), grace_s)
        except TimeoutError:
            log.debug("%d connections did not end within %g s", len(self._connections), grace_s)
        for connection in list(self._connections):
            connection.abort()
        await self._empty.wait()
        if self._timer is not None:
            self._timer.cancel()
        if self.tasks:
            await asyncio.wait(self.tasks, timeout=_LAST_S)

    def joined(self, connection: Connection) -> bool:
        """A connection begins; False: there are too many."""
        room = len(self._connections) < self.limits.connections_max and not self._stopping
        self._connections.add(connection)
        self._empty.clear()
        return room

    def left(self, connection: Connection) -> None:
        """It is lost or closed."""
        self._connections.discard(connection)
        if not self._connections:
            self._empty.set()

    def _tick(self) -> None:
        now = self.loop.time()
        for connection in list(self._connections):
            try:
                connection.tick(now)
            except Exception:
                log.exception("a connection could not be looked after")
        self._timer = self.loop.call_later(_TICK_S, self._tick)
