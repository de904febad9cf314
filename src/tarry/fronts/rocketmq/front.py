"""Starting and stopping the front for v5 clients."""

from __future__ import annotations

import asyncio
from concurrent.futures import Executor

from loopgrpc import Connections, Limits
from tarry.base.config import Config
from tarry.fronts.kit.door import Door
from tarry.fronts.kit.front import FrontServices
from tarry.fronts.kit.listening import port_of
from tarry.fronts.kit.loop_front import LoopFront, OnListening
from tarry.fronts.rocketmq.common.certificate import rocketmq_tls
from tarry.fronts.rocketmq.common.threads import RunInThread
from tarry.fronts.rocketmq.settings import RocketMQSettings
from tarry.fronts.rocketmq.v5.components import Components
from tarry.fronts.rocketmq.v5.routes import ListeningAddress

STREAMS_MAX = 10_000
"""Calls of a connection at a time.

Clients in one process may share a connection, and each keeps two or more calls open.
"""
ALPN = ("h2",)
REQUEST_BYTES_SPARE = 1 << 20
"""Room in a request beside the largest body."""


class RocketMQFront(LoopFront):
    """The front for v5 clients: calls by gRPC."""

    NAME = "rocketmq"
    THREAD = "tarry-rocketmq"
    _components: Components
    _door: Door

    def waiting_receives(self, topic: str, group: str) -> int:
        """Return how many receives wait for messages of a group; names are the broker's."""
        return self._components.groups.waiting_receives(topic, group)

    def figures(self) -> dict[str, int]:
        """Return the numbers of connections and clients."""
        return {"connections": len(self._door), "clients": self._components.clients}

    async def _serve(self, pool: Executor, on_listening: OnListening) -> None:
        if self._shared is not None:
            await self._shared.connect()
        loop, config = asyncio.get_running_loop(), self._broker.config
        run_in_thread = RunInThread(loop, pool)
        signs = bool(self._broker.identities or RocketMQSettings.of(config).rocketmq_keys)
        asked = f"{self._host}:{self._asked_port}"
        tls = rocketmq_tls(config, self._broker.clock.now_ms(), asked, signs=signs).noted(self._broker, "rocketmq")
        address = ListeningAddress(self._host, self._asked_port)
        self._components = components = Components(self._broker, loop, run_in_thread, address, self._unread)
        limits = _limits(config)
        connections = Connections(
            components.service.handlers(),
            limits,
            trusts=components.service.authenticator.trusts,
            unread=self._unread,
        )
        # Twice: a client that does not end its preface is told by GOAWAY first.
        self._door = door = Door(
            connections.new_protocol,
            self._connections,
            tls=tls.context(ALPN),
            plain=tls.plain,
            on_clear=tls.on_clear,
            begin_s=2 * limits.preface_s,
            asks=True,
        )
        try:
            asked = f"{address.host}:{address.port}"
            address.port = port_of(await door.listen(asked if self._shared is None else self._shared.listening))
            connections.start()
            grace_s = await on_listening(address.port)
        finally:
            door.close()
            components.close()
        await door.drain(grace_s)
        await connections.close()


def start(services: FrontServices) -> RocketMQFront:
    """Start the front for ``tarry serve``, or in a gateway's worker."""
    return RocketMQFront.of(services)


def _limits(config: Config) -> Limits:
    return Limits(
        streams_max=STREAMS_MAX,
        message_bytes_max=config.body_bytes_max + REQUEST_BYTES_SPARE,
        buffer_bytes_max=max(16 << 20, 2 * config.body_bytes_max),
        pending_bytes_max=32 << 20,
    )
