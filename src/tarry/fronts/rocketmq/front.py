"""Starting and stopping the front for v5 clients."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor

from loopgrpc import GrpcServer, Limits
from tarry.api.local import LocalBroker
from tarry.base.config import Config, parse_address
from tarry.base.descriptors import ConnectionLimits
from tarry.base.placement import ANY_CORE, Placement
from tarry.fronts.rocketmq.common.certificate import tls_context
from tarry.fronts.rocketmq.common.front_thread import FrontThread, OnListening
from tarry.fronts.rocketmq.common.threads import RunInThread
from tarry.fronts.rocketmq.v5.components import Components
from tarry.fronts.rocketmq.v5.routes import ListeningAddress

THREADS = 8
"""For what waits for the disk: cancelling, settings of groups and topics, transactions."""
STREAMS_MAX = 10_000
"""Calls of a connection at a time: clients in one process may share one, and each keeps two or more calls open."""
REQUEST_BYTES_SPARE = 1 << 20
"""Of a request beside the largest body."""


class RocketMQFront:
    """Made by :meth:`start`; :meth:`stop` before the broker is closed. Any thread."""

    def __init__(self, broker: LocalBroker, address: str, placement: Placement, connections: ConnectionLimits) -> None:
        self._broker = broker
        self._placement = placement
        self._connections = connections
        self._address = ListeningAddress(*parse_address(address))
        self._components: Components
        self._thread = FrontThread("tarry-rocketmq", address, placement, self._serve)

    @classmethod
    def start(
        cls,
        broker: LocalBroker,
        address: str,
        placement: Placement = ANY_CORE,
        connections: ConnectionLimits | None = None,
    ) -> RocketMQFront:
        """Serve a broker on ``"HOST:PORT"``; port 0 takes a free one, see :attr:`port`.

        ``placement`` says where its threads run, ``connections`` how many it takes.

        Raises:
            InvalidArgumentError: no address, or a setting that cannot be. UnavailableError: it cannot be listened on.
        """
        return cls(broker, address, placement, connections or ConnectionLimits())

    @property
    def port(self) -> int:
        """The port that is listened on."""
        return self._thread.port

    @property
    def address(self) -> str:
        """``"HOST:PORT"`` with the port that is listened on."""
        return f"{self._address.host}:{self.port}"

    def waiting_receives(self, topic: str, group: str) -> int:
        """How many receives of clients wait for messages of a group; names are the broker's."""
        return self._components.groups.waiting_receives(topic, group)

    def stop(self, grace_s: float = 2.0) -> None:
        """Take no more calls, let those that run end for up to ``grace_s`` seconds, then cut what is left."""
        self._thread.stop(grace_s)

    def __enter__(self) -> RocketMQFront:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    async def _serve(self, on_listening: OnListening) -> None:
        """On the front's thread."""
        loop, config, address = asyncio.get_running_loop(), self._broker.config, self._address
        tls = tls_context(config, self._broker.clock.now_ms())
        # Threads begin on the cores of the thread that makes them.
        with ThreadPoolExecutor(THREADS, "tarry-rocketmq", initializer=self._placement.apart) as pool:
            self._components = components = Components(self._broker, loop, RunInThread(loop, pool), address)
            server = GrpcServer(
                components.service.handlers(),
                address.host.strip("[]"),
                address.port,
                tls=tls,
                tls_optional=config.rocketmq_tls == "both",
                limits=_limits(config, self._connections),
            )
            try:
                await server.start()
                address.port = server.port
                grace_s = await on_listening(server.port)
            finally:
                components.close()
            await server.stop(grace_s)


def _limits(config: Config, connections: ConnectionLimits) -> Limits:
    return Limits(
        connections_max=connections.in_all,
        peer_connections_max=connections.per_peer,
        streams_max=STREAMS_MAX,
        message_bytes_max=config.body_bytes_max + REQUEST_BYTES_SPARE,
        buffer_bytes_max=max(16 << 20, 2 * config.body_bytes_max),
        pending_bytes_max=32 << 20,
    )
