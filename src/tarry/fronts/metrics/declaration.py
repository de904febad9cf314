"""Declaration of the metrics front."""

from __future__ import annotations

from tarry.fronts.kit.front import Front
from tarry.fronts.metrics.settings import MetricsSettings

METRICS = Front(
    name="metrics",
    settings=MetricsSettings,
    title="metrics",
    start="tarry.fronts.metrics.front:start",
    check="tarry.fronts.kit.tls_settings:check",
    takes_descriptors=False,
    asks_callers=True,
)
