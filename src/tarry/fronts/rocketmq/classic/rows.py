"""Single messages of a topic's queue."""

from __future__ import annotations

from typing import Any

from tarry.api.local import LocalBroker
from tarry.api.operations import GetQueues, ReadQueue


def find_row(broker: LocalBroker, topic: str, offset: int) -> dict[str, Any] | None:
    """The message at an offset of a topic's queue (:data:`tarry.api.views.QUEUED`), if it is kept. It may wait for the
    disk.
    """
    first, end = broker.call(GetQueues([topic]))[topic]
    if not first <= offset < end:
        return None
    rows = [row for batch in broker.call(ReadQueue(topic, offset, offset + 1)) for row in batch.to_pylist()]
    return rows[0] if rows else None
