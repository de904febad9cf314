"""The unread messages of a group in each of a topic's queues, counted as RocketMQ does.

A topic's queues share the topic's offsets here, so the messages from a group's offset to the end are those of all
queues. For the first :data:`ROWS_MAX` messages behind the queue that is furthest back, the messages of each queue are
counted. Of the rest, each queue is taken to have its share. The sum over all queues is exact unless one queue's
consumer is ahead of another's by more than that.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tarry.api.local import AnyBroker
from tarry.api.operations import ReadQueue
from tarry.base.lru_cache import LruCache
from tarry.base.types import Int64s
from tarry.fronts.rocketmq.classic.queues import TopicQueues

ROWS_MAX = 1 << 18
_BLOCK_ROWS = 1 << 13
_BLOCKS_KEPT = 256


class QueueLag:
    """Counts unread messages. Any thread; it waits for the disk."""

    def __init__(self, broker: AnyBroker, queues: TopicQueues) -> None:
        self._broker = broker
        self._queues = queues
        self._blocks: LruCache[tuple[str, int, int], Int64s] = LruCache(_BLOCKS_KEPT, size_of=lambda _: 1)
        """By topic, number of queues, and place: the queue of each offset of a complete block.

        The queue is -1 for an offset that is not kept.
        """

    def unread(self, topic: str, offsets: Sequence[int], ends: tuple[int, int]) -> list[int]:
        """Count, for each queue, its messages from its one of these offsets on."""
        first, end = ends
        begins = [min(max(offset, first), end) for offset in offsets]
        count = len(begins)
        if count == 1:
            return [end - begins[0]]
        low = min(begins)
        high = min(end, low + ROWS_MAX)
        found = np.zeros(count, np.int64)
        for place in range(low // _BLOCK_ROWS, -(-high // _BLOCK_ROWS)):
            numbers = self._numbers(topic, count, place, ends)
            at = place * _BLOCK_ROWS
            for queue, begin in enumerate(begins):
                part = numbers[max(0, begin - at) : max(0, high - at)]
                found[queue] += np.count_nonzero(part == queue)
        return [int(found[queue]) + _share(max(high, begin), end, queue, count) for queue, begin in enumerate(begins)]

    def _numbers(self, topic: str, count: int, place: int, ends: tuple[int, int]) -> Int64s:
        key = topic, count, place
        known = self._blocks.get(key)
        if known is not None:
            return known
        begin, end = place * _BLOCK_ROWS, min((place + 1) * _BLOCK_ROWS, ends[1])
        numbers = np.full(_BLOCK_ROWS, -1, np.int64)
        for batch in self._broker.call(ReadQueue(topic, min(max(begin, ends[0]), end), end)):
            rows = batch.column("offset").to_numpy() - begin
            numbers[rows] = self._queues.numbers(batch, topic, count)
        if end - begin == _BLOCK_ROWS:
            self._blocks.put(key, numbers)
        return numbers


def _share(begin: int, end: int, queue: int, count: int) -> int:
    """Count a queue's share of the offsets from ``begin`` to before ``end``.

    The shares of all queues add up to all offsets.
    """
    return len(range(begin + (queue - begin) % count, end, count))
