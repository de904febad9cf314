"""Starting and stopping the front for classic clients, and the sockets that it listens on."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Mapping
from concurrent.futures import Executor

from loopgrpc import TlsSniffingListener
from tarry.fronts.kit.front import FrontServices
from tarry.fronts.kit.loop_front import LoopFront, OnListening
from tarry.fronts.rocketmq.classic.components import Components
from tarry.fronts.rocketmq.common.certificate import tls_context
from tarry.fronts.rocketmq.common.threads import RunInThread
from tarry.fronts.rocketmq.settings import RocketMQSettings

log = logging.getLogger(__name__)

BACKLOG = 1024
TLS_HANDSHAKE_S = 10.0
VIP_PORT_BELOW = 2
"""Clients before 4.5 send what is not a pull to the port that is lower by so many, if they are not told otherwise."""

Listener = TlsSniffingListener | asyncio.Server


class RemotingFront(LoopFront):
    """Commands of the remoting protocol."""

    NAME = "remoting"
    THREAD = "tarry-remoting"
    vip_port: int | None = None
    """The lower port, where it is listened on."""

    @property
    def vip_address(self) -> str | None:
        """:attr:`address` of the lower port, where it is listened on."""
        return None if self.vip_port is None else f"{self._host}:{self.vip_port}"

    @property
    def addresses(self) -> Mapping[str, str]:
        """Both ports, as far as they are listened on."""
        return {self.NAME: self.address} | ({} if self.vip_address is None else {"remoting vip": self.vip_address})

    async def _serve(self, pool: Executor, on_listening: OnListening) -> None:
        loop, config = asyncio.get_running_loop(), self._broker.config
        run_in_thread = RunInThread(loop, pool)
        tls = tls_context(config, self._broker.clock.now_ms())
        components = Components(self._broker, loop, run_in_thread, self._connections, self._unread)
        listeners: list[Listener] = []
        try:
            settings = RocketMQSettings.of(config)
            sniff = settings.rocketmq_tls == "both"
            listeners.append(await self._listen(self._asked_port, components, tls, sniff))
            if settings.remoting_vip == "on" and self._asked_port > VIP_PORT_BELOW:
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
            self.vip_port = port
        except OSError as error:
            log.warning("port %d cannot be listened on; clients before 4.5 want it: %s", port, error)


def start(services: FrontServices) -> RemotingFront:
    """Start the front for ``tarry serve``."""
    return RemotingFront.start(
        services.broker, services.address, services.placement, services.connections, services.unread
    )


def _port_of(listener: Listener) -> int:
    if isinstance(listener, TlsSniffingListener):
        return listener.port
    return int(listener.sockets[0].getsockname()[1])
