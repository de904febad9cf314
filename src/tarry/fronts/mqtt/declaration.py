"""Declaration of the MQTT front."""

from __future__ import annotations

from tarry.fronts.kit.front import Front
from tarry.fronts.mqtt.settings import MqttSettings

MQTT = Front(
    name="mqtt",
    settings=MqttSettings,
    title="MQTT",
    start="tarry.fronts.mqtt.front:start",
    check="tarry.fronts.kit.tls_settings:check",
    extra="mqtt",
    asks_callers=True,
)
