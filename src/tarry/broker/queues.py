"""Queues by their offsets, for readers that keep their own, as a Spark query does: read and followed.

Nothing is leased here. A reader that wants retention to wait for it is a group, and says how far it has come.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tarry.api.operations import FindOffset, GetQueues, ReadCancellations, ReadQueue
from tarry.api.operations.queues import Ends
from tarry.api.row_schemas import CANCELLED, QUEUED
from tarry.base.errors import InvalidArgumentError, NotFoundError, OverloadedError
from tarry.intake import Intake
from tarry.message.schema import Kind, cancelled_seqs, chunks, concat
from tarry.queue import ReadyLog, Topic

ROWS = 8192
BYTES = 8 << 20
"""A batch has about so much: what came in a trickle is put together."""


class Queues:
    """Operations on queues by offsets. Any thread."""

    def __init__(self, ready: ReadyLog, intake: Intake, may_hand_out: Callable[[], bool] | None = None) -> None:
        """``may_hand_out``: see :class:`tarry.groups.services.GroupServices`; asked before each batch."""
        self._ready = ready
        self._intake = intake
        self._may_hand_out = may_hand_out

    def state(self, request: GetQueues) -> Ends:
        """Return the first kept offset and the end of each topic's queue; an unknown topic has (0, 0).

        All offsets below an end are durable when this returns: a power failure gives none of them to another message,
        so they may be written down elsewhere.
        """
        ready = self._ready
        queues = dict(ready.topics)
        names = sorted(queues) if request.topics is None else request.topics
        ends = {name: (queues[name].first, queues[name].end) if name in queues else (0, 0) for name in names}
        ready.sync(ready.ticket())  # after the ends were looked at
        return ends

    def read(self, request: ReadQueue) -> Iterator[pa.RecordBatch]:
        """Read messages with ``start <= offset < end`` that retention has kept, in order (:data:`QUEUED`).

        Raises:
            NotFoundError: there is no such topic. InvalidArgumentError: the range is not one of its queue.
            OverloadedError: another broker may own the logs; also before a later batch.
        """
        self._check_lease()
        topic, start, end = request.topic, request.start, request.end
        queue = self._ready.topics.get(topic)
        if queue is None:
            raise NotFoundError(f"no message of topic {topic!r} has become due yet")
        if not start <= end <= queue.end:
            raise InvalidArgumentError(f"offsets {start} to {end} of topic {topic!r}; allowed: up to {queue.end}")
        return self._sent(map(concat, chunks(_read(queue, start, end), BYTES, ROWS)))

    def _sent(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield batches, each after a look at the lease: a reader takes one when it can send it."""
        for batch in batches:
            self._check_lease()
            yield batch

    def _check_lease(self) -> None:
        if self._may_hand_out is not None and not self._may_hand_out():
            raise OverloadedError("it is not certain that this broker still owns its logs; try again")

    def offset_at(self, request: FindOffset) -> int:
        """Return the offset of the first kept message of a topic's queue that was due at a moment or later.

        Returns the queue's end if there is none.
        """
        queue = self._ready.topics.get(request.topic)
        return 0 if queue is None else self._ready.first_due(queue, request.due_ms)

    def read_cancellations(self, request: ReadCancellations) -> Iterator[pa.RecordBatch]:
        """Read the targets of the intake's cancellations with ``start <= seq < end`` (:data:`CANCELLED`).

        Cancellations that have fired and were deleted since are left out.

        Raises:
            InvalidArgumentError: it ends behind what there is.
        """
        self._intake.check_end(request.end)
        return self._cancellations(request)

    def _cancellations(self, request: ReadCancellations) -> Iterator[pa.RecordBatch]:
        for batch in self._intake.read(request.start, request.end):
            rows = batch.filter(pc.equal(batch.column("kind"), int(Kind.CANCEL)))
            if rows.num_rows:
                yield pa.RecordBatch.from_arrays(
                    [pa.array(cancelled_seqs(rows)), rows.column("due_ms")], schema=CANCELLED
                )


def _read(queue: Topic, start: int, end: int) -> Iterator[pa.RecordBatch]:
    for base, batch in queue.read_range(start, end, ROWS):
        offsets = pa.array(np.arange(base, base + batch.num_rows, dtype=np.int64))
        yield pa.RecordBatch.from_arrays([*batch.columns, offsets], schema=QUEUED)
