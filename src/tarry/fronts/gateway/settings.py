"""Settings of gateways and of fronts in workers."""

from __future__ import annotations

from pydantic import Field

from tarry.base.setting_types import Count, GatewayAddress, Optional
from tarry.fronts.kit.settings import FrontSettings


class GatewaySettings(FrontSettings):
    """Settings of gateways and of fronts in workers; part of the broker's configuration."""

    workers: Count = Field(
        0,
        ge=0,
        le=256,
        description="Processes of each of the RocketMQ and HTTP fronts, beside the broker's; 0: inside.",
    )
    gateway: GatewayAddress = Field(
        None,
        description="HOST:PORT or unix:PATH where gateways connect; empty: a socket in DATA if there are workers.",
    )
    gateway_secret: Optional = Field(
        None, description="File of a secret of 16 bytes or more that gateways by TCP must have, too; needed there."
    )
    gateway_tls_certificate: Optional = Field(
        None, description="PEM file of its own that gateways by TCP see; empty: that of all ports."
    )
    gateway_tls_key: Optional = Field(None, description="PEM file of that certificate's private key.")
    gateway_tls_ca: Optional = Field(
        None, description="At a gateway: PEM file of who signs its broker's certificate; empty: no TLS."
    )
