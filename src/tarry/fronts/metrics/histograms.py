"""A histogram as Prometheus has it, of one that the broker gives."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tarry.base.histogram import Histogram


def add_histogram(
    metric: Any, labels: list[str], plain: dict[str, Any], bounds: Iterable[float], per_second: int
) -> None:
    """Add a histogram of integers, ``per_second`` of which are a second; ``bounds`` are in seconds."""
    histogram = Histogram.from_json(plain)
    # A value is rounded down to a whole unit, so one that is equal to a bound may be above it.
    counts = histogram.counts_below([round(b * per_second) for b in bounds])
    buckets = [(str(b), float(c)) for b, c in zip(bounds, counts, strict=True)]
    metric.add_metric(labels, [*buckets, ("+Inf", float(histogram.count))], histogram.total / per_second)
