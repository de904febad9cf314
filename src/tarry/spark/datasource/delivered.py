"""``what=delivered``: what has become due, as the topics' queues have it, for as long as retention keeps it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from tarry.spark.datasource.bounded import BoundedReader
from tarry.spark.datasource.calls import BrokerClient
from tarry.spark.datasource.filters import Span
from tarry.spark.datasource.options import ReadOptions
from tarry.spark.datasource.pending import Nothing, wanted
from tarry.spark.datasource.shape import SCHEMAS, by_name

RANGE_ROWS = 200_000
"""Rows of a queue for one task."""


@dataclass
class Range(InputPartition):  # type: ignore[misc]
    """Offsets ``[start, end)`` of a topic."""

    topic: str
    start: int
    end: int


class DeliveredReader(BoundedReader):
    """Plans on the driver, reads in the tasks."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        offset = Span(options.start or 0, Span().high if options.end is None else options.end - 1)
        super().__init__(options, schema, SCHEMAS["delivered"], offset)

    def partitions(self) -> list[InputPartition]:
        """On the driver: the queues as they are now."""
        topics, span = self._bounds.topics, self._bounds.offset
        with BrokerClient(self._endpoint) as client:
            queues = client.queues(None if topics is None else sorted(topics))
        found: list[InputPartition] = []
        for topic, (first, end) in queues.items():
            found += ranges(topic, max(first, span.low), min(end, span.high + 1))
        return found or [Nothing()]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """In a task. What retention has deleted since is left out."""
        if not isinstance(partition, Range):
            return
        with BrokerClient(self._endpoint) as client:
            for batch in client.queue(partition.topic, partition.start, partition.end):
                rows = batch.filter(pa.array(wanted(batch, self._bounds)))
                if rows.num_rows:
                    yield self._shape.shaped(by_name(rows))


def ranges(topic: str, start: int, end: int) -> list[Range]:
    """Offsets, some for each task."""
    return [Range(topic, low, min(end, low + RANGE_ROWS)) for low in range(start, end, RANGE_ROWS)]
