"""Starting and stopping the front for v5 clients."""

from __future__ import annotations

import asyncio
from concurrent.futures import Executor

from loopgrpc import GrpcServer, Limits, UnreadBytes
from tarry.api.local import LocalBroker
from tarry.base.config import Config
from tarry.base.descriptors import ConnectionLimits
from tarry.base.placement import ANY_CORE, Placement
from tarry.fronts.kit.front import FrontServices
from tarry.fronts.kit.listening import SharedPort
from tarry.fronts.kit.loop_front import LoopFront, OnListening
from tarry.fronts.kit.tls import server_context
from tarry.fronts.rocketmq.common.certificate import tls_files
from tarry.fronts.rocketmq.common.threads import RunInThread
from tarry.fronts.rocketmq.settings import RocketMQSettings
from tarry.fronts.rocketmq.v5.components import Components
from tarry.fronts.rocketmq.v5.routes import ListeningAddress

STREAMS_MAX = 10_000
"""Calls of a connection at a time.

Clients in one process may share a connection, and each keeps two or more calls open.
"""
REQUEST_BYTES_SPARE = 1 << 20
"""Room in a request beside the largest body."""


class RocketMQFront(LoopFront):
    """The front for v5 clients: calls by gRPC."""

    NAME = "rocketmq"
    THREAD = "tarry-rocketmq"
    _components: Components
    _server: GrpcServer

    def __init__(
        self,
        broker: LocalBroker,
        address: str,
        placement: Placement = ANY_CORE,
        connections: ConnectionLimits | None = None,
        shared: SharedPort | None = None,
        unread: UnreadBytes | None = None,
    ) -> None:
        """Prepare the front; arguments as in :meth:`start`.

        ``shared``: a port that several processes listen on.
        """
        self._shared = shared
        super().__init__(broker, address, placement, connections or ConnectionLimits(), unread)

    def waiting_receives(self, topic: str, group: str) -> int:
        """Return how many receives wait for messages of a group; names are the broker's."""
        return self._components.groups.waiting_receives(topic, group)

    def figures(self) -> dict[str, int]:
        """Return the numbers of connections and clients."""
        return {"connections": self._server.connections, "clients": self._components.clients}

    async def _serve(self, pool: Executor, on_listening: OnListening) -> None:
        if self._shared is not None:
            await self._shared.connect()
        loop, config = asyncio.get_running_loop(), self._broker.config
        run_in_thread = RunInThread(loop, pool)
        settings = RocketMQSettings.of(config)
        files = tls_files(config, self._broker.clock.now_ms())
        address = ListeningAddress(self._host, self._asked_port)
        self._components = components = Components(self._broker, loop, run_in_thread, address, self._unread)
        self._server = server = GrpcServer(
            components.service.handlers(),
            address.host.strip("[]"),
            address.port,
            tls=None if files is None else server_context(files.certificate, files.key),
            tls_optional=settings.rocketmq_tls == "both",
            limits=_limits(config, self._connections),
            trusts=components.service.authenticator.trusts if settings.rocketmq_keys else None,
            listening=None if self._shared is None else self._shared.listening,
            unread=self._unread,
        )
        try:
            await server.start()
            address.port = server.port
            grace_s = await on_listening(server.port)
        finally:
            components.close()
        await server.stop(grace_s)


def start(services: FrontServices) -> RocketMQFront:
    """Start the front for ``tarry serve``, or in a gateway's worker."""
    return RocketMQFront(
        services.broker,
        services.address,
        services.placement,
        services.connections,
        services.shared,
        services.unread,
    )


def _limits(config: Config, connections: ConnectionLimits) -> Limits:
    return Limits(
        connections_max=connections.in_all,
        peer_connections_max=connections.per_peer,
        streams_max=STREAMS_MAX,
        message_bytes_max=config.body_bytes_max + REQUEST_BYTES_SPARE,
        buffer_bytes_max=max(16 << 20, 2 * config.body_bytes_max),
        pending_bytes_max=32 << 20,
    )
