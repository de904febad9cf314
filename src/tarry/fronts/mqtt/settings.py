"""Settings of the MQTT front."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from tarry.base.setting_types import Address, Count, Milliseconds
from tarry.fronts.kit.settings import FrontSettings


class MqttSettings(FrontSettings):
    """Settings of the MQTT front; part of the broker's configuration."""

    mqtt: Address = Field(None, description="HOST:PORT of the MQTT front (3.1.1 and 5); empty: off.")
    mqtt_access: Literal["auto", "open", "tokens"] = Field(
        "auto",
        description="MQTT clients need an access token as password, or not; auto: not where only this machine gets.",
    )
    mqtt_inflight_max: Count = Field(
        100, ge=1, le=65_535, description="Messages that an MQTT client has and has not acknowledged, at most."
    )
    mqtt_session_ms_max: Milliseconds = Field(
        7 * 86_400_000, ge=0, description="How long the session of an MQTT client that is away is kept, at most."
    )
