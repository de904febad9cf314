"""Declaration of the metrics front."""

from __future__ import annotations

from tarry.fronts.kit.front import Front
from tarry.fronts.metrics.settings import MetricsSettings

METRICS = Front(
    name="metrics",
    settings=MetricsSettings,
    title="metrics",
    start="tarry.fronts.metrics.server:start",
    takes_descriptors=False,
)
