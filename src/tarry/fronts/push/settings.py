"""Settings of the pusher."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from tarry.base.setting_types import Optional
from tarry.fronts.kit.settings import FrontSettings


class PushSettings(FrontSettings):
    """Settings of the pusher; part of the broker's configuration."""

    push: Literal["on", "off"] = Field("on", description="Push messages to the URLs of push subscriptions.")
    push_ca_file: Optional = Field(
        None, description="PEM file of certificate authorities that are trusted beside the system's."
    )
