"""Settings of Arrow Flight."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from tarry.base.setting_types import Address, Count
from tarry.fronts.kit.settings import FrontSettings


class FlightSettings(FrontSettings):
    """Settings of Arrow Flight; part of the broker's configuration."""

    flight: Address = Field(
        "127.0.0.1:7611", description="HOST:PORT of the native port, for the link and for Arrow Flight; empty: off."
    )
    flight_calls_max: Count = Field(
        1_000, ge=2, description="Most calls of Flight clients at a time; one peer address has half of it."
    )
    flight_tls: Literal["on", "off"] = Field(
        "off", description="Clients of the native port come by TLS, with `tls_certificate`."
    )
