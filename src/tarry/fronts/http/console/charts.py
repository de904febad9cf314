"""The data of the charts, as JSON and as coordinates.

``static/console.js`` and the templates draw them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from tarry.api.rates import RateHistory
from tarry.api.views import UNITS_MS, Forecast
from tarry.base.histogram import Histogram
from tarry.fronts.http.console.figures import COUNTED, LATE, Point

PAST_RATES = ("accepted", "fired", "handed_out", "acknowledged")
PAST_OTHERS = ("pending", "ready", "lateness_p50_ms", "lateness_p99_ms", "herd_rows", "herd_due_ms")
BOUNDS_MS = (1, 2, 3, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 60_000)
"""Upper ends of the histogram's bars, exclusive; the last bar has all that is later."""


@dataclass(frozen=True, slots=True)
class Bar:
    """A bar of a histogram: ``percent`` of all values, and how high it is next to the highest."""

    label: str
    count: int
    percent: float
    height: float


def lateness_bars(histogram: Histogram) -> list[Bar]:
    """Return lateness by its size; empty if nothing was counted.

    Bars behind the last one with a count are left out.
    """
    if not histogram.count:
        return []
    below = [*histogram.counts_below(BOUNDS_MS), histogram.count]
    counts = [upper - lower for lower, upper in zip([0, *below], below, strict=False)]
    last = max(i for i, count in enumerate(counts) if count)
    labels = [*(f"<{_ms(bound)}" for bound in BOUNDS_MS), f"≥{_ms(BOUNDS_MS[-1])}"]
    most, end = max(counts), max(last + 1, 5)
    return [
        Bar(label, count, 100 * count / histogram.count, 100 * count / most)
        for label, count in list(zip(labels, counts, strict=True))[:end]
    ]


def _ms(value: int) -> str:
    return str(value) if value < 1000 else f"{value // 1000}s"


def forecast_json(forecast: Forecast) -> dict[str, Any]:
    """Return the load by unit: ``at`` (UTC seconds), ``rows`` and ``unsure``; and the herds.

    Each herd is in the unit that contains it.
    """
    return {
        "unit": forecast.unit,
        "unit_s": UNITS_MS[forecast.unit] // 1000,
        "now_ms": forecast.now_ms,
        "rows": forecast.rows,
        "at": [load.from_ms // 1000 for load in forecast.loads],
        "loads": [load.rows for load in forecast.loads],
        "unsure": [load.unsure for load in forecast.loads],
        "herds": [{"due_ms": herd.due_ms, "rows": herd.rows} for herd in forecast.herds],
    }


def live_json(points: Iterable[Point], after_ms: int = 0) -> dict[str, Any]:
    """Rates and lateness of the last minutes, by column; those of points after an instant."""
    kept = [point for point in points if point.at_ms > after_ms]
    rates = {name: [point.rates[name] for point in kept] for name in COUNTED}
    late = {name: [point.late[name] for point in kept] for name in LATE}
    return {"at": [point.at_ms / 1000 for point in kept], **rates, **late}


def past_json(history: RateHistory) -> dict[str, Any]:
    """Return rates a second, lateness, levels and herds by step: ``at`` is its beginning (UTC seconds).

    All steps are there; what is not known is None, which is a gap in a line.
    """
    known = {point.at_ms: point for point in history.points}
    steps = range(history.since_ms, history.until_ms, history.step_ms)
    points = [known.get(at_ms) for at_ms in steps]
    rates = {
        name: [None if p is None else round(1000 * getattr(p, name) / p.covered_ms, 3) for p in points]
        for name in PAST_RATES
    }
    others = {name: [None if p is None else getattr(p, name) for p in points] for name in PAST_OTHERS}
    return {"at": [at_ms // 1000 for at_ms in steps], "step_s": history.step_ms // 1000, **rates, **others}
