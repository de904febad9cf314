"""Declaration of the metrics front."""

from __future__ import annotations

from tarry.fronts.kit.front import Front

METRICS = Front(name="metrics", title="metrics", start="tarry.fronts.metrics.server:start", takes_descriptors=False)
