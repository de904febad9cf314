"""Parts of topics' queues in memory, read once for all consumers that pull from them.

To classic clients, a topic's queue is several queues. Each is pulled from separately, a few messages at a time, and
several groups may read it. A chunk is read and divided once, and each of its messages is encoded once.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import OrderedDict

import pyarrow as pa

from tarry.api.accounts import QuotaAccount
from tarry.api.consuming import ConsumerGroup
from tarry.base.bounded_cache import BoundedCache
from tarry.fronts.rocketmq.classic.message_bytes import MessageRows, TopicBytes
from tarry.fronts.rocketmq.classic.queues import TopicQueues
from tarry.fronts.rocketmq.common.properties import lists_of
from tarry.message.filter import EVERYTHING
from tarry.message.reserved import ONLY

BYTES_MAX = 64 << 20
"""Approximate limit of all chunks together."""
_COPIES = 3
"""Copies of a message's bytes in a chunk: as a column, as objects, and encoded."""
Shown = tuple[str, int]
"""A topic's name and the number of a queue, as clients know them."""
_ROW_BYTES, _CHUNK_BYTES = 600, 4_000
_SMALL_BYTES = 1 << 16
_FILTERS_MAX = 64


class Chunk:
    """Consecutive messages of one topic's queue, from offset ``first`` to before ``end``.

    On the event loop's thread, except for its construction.
    """

    def __init__(
        self, batch: pa.RecordBatch, first: int, end: int, topic: str, queues: TopicQueues, shown: Shown | None = None
    ) -> None:
        """Divide a batch into queues. Any thread.

        ``batch``: the kept messages of that part (:data:`tarry.api.row_schemas.QUEUED`). ``shown``: the queue as which
        clients know the topic, if not by its own name.
        """
        self._batch = batch
        self._topic = topic
        self._offsets: list[int] = batch.column("offset").to_pylist()
        self.first, self.end = first, end
        self.latest_due_ms = int(batch.column("due_ms").to_numpy().max(initial=0))
        """Latest due time of the messages; later than now if the clock was set back since they were read."""
        self._properties = lists_of(batch.column("properties"))
        self._has_only = ONLY in self._properties.names
        self.queues = queues.count(topic)
        """The topic's number of queues when it was divided."""
        self._numbers = queues.numbers_of(topic, batch.column("seq").to_pylist(), self._properties, self.queues)
        self._rows: list[list[int]] = [[] for _ in range(self.queues)]
        self._shown = shown
        for row, number in enumerate(self._numbers):
            self._rows[number].append(row)
        self._written: dict[bytes, tuple[MessageRows, list[bytes | None]]] = {}
        """By the broker's address as clients see it."""
        self._wanted: BoundedCache[tuple[str, str | None], frozenset[int] | None] = BoundedCache(_FILTERS_MAX)
        """The rows that a group wants, by group and filter; None for all."""
        self.size = _bytes_of(batch) * _COPIES + batch.num_rows * _ROW_BYTES + _CHUNK_BYTES

    def knows(self, group: ConsumerGroup) -> bool:
        """Return whether the rows that a group wants are known; otherwise call :meth:`choose`."""
        return _wants_all(group, self._has_only) or _key(group) in self._wanted

    def choose(self, group: ConsumerGroup, account: QuotaAccount | None = None) -> None:
        """Find the messages that a group wants; ``account`` pays for it. In a thread: a filter may take long.

        Raises:
            InvalidArgumentError: the filter is a condition that takes too long.
        """
        key, wanted = _key(group), group.wants(self._batch, account)
        self._wanted.keep(key, None if wanted.all() else frozenset(wanted.nonzero()[0].tolist()))

    def collect(
        self, group: ConsumerGroup, queue: int, start: int, host: bytes, rows_max: int, bytes_max: int
    ) -> tuple[list[bytes], int, int]:
        """Collect messages of one of the queues that a group wants, from offset ``start`` on.

        The group is one that it :meth:`knows`. It collects up to ``rows_max`` messages, and stops when they have
        ``bytes_max`` bytes. Returns the messages; the offset behind the last of them (``start`` if there is none); and
        the offset up to which it looked.
        """
        rows = self._rows[queue] if queue < self.queues else []
        wanted = None if _wants_all(group, self._has_only) else self._wanted[_key(group)]
        row_writer, written = self._writer(host)
        parts: list[bytes] = []
        size, row = 0, -1
        for place in rows[bisect_left(rows, bisect_left(self._offsets, start)) :]:
            if wanted is not None and place not in wanted:
                continue
            row = place
            content = written[row]
            if content is None:
                content = written[row] = row_writer.encode(row)
            parts.append(content)
            size += len(content)
            if len(parts) == rows_max or size >= bytes_max:
                return parts, self._offsets[row] + 1, self._offsets[row] + 1
        return parts, self._offsets[row] + 1 if parts else start, self.end

    def _writer(self, host: bytes) -> tuple[MessageRows, list[bytes | None]]:
        writer = self._written.get(host)
        if writer is None:
            self._written.clear()  # few clients use more than one address
            if self._shown is None:
                topic, numbers = TopicBytes(self._topic, host), self._numbers
            else:
                name, number = self._shown
                topic, numbers = TopicBytes(self._topic, host, name), [number] * self._batch.num_rows
            rows = MessageRows(self._batch, topic, numbers, self._properties)
            writer = self._written[host] = rows, [None] * self._batch.num_rows
        return writer


