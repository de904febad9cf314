"""Finding and discarding one message by its place, wherever it is.

The place is ``seq`` and ``due_ms``, as a receipt and a delivery have them.

For protocols whose clients know a message by one name from the day on which they schedule it until they acknowledge it.
A message that was respawned is also found under its first place.
"""

from __future__ import annotations

from dataclasses import dataclass

from tarry.api.needs import OnTopic, Right
from tarry.api.operation import Action, Int64, Operation, Rows, named, one_batch
from tarry.base.record_batch import RecordBatch


@dataclass(frozen=True, slots=True)
class FindMessage(Operation[RecordBatch]):
    """Find the message at a place, and its state for a group.

    The answer has one row (:data:`tarry.api.row_schemas.PLACED_MESSAGE`), or none where the message was settled,
    cancelled, or never was.
    """

    wire = Rows("find-message", *one_batch("PLACED_MESSAGE"), "PLACED_MESSAGE")
    needs = OnTopic(Right.CONSUME)
    topic: str
    group: str
    seq: Int64
    due_ms: Int64


@dataclass(frozen=True, slots=True)
class DiscardMessage(Operation[bool]):
    """Ensure, durably, that a group never gets a message again; return whether there was such a message.

    The message may be anywhere. A pending message is cancelled (for all groups). One that is ready, waits for its next
    try, or is with a consumer, is settled for the group. A dead letter is purged.

    Raises:
        OverloadedError, DiskFullError: not now; nothing was changed.
    """

    wire = Action("discard-message", "settle, cancel or purge a message, wherever it is", named("discarded"))
    needs = OnTopic(Right.CONSUME)
    topic: str
    group: str
    seq: Int64
    due_ms: Int64
