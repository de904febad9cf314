"""Finding and discarding one message by its place, without an index of messages.

What is pending is where its due time and seq say; of what has become due, the frames of the ready log with that due
time are read. A respawned message has another place; the one it had first is among its properties, and it is looked for
only in groups that have had dead letters, from the newest frame on, for a limited time.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from tarry.api.internal_topics import hidden
from tarry.api.operations import DiscardMessage, FindMessage
from tarry.api.outcome import Outcome
from tarry.api.row_schemas import PLACED_MESSAGE
from tarry.base.errors import NotFoundError
from tarry.base.types import Mask
from tarry.broker.changes import Changes
from tarry.broker.queries.messages import MessageFinder
from tarry.groups import ConsumerGroups
from tarry.message.dead_topics import dead_topic
from tarry.message.reserved import first_places
from tarry.message.schema import SCHEMA
from tarry.message.topics import check_topic
from tarry.names import NameEntry
from tarry.queue import ReadyLog
from tarry.queue.search import ReadyPlace, find

LOOK_S = 0.5
DEAD_PAGE_ROWS = 1000

Request = FindMessage | DiscardMessage


@dataclass(frozen=True, slots=True)
class _Found:
    row: pa.RecordBatch
    state: str
    offset: int | None = None
    attempt: int = 0


@dataclass(eq=False)
class PlacedMessages:
    """Operations on messages by their place. Any thread.

    ``state_of`` says "done" of a message that is still to be delivered.
    """

    _finder: MessageFinder
    _state_of: Callable[[NameEntry], Outcome]
    _changes: Changes
    _ready: ReadyLog
    _groups: ConsumerGroups

    def find(self, request: FindMessage) -> pa.RecordBatch:
        """See :class:`tarry.api.operations.FindMessage`."""
        check_topic(request.topic)
        found = self._pending(request) or self._due(request) or self._respawned(request) or self._dead(request)
        if found is None:
            return pa.RecordBatch.from_pylist([], schema=PLACED_MESSAGE)
        extra = [pa.array([found.offset], pa.int64()), pa.array([found.state]), pa.array([found.attempt], pa.int32())]
        row = hidden(found.row.select(SCHEMA.names))
        return pa.RecordBatch.from_arrays([*row.columns, *extra], schema=PLACED_MESSAGE)

    def discard(self, request: DiscardMessage) -> bool:
        """See :class:`tarry.api.operations.DiscardMessage`."""
        check_topic(request.topic)
        # In the order of a message's way, so that a message that moves on meanwhile is found later.
        place = (request.seq, request.due_ms, request.topic)
        if self._pending(request) is not None and self._changes.discard_placed(*place):
            return True
        for look in (self._due, self._respawned):
            found = look(request)
            offset = None if found is None else found.offset
            if offset is not None and self._groups.discard(request.topic, request.group, offset):
                return True
        found = self._dead(request)
        if found is None:
            return False
        return self._groups.dead_letters.purge(request.topic, request.group, [found.offset or 0]) > 0

    def _pending(self, request: Request) -> _Found | None:
        entry = NameEntry(request.seq, request.due_ms, 0)
        row = self._finder.find([entry], SCHEMA.names).get(request.seq)
        if row is None or row.column("topic")[0].as_py() != request.topic:
            return None
        return _Found(row, "pending") if self._state_of(entry) is Outcome.DONE else None

    def _due(self, request: Request) -> _Found | None:
        def wanted(batch: pa.RecordBatch) -> Mask:
            return np.asarray(batch.column("seq").to_numpy() == request.seq)

        return self._unsettled(request, wanted, request.due_ms)

    def _respawned(self, request: Request) -> _Found | None:
        if dead_topic(request.topic, request.group) not in self._ready.topics:
            return None
        place = (request.seq, request.due_ms)

        def wanted(batch: pa.RecordBatch) -> Mask:
            return np.array([first == place for first in first_places(batch)], np.bool_)

        return self._unsettled(request, wanted, None)

    def _unsettled(
        self, request: Request, wanted: Callable[[pa.RecordBatch], Mask], due_ms: int | None
    ) -> _Found | None:
        deadline_s = time.monotonic() + LOOK_S
        places, _ = find(self._ready, wanted, topic=request.topic, due_ms=due_ms, deadline_s=deadline_s)
        return next((found for place in places if (found := self._in_group(request, place)) is not None), None)

    def _in_group(self, request: Request, place: ReadyPlace) -> _Found | None:
        try:
            state = self._groups.find(request.topic, request.group).state_of(place.offset)
        except NotFoundError:
            state = {"state": "ready"}  # of a group that begins at the earliest message when it is made
        if state["state"] == "settled":
            return None
        return _Found(place.row, state["state"], place.offset, state.get("attempt", 0))

    def _dead(self, request: Request) -> _Found | None:
        after: int | None = None
        deadline_s = time.monotonic() + LOOK_S
        while time.monotonic() < deadline_s:
            page = self._groups.dead_letters.page(request.topic, request.group, DEAD_PAGE_ROWS, after)
            if not page.num_rows:
                return None
            offsets = page.column("offset").to_pylist()
            for row, first in enumerate(first_places(page)):
                if first == (request.seq, request.due_ms):
                    attempt = page.column("attempt")[row].as_py()
                    return _Found(page.slice(row, 1), "dead", offsets[row], attempt)
            after = offsets[-1]
        return None
