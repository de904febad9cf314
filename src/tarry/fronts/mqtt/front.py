"""Starting and stopping the MQTT front."""

from __future__ import annotations

import asyncio
from concurrent.futures import Executor
from functools import partial

from loopgrpc import ByteBudget
from tarry.fronts.kit.admission import Admission
from tarry.fronts.kit.desk import Desk
from tarry.fronts.kit.door import Door
from tarry.fronts.kit.front import FrontServices
from tarry.fronts.kit.listening import port_of
from tarry.fronts.kit.loop_front import LoopFront, OnListening
from tarry.fronts.kit.tls_settings import port_tls
from tarry.fronts.mqtt.authentication import Authentication
from tarry.fronts.mqtt.connection import MqttConnection
from tarry.fronts.mqtt.conversation import MqttConversation, MqttServices
from tarry.fronts.mqtt.sessions import Sessions
from tarry.fronts.mqtt.settings import MqttSettings
from tarry.fronts.mqtt.settling import Settling

PACKET_BYTES_SPARE = 256 << 10
"""Room in a packet beside the largest body."""
HALF_BYTES_MAX = 256 << 20
"""Bytes of incomplete packets of all clients."""


class MqttFront(LoopFront):
    """A running MQTT front."""

    NAME = "mqtt"
    THREAD = "tarry-mqtt"

    async def _serve(self, pool: Executor, on_listening: OnListening) -> None:
        loop, config = asyncio.get_running_loop(), self._broker.config
        settings = MqttSettings.of(config)
        tls = port_tls(config, "mqtt").noted(self._broker, "mqtt")
        desk = Desk(self._broker, loop, pool, self._unread)
        settling, sessions = Settling(loop), Sessions(desk, settings.mqtt_session_ms_max / 1000)
        packet_bytes_max = config.body_bytes_max + PACKET_BYTES_SPARE
        authentication = Authentication(self._broker, f"{self._host}:{self._asked_port}", loop)
        services = MqttServices(desk, settling, sessions, authentication, settings, packet_bytes_max)
        budget = ByteBudget("incomplete MQTT packets", HALF_BYTES_MAX)

        def connection(admission: Admission) -> MqttConnection:
            new = partial(MqttConversation, services)
            return MqttConnection(admission, new, packet_bytes_max, budget, self._unread)

        door = Door(connection, self._connections, tls=tls.context(), plain=tls.plain, on_clear=tls.on_clear)
        await sessions.recover()
        try:
            port = port_of(await door.listen(f"{self._host}:{self._asked_port}"))
            grace_s = await on_listening(port)
        finally:
            door.close()
            authentication.callers.close()
            settling.flush()
            desk.close()
        await door.drain(grace_s)
        await sessions.close()


def start(services: FrontServices) -> MqttFront:
    """Start the front for ``tarry serve``."""
    return MqttFront.of(services)
