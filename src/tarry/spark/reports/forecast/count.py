"""The load to come, counted message by message: by topic and unit, its herds, and its needs.

``tarry forecast`` without a report answers from the broker's statistics, in a second; this reads every pending row
(:mod:`tarry.spark.reports.forecast.pending`) and is exact. :func:`forecast` is pure but for the counting.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark import StorageLevel
from pyspark.sql import functions as F  # noqa: N812  as everybody writes it

from tarry.api.views import UNITS_MS
from tarry.base.errors import InvalidArgumentError
from tarry.spark.reports.forecast.result import DayLoad, HerdLoad, Needs, Outlook, Sources, TopicLoad, UnitLoad

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

TOPICS_MAX = 200
SHOWN_TOPICS = 6
HERDS = 10
UNITS_MAX = 2000
DAYS_MAX = 20_000
DAY_MS = UNITS_MS["day"]
OTHERS = "(others)"


def forecast(
    pending: DataFrame,
    sources: Sources,
    *,
    now_ms: int,
    unit: str = "hour",
    until_ms: int | None = None,
    rate: float,
    horizon_ms: int,
    wheel_bytes_max: int,
    retention_ms: int,
) -> Outlook:
    """Count the messages of :func:`tarry.spark.reports.forecast.pending.pending`.

    Args:
        sources: what it was read from.
        unit, until_ms: which units are listed: minutes, hours or days from ``now_ms`` on.
        rate: messages that are delivered in a second, at most.
        horizon_ms, wheel_bytes_max, retention_ms: the broker's settings of these names.

    Raises:
        InvalidArgumentError: names the argument, its value and what is allowed.
    """
    start, until = _listed(unit, now_ms, until_ms)
    if not 0 < rate < float("inf"):
        raise InvalidArgumentError(f"rate is {rate:g}; allowed: above 0 messages a second")
    counted = (F.count(F.lit(1)).alias("rows"), *_sums("body_bytes", "row_bytes"))
    # As many rows as there are different instants: persisted on disk, if there are many.
    instants = pending.groupBy("topic", "due_ms").agg(*counted).persist(StorageLevel.MEMORY_AND_DISK)
    try:
        topics, whole = _by_topic(instants)
        shown = [topic.topic for topic in topics[:SHOWN_TOPICS]]
        herds = {name: _herds(instants, length, rate) for name, length in (("instant", 1), ("second", 1000))}
        days = _days(instants)
        needs = Needs.of(
            herds=herds["second"],
            horizon=_fullest(instants, horizon_ms),
            horizon_ms=horizon_ms,
            wheel_bytes_max=wheel_bytes_max,
            days=days,
            retention_ms=retention_ms,
            rate=rate,
        )
        units = _units(instants, start, until, UNITS_MS[unit], shown)
    finally:
        instants.unpersist()
    return Outlook(
        now_ms=now_ms,
        until_ms=until,
        unit=unit,
        sources=sources,
        **whole,
        topics=topics,
        shown_topics=shown,
        units=units,
        herds=herds,
        days=days,
        needs=needs,
    )


def _by_topic(instants: DataFrame) -> tuple[list[TopicLoad], dict[str, int]]:
    """Return the topics with most messages, and the totals of all: fields of an Outlook."""
    span = F.min("due_ms").alias("first_ms"), F.max("due_ms").alias("last_ms")
    by_topic = instants.groupBy("topic").agg(*_sums(*_SIZES), *span)
    rows = by_topic.orderBy(F.desc("rows"), "topic").limit(TOPICS_MAX).collect()
    span = F.min("first_ms").alias("first_ms"), F.max("last_ms").alias("last_ms")
    sums = [F.coalesce(F.sum(name), F.lit(0)).alias(name) for name in _SIZES]
    [whole] = by_topic.agg(F.count("topic").alias("topics_count"), *sums, *span).collect()
    topics = [TopicLoad(r["topic"], r["rows"], r["body_bytes"], r["first_ms"], r["last_ms"]) for r in rows]
    return topics, whole.asDict()


_SIZES = ("rows", "body_bytes", "row_bytes")


def _sums(*names: str) -> list[Column]:
    return [F.sum(name).alias(name) for name in names]


def _listed(unit: str, now_ms: int, until_ms: int | None) -> tuple[int, int]:
    """Return the start of the first listed unit, and the end of the last."""
    if unit not in UNITS_MS:
        raise InvalidArgumentError(f"unit is {unit!r:.80}; allowed: {', '.join(UNITS_MS)}")
    size = UNITS_MS[unit]
    start = now_ms // size * size
    last = start + UNITS_MAX * size
    until = start + {"minute": 60, "hour": 48, "day": 31}[unit] * size if until_ms is None else until_ms
    if not now_ms < until <= last:
        raise InvalidArgumentError(f"until_ms is {until}; allowed: after {now_ms} (now) and up to {last}")
    return start, until


def _units(instants: DataFrame, start: int, until: int, size: int, shown: list[str]) -> list[UnitLoad]:
    """Return each unit, also those without a message. Overdue messages are in the first."""
    at = F.floor(F.greatest(F.col("due_ms"), F.lit(start)) / size) * size
    topic = F.when(F.col("topic").isin(shown), F.col("topic")).otherwise(F.lit(OTHERS))
    within = instants.where(F.col("due_ms") < F.lit(until)).groupBy(at.cast("long").alias("at"), topic.alias("topic"))
    counted = within.agg(F.sum("rows").alias("rows"), F.sum("body_bytes").alias("bytes")).collect()
    units: dict[int, dict[str, tuple[int, int]]] = {moment: {} for moment in range(start, until, size)}
    for row in counted:
        units[row["at"]][row["topic"]] = (row["rows"], row["bytes"])
    return [
        UnitLoad(
            moment,
            sum(rows for rows, _ in topics.values()),
            sum(size for _, size in topics.values()),
            {topic: rows for topic, (rows, _) in sorted(topics.items())},
        )
        for moment, topics in units.items()
    ]


def _herds(instants: DataFrame, length_ms: int, rate: float) -> list[HerdLoad]:
    """Return the fullest spans of that length."""
    fullest = _spans(instants, length_ms).orderBy(F.desc("rows"), "at").limit(HERDS).collect()
    return [
        HerdLoad(
            row["at"], length_ms, row["rows"], row["body_bytes"], row["row_bytes"], round(1000 * row["rows"] / rate)
        )
        for row in fullest
    ]


def _fullest(instants: DataFrame, length_ms: int) -> HerdLoad | None:
    """Return the span that takes most memory."""
    fullest = _spans(instants, length_ms).orderBy(F.desc("row_bytes"), "at").limit(1).collect()
    return next((HerdLoad(r["at"], length_ms, r["rows"], r["body_bytes"], r["row_bytes"], 0) for r in fullest), None)


def _spans(instants: DataFrame, length_ms: int) -> DataFrame:
    at = (F.floor(F.col("due_ms") / length_ms) * length_ms).cast("long")
    return instants.groupBy(at.alias("at")).agg(*_sums(*_SIZES))


def _days(instants: DataFrame) -> list[DayLoad]:
    rows = _spans(instants, DAY_MS).orderBy("at").limit(DAYS_MAX).collect()
    return [DayLoad(row["at"], row["rows"], row["body_bytes"], row["row_bytes"]) for row in rows]
