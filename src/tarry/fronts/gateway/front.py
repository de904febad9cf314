"""The broker's side: listens for gateways."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import cast

from loopgrpc import UnreadBytes
from tarry.base.config import Config
from tarry.base.descriptors import ConnectionLimits
from tarry.base.endpoint import local_socket, socket_path
from tarry.base.placement import ANY_CORE, Placement
from tarry.fronts.gateway.authentication import Trust, gateway_tls
from tarry.fronts.gateway.served.broker import ServedBroker
from tarry.fronts.gateway.served.certified import certified
from tarry.fronts.gateway.served.worker import WorkerSessions
from tarry.fronts.gateway.settings import GatewaySettings
from tarry.fronts.kit.front import FrontServices
from tarry.fronts.kit.tls_settings import PortTls
from tarry.fronts.link.link_session import NewLinkSession
from tarry.fronts.link.port import LinkGuard, LinkPort
from tarry.fronts.link.shared import Shared

HELLO_S = 10.0
"""Seconds that a connection may take to say who it is."""
GREETING_MAX = 256
"""Connections that may be at it; of more, the oldest are cut off."""


def socket_of(data: Path) -> str:
    """Return the address of the socket of a data directory, for gateways of the same machine."""
    return local_socket(data, "gateway")


class GatewayFront:
    """Serves gateways from :meth:`start` on; :meth:`stop` before the broker is closed. Any thread."""

    def __init__(
        self,
        broker: ServedBroker,
        address: str,
        placement: Placement = ANY_CORE,
        connections: ConnectionLimits | None = None,
    ) -> None:
        trust, tls = _authentication(broker.config, address)
        by_certificate = trust.secret is None and tls.files is not None
        guard = LinkGuard(
            connections=connections or ConnectionLimits(),
            unread=UnreadBytes(),
            tls=tls.noted(broker, "gateway"),
            secret=None if trust.secret is None else trust,
            half_open_max=GREETING_MAX,
            begin_s=HELLO_S,
        )
        self._port = LinkPort(
            "tarry-gateway", broker, address, placement, guard, lambda shared: _sessions(shared, broker, by_certificate)
        )
        self.address = self._port.address
        """The address it listens on, with its actual port."""

    @classmethod
    def start(
        cls,
        broker: ServedBroker,
        address: str,
        placement: Placement = ANY_CORE,
        connections: ConnectionLimits | None = None,
    ) -> GatewayFront:
        """Listen on ``HOST:PORT`` or ``unix:PATH``.

        ``placement`` chooses the cores of its threads; ``connections`` limits the gateways' connections.

        Raises:
            InvalidArgumentError: no address, one by TCP without a secret, or a file of its settings is not what it
            should be. UnavailableError: it cannot be listened on.
        """
        return cls(broker, address, placement, connections)

    def stop(self, grace_s: float = 0.0) -> None:
        """Cut off the gateways, whose fronts end then."""
        self._port.stop(grace_s)


class GatewayPorts:
    """Ports of gateways: that of the setting, and one for the broker's own workers. Any thread."""

    def __init__(self, services: FrontServices) -> None:
        config = services.broker.config
        settings = GatewaySettings.of(config)
        given = [] if settings.gateway is None else [settings.gateway]
        if settings.workers and (settings.gateway is None or socket_path(settings.gateway) is None):
            # Its own workers come by a socket of this machine, whatever those of others have to show.
            given.append(socket_of(config.data))
        # Whoever serves gateways has the board: the broker itself, and no front behind a link.
        broker = cast(ServedBroker, services.broker)
        limits = services.connections.shared_by(len(given))
        self._fronts: list[GatewayFront] = []
        try:
            for address in given:
                self._fronts.append(GatewayFront.start(broker, address, services.placement, limits))
        except BaseException:
            self.stop()
            raise
        self.addresses: Mapping[str, str] = {} if settings.gateway is None else {"gateways": self._fronts[0].address}
        """The port of the setting, by a name for people."""

    @property
    def near_address(self) -> str:
        """Address for workers of this machine."""
        return self._fronts[-1].address

    def stop(self, grace_s: float = 0.0) -> None:
        """Cut off the gateways, whose fronts end then."""
        for front in reversed(self._fronts):
            front.stop(grace_s)


def check(config: Config) -> None:
    """Raise an error if gateways by TCP could not be told from strangers.

    Raises:
        InvalidArgumentError: there is no secret, or a file of the settings is not what it should be.
    """
    settings = GatewaySettings.of(config)
    if settings.gateway is not None:
        _authentication(config, settings.gateway)


def _sessions(shared: Shared, broker: ServedBroker, by_certificate: bool) -> Mapping[str, NewLinkSession]:
    """Return the sessions of a port.

    ``by_certificate``: a gateway is known by its certificate, not by a secret.
    """
    sessions = WorkerSessions(shared, broker).by_kind
    return certified(shared, sessions) if by_certificate else sessions


def _authentication(config: Config, address: str) -> tuple[Trust, PortTls]:
    """Return the secret and the TLS of connections to an address.

    Raises:
        InvalidArgumentError: by TCP there is no secret, or a file of the settings is not what it should be.
    """
    if socket_path(address) is not None:
        return Trust(), PortTls()  # a socket of this machine belongs to its user alone
    tls = gateway_tls(config)
    tls.context()  # refuses files that are none, before anything is opened
    return Trust.of_broker(GatewaySettings.of(config), address, tls), tls


def start(services: FrontServices) -> GatewayPorts:
    """Start the ports of gateways for ``tarry serve``."""
    return GatewayPorts(services)
