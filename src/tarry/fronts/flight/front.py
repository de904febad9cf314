"""Starting and stopping the Flight front.

gRPC's shutdown waits for all calls, and a call waits for its client. Stopping therefore goes in steps: new calls are
refused and the streams say goodbye, which a Tarry client answers by settling what it has done and hanging up; after
the grace period, the connections that remain are cut.
"""

from __future__ import annotations

import ctypes
import logging
import socket
import threading
from collections.abc import Mapping

import pyarrow as pa

from loopgrpc import UnreadBytes
from tarry.api.local import LocalBroker
from tarry.base.config import Config
from tarry.base.descriptors import ConnectionLimits
from tarry.base.endpoint import parse_address
from tarry.base.errors import InvalidArgumentError, UnavailableError
from tarry.base.exposure import FLIGHT, check_exposure
from tarry.base.placement import ANY_CORE, Placement
from tarry.fronts.flight.calls import CALLS_MAX, CallLimits
from tarry.fronts.flight.guard import ConnectionGuard
from tarry.fronts.flight.server import Service
from tarry.fronts.flight.settings import FlightSettings
from tarry.fronts.flight.sockets import cut_connections
from tarry.fronts.kit.exposure import ExposureSettings, check_exposed, warn_exposed
from tarry.fronts.kit.front import FrontServices
from tarry.fronts.kit.tls import FileChanges, ReloadedTls, TlsFiles
from tarry.fronts.kit.tls_settings import shared_files

log = logging.getLogger(__name__)


class FlightFront:
    """A Flight server before a broker. Start with :meth:`start`; :meth:`stop` before the broker is closed."""

    def __init__(self, service: Service, host: str, guard: ConnectionGuard) -> None:
        self._service = service
        self._guard = guard
        self._host = host
        self._stopped = threading.Lock()
        self._done = False
        self.port: int = service.port

    @classmethod
    def start(
        cls,
        broker: LocalBroker,
        address: str,
        placement: Placement = ANY_CORE,
        connections: ConnectionLimits | None = None,
        calls_max: int = CALLS_MAX,
        insecure_open: str = "",
        unread: UnreadBytes | None = None,
        tls: TlsFiles | None = None,
    ) -> FlightFront:
        """Serve ``broker`` on ``"HOST:PORT"``; port 0 takes a free one, see :attr:`port`.

        ``placement`` says where its threads run, ``connections`` and ``calls_max`` how many it
        takes. ``insecure_open``: the setting; it must name this port where other machines reach the address.
        ``unread``: the bound of answers that are not read, where other fronts share it. ``tls``: the certificate that
        it shows; None: clients connect without TLS.

        Raises:
            InvalidArgumentError: no address, or one that others reach. UnavailableError: it cannot be listened on; the
            text says why.
        """
        host, port = parse_address(address)
        exposed = check_exposure(FLIGHT, address, insecure_open)
        _try_bind(host, port)
        try:
            calls = CallLimits(calls_max)
            changes = None if tls is None else FileChanges(tls)
            guard = ConnectionGuard(connections or ConnectionLimits(), calls, certificate=changes)
            service = Service(broker, f"{host}:{port}", placement, guard, calls, unread or UnreadBytes(), tls)
        except (pa.ArrowException, OSError) as error:
            raise UnavailableError(f"cannot listen on {address}: {error}") from error
        guard.start(service.port)
        if exposed:
            warn_exposed(FLIGHT, f"{host}:{service.port}")
        return cls(service, host, guard)

    @property
    def address(self) -> str:
        """``"HOST:PORT"`` with the port that is listened on."""
        return f"{self._host}:{self.port}"

    @property
    def addresses(self) -> Mapping[str, str]:
        """The one address, by the setting's name."""
        return {FLIGHT: self.address}

    def stop(self, grace_s: float = 2.0) -> None:
        """Refuse new calls, let the others end for up to ``grace_s`` seconds, then cut what is left."""
        with self._stopped:
            if self._done:
                return
            self._done = True
            self._guard.stop()
            self._service.stop_streams()
            shutdown = threading.Thread(target=self._service.shutdown, name="tarry-flight-stop", daemon=True)
            shutdown.start()
            shutdown.join(grace_s)
            for _ in range(10):
                if not shutdown.is_alive():
                    return
                cut_connections(self.port)
                shutdown.join(0.5)
            log.warning("the Flight front on %s has calls that do not end; leaving them behind", self.address)
            # To destroy the server would wait for those calls, for ever: at interpreter exit, too.
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._service))

    def __enter__(self) -> FlightFront:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def check(config: Config) -> None:
    """Raise an error if the port must not be opened.

    Raises:
        InvalidArgumentError: other machines reach it and no setting allows that, or its TLS is not what it should be.
    """
    flight_tls(config)
    settings = FlightSettings.of(config)
    if settings.flight is not None:
        check_exposed(FLIGHT, settings.flight, config)


def flight_tls(config: Config) -> TlsFiles | None:
    """Return the certificate that the port shows; None: clients connect without TLS.

    Raises:
        InvalidArgumentError: there is none, it cannot be read, or the pipeline could not connect.
    """
    if FlightSettings.of(config).flight_tls == "off":
        return None
    files = shared_files(config)
    if files is None:
        raise InvalidArgumentError("flight_tls is 'on' and there is no tls_certificate; allowed: both, or off")
    if config.pipeline == "on":
        raise InvalidArgumentError(
            "flight_tls is 'on' and pipeline is 'on': its Spark reaches the broker by that port, without TLS; "
            "allowed: flight_tls=off, or pipeline=off"
        )
    ReloadedTls(files)  # refuses files that are none; pyarrow only says that the server did not start
    return files


def start(services: FrontServices) -> FlightFront:
    """Start the front for ``tarry serve``."""
    settings = FlightSettings.of(services.broker.config)
    return FlightFront.start(
        services.local_broker,
        services.address,
        services.placement,
        services.connections,
        settings.flight_calls_max,
        ExposureSettings.of(services.broker.config).insecure_open,
        services.unread,
        flight_tls(services.broker.config),
    )


def _try_bind(host: str, port: int) -> None:
    # gRPC only says that the server did not start; the operating system says why.
    bare = host.strip("[]")
    try:
        addresses = socket.getaddrinfo(bare, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, place = addresses[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(place)
            # Two that listen with REUSEADDR are told apart only when they listen.
            probe.listen(1)
    except OSError as error:
        raise UnavailableError(f"cannot listen on {host}:{port}: {error.strerror or error}") from error
