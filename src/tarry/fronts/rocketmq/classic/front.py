"""Starting and stopping the front for classic clients, and the sockets that it listens on."""

from __future__ import annotations

import asyncio
import logging
import ssl
from concurrent.futures import ThreadPoolExecutor

from loopgrpc import TlsSniffingListener
from tarry.api.local import LocalBroker
from tarry.base.config import parse_address
from tarry.base.descriptors import ConnectionLimits
from tarry.base.placement import ANY_CORE, Placement
from tarry.fronts.rocketmq.classic.components import Components
from tarry.fronts.rocketmq.common.certificate import tls_context
from tarry.fronts.rocketmq.common.front_thread import FrontThread, OnListening
from tarry.fronts.rocketmq.common.threads import RunInThread

log = logging.getLogger(__name__)

THREADS = 8
"""For what may wait for the disk."""
BACKLOG = 1024
TLS_HANDSHAKE_S = 10.0
VIP_PORT_BELOW = 2
"""Clients before 4.5 send what is not a pull to the port that is lower by so many, if they are not told otherwise."""

Listener = TlsSniffingListener | asyncio.Server


class RemotingFront:
    """Made by :meth:`start`; :meth:`stop` before the broker is closed. Any thread."""

    def __init__(self, broker: LocalBroker, address: str, placement: Placement, connections: ConnectionLimits) -> None:
        self._broker = broker
        self._placement = placement
        self._connections = connections
        self._host, self._asked_port = parse_address(address)
        self._thread = FrontThread("tarry-remoting", address, placement, self._serve)

    @classmethod
    def start(
        cls,
        broker: LocalBroker,
        address: str,
        placement: Placement = ANY_CORE,
        connections: ConnectionLimits | None = None,
    ) -> RemotingFront:
        """Serve a broker on ``"HOST:PORT"``; port 0 takes a free one, see :attr:`port`.

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
        return f"{self._host}:{self.port}"

    def stop(self, grace_s: float = 2.0) -> None:
        """Close all connections. ``grace_s``: for what was written to be sent."""
        self._thread.stop(grace_s)

    def __enter__(self) -> RemotingFront:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    async def _serve(self, on_listening: OnListening) -> None:
        """On the front's thread."""
        loop, config = asyncio.get_running_loop(), self._broker.config
        tls = tls_context(config, self._broker.clock.now_ms())
        # Threads begin on the cores of the thread that makes them.
        with ThreadPoolExecutor(THREADS, "tarry-remoting", initializer=self._placement.apart) as pool:
            components = Components(self._broker, loop, RunInThread(loop, pool), self._connections)
            listeners: list[Listener] = []
            try:
                sniff = config.rocketmq_tls == "both"
                listeners.append(await self._listen(self._asked_port, components, tls, sniff))
                if self._asked_port > VIP_PORT_BELOW:
                    await self._listen_vip(listeners, components, tls, sniff)
                grace_s = await on_listening(_port_of(listeners[0]))
            finally:
                for listener in listeners:
                    listener.close()
                components.close()
            await components.wait_until_closed(grace_s)

    async def _listen(self, port: int, components: Components, tls: ssl.SSLContext | None, sniff: bool) -> Listener:
        host, new_protocol = self._host.strip("[]"), components.new_connection
        if tls is not None and sniff:
            return await TlsSniffingListener.open(
                host,
                port,
                backlog=BACKLOG,
                new_protocol=new_protocol,
                tls=tls,
                tls_handshake_s=TLS_HANDSHAKE_S,
                beginning_max=max(1, self._connections.in_all // 4),
            )
        handshake_s = None if tls is None else TLS_HANDSHAKE_S
        return await asyncio.get_running_loop().create_server(
            new_protocol, host, port, backlog=BACKLOG, ssl=tls, ssl_handshake_timeout=handshake_s
        )

    async def _listen_vip(
        self, listeners: list[Listener], components: Components, tls: ssl.SSLContext | None, sniff: bool
    ) -> None:
        port = self._asked_port - VIP_PORT_BELOW
        try:
            listeners.append(await self._listen(port, components, tls, sniff))
        except OSError as error:
            log.warning("port %d cannot be listened on; clients before 4.5 want it: %s", port, error)


def _port_of(listener: Listener) -> int:
    if isinstance(listener, TlsSniffingListener):
        return listener.port
    return int(listener.sockets[0].getsockname()[1])
