"""Settings of the link."""

from __future__ import annotations

from pydantic import Field

from tarry.base.setting_types import GatewayAddress
from tarry.fronts.kit.settings import FrontSettings


class LinkSettings(FrontSettings):
    """Settings of the link; part of the broker's configuration."""

    link: GatewayAddress = Field(
        None, description="HOST:PORT or unix:PATH of the link, Tarry's own wire for clients; empty: off."
    )
