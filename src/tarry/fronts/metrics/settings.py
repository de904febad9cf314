"""Settings of the metrics front."""

from __future__ import annotations

from pydantic import Field

from tarry.base.setting_types import Address
from tarry.fronts.kit.settings import FrontSettings


class MetricsSettings(FrontSettings):
    """Settings of the metrics front; part of the broker's configuration."""

    metrics: Address = Field(None, description="HOST:PORT of Prometheus metrics, over HTTP; empty: off.")
