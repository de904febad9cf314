"""The open connections of a running server, and one timer for all: an idle connection has none."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any, Final

from loopgrpc.admission import Admission
from loopgrpc.byte_budget import ByteBudget
from loopgrpc.call import Call
from loopgrpc.connection import Connection, NewConnection
from loopgrpc.handlers import Handler, by_path
from loopgrpc.limits import Limits
from loopgrpc.status import Translate
from loopgrpc.unread_bytes import UnreadBytes
from loopgrpc.usage import ConnectionUsage

log = logging.getLogger(__name__)

_TICK_S: Final = 1.0
_CANCELLED_HANDLERS_S: Final = 1.0
"""Seconds that cancelled handlers may take once grace is over."""


class Connections:
    """gRPC on connections that somebody else accepts, on the running loop.

    It begins with :meth:`start` and ends with :meth:`close`. ``GrpcServer`` listens for them by itself; another
    listener gives each connection the protocol of :meth:`new_protocol`, and an :class:`loopgrpc.Admission`. Arguments
    as those of ``GrpcServer``.

    Raises ValueError: an invalid path.
    """

    def __init__(
        self,
        handlers: Mapping[str, Handler],
        limits: Limits | None = None,
        *,
        trusts: Callable[[Call], bool] | None = None,
        unread: UnreadBytes | None = None,
        translate: Translate | None = None,
    ) -> None:
        self.handlers = by_path(handlers)
        self.trusts = trusts
        self.translate = translate
        self.unread = unread or UnreadBytes()
        self.limits = limits or Limits()
        self.budget = ByteBudget("requests that are not whole", self.limits.all_buffer_bytes_max)
        self.calls = ByteBudget("open calls", self.limits.calls_max, max(1, self.limits.calls_max // 2), "places")
        self.loop = asyncio.get_running_loop()
        self.tasks: set[asyncio.Task[Any]] = set()
        """Handlers that run."""
        self._open: set[Connection] = set()
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._open)

    def start(self) -> None:
        """Check time-outs once a second from now on."""
        self._timer = self.loop.call_later(_TICK_S, self._tick)

    def new_protocol(self, admission: Admission) -> asyncio.Protocol:
        """Return the protocol for a connection that was accepted.

        It tells the client the admission's refusal, and ends by the admission's ``on_drain`` and ``cut``.
        """
        return NewConnection(self, lambda _: admission)

    def add(self, connection: Connection) -> None:
        """Add a new connection."""
        self._open.add(connection)

    def forget(self, connection: Connection) -> None:
        """Forget a connection that is lost; a second time, do nothing."""
        self._open.discard(connection)

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
        self.start()

    async def close(self) -> None:
        """Stop the timer, and let cancelled handlers end. Call it when the last connection has ended."""
        if self._timer is not None:
            self._timer.cancel()
        if self.tasks:
            await asyncio.wait(self.tasks, timeout=_CANCELLED_HANDLERS_S)
