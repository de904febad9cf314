"""Starting and stopping the link: a port of clients."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from concurrent.futures import Executor
from functools import partial

from loopgrpc import UnreadBytes
from tarry.api.local import LocalBroker
from tarry.base.config import Config
from tarry.base.descriptors import ConnectionLimits
from tarry.base.endpoint import socket_path
from tarry.base.errors import UnavailableError
from tarry.base.exposure import LINK as NAME
from tarry.base.exposure import check_exposure
from tarry.base.placement import ANY_CORE, Placement
from tarry.fronts.flight.settings import FlightSettings
from tarry.fronts.kit.door import Door
from tarry.fronts.kit.front import FrontServices
from tarry.fronts.kit.listening import port_of
from tarry.fronts.kit.loop_thread import LoopThread, OnStarted
from tarry.fronts.kit.tls_settings import PortTls, port_tls
from tarry.fronts.link.client import ClientSession
from tarry.fronts.link.connection import LinkConnection
from tarry.fronts.link.groups import GroupTable
from tarry.fronts.link.link_session import NewLinkSession
from tarry.fronts.link.settings import LinkSettings
from tarry.fronts.link.shared import Shared
from tarry.link.frames import CLIENT

log = logging.getLogger(__name__)


class LinkFront:
    """Serves clients from :meth:`start` on; :meth:`stop` before the broker is closed. Any thread."""

    def __init__(
        self,
        broker: LocalBroker,
        address: str,
        placement: Placement = ANY_CORE,
        connections: ConnectionLimits | None = None,
        unread: UnreadBytes | None = None,
    ) -> None:
        """Serve; arguments as of :meth:`start`."""
        self._broker, self._asked = broker, address
        self._connections, self._unread = connections or ConnectionLimits(), unread or UnreadBytes()
        # By a socket of this machine, TLS would protect nothing.
        self._tls = port_tls(broker.config) if socket_path(address) is None else PortTls()
        self._thread: LoopThread[str] = LoopThread("tarry-link", placement, self._serve)
        try:
            self.address = self._thread.started()
            """The address it listens on, with its actual port."""
        except OSError as error:
            raise UnavailableError(f"cannot listen on {address}: {error.strerror or error}") from error

    @classmethod
    def start(
        cls,
        broker: LocalBroker,
        address: str,
        placement: Placement = ANY_CORE,
        connections: ConnectionLimits | None = None,
        unread: UnreadBytes | None = None,
    ) -> LinkFront:
        """Listen on ``HOST:PORT`` or ``unix:PATH``.

        ``placement`` chooses the cores of its threads; ``connections`` limits its connections, ``unread`` the bytes of
        answers that clients have not read.

        Raises:
            InvalidArgumentError: no address, or a file of its settings is not what it should be.
            UnavailableError: it cannot be listened on.
        """
        return cls(broker, address, placement, connections, unread)

    @property
    def addresses(self) -> Mapping[str, str]:
        """The one address, by the setting's name."""
        return {NAME: self.address}

    def stop(self, grace_s: float = 2.0) -> None:
        """Hand out nothing more, let clients settle for up to ``grace_s`` seconds, then cut the rest."""
        self._thread.stop(grace_s)

    async def _serve(self, pool: Executor, on_started: OnStarted[str]) -> None:
        loop = asyncio.get_running_loop()
        groups = GroupTable(loop)
        shared = Shared(self._broker, loop, groups, partial(loop.run_in_executor, pool), self._unread)

        sessions: dict[str, NewLinkSession] = {CLIENT: partial(ClientSession, shared)}
        door = Door(
            partial(LinkConnection, shared, sessions), self._connections, tls=self._tls.context(), plain=self._tls.plain
        )
        try:
            address = await door.listen(self._asked)
            host = self._asked.rpartition(":")[0]
            on_path = socket_path(self._asked) is not None
            grace_s = await on_started(self._asked if on_path else f"{host}:{port_of(address)}")
            await door.drain(grace_s)
        finally:
            door.close()
            groups.close()


def check(config: Config) -> None:
    """Raise an error if the port must not be opened.

    Raises:
        InvalidArgumentError: other machines reach it and no setting allows that, or its TLS is not what it should be.
    """
    address = LinkSettings.of(config).link
    if address is not None and socket_path(address) is None:
        port_tls(config).context()  # refuses files that are none, before anything is opened
        check_exposure(NAME, address, FlightSettings.of(config).insecure_open)


def start(services: FrontServices) -> LinkFront:
    """Start the link for ``tarry serve``."""
    front = LinkFront.start(
        services.broker, services.address, services.placement, services.connections, services.unread
    )
    insecure = FlightSettings.of(services.broker.config).insecure_open
    if socket_path(front.address) is None and check_exposure(NAME, front.address, insecure):
        log.warning(
            "insecure_open: the link is open at %s to whoever reaches it, and asks nobody who they are", front.address
        )
    return front
