"""The open connections of a running server, and one timer for all: an idle connection has none."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, Final

from loopgrpc.byte_budget import ByteBudget
from loopgrpc.call import Call
from loopgrpc.connection import Connection, NewConnection
from loopgrpc.handlers import Handler
from loopgrpc.limits import Limits
from loopgrpc.unread_bytes import UnreadBytes
from loopgrpc.usage import ConnectionUsage

log = logging.getLogger(__name__)

_TICK_S: Final = 1.0
_REFUSED_MAX: Final = 64
"""Connections above the limit that may linger until they have read the reason."""
_CANCELLED_HANDLERS_S: Final = 1.0
"""Seconds that cancelled handlers may take once grace is over."""


class Connections:
    """Makes and keeps the connections of one server on ``loop``, until :meth:`drain`."""

    def __init__(
        self,
        handlers: Mapping[bytes, Handler],
        limits: Limits,
        loop: asyncio.AbstractEventLoop,
        trusts: Callable[[Call], bool] | None = None,
        unread: UnreadBytes | None = None,
    ) -> None:
        self.handlers = handlers
        self.trusts = trusts
        self.unread = unread or UnreadBytes()
        self.budget = ByteBudget("requests that are not whole", limits.all_buffer_bytes_max)
        self.limits = limits
        self.loop = loop
        self.tasks: set[asyncio.Task[Any]] = set()
        """Handlers that run."""
        self._open: set[Connection] = set()
        self._hosts: Counter[str] = Counter()
        self._silent: dict[Connection, None] = {}
        """Connections without a preface, the oldest first."""
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
        """Return the protocol for a connection that is being accepted."""
        return NewConnection(self)

    def on_connected(self, connection: Connection) -> str | None:
        """Add a new connection. Returns the reason if it is refused, else None."""
        host = connection.host
        self._open.add(connection)
        self._hosts[host] += 1
        self._none_open.clear()
        if self._draining:
            return "the server stops"
        limits = self.limits
        if self._hosts[host] > limits.peer_connections_max and not self._end_silent(host):
            return f"too many connections of {host}; allowed: {limits.peer_connections_max}"
        if len(self._open) > limits.connections_max and not self._end_silent(None):
            return f"too many connections; allowed: {limits.connections_max}"
        self._silent[connection] = None
        return None

    def on_preface(self, connection: Connection) -> None:
        """Note that the connection's preface has arrived: it speaks HTTP/2."""
        self._silent.pop(connection, None)

    def on_disconnected(self, connection: Connection) -> None:
        """Forget a connection that is lost or closed; a second time, do nothing."""
        if connection in self._open:
            self._open.discard(connection)
            self._silent.pop(connection, None)
            self._hosts[connection.host] -= 1
            if not self._hosts[connection.host]:
                del self._hosts[connection.host]
        if not self._open:
            self._none_open.set()

    def has_room_to_refuse(self) -> bool:
        """Return whether a refused connection may stay until its GOAWAY has arrived."""
        return len(self._open) <= self.limits.connections_max + _REFUSED_MAX

    def _end_silent(self, host: str | None) -> bool:
        """Make room by ending the oldest connection (of ``host``) without a preface.

        Returns whether there was one.
        """
        silent = next((c for c in self._silent if host is None or c.host == host), None)
        if silent is None:
            return False
        silent.give_up()
        self.on_disconnected(silent)  # now, and not when the transport reports the loss: its place is given to another
        return True

    def usage(self) -> list[ConnectionUsage]:
        """Return the current usage of each connection."""
        return [connection.usage() for connection in self._open]

    def check_timeouts(self, now: float) -> None:
        """Check the time-outs of all connections; ``now`` is the loop's time."""
        for connection in list(self._open):
            try:
                connection.check_timeouts(now)
            except Exception:
                log.exception("the time-outs of a connection could not be checked")

    def _tick(self) -> None:
        self.check_timeouts(self.loop.time())
        self.start_timer()

    async def drain(self, grace_s: float) -> None:
        """Take no more connections nor calls, and return when all connections are closed.

        Calls that run may end within ``grace_s`` seconds; the others are reset.
        """
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
