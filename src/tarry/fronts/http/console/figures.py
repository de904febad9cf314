"""The broker's figures for all viewers.

They are asked for at most once in two seconds, however many look, and not at all while nobody does. Each answer is a
point of the rates and of lateness. The points of the last ten minutes in which somebody looked are kept.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from tarry.api.views import Forecast
from tarry.base.bounded_cache import BoundedCache
from tarry.base.clock import Clock
from tarry.base.histogram import Histogram
from tarry.fronts.http.services import HttpServices
from tarry.message.receipt import TopicPending

V = TypeVar("V")

FRESH_MS = 1900
"""A little less than the pages' interval, so that each of a viewer's questions finds something new."""
FORECAST_FRESH_MS: Mapping[str, int] = {"minute": 5000, "hour": 15_000, "day": 60_000}
FORECASTS_MAX = 64
"""Forecasts that are kept: by unit and topic."""
NEXT_DUE_FRESH_MS = 10_000
NEXT_DUE_TOPICS_MAX = 1000
"""With more topics, the broker takes too long to find the next due time of each."""
LISTED_MAX = 200
"""Topics, and groups, that are shown."""
POINTS_MAX = 300
COUNTED = ("accepted", "fired", "handed_out")
LATE = ("queued_p50", "queued_p99", "delivered_p50", "delivered_p99")


class Cached(Generic[V]):
    """A value that is asked for again when it is older than ``fresh_ms``.

    Everybody who calls while it is asked for waits for the same answer.
    """

    def __init__(self, ask: Callable[[], Awaitable[V]], clock: Clock, fresh_ms: int) -> None:
        self._ask = ask
        self._clock = clock
        self._fresh_ms = fresh_ms
        self._value: tuple[int, V] | None = None
        self._asking: asyncio.Task[V] | None = None

    async def get(self) -> V:
        """Return the value, which may be cached; raises what asking raises."""
        if self._value is not None and 0 <= self._clock.now_ms() - self._value[0] < self._fresh_ms:
            return self._value[1]
        if self._asking is None:
            self._asking = asyncio.ensure_future(self._ask_once())
        # One of the callers may go away; the others still want the value.
        return await asyncio.shield(self._asking)

    async def _ask_once(self) -> V:
        try:
            value = await self._ask()
            self._value = (self._clock.now_ms(), value)
            return value
        finally:
            self._asking = None


@dataclass(frozen=True, slots=True)
class Point:
    """The rates and lateness of the time up to ``at_ms``.

    Messages a second by :data:`COUNTED`, and lateness in milliseconds by :data:`LATE` (None: nothing was counted).
    """

    at_ms: int
    rates: Mapping[str, float]
    late: Mapping[str, int | None]


@dataclass(slots=True)
class _Counts:
    at_ms: int
    counts: Mapping[str, int]
    queued: Histogram
    delivered: Histogram

    @classmethod
    def of(cls, overview: Mapping[str, Any]) -> _Counts:
        sums, late = overview["topics"]["sums"], overview["lateness"]
        return cls(
            overview["now_ms"],
            {"accepted": sums["accepted"], "fired": sums["fired"], "handed_out": overview["handed_out"]},
            Histogram.from_json(late["queued"]),
            Histogram.from_json(late["delivered"]),
        )

    def point_since(self, before: _Counts) -> Point:
        seconds = max(self.at_ms - before.at_ms, 1) / 1000
        rates = {name: max(0.0, (self.counts[name] - before.counts[name]) / seconds) for name in COUNTED}
        queued = self.queued.since(before.queued).percentiles([50, 99])
        delivered = self.delivered.since(before.delivered).percentiles([50, 99])
        return Point(self.at_ms, rates, dict(zip(LATE, [*queued, *delivered], strict=True)))


@dataclass(slots=True)
class ConsoleFigures:
    """On the event loop's thread."""

    services: HttpServices
    points: deque[Point] = field(default_factory=lambda: deque(maxlen=POINTS_MAX))
    delivered: Histogram = field(default_factory=Histogram)
    """Lateness to waiting consumers, since the broker began."""
    queued: Histogram = field(default_factory=Histogram)
    """Lateness into the queue."""
    overdue: int = 0
    """Messages that came after their due time, since the broker began."""
    _last: _Counts | None = None
    _overview: Cached[Mapping[str, Any]] = field(init=False)
    _pending: Cached[dict[str, TopicPending]] = field(init=False)
    _forecasts: BoundedCache[tuple[str, str | None], Cached[Forecast]] = field(
        default_factory=lambda: BoundedCache(FORECASTS_MAX)
    )

    def __post_init__(self) -> None:
        clock = self.services.broker.clock
        self._overview = Cached(self._ask, clock, FRESH_MS)
        self._pending = Cached(self._ask_pending, clock, NEXT_DUE_FRESH_MS)

    async def overview(self) -> Mapping[str, Any]:
        """All figures, as :class:`tarry.api.operations.GetOverview` has them."""
        return await self._overview.get()

    async def forecast(self, unit: str, topic: str | None = None) -> Forecast:
        """Return the load to come, of a topic or of all; ``unit`` is minute, hour or day."""
        found = self._forecasts.get((unit, topic))
        if found is None:

            async def ask() -> Forecast:
                return await self.services.forecast(topic=topic, unit=unit)

            cached = Cached(ask, self.services.broker.clock, FORECAST_FRESH_MS[unit])
            found = self._forecasts.keep((unit, topic), cached)
        return await found.get()

    async def next_due(self) -> dict[str, TopicPending]:
        """Return the time of each topic's next due message; empty if there are too many topics."""
        count = (await self.overview())["topics"]["count"]
        return await self._pending.get() if count <= NEXT_DUE_TOPICS_MAX else {}

    @property
    def last(self) -> Point | None:
        """The newest point."""
        return self.points[-1] if self.points else None

    async def _ask_pending(self) -> dict[str, TopicPending]:
        return {entry.topic: entry for entry in await self.services.pending()}

    async def _ask(self) -> Mapping[str, Any]:
        overview = await self.services.overview(most=LISTED_MAX)
        now, before = _Counts.of(overview), self._last
        if before is not None and now.at_ms > before.at_ms:
            self.points.append(now.point_since(before))
        self._last, self.queued, self.delivered = now, now.queued, now.delivered
        self.overdue = int(overview["lateness"]["overdue"])
        return overview
