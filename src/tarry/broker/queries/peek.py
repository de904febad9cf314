"""A look at what is ready, without taking it."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from tarry.api.bounds import PAGE
from tarry.api.row_schemas import PEEKED
from tarry.base.errors import NotFoundError
from tarry.base.types import Int64s
from tarry.groups import ConsumerGroups, Group
from tarry.message.topics import check_topic
from tarry.queue import ReadyLog, Topic

LIMIT_MAX = 1000
BYTES_MAX = 64 << 20
"""Most bytes that are read; if a group wants little of them, fewer messages may be returned."""


def peek(
    ready: ReadyLog, groups: ConsumerGroups, topic: str, group: str | None, limit: int, waiting_only: bool
) -> pa.RecordBatch:
    """Return the first ready messages that the group has not settled.

    Without a group: those of the group that has the most of them; all that is kept if there is no group.
    ``waiting_only``: without those that consumers have, or that wait.

    Raises:
        InvalidArgumentError: ``limit`` is not 1 to 1,000. NotFoundError: there is no such group.
    """
    check_topic(topic)
    PAGE.check("limit", limit)
    queue = ready.topics.get(topic)
    consumer_groups = {g.name: g for g in groups.all(topic)}
    if group is not None and group not in consumer_groups:
        has = f"its groups are: {', '.join(sorted(consumer_groups)[:20])}" if consumer_groups else "it has none"
        raise NotFoundError(f"topic {topic!r} has no group {group!r:.80}; {has}")
    if queue is None:
        return pa.RecordBatch.from_pylist([], schema=PEEKED)
    chosen = (
        consumer_groups[group]
        if group is not None
        else max(consumer_groups.values(), key=lambda g: g.unsettled, default=None)
    )
    parts, rows, size, first = [], 0, 0, queue.first
    while rows < limit and size < BYTES_MAX:
        offsets = _offsets(queue, chosen, first, limit - rows, waiting_only=waiting_only)
        if not len(offsets):
            break
        looked, here, batch = queue.read_rows(offsets)
        first = int(offsets[looked - 1]) + 1
        if batch is None:
            continue  # retention deleted them meanwhile
        part = pa.RecordBatch.from_arrays([*batch.columns, pa.array(here, pa.int64())], schema=PEEKED)
        if chosen is not None:
            part = part.filter(pa.array(chosen.wants(batch)))
        parts.append(part)
        rows += part.num_rows
        size += batch.nbytes
    return pa.concat_batches(parts) if parts else pa.RecordBatch.from_pylist([], schema=PEEKED)


def _offsets(queue: Topic, group: Group | None, first: int, limit: int, *, waiting_only: bool) -> Int64s:
    if group is not None:
        return group.unsettled_offsets(first, queue.end, limit, waiting_only=waiting_only)
    return np.arange(max(first, queue.first), min(queue.end, first + limit), dtype=np.int64)
