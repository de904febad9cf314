"""Dead letters of groups: listed, respawned, purged, and kept for longer than other ready messages.

Each topic of dead letters has a group of the broker's own that lists them: it hands out nothing, and its unsettled
messages are the dead letters that there are.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from tarry.api.groups import INT32_MAX
from tarry.api.row_schemas import DEAD_LETTER
from tarry.api.settings import check_number
from tarry.base.clock import Clock
from tarry.base.errors import CorruptError, InvalidArgumentError, TarryError
from tarry.base.types import Int64s
from tarry.base.waiting import answer_of, wait_for
from tarry.groups.control import GroupControl
from tarry.groups.dead_letter_rows import attempts_of, renewed, respawned
from tarry.groups.registry import GroupRegistry
from tarry.groups.services import ScheduleRows
from tarry.message.dead_topics import DEAD_LETTER_GROUP, dead_topic
from tarry.queue.topic import Topic

log = logging.getLogger(__name__)

Offsets = Sequence[int] | Int64s

ROWS_MAX = 1000
"""Dead letters that are scheduled again at a time."""


@dataclass(eq=False)
class DeadLetters:
    """Dead letters of all groups. Any thread. ``schedule`` schedules their successors."""

    _registry: GroupRegistry
    _clock: Clock
    _schedule: ScheduleRows
    _delay_ms_max: int
    _changing: threading.Lock = field(default_factory=threading.Lock)
    """Else two respawns would each send the same dead letter."""

    def count(self, topic: str, group: str) -> int:
        """Return the number of dead letters of a group."""
        listing = self._listing(topic, group)
        return 0 if listing is None else listing.group.unsettled

    def has(self, topic: str, group: str, offset: int) -> bool:
        """Return whether the dead letter at ``offset`` was neither respawned nor purged."""
        listing = self._listing(topic, group)
        return listing is None or listing.group.state_of(offset)["state"] != "settled"

    def page(self, topic: str, group: str, limit: int, after: int | None) -> pa.RecordBatch:
        """Return up to ``limit`` dead letters (:data:`tarry.api.row_schemas.DEAD_LETTER`), oldest first.

        They lie behind offset ``after``.
        """
        _check_limit(limit)
        if after is not None and (isinstance(after, bool) or not isinstance(after, int)):
            raise InvalidArgumentError(f"after is {after!r}; allowed: the offset of a dead letter")
        listing = self._listing(topic, group)
        parts = []
        if listing is not None:
            first, end = 0 if after is None else after + 1, listing.topic.end
            parts = [
                pa.RecordBatch.from_arrays([*batch.columns, pa.array(offsets), attempts_of(batch)], schema=DEAD_LETTER)
                for offsets, batch in _chunks(listing.topic, listing.group.unsettled_offsets(first, end, limit))
            ]
        return pa.concat_batches(parts) if parts else pa.RecordBatch.from_pylist([], schema=DEAD_LETTER)

    def respawn(
        self,
        topic: str,
        group: str,
        offsets: Offsets | None,
        limit: int | None,
        per_second: float | None,
        *,
        tries: int | None = None,
        ttl_ms: int | None = None,
    ) -> int:
        """Schedule dead letters in their topic again, for ``group`` alone; return how many.

        The i-th is due i/``per_second`` seconds from now. Each is taken off the list when its successor is durable.
        ``tries`` and ``ttl_ms`` are those of the successors.
        """
        if limit is not None:
            _check_limit(limit)
        if tries is not None:
            check_number("tries", tries, 1, INT32_MAX, "1")
        if ttl_ms is not None:
            check_number("ttl_ms", ttl_ms, 1, 1 << 50, "1")
        gap_ms = _gap_ms(per_second)
        self._registry.get(topic, group)  # nobody else would get them
        with self._changing:
            listing = self._listing(topic, group)
            if listing is None:
                return 0
            chosen = _chosen(listing, offsets, limit)
            now, count = self._clock.now_ms(), 0
            if len(chosen) * gap_ms > self._delay_ms_max:
                raise InvalidArgumentError(
                    f"per_second is {per_second}: the last of {len(chosen)} would be due later than delay_ms_max, "
                    f"{self._delay_ms_max} ms; allowed: a faster pace, or fewer"
                )
            for here, batch in _chunks(listing.topic, chosen):
                due = now + ((count + np.arange(len(here))) * gap_ms).astype(np.int64)
                anew = respawned(batch, topic=topic, group=group, due_ms=due, tries=tries, ttl_ms=ttl_ms)
                self._replace(listing, here, anew)
                count += len(here)
            return count

    def purge(self, topic: str, group: str, offsets: Offsets | None) -> int:
        """Take dead letters off the list, durably; how many."""
        with self._changing:
            listing = self._listing(topic, group)
            if listing is None:
                return 0
            chosen = _chosen(listing, offsets, None)
            return wait_for(lambda on_result: listing.settle(chosen, on_result))

    def move_on(self, segment: int, topics: list[Topic]) -> bool:
        """Put the dead letters of a segment that is to be deleted into the newest one; whether all are there.

        A crash between the two leaves both, and so the dead letter is there twice.
        """
        try:
            for topic in topics:
                listing = self._registry.find(topic.name, DEAD_LETTER_GROUP)
                extent = topic.extent_in(segment) if listing is not None else None
                if listing is None or extent is None:
                    continue
                with self._changing:
                    for here, batch in _chunks(topic, listing.group.unsettled_offsets(extent.first, extent.end)):
                        self._replace(listing, here, renewed(batch, self._clock.now_ms()))
        except CorruptError:
            return False  # already logged where the damage was found
        except TarryError as error:
            log.warning(
                "dead letters could not be kept for longer, so segment %d of the ready log is: %s", segment, error
            )
            return False
        return True

    def _listing(self, topic: str, group: str) -> GroupControl | None:
        """Return the group that lists the dead letters of ``group``; None: it never had any."""
        return self._registry.find(dead_topic(topic, group), DEAD_LETTER_GROUP)

    def _replace(self, listing: GroupControl, offsets: Int64s, successors: pa.RecordBatch) -> None:
        """Schedule successors of dead letters, and when these are durable, take the dead letters off the list.

        This is durable, too.
        """
        answer_of(lambda on_result: self._schedule(successors, on_result))
        wait_for(lambda on_result: listing.settle(offsets, on_result))


@dataclass(eq=False)
class GroupRetention:
    """Protects messages that groups need from deletion; a :class:`tarry.queue.retention.RetentionGuard`."""

    _registry: GroupRegistry
    _dead_letters: DeadLetters

    def floor_of(self, topic: str) -> int | None:
        return min((control.group.floor for control in self._registry.of_topic(topic)), default=None)

    def make_way(self, segment: int, topics: list[Topic]) -> bool:
        return self._dead_letters.move_on(segment, topics)

    def on_deleted(self, topic: Topic) -> None:
        for control in self._registry.of_topic(topic.name):
            control.on_deleted(topic.first)


def _chosen(listing: GroupControl, offsets: Offsets | None, limit: int | None) -> Int64s:
    """Return offsets of listed dead letters among ``offsets`` (None: all), oldest first, up to ``limit``."""
    there = listing.group.unsettled_offsets(0, listing.topic.end, limit if offsets is None else None)
    return there if offsets is None else there[np.isin(there, np.asarray(offsets, np.int64))][:limit]


def _chunks(topic: Topic, offsets: Int64s) -> Iterator[tuple[Int64s, pa.RecordBatch]]:
    """Rows of ascending offsets, some at a time."""
    at = 0
    while at < len(offsets):
        looked, here, batch = topic.read_rows(offsets[at : at + ROWS_MAX])
        at += looked
        if batch is not None:
            yield here, batch


def _check_limit(limit: int) -> None:
    if isinstance(limit, bool) or not isinstance(limit, int) or limit < 1:
        raise InvalidArgumentError(f"limit is {limit!r}; allowed: 1 or more")


def _gap_ms(per_second: float | None) -> float:
    if per_second is None:
        return 0.0
    if isinstance(per_second, bool) or not isinstance(per_second, int | float) or not 0 < per_second < float("inf"):
        raise InvalidArgumentError(f"per_second is {per_second!r}; allowed: a number above 0")
    return 1000 / per_second
