"""Starting and stopping the native port: it takes clients of the link, and of Arrow Flight.

Stopping goes in steps: new calls are refused and the streams say goodbye, which a Tarry client answers by settling what
it has done and hanging up; after the grace period, the connections that remain are cut.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import Executor, ThreadPoolExecutor
from functools import partial
from typing import Self

from loopgrpc import Connections, Limits, UnreadBytes
from tarry.api.local import LocalBroker
from tarry.base.config import Config
from tarry.base.descriptors import ConnectionLimits
from tarry.base.errors import InvalidArgumentError, OverloadedError
from tarry.base.exposure import FLIGHT, check_exposure
from tarry.base.placement import ANY_CORE, Placement
from tarry.fronts.flight.calls import CALLS_MAX, CallLimits
from tarry.fronts.flight.messages import describe
from tarry.fronts.flight.service import Service
from tarry.fronts.flight.settings import FlightSettings
from tarry.fronts.kit.admission import Admission
from tarry.fronts.kit.door import Door
from tarry.fronts.kit.exposure import ExposureSettings, check_exposed, warn_exposed
from tarry.fronts.kit.first_bytes import HTTP2, FirstBytes, NewProtocol
from tarry.fronts.kit.front import FrontServices
from tarry.fronts.kit.listening import port_of
from tarry.fronts.kit.loop_front import LoopFront, OnListening
from tarry.fronts.kit.tls import ReloadedTls, TlsFiles
from tarry.fronts.kit.tls_settings import shared_files
from tarry.fronts.link.client import client_sessions
from tarry.fronts.link.connection import LinkConnection
from tarry.fronts.link.groups import GroupTable
from tarry.fronts.link.shared import Shared

MESSAGE_BYTES_MAX = 288 << 20
"""The largest batch that is accepted has 256 MiB."""
HALF_BYTES_MAX = 2 * MESSAGE_BYTES_MAX
"""Messages of all peers that are not whole, or wait to be read; one address may have half."""
STAGING_MAX = 8
"""Bulk jobs' streams that are staged at a time; others wait."""


class FlightFront(LoopFront):
    """The Flight front: calls by gRPC."""

    NAME = FLIGHT
    THREAD = "tarry-flight"

    def __init__(
        self,
        broker: LocalBroker,
        address: str,
        placement: Placement,
        connections: ConnectionLimits | None,
        unread: UnreadBytes | None,
        *,
        calls_max: int,
        tls: TlsFiles | None,
        is_exposed: bool,
    ) -> None:
        self._local = broker
        self._calls_max, self._tls, self._is_exposed = calls_max, tls, is_exposed
        super().__init__(broker, address, placement, connections, unread)

    @classmethod
    def start(  # type: ignore[override]  # it is in the broker's process alone
        cls,
        broker: LocalBroker,
        address: str,
        placement: Placement = ANY_CORE,
        connections: ConnectionLimits | None = None,
        unread: UnreadBytes | None = None,
        *,
        calls_max: int = CALLS_MAX,
        insecure_open: str = "",
        tls: TlsFiles | None = None,
    ) -> Self:
        """Serve ``broker`` as :meth:`LoopFront.start` has it, with at most ``calls_max`` calls.

        ``insecure_open``: the setting; it must name this port where other machines reach the address. ``tls``: the
        certificate that it shows; None: clients connect without TLS.

        Raises:
            InvalidArgumentError: no address, or one that others reach. UnavailableError: it cannot be listened on.
        """
        is_exposed = check_exposure(FLIGHT, address, insecure_open)
        return cls(broker, address, placement, connections, unread, calls_max=calls_max, tls=tls, is_exposed=is_exposed)

    async def _serve(self, pool: Executor, on_listening: OnListening) -> None:
        limits = Limits(
            streams_max=self._calls_max,
            message_bytes_max=MESSAGE_BYTES_MAX,
            buffer_bytes_max=MESSAGE_BYTES_MAX,
            all_buffer_bytes_max=HALF_BYTES_MAX,
            pending_bytes_max=MESSAGE_BYTES_MAX,
        )
        staging = ThreadPoolExecutor(STAGING_MAX, f"{self.THREAD}-stage", initializer=self._placement.apart)
        service = Service(self._local, pool, staging, CallLimits(self._calls_max), self._unread)
        self._grpc = connections = Connections(service.handlers(), limits, unread=self._unread, describe=describe)
        tls = None if self._tls is None else ReloadedTls(self._tls, ("h2",))
        # Twice: a client that does not end its preface is told by GOAWAY first.
        new_link, groups = self._link(pool)

        def new_grpc(admission: Admission) -> asyncio.Protocol:
            return connections.new_protocol(_coded(admission))

        door = Door(
            lambda admission: FirstBytes(admission, HTTP2, new_grpc, new_link),
            self._connections,
            tls=tls,
            begin_s=2 * limits.preface_s,
        )
        try:
            port = port_of(await door.listen(f"{self._host}:{self._asked_port}"))
            connections.start()
            if self._is_exposed:
                warn_exposed(FLIGHT, f"{self._host}:{port}")
            grace_s = await on_listening(port)
        finally:
            door.close()
            service.stop()
        await door.drain(grace_s)
        groups.close()
        await connections.close()
        await asyncio.to_thread(staging.shutdown)  # they are told of the end by the loop

    def _link(self, pool: Executor) -> tuple[NewProtocol, GroupTable]:
        """Return what makes a connection of the link, and the groups of all of these."""
        loop = asyncio.get_running_loop()
        groups = GroupTable(loop, gather_s=0.0)
        shared = Shared(self._broker, loop, groups, partial(loop.run_in_executor, pool), self._unread)
        return partial(LinkConnection, shared, client_sessions(shared)), groups


def _coded(admission: Admission) -> Admission:
    if admission.refusal is not None:
        admission.refusal = f"{OverloadedError.code}: {admission.refusal}; try again later"
    return admission


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
    ReloadedTls(files)  # refuses files that are none, before anything is opened
    return files


def start(services: FrontServices) -> FlightFront:
    """Start the front for ``tarry serve``."""
    config = services.broker.config
    return FlightFront.start(
        services.local_broker,
        services.address,
        services.placement,
        services.connections,
        services.unread,
        calls_max=FlightSettings.of(config).flight_calls_max,
        insecure_open=ExposureSettings.of(config).insecure_open,
        tls=flight_tls(config),
    )
