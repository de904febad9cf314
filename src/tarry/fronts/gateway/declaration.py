"""Declaration of the port of gateways."""

from __future__ import annotations

from tarry.base.config import Config
from tarry.fronts.kit.front import Front


def _is_wanted(config: Config) -> bool:
    return config.gateway is not None or config.workers > 0


GATEWAY = Front(
    name="gateway",
    title="gateway",
    start="tarry.fronts.gateway.front:start",
    check="tarry.fronts.gateway.front:check",
    extra="rocketmq",
    is_wanted=_is_wanted,
    takes_descriptors=False,
)
