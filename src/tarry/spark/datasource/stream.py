"""``readStream.format("tarry")``: queues as a stream.

A query's progress is in Spark's checkpoint, as an offset for each topic; a micro-batch is a range of offsets, so a
replay reads the same. The query is also a group of the topic: it reports its progress, and retention that waits for
groups waits for it. A queue has only messages that are due, so nothing comes early.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from tarry.base.errors import CorruptError, TarryError, UnavailableError
from tarry.message.reserved import ONLY, values_of
from tarry.spark.datasource.delivered import QueueRange, ranges
from tarry.spark.datasource.options import StreamOptions
from tarry.spark.datasource.shape import STREAM, Shape, by_name

log = logging.getLogger(__name__)

Offsets = dict[str, int]


class QueueStream(DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]
    """A reader whose offsets are ``{topic: offset}``: everything below is in earlier batches.

    The methods but ``read`` run on the driver, in a process of their own.
    """

    def __init__(self, options: StreamOptions, schema: StructType) -> None:
        self._options = options
        self._shape = Shape.of(schema, STREAM)
        self._target: Offsets | None = None

    # -- on the driver -------------------------------------------------------------------------------------------------

    def initialOffset(self) -> Offsets:  # noqa: N802 - Spark's name
        """Return the offsets at which a query without a checkpoint begins."""
        o = self._options
        with o.broker.client() as client:
            start = None if o.start == "group" else o.start
            return {topic: client.follow(topic, o.group, start) for topic in o.topics}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Return the limit of the option ``maxRowsPerTrigger``."""
        rows = self._options.rows_max
        return ReadAllAvailable() if rows is None else ReadMaxRows(rows)

    def latestOffset(self, start: Offsets, limit: ReadLimit) -> Offsets:  # noqa: N802
        """Return the end of the next micro-batch."""
        try:
            ends = self._target if self._target is not None else self._ends()
        except UnavailableError as error:
            # A broker that restarts: there is nothing to read until it is back.
            log.warning("%s; waiting for it", error)
            return start
        rows_max = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        return next_end(self._started(start), ends, rows_max)

    def reportLatestOffset(self) -> Offsets | None:  # noqa: N802
        """Return the ends of the queues, for the query's progress."""
        try:
            return self._ends()
        except UnavailableError:
            return None

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Stop at the current ends; later messages are for the next run."""
        self._target = self._ends()

    def partitions(self, start: Offsets, end: Offsets) -> Sequence[InputPartition]:
        """Return ranges, some for each task.

        Raises:
            CorruptError: retention has deleted some of it, or it is not the queue that was read before.
        """
        start = self._started(start)
        with self._options.broker.client() as client:
            queues = client.queues(sorted(end))
        partitions: list[InputPartition] = []
        for topic, stop in end.items():
            low = start.get(topic, 0)
            if low < stop:
                partitions += ranges(
                    topic, self._checked(topic, low, stop, *queues[topic]), min(stop, queues[topic][1])
                )
        return partitions

    def commit(self, end: Offsets) -> None:
        """Settle everything below ``end``, as Spark has recorded it as done."""
        with self._options.broker.client() as client:
            for topic, offset in end.items():
                client.advance(topic, self._options.group, offset)

    def _ends(self) -> Offsets:
        with self._options.broker.client() as client:
            queues = client.queues(list(self._options.topics))
        return {topic: end for topic, (_, end) in queues.items()}

    def _started(self, start: Offsets) -> Offsets:
        """Return ``start`` with the group's offsets for topics that the query did not have at its start."""
        fresh = [topic for topic in self._options.topics if topic not in start]
        if not fresh:
            return start
        with self._options.broker.client() as client:
            return {**start, **{topic: client.follow(topic, self._options.group) for topic in fresh}}

    def _checked(self, topic: str, start: int, end: int, first: int, last: int) -> int:
        """Return the offset at which reading ``[start, end)`` begins."""
        if end > last:
            self._lost(
                topic, last, end, f"the queue ends at {last}: is this the broker, and the data directory, of before?"
            )
        if start < first:
            self._lost(topic, start, min(first, end), f"retention has deleted what is below {first}")
        return max(start, first)

    def _lost(self, topic: str, start: int, end: int, why: str) -> None:
        text = f"offsets {start} to {end - 1} of topic {topic!r} cannot be read any more: {why}"
        if self._options.fail_on_data_loss:
            raise CorruptError(
                f"{text}; to go on without them, set failOnDataLoss to false (a longer retention_ms, and a group that "
                "is not deleted while its query stands still, keep this from happening)"
            )
        log.warning("%s; going on without them", text)

    # -- in the tasks --------------------------------------------------------------------------------------------------

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read all of a range, or raise an error. Runs in a task."""
        assert isinstance(partition, QueueRange)
        at = partition.start
        with self._options.broker.client() as client:
            for batch in client.queue(partition.topic, partition.start, partition.end):
                offsets = batch.column("offset").to_numpy()
                if offsets[0] > at:
                    self._lost(partition.topic, at, int(offsets[0]), "retention has deleted them")
                at = int(offsets[-1]) + 1
                rows = for_group(batch, self._options.group)
                if rows.num_rows:
                    yield self._shape.shaped(by_name(rows))
        if at < partition.end:
            self._lost(partition.topic, at, partition.end, "retention has deleted them")


class RefusedStream(DataSourceStreamReader):  # type: ignore[misc]
    """Stands in for a reader that its options do not allow, and raises the refusal on first use.

    Spark calls ``stop()`` of a reader even if making it failed, and then shows that there is none (UnboundLocalError)
    instead.
    """

    def __init__(self, refusal: TarryError) -> None:
        self._refusal = refusal

    def initialOffset(self) -> Offsets:  # noqa: N802 - Spark's name
        """Refuse.

        Raises:
            TarryError: why there is no such stream.
        """
        raise self._refusal

    def latestOffset(self) -> Offsets:  # noqa: N802
        """Refuse likewise, for a query that goes on from a checkpoint."""
        raise self._refusal

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Refuse likewise; Spark wants a reader to have this method."""
        raise self._refusal


def for_group(batch: pa.RecordBatch, group: str) -> pa.RecordBatch:
    """Remove messages that are for one other group alone (dead letters that were respawned)."""
    only = values_of(batch.column("properties"), ONLY)
    if only is None:
        return batch
    rows, names = only
    others = rows[np.array([name != group for name in names.to_pylist()], np.bool_)]
    keep = np.ones(batch.num_rows, np.bool_)
    keep[others] = False
    return batch.filter(pa.array(keep))


def next_end(start: Mapping[str, int], ends: Mapping[str, int], rows_max: int | None) -> Offsets:
    """Return the end of the next micro-batch: all rows, or ``rows_max`` of them.

    No topic gets more than its share of them as long as another has more to give. The end never goes back, even if a
    queue does.
    """
    waiting = {topic: max(0, last - start.get(topic, 0)) for topic, last in ends.items()}
    left = sum(waiting.values()) if rows_max is None else rows_max
    end = dict(start)
    # Those with the least first: the unused part of their share goes to the others.
    topics = sorted(waiting, key=lambda topic: (waiting[topic], topic))
    for number, topic in enumerate(topics):
        share = -(-left // (len(topics) - number))
        rows = min(waiting[topic], share)
        end[topic] = start.get(topic, 0) + rows
        left -= rows
    return end
