"""The open connections of a server that runs, and the one timer for all of them: an idle connection has none."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Any, Final

from loopgrpc.connection import Connection, NewConnection
from loopgrpc.handlers import Handler
from loopgrpc.limits import Limits
from loopgrpc.usage import ConnectionUsage

log = logging.getLogger(__name__)

_TICK_S: Final = 1.0
_CANCELLED_HANDLERS_S: Final = 1.0
"""How long handlers that were cancelled may take, once grace is over."""


class Connections:
    """Makes and keeps the connections of one server on ``loop``, until :meth:`drain`."""

    def __init__(self, handlers: Mapping[bytes, Handler], limits: Limits, loop: asyncio.AbstractEventLoop) -> None:
        self.handlers = handlers
        self.limits = limits
        self.loop = loop
        self.tasks: set[asyncio.Task[Any]] = set()
        """Handlers that run."""
        self._open: set[Connection] = set()
        self._draining = False
        self._none_open = asyncio.Event()
        self._none_open.set()
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._open)

    def start_timer(self) -> None:
        """Check time-outs once a second from now on."""
        self._timer = self.loop.call_later(_TICK_S, self._tick)

    def new_protocol(self) -> asyncio.Protocol:
        """The protocol of a connection that is being accepted."""
        return NewConnection(self)

    def on_connected(self, connection: Connection) -> bool:
        """A connection begins; False: there are too many, or the server stops."""
        allowed = len(self._open) < self.limits.connections_max and not self._draining
        self._open.add(connection)
        self._none_open.clear()
        return allowed

    def on_disconnected(self, connection: Connection) -> None:
        """It is lost or closed."""
        self._open.discard(connection)
        if not self._open:
            self._none_open.set()

    def usage(self) -> list[ConnectionUsage]:
        """What each connection uses at the moment."""
        return [connection.usage() for connection in self._open]

    def check_timeouts(self, now: float) -> None:
        """End what does not come, or does not go on, on any connection; ``now`` is the loop's time."""
        for connection in list(self._open):
            try:
                connection.check_timeouts(now)
            except Exception:
                log.exception("the time-outs of a connection could not be checked")

    def _tick(self) -> None:
        self.check_timeouts(self.loop.time())
        self.start_timer()

    async def drain(self, grace_s: float) -> None:
        """Take no more connections nor calls, let calls that run end within ``grace_s`` seconds, reset the others, and
        return when all connections are closed."""
        self._draining = True
        for connection in list(self._open):
            connection.drain()
        try:
            await asyncio.wait_for(self._none_open.wait(), grace_s)
        except TimeoutError:
            log.debug("%d connections did not end within %g s", len(self._open), grace_s)
        for connection in list(self._open):
            connection.abort()
        await self._none_open.wait()
        if self._timer is not None:
            self._timer.cancel()
        if self.tasks:
            await asyncio.wait(self.tasks, timeout=_CANCELLED_HANDLERS_S)
