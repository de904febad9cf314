"""Limits of a batch read, from options and from Spark's filters: topics, due times, offsets.

Bounds only narrow the read; Spark applies every filter to the rows all the same, so a filter that is not understood
here costs time and nothing else. They are used only if the option ``pushFilters`` asks for it: Spark 4.3 keeps the plan
of a DataFrame's first filtered query, and uses it for later ones without a filter, which would then miss rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import datasource as ds

from tarry.spark.datasource.options import ReadOptions

INT64_MIN, INT64_MAX = -(1 << 63), (1 << 63) - 1
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Span:
    """Whole numbers from ``low`` to ``high``, both included."""

    low: int = INT64_MIN
    high: int = INT64_MAX

    def within(self, low: int = INT64_MIN, high: int = INT64_MAX) -> Span:
        """Return the numbers that are in both spans."""
        return Span(max(self.low, low), min(self.high, high))

    def meets(self, low: int, high: int) -> bool:
        """Return whether the spans have a number in common."""
        return low <= self.high and high >= self.low


@dataclass(frozen=True, slots=True)
class Bounds:
    """Bounds of a read; ``topics`` None: all."""

    topics: frozenset[str] | None = None
    due_ms: Span = Span()
    offset: Span = Span()

    def with_topics(self, topics: Iterable[str]) -> Bounds:
        """Return the bounds limited to these topics."""
        some = frozenset(topics)
        return replace(self, topics=some if self.topics is None else self.topics & some)

    def may_have(self, topic_min: str | None, topic_max: str | None) -> bool:
        """Return whether a topic between these may be wanted."""
        if self.topics is None or topic_min is None or topic_max is None:
            return True
        return any(topic_min <= topic <= topic_max for topic in self.topics)

    def narrowed(self, filters: Iterable[ds.Filter]) -> Bounds:
        """Return the bounds that hold if all these filters do."""
        bounds = self
        for one in filters:
            bounds = _narrowed(bounds, one)
        return bounds

    def rows_within(self, batch: pa.RecordBatch) -> npt.NDArray[np.bool_]:
        """Return a mask of the rows whose due time and topic are within the bounds: one boolean a row."""
        due = batch.column("due_ms").to_numpy()
        keep = (due >= self.due_ms.low) & (due <= self.due_ms.high)
        if self.topics is not None:
            topics = pc.is_in(batch.column("topic"), value_set=pa.array(sorted(self.topics), pa.string()))
            keep &= topics.to_numpy(zero_copy_only=False)
        return np.asarray(keep, np.bool_)


def _narrowed(bounds: Bounds, one: ds.Filter) -> Bounds:
    path: tuple[str, ...] = getattr(one, "attribute", ())
    value: Any = getattr(one, "value", None)
    name = path[0].lower() if len(path) == 1 else ""
    if name == "topic":
        values = value if isinstance(one, ds.In) else [value] if isinstance(one, (ds.EqualTo, ds.EqualNullSafe)) else []
        if values and all(isinstance(v, str) for v in values):
            return bounds.with_topics(values)
    elif name == "offset":
        return replace(bounds, offset=_span(bounds.offset, one, _whole, _whole))
    elif name == "due_ms":
        return replace(bounds, due_ms=_span(bounds.due_ms, one, _whole, _whole))
    elif name == "due":
        return replace(bounds, due_ms=_span(bounds.due_ms, one, _floor_ms, _ceiling_ms))
    return bounds


Rounding = Callable[[Any], int | None]


def _span(span: Span, one: ds.Filter, floor: Rounding, ceiling: Rounding) -> Span:
    if isinstance(one, ds.In):
        ends = [(ceiling(v), floor(v)) for v in one.value if v is not None]
        if not ends or any(low is None or high is None for low, high in ends):
            return span
        return span.within(min(low for low, _ in ends if low is not None), max(h for _, h in ends if h is not None))
    value = getattr(one, "value", None)
    low, high = ceiling(value), floor(value)
    if low is None or high is None:
        return span
    if isinstance(one, (ds.EqualTo, ds.EqualNullSafe)):
        return span.within(low, high)
    # Above an instant between two milliseconds begins the next one; above a whole one, the one behind it.
    if isinstance(one, ds.GreaterThan):
        return span.within(low=high + 1)
    if isinstance(one, ds.GreaterThanOrEqual):
        return span.within(low=low)
    if isinstance(one, ds.LessThan):
        return span.within(high=low - 1)
    if isinstance(one, ds.LessThanOrEqual):
        return span.within(high=high)
    return span


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _micros(value: Any) -> int | None:
    if not isinstance(value, datetime):
        return None
    since = (value if value.tzinfo is not None else value.replace(tzinfo=UTC)) - _EPOCH
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds


def _floor_ms(value: Any) -> int | None:
    micros = _micros(value)
    return None if micros is None else micros // 1000


def _ceiling_ms(value: Any) -> int | None:
    micros = _micros(value)
    return None if micros is None else -(-micros // 1000)


class Pushed:
    """A ``pushFilters`` that Spark accepts, pushed filters or not.

    Spark refuses a reader whose ``pushFilters`` has another ``__func__`` than the base class's, while
    ``spark.sql.python.filterPushdown.enabled`` is off, which is its default. Reading all is right then, only slower: so
    this object has the base class's function.
    """

    __func__ = staticmethod(ds.DataSourceReader.pushFilters)

    def __init__(self, on_filters: Callable[[list[ds.Filter]], None]) -> None:
        self._on_filters = on_filters

    def __call__(self, filters: list[ds.Filter]) -> list[ds.Filter]:
        self._on_filters(filters)
        return filters


class EmptyPartition(ds.InputPartition):  # type: ignore[misc]
    """A partition without rows: Spark wants one partition at least."""

    def __init__(self) -> None:
        super().__init__(None)


class ReadBounds:
    """The bounds of one read, sent to the tasks. Those of filters are added when Spark offers them."""

    def __init__(self, options: ReadOptions, offset: Span | None = None) -> None:
        low = Span().low if options.after_ms is None else options.after_ms
        high = Span().high if options.until_ms is None else options.until_ms - 1
        self.now = Bounds(due_ms=Span(low, high), offset=offset or Span())
        """The bounds as far as they are known."""
        if options.topics:
            self.now = self.now.with_topics(options.topics)
        self._push_filters = options.push_filters

    def offer_filters(self, reader: ds.DataSourceReader) -> None:
        """Let Spark push filters into ``reader``, if the user asked for it."""
        if self._push_filters:
            # An attribute, not a method: for Spark, any reader that has the method takes filters.
            reader.pushFilters = Pushed(self._narrow)

    def _narrow(self, filters: Iterable[Any]) -> None:
        self.now = self.now.narrowed(filters)
