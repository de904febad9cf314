"""``what=delivered``: due messages, from the topics' queues, for as long as retention keeps them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from tarry.spark.datasource.filters import EmptyPartition, ReadBounds, Span
from tarry.spark.datasource.options import ReadOptions
from tarry.spark.datasource.shape import SCHEMAS, Shape, by_name

RANGE_ROWS = 200_000
"""Rows of a queue for one task."""


@dataclass
class QueueRange(InputPartition):  # type: ignore[misc]
    """Offsets ``[start, end)`` of a topic."""

    topic: str
    start: int
    end: int


class DeliveredReader(DataSourceReader):  # type: ignore[misc]
    """Plans on the driver, reads in the tasks."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        offset = Span(options.start or 0, Span().high if options.end is None else options.end - 1)
        self._broker = options.broker
        self._shape = Shape.of(schema, SCHEMAS["delivered"])
        self._bounds = ReadBounds(options, offset)
        self._bounds.offer_filters(self)

    def partitions(self) -> list[InputPartition]:
        """Return ranges of the current queues. Runs on the driver."""
        topics, span = self._bounds.now.topics, self._bounds.now.offset
        with self._broker.client() as client:
            queues = client.queues(None if topics is None else sorted(topics))
        partitions: list[InputPartition] = []
        for topic, (first, end) in queues.items():
            partitions += ranges(topic, max(first, span.low), min(end, span.high + 1))
        return partitions or [EmptyPartition()]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read a range. Runs in a task. Messages that retention has deleted since are left out."""
        if not isinstance(partition, QueueRange):
            return
        with self._broker.client() as client:
            for batch in client.queue(partition.topic, partition.start, partition.end):
                rows = batch.filter(pa.array(self._bounds.now.rows_within(batch)))
                if rows.num_rows:
                    yield self._shape.shaped(by_name(rows))


def ranges(topic: str, start: int, end: int) -> list[QueueRange]:
    """Divide the offsets ``[start, end)`` among tasks."""
    return [QueueRange(topic, low, min(end, low + RANGE_ROWS)) for low in range(start, end, RANGE_ROWS)]
