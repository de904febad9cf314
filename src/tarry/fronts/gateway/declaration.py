"""Declaration of the port of gateways."""

from __future__ import annotations

from tarry.base.config import Config
from tarry.fronts.gateway.settings import GatewaySettings
from tarry.fronts.kit.front import Front


def _is_wanted(config: Config) -> bool:
    settings = GatewaySettings.of(config)
    return settings.gateway is not None or settings.workers > 0


GATEWAY = Front(
    name="gateway",
    settings=GatewaySettings,
    title="gateway",
    start="tarry.fronts.gateway.front:start",
    check="tarry.fronts.gateway.front:check",
    extra="rocketmq",
    is_wanted=_is_wanted,
    asks_callers=True,
)
