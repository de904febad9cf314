"""The result of a forecast as plain values, and the needs of that load. No Spark here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

HERD_RATE = 500_000.0
"""Messages of 256 B a second, from their due time to a waiting consumer.

Measured with a herd of 200,000, on two cores (the bench ``herd`` in benchmarks/results/latest.json).
"""
READY_OVERHEAD = 1.02
"""Factor for a ready frame's header and metadata, beside its rows."""
DAY_MS = 86_400_000


@dataclass(frozen=True, slots=True)
class Sources:
    """The input of a forecast. ``intake``: true if a broker's intake was read as well."""

    store: str
    version: int
    files: int
    store_rows: int
    store_bytes: int
    intake: bool
    intake_bytes: int


@dataclass(frozen=True, slots=True)
class TopicLoad:
    """All pending messages of a topic, whenever they are due."""

    topic: str
    rows: int
    body_bytes: int
    first_ms: int
    last_ms: int


@dataclass(frozen=True, slots=True)
class UnitLoad:
    """Load of a minute, hour or day.

    ``topics``: messages of the largest topics, and of the others.
    """

    from_ms: int
    rows: int
    body_bytes: int
    topics: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class DayLoad:
    """Load of a day on which something is due."""

    from_ms: int
    rows: int
    body_bytes: int
    row_bytes: int


@dataclass(frozen=True, slots=True)
class HerdLoad:
    """Messages due within ``length_ms`` from ``from_ms`` on.

    ``last_ms``: lateness of the last one, at the rate of the forecast, if all are due at once.
    """

    from_ms: int
    length_ms: int
    rows: int
    body_bytes: int
    row_bytes: int
    last_ms: int


@dataclass(frozen=True, slots=True)
class Needs:
    """Resources that serve the load.

    The wheel holds messages due within the horizon, at most ``wheel_bytes_max``; if that is less than the fullest
    horizon, it reads ahead for a shorter time (``wheel_horizon_ms``), and nothing is late for it as long as the disk is
    faster than delivery.
    """

    rate: float
    rate_for_a_second: int
    """Messages a second that serve the fullest second within itself."""
    seconds_too_full: int
    """Number of the listed fullest seconds with more messages than the rate."""
    horizon: HerdLoad | None
    horizon_ms: int
    wheel_bytes: int
    wheel_bytes_max: int
    wheel_horizon_ms: int
    ready_bytes: int
    """Bytes of the ready log, if no group acknowledges: the fullest span of the retention."""
    ready_from_ms: int | None
    retention_ms: int

    @classmethod
    def of(
        cls,
        *,
        herds: Sequence[HerdLoad],
        horizon: HerdLoad | None,
        horizon_ms: int,
        wheel_bytes_max: int,
        days: Sequence[DayLoad],
        retention_ms: int,
        rate: float,
    ) -> Needs:
        """Compute the needs from the fullest seconds, the fullest horizon, and the load of each day."""
        full = horizon.row_bytes if horizon is not None else 0
        ready, ready_from = _fullest_days(days, max(1, -(-retention_ms // DAY_MS)))
        return cls(
            rate=rate,
            rate_for_a_second=max((herd.rows for herd in herds), default=0),
            seconds_too_full=sum(herd.rows > rate for herd in herds),
            horizon=horizon,
            horizon_ms=horizon_ms,
            wheel_bytes=min(full, wheel_bytes_max),
            wheel_bytes_max=wheel_bytes_max,
            wheel_horizon_ms=horizon_ms if full <= wheel_bytes_max else horizon_ms * wheel_bytes_max // full,
            ready_bytes=round(ready * READY_OVERHEAD),
            ready_from_ms=ready_from,
            retention_ms=retention_ms,
        )


def _fullest_days(days: Sequence[DayLoad], count: int) -> tuple[int, int | None]:
    """Return the most bytes that are due within ``count`` days, and their start.

    ``days`` ascend; those without load are left out.
    """
    best: tuple[int, int | None] = (0, None)
    total, first = 0, 0
    for day in days:
        total += day.row_bytes
        while days[first].from_ms <= day.from_ms - count * DAY_MS:
            total -= days[first].row_bytes
            first += 1
        if total > best[0]:
            best = total, days[first].from_ms
    return best


@dataclass(frozen=True, slots=True)
class Outlook:
    """The result of :func:`tarry.spark.reports.forecast.count.forecast`."""

    now_ms: int
    until_ms: int
    unit: str
    sources: Sources
    rows: int
    """Number of pending messages, whenever they are due."""
    body_bytes: int
    row_bytes: int
    first_ms: int | None
    last_ms: int | None
    topics_count: int
    topics: list[TopicLoad]
    shown_topics: list[str]
    units: list[UnitLoad]
    herds: dict[str, list[HerdLoad]]
    days: list[DayLoad]
    needs: Needs

    def verdict(self) -> list[str]:
        """Return the outlook in plain words."""
        if not self.rows:
            return ["Nothing is pending."]
        needs, seconds = self.needs, self.herds["second"]
        within = sum(unit.rows for unit in self.units)
        sentences = [f"{self.rows:,} messages are pending; {within:,} of them fall due until the end of this forecast."]
        most = seconds[0]
        if most.rows > needs.rate:
            sentences.append(
                f"The fullest second has {most.rows:,} messages, more than the {needs.rate:,.0f} that are delivered in "
                f"one: the last of them is about {most.last_ms / 1000:,.1f} s late."
            )
        else:
            sentences.append(
                f"The fullest second has {most.rows:,} messages, {100 * most.rows / needs.rate:.2g} % of the "
                f"{needs.rate:,.0f} that are delivered in one."
            )
        if needs.horizon is not None and needs.horizon.row_bytes > needs.wheel_bytes_max:
            sentences.append(
                f"The fullest {needs.horizon_ms / 1000:g} s are {needs.horizon.row_bytes / 1e6:,.0f} MB, more than the "
                f"wheel may hold: it reads {needs.wheel_horizon_ms / 1000:,.1f} s ahead then, at the speed of the disk."
            )
        if needs.rate == HERD_RATE:
            sentences.append("That rate is a benchmark's, on two cores: measure yours, and say it with --rate.")
        return sentences

    @property
    def in_time(self) -> bool:
        """True if no second has more messages than can be delivered in it."""
        return self.needs.seconds_too_full == 0

    def to_json(self) -> dict[str, Any]:
        """Return the outlook as plain data."""
        return {"verdict": self.verdict(), "in_time": self.in_time, **asdict(self)}
