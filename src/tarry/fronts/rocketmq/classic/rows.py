"""Single messages of a topic's queue."""

from __future__ import annotations

from typing import Any

from tarry.api.local import AnyBroker
from tarry.api.operations import GetQueues, ReadQueue
from tarry.fronts.rocketmq.classic.message_bytes import queue_offset


def find_row(broker: AnyBroker, topic: str, offset: int) -> dict[str, Any] | None:
    """Return the message at an offset of a topic's queue, if it is kept. It may wait for the disk.

    Its columns are those of :data:`tarry.api.row_schemas.QUEUED`.
    """
    first, end = broker.call(GetQueues([topic]))[topic]
    return _read(broker, topic, offset) if first <= offset < end else None


def find_row_at(broker: AnyBroker, topic: str, physical: int) -> dict[str, Any] | None:
    """Return the message at a physical offset, as :func:`find_row`; None also if that is of another topic."""
    offset = queue_offset(topic, physical, broker.call(GetQueues([topic]))[topic])
    return None if offset is None else _read(broker, topic, offset)


def _read(broker: AnyBroker, topic: str, offset: int) -> dict[str, Any] | None:
    rows = [row for batch in broker.call(ReadQueue(topic, offset, offset + 1)) for row in batch.to_pylist()]
    return rows[0] if rows else None
