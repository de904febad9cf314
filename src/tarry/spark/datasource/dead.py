"""``what=dead``: the dead letters of groups, as the messages that they were, with the cause of their end."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from tarry.base.message import concat
from tarry.base.reserved import rewritten, texts_of
from tarry.spark.datasource.bounded import BoundedReader
from tarry.spark.datasource.calls import BrokerClient
from tarry.spark.datasource.options import ReadOptions
from tarry.spark.datasource.pending import Nothing, wanted
from tarry.spark.datasource.shape import SCHEMAS, by_name

PAGE_ROWS = 1000
_NUMBERS = {"due_ms": "due_ms", "seq": "seq", "died_ms": "at_ms"}
_TEXTS = {"topic": "topic", "group": "group", "cause": "cause"}


@dataclass
class Letters(InputPartition):  # type: ignore[misc]
    """Those of one group of a topic."""

    topic: str
    group: str


class DeadReader(BoundedReader):
    """Plans on the driver, reads in the tasks."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        super().__init__(options, schema, SCHEMAS["dead"])
        self._options = options

    def partitions(self) -> list[InputPartition]:
        """On the driver: the groups that have any; named, also one that was deleted since."""
        if self._options.topics and self._options.group is not None:
            return [Letters(topic, self._options.group) for topic in self._options.topics]
        topics = self._bounds.topics
        with BrokerClient(self._endpoint) as client:
            groups = [(g["topic"], g["group"]) for g in client.groups() if g["dead"]]
        found = [
            Letters(topic, group)
            for topic, group in groups
            if (topics is None or topic in topics) and self._options.group in (None, group)
        ]
        return found or [Nothing()]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """In a task: page by page."""
        if not isinstance(partition, Letters):
            return
        after = None
        with BrokerClient(self._endpoint) as client:
            while True:
                page = client.dead_letters(partition.topic, partition.group, PAGE_ROWS, after)
                if not page:
                    return
                batch = as_they_were(concat(page))
                after = batch.column("offset")[-1].as_py()
                rows = batch.filter(pa.array(wanted(batch, self._bounds)))
                if rows.num_rows:
                    yield self._shape.shaped(by_name(rows))


def as_they_were(letters: pa.RecordBatch) -> pa.RecordBatch:
    """Topic, due time and seq of the messages that died, and why they did, out of the properties of their copies."""
    columns = by_name(letters)
    properties = columns["properties"]
    said = {
        name: texts_of(properties, f"tarry.dead.{name}") for name in ("topic", "group", "cause", *_NUMBERS.values())
    }
    for name, own in _TEXTS.items():
        texts = pa.array(said[own], pa.string())
        columns[name] = pc.coalesce(texts, columns[name]) if name in columns else texts
    for name, own in _NUMBERS.items():
        numbers = pa.array([int(x) if x is not None and x.isdecimal() else None for x in said[own]], pa.int64())
        columns[name] = pc.coalesce(numbers, columns[name]) if name in columns else numbers
    columns["attempts"] = columns.pop("attempt")
    columns["properties"] = rewritten(properties, without=r"^tarry\.dead\..*$", added={})
    return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))
