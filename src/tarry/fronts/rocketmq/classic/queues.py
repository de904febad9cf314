"""A topic's queues as classic clients see them: several, so that a group's consumers share a topic.

In the broker a topic has one queue. To classic clients it has :meth:`TopicQueues.count` of them. Each has those of the
topic's messages whose number is the queue's, at their offsets in the broker's queue. So a queue has gaps, and all
queues end at the same offset. A message is in the queue that its producer chose; else in that of its ordering key, or
else of its number. Topics of retries have one queue, and so have those of dead letters, which together are the queues
of ``%DLQ%GROUP``.
"""

from __future__ import annotations

import time
import zlib
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from tarry.base.bounded_cache import BoundedCache
from tarry.base.types import Int64s
from tarry.fronts.rocketmq.classic.codes import RequestRefused, ResponseCode
from tarry.fronts.rocketmq.common.dead_letters import is_alias
from tarry.fronts.rocketmq.common.names import DEAD_PREFIX, RETRY_PREFIX
from tarry.fronts.rocketmq.common.properties import QUEUE, PropertyLists, lists_of
from tarry.message.options import ORDER_KEY

_OF_A_QUEUE = (QUEUE, ORDER_KEY)
KNOWN_S = 1.0
_KNOWN_MAX = 10_000


class TopicQueues:
    """Divides topics into queues. Any thread.

    ``count``: for a topic that was made without a number; ``dead_topics``: the topics that the queues of a
    ``%DLQ%GROUP`` stand for; ``made_with``: the number with which a topic was made, 0 if none.
    """

    def __init__(
        self,
        count: int,
        dead_topics: Callable[[str], Sequence[str]] = lambda alias: (alias,),
        made_with: Callable[[str], int] = lambda topic: 0,
    ) -> None:
        self._count = count
        self._dead_topics = dead_topics
        self._made_with = made_with
        self._looked_up: BoundedCache[str, tuple[int, float]] = BoundedCache(_KNOWN_MAX)
        """By topic, the number that it was made with, and the time at which that was looked up."""

    def count(self, topic: str) -> int:
        """Return a topic's number of queues. A change by others is noticed within :data:`KNOWN_S`."""
        if is_alias(topic):
            return len(self._dead_topics(topic))
        return 1 if topic.startswith((RETRY_PREFIX, DEAD_PREFIX)) else self._of_topic(topic)

    def look_again(self, topic: str) -> None:
        """Look the number up again, since the topic was changed."""
        self._looked_up.pop(topic, None)

    def _of_topic(self, topic: str) -> int:
        now_s = time.monotonic()
        made_with, at_s = self._looked_up.get(topic, (0, -KNOWN_S))
        if now_s - at_s >= KNOWN_S:
            made_with = self._made_with(topic)
            self._looked_up.keep(topic, (made_with, now_s))
        return made_with or self._count

    def check(self, topic: str, number: int) -> int:
        """Check the number of a queue, and return it.

        Raises:
            RequestRefused: INVALID_PARAMETER: the topic has none of that number.
        """
        if not 0 <= number < self.count(topic):
            raise RequestRefused(
                ResponseCode.INVALID_PARAMETER,
                f"queue {number} of topic {topic!r:.300}; allowed: 0 to {self.count(topic) - 1}",
            )
        return number

    def numbers(self, batch: pa.RecordBatch, topic: str, count: int | None = None) -> Int64s:
        """Return the queue of each row (:data:`tarry.api.row_schemas.QUEUED`), of ``count`` queues."""
        count = self.count(topic) if count is None else count
        if count == 1 or self._is_one(topic):
            return np.zeros(batch.num_rows, np.int64)
        seqs = batch.column("seq").to_pylist()
        return np.array(self.numbers_of(topic, seqs, lists_of(batch.column("properties")), count), np.int64)

    def numbers_of(self, topic: str, seqs: list[int], properties: PropertyLists, count: int | None = None) -> list[int]:
        """Return the queue of each row, of ``count`` queues, from its number and its properties."""
        count = self.count(topic) if count is None else count
        if count == 1 or self._is_one(topic):
            return [0] * len(seqs)
        numbers = [seq % count for seq in seqs]
        places, names, values = properties
        chosen = [place for place, name in enumerate(names) if name in _OF_A_QUEUE]
        # Backwards, so that the first of two properties with one name counts; a chosen queue overrides an ordering key.
        for name in (ORDER_KEY, QUEUE):
            for place in reversed(chosen):
                if names[place] == name and (number := _number(name, values[place])) is not None:
                    numbers[bisect_right(places, place) - 1] = number % count
        return numbers

    def _is_one(self, topic: str) -> bool:
        """Return whether all messages of a topic itself are of one queue."""
        return topic.startswith((RETRY_PREFIX, DEAD_PREFIX)) or self.count(topic) == 1


def _number(name: str, value: str) -> int | None:
    """Return the number in a property; producers of other fronts may have set any text."""
    if name == ORDER_KEY:
        return zlib.crc32(value.encode())
    return int(value) if value.isdecimal() and value.isascii() and len(value) < 10 else None


def queue_name(broker: str, topic: str, number: int) -> Mapping[str, Any]:
    """Return a ``MessageQueue``."""
    return {"brokerName": broker, "queueId": number, "topic": topic}
