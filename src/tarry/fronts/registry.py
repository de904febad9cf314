"""All fronts, in the order in which ``tarry serve`` starts them.

A new front adds its declaration here.
"""

from __future__ import annotations

from tarry.base.config import Config, composed
from tarry.fronts.flight.declaration import FLIGHT
from tarry.fronts.gateway.declaration import GATEWAY
from tarry.fronts.http.declaration import HTTP
from tarry.fronts.kit.exposure import ExposureSettings
from tarry.fronts.kit.front import Front
from tarry.fronts.kit.tls_settings import TlsSettings
from tarry.fronts.link.declaration import LINK
from tarry.fronts.metrics.declaration import METRICS
from tarry.fronts.mqtt.declaration import MQTT
from tarry.fronts.push.declaration import PUSH
from tarry.fronts.rocketmq.declaration import REMOTING, ROCKETMQ

FRONTS: tuple[Front, ...] = (FLIGHT, LINK, GATEWAY, ROCKETMQ, REMOTING, HTTP, MQTT, PUSH, METRICS)

ServerConfig: type[Config] = composed(
    dict.fromkeys((*(front.settings for front in FRONTS), TlsSettings, ExposureSettings))
)
"""Class of all settings of ``tarry serve``: the broker's, each front's, and those shared by ports."""


def front_of(name: str) -> Front:
    """Return the front of that name; there must be one."""
    return next(front for front in FRONTS if front.name == name)
