"""A port of the link: a thread that listens, and has a session for whoever connects."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

from loopgrpc import UnreadBytes
from tarry.api.local import AnyBroker
from tarry.base.descriptors import ConnectionLimits
from tarry.base.endpoint import socket_path
from tarry.base.errors import UnavailableError
from tarry.base.placement import Placement
from tarry.fronts.kit.admission import BEGIN_S
from tarry.fronts.kit.door import Door
from tarry.fronts.kit.first_bytes import NewProtocol
from tarry.fronts.kit.listening import port_of
from tarry.fronts.kit.loop_thread import LoopThread, OnStarted
from tarry.fronts.kit.receiving import GATHER_S
from tarry.fronts.kit.tls_settings import PortTls
from tarry.fronts.link.connection import LinkConnection
from tarry.fronts.link.groups import GroupTable
from tarry.fronts.link.half_frames import HalfFrames
from tarry.fronts.link.link_session import NewLinkSession
from tarry.fronts.link.shared import Secret, Shared
from tarry.fronts.link.threads import PortThreads

NewSessions: TypeAlias = Callable[[Shared], Mapping[str, NewLinkSession]]
"""Make the sessions of a port, by what the other side may say that it connects as."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkGuard:
    """Conditions under which a port takes connections."""

    connections: ConnectionLimits
    unread: UnreadBytes
    """Limit on the bytes of answers that the other sides have not read."""
    tls: PortTls
    secret: Secret | None = None
    """Secret that the other side has to prove; None: none."""
    half_open_max: int | None = None
    begin_s: float = BEGIN_S
    """Limits on connections that have not been greeted; see :class:`tarry.fronts.kit.door.Door`."""


class LinkConnections:
    """Makes the connections of one port, which share the groups that they name. On the loop's thread."""

    def __init__(
        self,
        broker: AnyBroker,
        pool: Executor,
        threads: PortThreads,
        unread: UnreadBytes,
        new_sessions: NewSessions,
        gather_s: float,
        secret: Secret | None = None,
    ) -> None:
        loop = asyncio.get_running_loop()
        self._groups = GroupTable(loop, gather_s)
        run_in_thread = partial(loop.run_in_executor, pool)
        shared = Shared(broker, loop, self._groups, run_in_thread, unread, threads, HalfFrames(loop), secret)
        self._on_close = shared.on_close
        self.new_protocol: NewProtocol = partial(LinkConnection, shared, new_sessions(shared))
        """Make the protocol of a connection, for a door."""

    def close(self) -> None:
        """End all waiting polls, after the connections."""
        self._groups.close()
        for call in self._on_close:
            call()


class LinkPort:
    """Listens on ``HOST:PORT`` or ``unix:PATH`` from the constructor on, until :meth:`stop`. Any thread."""

    def __init__(
        self,
        name: str,
        broker: AnyBroker,
        address: str,
        placement: Placement,
        guard: LinkGuard,
        new_sessions: NewSessions,
        gather_s: float = GATHER_S,
    ) -> None:
        """Listen; ``name`` is that of the thread, ``gather_s`` as of the table of groups.

        Raises:
            InvalidArgumentError: no address, or a file of the TLS is not what it should be.
            UnavailableError: it cannot be listened on.
        """
        self._name, self._placement = name, placement
        self._broker, self._asked = broker, address
        self._guard, self._new_sessions, self._gather_s = guard, new_sessions, gather_s
        self._thread: LoopThread[str] = LoopThread(name, placement, self._serve)
        try:
            self.address = self._thread.started()
            """The address it listens on, with its actual port."""
        except OSError as error:
            raise UnavailableError(f"cannot listen on {address}: {error.strerror or error}") from error

    def stop(self, grace_s: float) -> None:
        """Accept nothing new, let the sessions end for up to ``grace_s`` seconds, then cut the rest."""
        self._thread.stop(grace_s)

    async def _serve(self, pool: Executor, on_started: OnStarted[str]) -> None:
        guard = self._guard
        threads = PortThreads.of(self._name, self._placement)
        links = LinkConnections(
            self._broker, pool, threads, guard.unread, self._new_sessions, self._gather_s, guard.secret
        )
        door = Door(
            links.new_protocol,
            guard.connections,
            tls=guard.tls.context(),
            plain=guard.tls.plain,
            on_clear=guard.tls.on_clear,
            half_open_max=guard.half_open_max,
            begin_s=guard.begin_s,
        )
        grace_s = 0.0
        try:
            address = await door.listen(self._asked)
            host = self._asked.rpartition(":")[0]
            on_path = socket_path(self._asked) is not None
            grace_s = await on_started(self._asked if on_path else f"{host}:{port_of(address)}")
        finally:
            await door.drain(grace_s)
            links.close()
            await threads.stop()
