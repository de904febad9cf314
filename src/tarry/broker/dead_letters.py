"""The dead letters of groups: looked at, respawned, purged, and kept for longer than the ready log keeps others.

Each dead-letter topic has a group of the broker's own, the keeper, which hands out nothing: what it has not settled are
the dead letters that there are.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from tarry.api.views import DEAD_LETTER
from tarry.base.clock import Clock
from tarry.base.dead_topics import KEEPER, dead_topic
from tarry.base.delay import DELAY_MS_MAX
from tarry.base.errors import InvalidArgumentError, TarryError
from tarry.base.types import Int64s
from tarry.broker.waiting import answer_of, wait_for
from tarry.groups import Group
from tarry.groups.dead import attempts_of, kept_longer, respawned
from tarry.groups.ledger import Bury
from tarry.queue import Topic

if TYPE_CHECKING:
    from tarry.broker.groups import Groups

log = logging.getLogger(__name__)

Offsets = Sequence[int] | Int64s

ROWS_MAX = 1000
"""Dead letters that are put again at once."""


class DeadLetters:
    """See the module; thread-safe."""

    def __init__(self, groups: Groups, clock: Clock, put: Bury, delay_ms_max: int = DELAY_MS_MAX) -> None:
        self._groups = groups
        self._clock = clock
        self._put = put
        self._delay_ms_max = delay_ms_max
        self._changing = threading.Lock()  # else two respawns would each send the same letter

    # -- for groups --------------------------------------------------------------------------------------------------

    def bury(self, copies: pa.RecordBatch, done: Callable[[Any], None]) -> None:
        """Schedule copies of messages; see :data:`tarry.groups.ledger.Bury`."""
        # The keeper first: its entry is in the journal before any that could let go of the copies.
        self._groups.keeper(copies.column("topic")[0].as_py(), make=True)
        self._put(copies, done)

    def count(self, topic: str) -> int:
        """How many there are in a dead-letter topic."""
        keeper = self._groups.keeper(topic)
        return 0 if keeper is None else keeper.unsettled

    # -- for people --------------------------------------------------------------------------------------------------

    def page(self, topic: str, group: str, limit: int, after: int | None) -> pa.RecordBatch:
        """Up to ``limit`` dead letters (:data:`DEAD_LETTER`) behind offset ``after``, oldest first."""
        if isinstance(limit, bool) or not isinstance(limit, int) or limit < 1:
            raise InvalidArgumentError(f"limit is {limit!r}; allowed: 1 or more")
        if after is not None and (isinstance(after, bool) or not isinstance(after, int)):
            raise InvalidArgumentError(f"after is {after!r}; allowed: the offset of a dead letter")
        keeper = self._groups.keeper(dead_topic(topic, group))
        parts = []
        if keeper is not None:
            wanted = keeper.unsettled_offsets(0 if after is None else after + 1, keeper.topic.end, limit)
            parts = [
                pa.RecordBatch.from_arrays([*batch.columns, pa.array(offsets), attempts_of(batch)], schema=DEAD_LETTER)
                for offsets, batch in _chunks(keeper.topic, wanted)
            ]
        return pa.concat_batches(parts) if parts else pa.RecordBatch.from_pylist([], schema=DEAD_LETTER)

    def respawn(
        self, topic: str, group: str, offsets: Offsets | None, limit: int | None, per_second: float | None
    ) -> int:
        """Schedule dead letters in their topic again, for ``group`` alone: the i-th i/``per_second`` seconds from now.
        How many; each is gone from the dead letters when its successor is durable.
        """
        if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int) or limit < 1):
            raise InvalidArgumentError(f"limit is {limit!r}; allowed: 1 or more")
        gap_ms = _gap_ms(per_second)
        self._groups.find(topic, group)  # nobody else would get them
        with self._changing:
            keeper, chosen = self._chosen(topic, group, offsets, limit)
            if keeper is None:
                return 0
            now, count = self._clock.now_ms(), 0
            if len(chosen) * gap_ms > self._delay_ms_max:
                raise InvalidArgumentError(
                    f"per_second is {per_second}: the last of {len(chosen)} would be due later than delay_ms_max, "
                    f"{self._delay_ms_max} ms; allowed: a faster pace, or fewer"
                )
            for here, batch in _chunks(keeper.topic, chosen):
                due = now + ((count + np.arange(len(here))) * gap_ms).astype(np.int64)
                self._send(keeper, here, respawned(batch, topic=topic, group=group, due_ms=due))
                count += len(here)
            return count

    def purge(self, topic: str, group: str, offsets: Offsets | None) -> int:
        """Let go of dead letters, durably; how many."""
        with self._changing:
            keeper, chosen = self._chosen(topic, group, offsets, None)
            return 0 if keeper is None else wait_for(lambda done: keeper.settle_now(chosen, done))

    def _chosen(
        self, topic: str, group: str, offsets: Offsets | None, limit: int | None
    ) -> tuple[Group | None, Int64s]:
        keeper = self._groups.keeper(dead_topic(topic, group))
        if keeper is None:
            return None, np.empty(0, np.int64)
        there = keeper.unsettled_offsets(0, keeper.topic.end, limit if offsets is None else None)
        if offsets is not None:
            there = there[np.isin(there, np.asarray(offsets, np.int64))][:limit]
        return keeper, there

    def _send(self, keeper: Group, offsets: Int64s, successors: pa.RecordBatch) -> None:
        """Schedule what takes the place of dead letters, and when that is durable, let go of them, durably."""
        answer_of(lambda done: self._put(successors, done))
        wait_for(lambda done: keeper.settle_now(offsets, done))

    # -- against retention -------------------------------------------------------------------------------------------

    def take_over(self, topics: list[Topic], segment: int) -> bool:
        """Put the dead letters of a segment that is to be deleted into the newest one; whether all are there.

        A crash between the two leaves both, and so the dead letter is there twice.
        """
        try:
            for topic in topics:
                keeper = topic.groups.get(KEEPER)
                extent = topic.extent_in(segment) if keeper is not None else None
                if keeper is None or extent is None:
                    continue
                with self._changing:
                    for here, batch in _chunks(topic, keeper.unsettled_offsets(extent.first, extent.end)):
                        self._send(keeper, here, kept_longer(batch, self._clock.now_ms()))
        except TarryError as error:
            log.warning(
                "dead letters could not be kept for longer, so segment %d of the ready log is: %s", segment, error
            )
            return False
        return True


def _chunks(topic: Topic, offsets: Int64s) -> Iterator[tuple[Int64s, pa.RecordBatch]]:
    """Rows of ascending offsets, some at a time."""
    at = 0
    while at < len(offsets):
        looked, here, batch = topic.read_rows(offsets[at : at + ROWS_MAX])
        at += looked
        if batch is not None:
            yield here, batch


def _gap_ms(per_second: float | None) -> float:
    if per_second is None:
        return 0.0
    if isinstance(per_second, bool) or not isinstance(per_second, int | float) or not 0 < per_second < float("inf"):
        raise InvalidArgumentError(f"per_second is {per_second!r}; allowed: a number above 0")
    return 1000 / per_second
