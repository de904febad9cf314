"""Rates, lateness and lag of the past, of the minutes' files: as few points as are asked for."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tarry.api.operations import GetRates
from tarry.api.rates import RateHistory, RatePoint
from tarry.broker.minute_files import COUNTS, DAY_MINUTES, DAYS_MAX, LATENESS, LEVELS, MOST, DayRows, read_days

MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
STEPS = (1, 2, 3, 5, 10, 15, 20, 30, 60, 120, 180, 360, 720, DAY_MINUTES)
"""Minutes of a step: each is a part of a day."""


def rates(data: Path, now_ms: int, asked: GetRates) -> RateHistory:
    """Return the past that is kept, from the first step that is asked for to the last one that is over."""
    until_ms = now_ms if asked.until_ms is None else min(asked.until_ms, now_ms)
    since_ms = until_ms - HOUR_MS if asked.since_ms is None else min(asked.since_ms, until_ms)
    since_ms = max(since_ms, until_ms - (DAYS_MAX + 1) * DAY_MINUTES * MINUTE_MS)
    first, end = since_ms // MINUTE_MS, -(-until_ms // MINUTE_MS)
    step = _step(end - first, asked.points_max)
    first, end = first // step * step, -(-end // step) * step
    points = [point for day in read_days(data, first, end, asked.topic) for point in _points(day, step)]
    return RateHistory(
        topic=asked.topic,
        since_ms=first * MINUTE_MS,
        until_ms=end * MINUTE_MS,
        step_ms=step * MINUTE_MS,
        points=points[-asked.points_max :],
    )


def _step(minutes: int, points_max: int) -> int:
    # One more, for a step that is begun before the first minute.
    fitting = (step for step in STEPS if -(-minutes // step) + 1 <= points_max or step == STEPS[0] >= minutes)
    return next(fitting, STEPS[-1])


def _points(day: DayRows, step: int) -> Iterator[RatePoint]:
    rows = day.broker if day.topic is None else day.topic
    steps = day.numbers // step * step
    starts = np.flatnonzero(np.diff(steps, prepend=steps[0] - 1))
    sums = {name: np.add.reduceat(rows[name].astype(np.int64), starts) for name in COUNTS}
    covered = np.add.reduceat(day.broker["covered_ms"].astype(np.int64), starts)
    ends = np.append(starts[1:], len(steps)) - 1
    for at, (start, end) in enumerate(zip(starts.tolist(), ends.tolist(), strict=True)):
        herds = day.broker[start : end + 1]
        herd = herds[int(herds["herd_rows"].argmax())]
        told = day.topic is None and int(herd["herd_rows"]) > 0
        figures: dict[str, Any] = {name: int(sums[name][at]) for name in COUNTS}
        figures |= {name: int(rows[name][end]) for name in LEVELS}
        figures |= {name: _highest(rows[name][start : end + 1]) for name in LATENESS}
        if told:
            figures |= {"herd_due_ms": int(herd["herd_due_ms"]), "herd_rows": int(herd["herd_rows"])}
        yield RatePoint(at_ms=int(steps[start]) * MINUTE_MS, covered_ms=int(covered[at]), **figures)


def _highest(values: npt.NDArray[np.uint32]) -> int | None:
    counted = values[values != MOST]
    return int(counted.max()) if len(counted) else None