class ChunkCache:
    """The most recently used chunks. On the event loop's thread."""

    def __init__(self, bytes_max: int = BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._chunks: OrderedDict[tuple[str, int], Chunk] = OrderedDict()
        """By topic and first offset; the most recently used one is at the end."""
        self._firsts: dict[str, list[int]] = {}
        """The first offsets of each topic's chunks, ascending."""
        self._size = 0

    def find(self, topic: str, offset: int) -> Chunk | None:
        """Return the chunk that has an offset of a topic."""
        firsts = self._firsts.get(topic)
        if not firsts or offset < firsts[0]:
            return None
        key = topic, firsts[bisect_right(firsts, offset) - 1]
        chunk = self._chunks[key]
        if chunk.end <= offset:
            return None
        self._chunks.move_to_end(key)
        return chunk

    def next_first(self, topic: str, offset: int) -> int | None:
        """Return the offset where the next chunk behind an offset begins."""
        firsts = self._firsts.get(topic, ())
        place = bisect_right(firsts, offset)
        return firsts[place] if place < len(firsts) else None

    def add(self, topic: str, chunk: Chunk) -> None:
        """Keep a chunk, and drop the least recently used ones."""
        key = topic, chunk.first
        former = self._chunks.pop(key, None)
        if former is None:
            insort(self._firsts.setdefault(topic, []), chunk.first)
        else:
            self._size -= former.size
        self._chunks[key] = chunk
        self._size += chunk.size
        while self._size > self._bytes_max and len(self._chunks) > 1:
            (name, first), oldest = self._chunks.popitem(last=False)
            self._size -= oldest.size
            firsts = self._firsts[name]
            del firsts[bisect_left(firsts, first)]
            if not firsts:
                del self._firsts[name]


def _bytes_of(batch: pa.RecordBatch) -> int:
    """Return a batch's approximate size; exact only for large ones.

    For a few rows, asking for the exact size takes longer than everything else.
    """
    at_most = batch.get_total_buffer_size()
    return int(at_most if at_most <= _SMALL_BYTES else batch.nbytes)


def _key(group: ConsumerGroup) -> tuple[str, str | None]:
    return group.name, group.settings.filter


def _wants_all(group: ConsumerGroup, has_only: bool) -> bool:
    """Return whether a group has no filter, and no message is for one group alone."""
    return not has_only and group.settings.filter in (None, "", EVERYTHING)
