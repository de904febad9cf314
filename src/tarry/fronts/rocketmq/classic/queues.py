"""A topic's queues as classic clients know them: several, so that the consumers of a group share a topic.

In the broker a topic has one queue. To classic clients it has :attr:`TopicQueues.count`, each of which is those of its
messages whose number is the queue's, at the offsets that they have in the broker's: so a queue has gaps, and all end at
the same offset. A message is in the queue that its producer chose; else in that of its ordering key, or of its number.
Topics of retries and dead letters have one.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tarry.base.message import ORDER_KEY
from tarry.base.types import Int64s
from tarry.fronts.rocketmq.classic.codes import RequestRefused, ResponseCode
from tarry.fronts.rocketmq.common.names import DEAD_PREFIX
from tarry.fronts.rocketmq.common.properties import QUEUE

RETRY_PREFIX = "%RETRY%"
_NUMBER = "^[0-9]{1,9}$"


class TopicQueues:
    """Any thread. ``count``: of an ordinary topic."""

    def __init__(self, count: int) -> None:
        self._count = count

    def count(self, topic: str) -> int:
        return 1 if topic.startswith((RETRY_PREFIX, DEAD_PREFIX)) else self._count

    def check(self, topic: str, number: int) -> int:
        """The number of a queue.

        Raises:
            RequestRefused: INVALID_PARAMETER: the topic has none of that number.
        """
        if not 0 <= number < self.count(topic):
            raise RequestRefused(
                ResponseCode.INVALID_PARAMETER,
                f"queue {number} of topic {topic!r:.300}; allowed: 0 to {self.count(topic) - 1}",
            )
        return number

    def numbers(self, batch: pa.RecordBatch, topic: str) -> Int64s:
        """The queue of each row (:data:`tarry.api.views.QUEUED`)."""
        count = self.count(topic)
        if count == 1:
            return np.zeros(batch.num_rows, np.int64)
        numbers: Int64s = batch.column("seq").to_numpy() % count
        properties = batch.column("properties")
        for row, key in _given(pc.map_lookup(properties, pa.scalar(ORDER_KEY), "first")):
            numbers[row] = zlib.crc32(key.encode()) % count
        chosen = pc.map_lookup(properties, pa.scalar(QUEUE), "first")
        # Producers of other fronts may have put any text there.
        valid = pc.match_substring_regex(chosen, _NUMBER).fill_null(False).to_numpy(zero_copy_only=False)
        if valid.any():
            numbers[valid] = chosen.filter(pa.array(valid)).cast(pa.int64()).to_numpy() % count
        return numbers


def _given(texts: Any) -> list[tuple[int, str]]:
    """The rows that have a text."""
    if texts.null_count == len(texts):
        return []
    return [(row, text) for row, text in enumerate(texts.to_pylist()) if text is not None]


def queue_name(broker: str, topic: str, number: int) -> Mapping[str, Any]:
    """A ``MessageQueue``."""
    return {"brokerName": broker, "queueId": number, "topic": topic}
