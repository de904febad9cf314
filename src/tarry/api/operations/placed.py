"""One message, named by its place (``seq`` and ``due_ms``, as a receipt and a delivery have them), wherever it is.

For protocols whose clients know a message by one name from the day on which they schedule it until they acknowledge it.
A message that was respawned is found under the place that it had first, too.
"""

from __future__ import annotations

from dataclasses import dataclass

from tarry.api.operation import Action, Int64, Operation, Rows, named, one_batch
from tarry.api.views import PLACED_MESSAGE
from tarry.base.record_batch import RecordBatch


@dataclass(frozen=True, slots=True)
class FindMessage(Operation[RecordBatch]):
    """The message at a place, and where it is for a group (:data:`tarry.api.views.PLACED_MESSAGE`): one row, or none
    where it was settled, cancelled, or never was.
    """

    wire = Rows("find-message", *one_batch(PLACED_MESSAGE), PLACED_MESSAGE)
    topic: str
    group: str
    seq: Int64
    due_ms: Int64


@dataclass(frozen=True, slots=True)
class DiscardMessage(Operation[bool]):
    """See to it, durably, that a group never gets a message again, wherever it is: what is pending is cancelled (for
    all groups), what is ready, waits for its next try, or is with a consumer, is settled for the group, and a dead
    letter is purged. Whether there was such a message.

    Raises:
        OverloadedError, DiskFullError: not now; nothing was changed.
    """

    wire = Action("discard-message", "settle, cancel or purge a message, wherever it is", named("discarded"))
    topic: str
    group: str
    seq: Int64
    due_ms: Int64
