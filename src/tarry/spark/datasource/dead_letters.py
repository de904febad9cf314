"""``what=dead``: the dead letters of groups, as their original messages, with the cause of death."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from tarry.message.reserved import DEAD, rewritten, texts_of
from tarry.message.schema import concat
from tarry.spark.datasource.filters import EmptyPartition, ReadBounds
from tarry.spark.datasource.options import ReadOptions
from tarry.spark.datasource.shape import SCHEMAS, Shape, by_name

PAGE_ROWS = 1000
_NUMBERS = {"due_ms": "due_ms", "seq": "seq", "died_ms": "at_ms"}
_TEXTS = {"topic": "topic", "group": "group", "cause": "cause"}


@dataclass
class GroupDeadLetters(InputPartition):  # type: ignore[misc]
    """The dead letters of one group of a topic."""

    topic: str
    group: str


class DeadReader(DataSourceReader):  # type: ignore[misc]
    """Plans on the driver, reads in the tasks."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._broker = options.broker
        self._shape = Shape.of(schema, SCHEMAS["dead"])
        self._bounds = ReadBounds(options)
        self._bounds.offer_filters(self)
        self._options = options

    def partitions(self) -> list[InputPartition]:
        """Return the groups with dead letters, or the one that is named, even if it was deleted since.

        Runs on the driver.
        """
        if self._options.topics and self._options.group is not None:
            return [GroupDeadLetters(topic, self._options.group) for topic in self._options.topics]
        topics = self._bounds.now.topics
        with self._broker.client() as client:
            groups = [(g["topic"], g["group"]) for g in client.groups() if g["dead"]]
        partitions = [
            GroupDeadLetters(topic, group)
            for topic, group in groups
            if (topics is None or topic in topics) and self._options.group in (None, group)
        ]
        return partitions or [EmptyPartition()]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read page by page. Runs in a task."""
        if not isinstance(partition, GroupDeadLetters):
            return
        after = None
        with self._broker.client() as client:
            while True:
                page = client.dead_letters(partition.topic, partition.group, PAGE_ROWS, after)
                if not page:
                    return
                batch = as_messages(concat(page))
                after = batch.column("offset")[-1].as_py()
                rows = batch.filter(pa.array(self._bounds.now.rows_within(batch)))
                if rows.num_rows:
                    yield self._shape.shaped(by_name(rows))


def as_messages(copies: pa.RecordBatch) -> pa.RecordBatch:
    """Restore topic, due time, seq and cause of dead letters, from the properties of the copies."""
    columns = by_name(copies)
    properties = columns["properties"]
    texts = {name: texts_of(properties, f"{DEAD}{name}") for name in ("topic", "group", "cause", *_NUMBERS.values())}
    for name, own in _TEXTS.items():
        values = pa.array(texts[own], pa.string())
        columns[name] = pc.coalesce(values, columns[name]) if name in columns else values
    for name, own in _NUMBERS.items():
        numbers = pa.array([int(x) if x is not None and x.isdecimal() else None for x in texts[own]], pa.int64())
        columns[name] = pc.coalesce(numbers, columns[name]) if name in columns else numbers
    columns["attempts"] = columns.pop("attempt")
    columns["properties"] = rewritten(properties, without=r"^tarry\.dead\..*$", added={})
    return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))
