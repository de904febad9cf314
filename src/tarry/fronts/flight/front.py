"""Starting and stopping the native port: it takes clients of the link, and of Arrow Flight.

Stopping goes in steps: new calls are refused, and streams and links are told, so that clients settle what they have
done and hang up; after the grace period, the connections that remain are cut.
"""

from __future__ import annotations

from concurrent.futures import Executor
from functools import partial
from typing import cast

from loopgrpc import Connections, Limits
from tarry.api.local import LocalBroker
from tarry.base.config import Config
from tarry.base.endpoint import local_socket
from tarry.base.errors import InvalidArgumentError, OverloadedError
from tarry.base.exposure import FLIGHT, is_exposed
from tarry.fronts.flight.messages import translate
from tarry.fronts.flight.service import Service
from tarry.fronts.flight.settings import FlightSettings
from tarry.fronts.kit.admission import Admission
from tarry.fronts.kit.door import Door
from tarry.fronts.kit.exposure import check_exposed, warn_exposed
from tarry.fronts.kit.first_bytes import HTTP2, FirstBytes
from tarry.fronts.kit.front import FrontServices
from tarry.fronts.kit.listening import port_of
from tarry.fronts.kit.loop_front import LoopFront, OnListening
from tarry.fronts.kit.tls_settings import PortTls, shared_files
from tarry.fronts.link.client import client_sessions
from tarry.fronts.link.port import LinkConnections
from tarry.fronts.link.threads import PortThreads

ALPN = ("h2",)
MESSAGE_BYTES_MAX = 288 << 20
"""The largest batch that is accepted has 256 MiB."""
HALF_BYTES_MAX = 2 * MESSAGE_BYTES_MAX
"""Messages of all peers that are not whole, or wait to be read; one address may have half."""


class FlightFront(LoopFront):
    """The native port, for the link and for Flight's calls by gRPC.

    At an address that others reach only where a setting allows it.
    """

    NAME = FLIGHT
    THREAD = "tarry-flight"

    async def _serve(self, pool: Executor, on_listening: OnListening) -> None:
        config, address = self._broker.config, f"{self._host}:{self._asked_port}"
        check_exposed(FLIGHT, address, config)
        calls_max = FlightSettings.of(config).flight_calls_max
        limits = Limits(
            streams_max=calls_max,
            calls_max=calls_max,
            message_bytes_max=MESSAGE_BYTES_MAX,
            buffer_bytes_max=MESSAGE_BYTES_MAX,
            all_buffer_bytes_max=HALF_BYTES_MAX,
            pending_bytes_max=MESSAGE_BYTES_MAX,
        )
        threads = PortThreads.of(self.THREAD, self._placement)
        broker = cast(LocalBroker, self._broker)  # the front is in the broker's process alone
        service = Service(broker, pool, threads.staging, self._unread)
        self._grpc = grpc = Connections(
            service.handlers(), limits, trusts=service.trusts, unread=self._unread, translate=translate
        )
        # Twice: a client that does not end its preface is told by GOAWAY first.
        begin_s = 2 * limits.preface_s
        tls = flight_tls(config).noted(broker, FLIGHT)
        links = LinkConnections(self._broker, pool, threads, self._unread, client_sessions, gather_s=0.0)
        new_protocol = partial(
            FirstBytes,
            begins=HTTP2,
            matching=lambda place: grpc.new_protocol(_coded(place)),
            other=links.new_protocol,
        )
        door = Door(
            new_protocol, self._connections, tls=tls.context(ALPN), on_clear=tls.on_clear, begin_s=begin_s, asks=True
        )
        # The pipeline is a process of this machine: it needs no certificate by a socket that is its user's alone.
        near = Door(links.new_protocol, self._connections)
        try:
            if (address_near := pipeline_socket(config)) is not None:
                await near.listen(address_near)
            port = port_of(await door.listen(address))
            grpc.start()
            if is_exposed(address):
                warn_exposed(FLIGHT, f"{self._host}:{port}", self._broker)
            grace_s = await on_listening(port)
        finally:
            door.close()
            near.close()
            service.stop()
        await door.drain(grace_s)
        await near.drain(0)
        links.close()
        await grpc.close()
        await threads.stop()


def _coded(admission: Admission) -> Admission:
    """Give the reason of a refusal its code."""
    if admission.refusal is not None:
        admission.refusal = f"{OverloadedError.code}: {admission.refusal}; try again later"
    return admission


def check(config: Config) -> None:
    """Raise an error if the port must not be opened.

    Raises:
        InvalidArgumentError: other machines reach it and no setting allows that, or its TLS is not what it should be,
        or there is a certificate of all ports that none could use.
    """
    flight_tls(config).context()
    PortTls(shared_files(config)).context()  # also where no port is in TLS: who names files means to have them
    settings = FlightSettings.of(config)
    # Identities in an object store's logs are not known yet: a new cache has none. The port asks when it is opened.
    if settings.flight is not None and config.log is None:
        check_exposed(FLIGHT, settings.flight, config)


def pipeline_socket(config: Config) -> str | None:
    """Return ``unix:PATH`` by which the pipeline of this machine comes; None: it comes by the port."""
    needs_it = config.pipeline == "on" and FlightSettings.of(config).flight_tls == "on"
    return local_socket(config.data, "pipeline") if needs_it else None


def flight_tls(config: Config) -> PortTls:
    """Return the TLS of the port.

    Raises:
        InvalidArgumentError: it is to be in TLS, and there is no certificate.
    """
    if FlightSettings.of(config).flight_tls == "off":
        return PortTls()
    files = shared_files(config)
    if files is None:
        raise InvalidArgumentError("flight_tls is 'on' and there is no tls_certificate; allowed: both, or off")
    return PortTls(files)


def start(services: FrontServices) -> FlightFront:
    """Start the front for ``tarry serve``."""
    return FlightFront.of(services)
