"""What a batch read is limited to: by options and, where they are asked for, by the filters of a query."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pyspark.sql.datasource import DataSourceReader, InputPartition

from tarry.spark.datasource.filters import Bounds, Pushed, Span
from tarry.spark.datasource.options import ReadOptions


class EmptyPartition(InputPartition):  # type: ignore[misc]
    """A partition without rows: Spark wants one partition at least."""

    def __init__(self) -> None:
        super().__init__(None)


class ReadBounds:
    """The bounds of one read; those of filters are added when Spark offers them. Travels to the tasks."""

    def __init__(self, options: ReadOptions, offset: Span | None = None) -> None:
        low = Span().low if options.after_ms is None else options.after_ms
        high = Span().high if options.until_ms is None else options.until_ms - 1
        self.now = Bounds(due_ms=Span(low, high), offset=offset or Span())
        """As far as they are known."""
        if options.topics:
            self.now = self.now.with_topics(options.topics)
        self._push_filters = options.push_filters

    def offer_filters(self, reader: DataSourceReader) -> None:
        """Have Spark push filters into ``reader``, if the user asked for it."""
        if self._push_filters:
            # An attribute, not a method: to Spark, a reader that has the method takes filters.
            reader.pushFilters = Pushed(self._narrow)

    def _narrow(self, filters: Iterable[Any]) -> None:
        self.now = self.now.narrowed(filters)
