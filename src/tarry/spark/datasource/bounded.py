"""What the batch readers have in common: the bounds that options and, where they are asked for, filters set."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader
from pyspark.sql.types import StructType

from tarry.spark.datasource.filters import Bounds, Pushed, Span
from tarry.spark.datasource.options import ReadOptions
from tarry.spark.datasource.shape import Shape


class BoundedReader(DataSourceReader):  # type: ignore[misc]
    """Plans on the driver, reads in the tasks. ``columns`` are all that there are, ``schema`` those that are wanted."""

    def __init__(
        self, options: ReadOptions, schema: StructType, columns: pa.Schema, offset: Span | None = None
    ) -> None:
        self._endpoint = options.endpoint
        self._shape = Shape.of(schema, columns)
        low = Span().low if options.after_ms is None else options.after_ms
        high = Span().high if options.until_ms is None else options.until_ms - 1
        self._bounds = Bounds(due_ms=Span(low, high), offset=offset or Span())
        if options.topics:
            self._bounds = self._bounds.with_topics(options.topics)
        if options.push_filters:
            # An attribute, not a method: to Spark, a reader that has the method takes filters.
            self.pushFilters = Pushed(self._push)

    def _push(self, filters: Iterable[Any]) -> None:
        self._bounds = self._bounds.narrowed(filters)
