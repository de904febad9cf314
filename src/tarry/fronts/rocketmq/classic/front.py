"""Starting and stopping the front for classic clients, and the ports that it listens on."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from concurrent.futures import Executor
from typing import cast

from tarry.api.local import LocalBroker
from tarry.base.endpoint import socket_path
from tarry.fronts.kit.door import Door
from tarry.fronts.kit.front import FrontServices
from tarry.fronts.kit.listening import SharedPort, port_of
from tarry.fronts.kit.loop_front import LoopFront, OnListening
from tarry.fronts.kit.passing import NewProtocol, passed
from tarry.fronts.rocketmq.classic.components import Components
from tarry.fronts.rocketmq.classic.worker import WorkerComponents
from tarry.fronts.rocketmq.common.certificate import rocketmq_tls
from tarry.fronts.rocketmq.common.threads import RunInThread
from tarry.fronts.rocketmq.settings import RocketMQSettings

log = logging.getLogger(__name__)

VIP_PORT_BELOW = 2
"""Number by which the lower ("VIP") port is below the front's port.

Unless they are told otherwise, clients before 4.5 send all requests but pulls to it.
"""


class RemotingFront(LoopFront):
    """A running front for classic clients, which speak the remoting protocol.

    It runs in one process, in workers that share a port, or in the home of those workers, to which they pass on all but
    what producers send (docs/decisions/0045-homes-of-fronts.md).
    """

    NAME = "remoting"
    THREAD = "tarry-remoting"
    vip_port: int | None = None
    """The lower port; None if it is not listened on."""
    _components: Components
    _door: Door

    @property
    def vip_address(self) -> str | None:
        """``HOST:PORT`` of the lower port; None if it is not listened on."""
        return None if self.vip_port is None else f"{self._host}:{self.vip_port}"

    @property
    def addresses(self) -> Mapping[str, str]:
        """Addresses of both ports, as far as they are listened on here."""
        own = {} if self._home is not None else {self.NAME: self.address}
        return own | ({} if self.vip_address is None else {"remoting vip": self.vip_address})

    def figures(self) -> Mapping[str, int]:
        """Return the number of connections."""
        return {"connections": len(self._door)}

    async def _serve(self, pool: Executor, on_listening: OnListening) -> None:
        if self._shared is None:
            await self._serve_whole(pool, on_listening)
        else:
            await self._serve_shared(self._shared, pool, on_listening)

    async def _serve_whole(self, pool: Executor, on_listening: OnListening) -> None:
        """Serve all requests: of clients, or those that workers pass on."""
        loop = asyncio.get_running_loop()
        broker = cast(LocalBroker, self._broker)  # all but a worker is in the broker's process
        components = self._components = Components(broker, loop, RunInThread(loop, pool), self._unread)
        door = self._door = self._open_door(components.new_connection)
        at_home = None if self._home is None else Door(passed(components.new_connection), self._connections)
        doors = [door] if at_home is None else [door, at_home]
        try:
            if at_home is None:
                port = port_of(await door.listen(f"{self._host}:{self._asked_port}"))
            else:
                port = port_of(await at_home.listen(self._home or ""))
            if RocketMQSettings.of(self._broker.config).remoting_vip == "on" and self._asked_port > VIP_PORT_BELOW:
                await self._listen_vip(door)
            grace_s = await on_listening(port)
        finally:
            for each in doors:
                each.close()
            components.close()
        await asyncio.gather(*(each.drain(grace_s) for each in doors))
        components.on_all_closed()

    async def _serve_shared(self, shared: SharedPort, pool: Executor, on_listening: OnListening) -> None:
        """Serve in a worker."""
        await shared.connect()
        loop = asyncio.get_running_loop()
        home = socket_path(self._home or "") or ""
        components = WorkerComponents(self._broker, loop, RunInThread(loop, pool), self._unread, home)
        door = self._door = self._open_door(components.new_connection)
        try:
            grace_s = await on_listening(port_of(await door.listen(shared.listening)))
        finally:
            door.close()
            components.close()
        await door.drain(grace_s)

    def _open_door(self, new_protocol: NewProtocol) -> Door:
        broker = self._broker
        signs = bool(broker.identities or RocketMQSettings.of(broker.config).rocketmq_keys)
        asked = f"{self._host}:{self._asked_port}"
        tls = rocketmq_tls(broker.config, broker.clock.now_ms(), asked, signs=signs)
        tls = tls.noted(broker, "remoting")
        return Door(
            new_protocol, self._connections, tls=tls.context(), plain=tls.plain, on_clear=tls.on_clear, asks=True
        )

    async def _listen_vip(self, door: Door) -> None:
        port = self._asked_port - VIP_PORT_BELOW
        try:
            self.vip_port = port_of(await door.listen(f"{self._host}:{port}"))
        except OSError as error:
            log.warning("port %d cannot be listened on; clients before 4.5 want it: %s", port, error)


def start(services: FrontServices) -> RemotingFront:
    """Start the front for ``tarry serve``, or in a worker."""
    return RemotingFront.of(services, home=None if services.shared is None else services.home(RemotingFront.NAME))


def start_home(services: FrontServices) -> RemotingFront:
    """Start the part of the front that stays in the broker's process, beside workers."""
    return RemotingFront.of(services, home=services.home(RemotingFront.NAME))
