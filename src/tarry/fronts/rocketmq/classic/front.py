"""Starting and stopping the front for classic clients, and the ports that it listens on."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from concurrent.futures import Executor

from tarry.fronts.kit.door import Door
from tarry.fronts.kit.front import FrontServices
from tarry.fronts.kit.listening import port_of
from tarry.fronts.kit.loop_front import LoopFront, OnListening
from tarry.fronts.rocketmq.classic.components import Components
from tarry.fronts.rocketmq.common.certificate import rocketmq_tls
from tarry.fronts.rocketmq.common.threads import RunInThread
from tarry.fronts.rocketmq.settings import RocketMQSettings

log = logging.getLogger(__name__)

VIP_PORT_BELOW = 2
"""Number by which the lower ("VIP") port is below the front's port.

Unless they are told otherwise, clients before 4.5 send all requests but pulls to it.
"""


class RemotingFront(LoopFront):
    """A running front for classic clients, which speak the remoting protocol."""

    NAME = "remoting"
    THREAD = "tarry-remoting"
    vip_port: int | None = None
    """The lower port; None if it is not listened on."""

    @property
    def vip_address(self) -> str | None:
        """``HOST:PORT`` of the lower port; None if it is not listened on."""
        return None if self.vip_port is None else f"{self._host}:{self.vip_port}"

    @property
    def addresses(self) -> Mapping[str, str]:
        """Addresses of both ports, as far as they are listened on."""
        return {self.NAME: self.address} | ({} if self.vip_address is None else {"remoting vip": self.vip_address})

    async def _serve(self, pool: Executor, on_listening: OnListening) -> None:
        loop, config = asyncio.get_running_loop(), self._broker.config
        settings = RocketMQSettings.of(config)
        tls = rocketmq_tls(config, self._broker.clock.now_ms())
        components = Components(self._broker, loop, RunInThread(loop, pool), self._unread)
        door = Door(components.new_connection, self._connections, tls=tls.context(), plain=tls.plain)
        try:
            port = await self._listen(door, self._asked_port)
            if settings.remoting_vip == "on" and self._asked_port > VIP_PORT_BELOW:
                await self._listen_vip(door)
            grace_s = await on_listening(port)
        finally:
            door.close()
            components.close()
        await door.drain(grace_s)
        components.on_all_closed()

    async def _listen(self, door: Door, port: int) -> int:
        return port_of(await door.listen(f"{self._host}:{port}"))

    async def _listen_vip(self, door: Door) -> None:
        port = self._asked_port - VIP_PORT_BELOW
        try:
            self.vip_port = await self._listen(door, port)
        except OSError as error:
            log.warning("port %d cannot be listened on; clients before 4.5 want it: %s", port, error)


def start(services: FrontServices) -> RemotingFront:
    """Start the front for ``tarry serve``."""
    return RemotingFront.start(
        services.broker, services.address, services.placement, services.connections, services.unread
    )
