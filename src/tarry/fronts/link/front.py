"""Starting and stopping the link: a port of clients."""

from __future__ import annotations

from collections.abc import Mapping

from loopgrpc import UnreadBytes
from tarry.api.local import AnyBroker
from tarry.base.config import Config
from tarry.base.descriptors import ConnectionLimits
from tarry.base.endpoint import socket_path
from tarry.base.exposure import LINK as NAME
from tarry.base.exposure import is_exposed
from tarry.base.placement import ANY_CORE, Placement
from tarry.fronts.kit.exposure import check_exposed, warn_exposed
from tarry.fronts.kit.front import FrontServices
from tarry.fronts.kit.tls_settings import PortTls, port_tls
from tarry.fronts.link.client import client_sessions
from tarry.fronts.link.port import LinkGuard, LinkPort
from tarry.fronts.link.settings import LinkSettings


class LinkFront:
    """Serves clients from :meth:`start` on; :meth:`stop` before the broker is closed. Any thread."""

    def __init__(
        self,
        broker: AnyBroker,
        address: str,
        placement: Placement = ANY_CORE,
        connections: ConnectionLimits | None = None,
        unread: UnreadBytes | None = None,
    ) -> None:
        """Serve; arguments as of :meth:`start`."""
        guard = LinkGuard(
            connections=connections or ConnectionLimits(),
            unread=unread or UnreadBytes(),
            # By a socket of this machine, TLS would protect nothing.
            tls=port_tls(broker.config, "link").noted(broker, "link") if socket_path(address) is None else PortTls(),
        )
        self._port = LinkPort("tarry-link", broker, address, placement, guard, client_sessions, gather_s=0.0)
        self.address = self._port.address
        """The address it listens on, with its actual port."""

    @classmethod
    def start(
        cls,
        broker: AnyBroker,
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
        self._port.stop(grace_s)


def check(config: Config) -> None:
    """Raise an error if the port must not be opened.

    Raises:
        InvalidArgumentError: other machines reach it and no setting allows that, or its TLS is not what it should be.
    """
    address = LinkSettings.of(config).link
    if address is not None and socket_path(address) is None:
        port_tls(config, "link").context()  # refuses files that are none, before anything is opened
        if config.log is None:  # as in the Flight port: with logs in an object store, identities are not known yet
            check_exposed(NAME, address, config)


def start(services: FrontServices) -> LinkFront:
    """Start the link for ``tarry serve``.

    Raises:
        InvalidArgumentError: other machines reach its port, and nothing allows that.
    """
    if socket_path(services.address) is None:
        check_exposed(NAME, services.address, services.broker.config)
    front = LinkFront.start(
        services.broker, services.address, services.placement, services.connections, services.unread
    )
    if is_exposed(front.address):
        warn_exposed(NAME, front.address, services.broker)
    return front
