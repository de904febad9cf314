"""State of each offset of a topic in a group, and the journal entries that make it durable.

Offsets below ``floor`` are settled. From ``floor`` to ``cursor`` each is settled, leased, waiting for its next try,
held back by the order, or being copied to the dead letters; from ``cursor`` on nothing was handed out yet. After a
recovery, and when the order is switched on, the cursor begins at the floor again, and passes over what is on its way
already.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from tarry.api.settings import STARTS
from tarry.base.errors import ClosedError, CorruptError
from tarry.base.types import Int32s, Int64s, Mask
from tarry.groups.beginning import Beginning
from tarry.groups.copies import CopiesUnderWay
from tarry.groups.intervals import Intervals, runs
from tarry.groups.leases import Leases
from tarry.groups.order import Order
from tarry.groups.present import PresentConsumers
from tarry.groups.reasons import Reasons
from tarry.groups.services import GroupServices
from tarry.groups.states import State, StateEvent, States, move, move_all
from tarry.groups.upcoming import Upcoming
from tarry.queue.entries import JournalEntry, JournalOp
from tarry.queue.topic import Topic

log = logging.getLogger(__name__)


class TakeoverGrace(NamedTuple):
    """A moment before which nothing below an offset is handed out: consumers may work on it."""

    until_ms: int
    below: int


class GroupState:
    """State of a group. Guarded by ``lock``: its methods are called with it held.

    So are those of its parts ``leases``, ``reasons``, ``upcoming``, ``copies`` and ``order``, which have the place of
    each offset on its way.

    Entries go to the journal under the lock, so that they are there in the order in which they happened: an
    acknowledgement from before a seek must not count after it. A ticket is best taken before the lock: that may wait a
    little for the dispatcher, and the rows that the entries are about could be read before.

    Raises:
        CorruptError: ``beginning`` names offsets that the ready log does not have, which new messages would get.
    """

    def __init__(
        self, topic: Topic, name: str, services: GroupServices, beginning: Beginning, *, ordered: bool
    ) -> None:
        self.topic = topic
        self.name = name
        # Reentrant: without threads, a write to the journal may be one of those that begin a new file, of all entries.
        self.lock = threading.RLock()
        self.leases = Leases(services.lease_numbers)
        self.present = PresentConsumers()
        self.upcoming = Upcoming()
        self.copies = CopiesUnderWay()
        self.reasons = Reasons()
        self.order = Order(active=ordered)
        self.start = beginning.start
        """Start of the group when it was made."""
        self.lost = beginning.lost
        """Number of messages that retention deleted before the group had settled them."""
        self.handed_out = 0
        """Messages given to consumers, since the process began."""
        self.acknowledged = 0
        """Messages that they have acknowledged."""
        self.again_below = 0
        """A seek, or a takeover, may bring again what is below: it is not late."""
        self.grace: TakeoverGrace | None = None
        """Set while what was ready before a takeover is not handed out."""
        self.closed = False
        """Nothing is handed out any more."""
        self.deleted = False
        self._clock = services.clock
        self._journal = services.journal
        self._ticket = services.ticket
        self._settled = beginning.settled
        self._passing = Intervals()  # on their way already: the cursor must pass over these
        self.floor = self.cursor = self._settled.drop_below(beginning.floor)
        ends = [self.cursor, *(end for _, end in self._settled), *(offset + 1 for offset in beginning.retries)]
        self.passing_end = max(ends)
        """Offset from which on nothing is settled or on its way."""
        self._check_end()
        self._wait_for_retries(beginning.retries)

    def _check_end(self) -> None:
        if self.passing_end > self.topic.end:
            raise CorruptError(
                f"group {self.name!r} has settled offsets below {self.passing_end} of topic {self.topic.name!r}, "
                f"but the ready log ends at {self.topic.end}: a segment or the checkpoint is missing or too old"
            )

    def _wait_for_retries(self, retries: dict[int, tuple[int, int]]) -> None:
        offsets = np.array(sorted(o for o in retries if o >= self.floor), np.int64)
        offsets = offsets[~self._settled.mask(offsets)]
        for first, end in runs(offsets):
            self._passing.add(first, end)
        attempts = np.array([retries[o][0] for o in offsets.tolist()], np.int32)
        moments = np.array([retries[o][1] for o in offsets.tolist()], np.int64)
        self.upcoming.push_each(moments, offsets, attempts, State.WAITING)

    def begin_grace(self, until_ms: int) -> None:
        """Hand out nothing of what there is now before a moment. For a group that was just recovered."""
        self.grace = TakeoverGrace(until_ms, self.topic.end)
        self.again_below = self.topic.end
        retries = list(self.upcoming)
        self.upcoming.clear()
        for at_ms, offsets, attempts in retries:
            self.upcoming.push(max(at_ms, until_ms), offsets, attempts, State.WAITING)

    def waits_for_grace(self, now_ms: int) -> bool:
        """Return whether the grace keeps all messages back; end it if it is over.

        Else the cursor passes over those that it is about, and comes back to them when it ends.
        """
        grace = self.grace
        if grace is None:
            return False
        if now_ms >= grace.until_ms:
            self.grace = None
            self._look_again()
            return False
        if self.order.active:
            return True  # what comes behind could be of the same keys
        self.cursor = max(self.cursor, grace.below)
        return False

    def check_open(self) -> None:
        """Check that the group is open.

        Raises:
            ClosedError: it was deleted, or the broker is stopping.
        """
        if self.closed:
            why = "was deleted" if self.deleted else "is closed"
            raise ClosedError(f"group {self.name!r} of topic {self.topic.name!r} {why}")

    # -- what is known of offsets ------------------------------------------------------------------------------------

    def settled_mask(self, offsets: Int64s) -> Mask:
        """Return which of these offsets (from the floor on) are settled."""
        return self._settled.mask(offsets)

    def passing_mask(self, offsets: Int64s) -> Mask:
        """Return which of these offsets were on their way already when the cursor went back to the floor."""
        return self._passing.mask(offsets)

    def unsettled_between(self, first: int, end: int) -> int:
        """Return the number of unsettled offsets of ``first … end-1``, none of which are below the floor."""
        return end - first - self._settled.count(first, end)

    def on_way(self) -> Iterator[tuple[int, Int64s, Int32s]]:
        """Yield offsets that were looked at and are not settled, as (moment, offsets, attempts).

        Those that the order holds back are left out.
        """
        yield from self.upcoming
        for batch in self.copies:
            yield 0, batch.offsets, batch.attempts
        for lease in self.leases:
            held = lease.held
            yield 0, lease.offsets[held], lease.attempts[held]

    # -- settling ----------------------------------------------------------------------------------------------------

    def settle(self, offsets: Int64s) -> list[JournalEntry]:
        """Settle these offsets (ascending), whatever for. The entries that the journal has to get."""
        intervals = runs(offsets)
        for first, end in intervals:
            self._settled.add(first, end)
        self.floor = self._settled.drop_below(self.floor)
        self.reasons.forget(offsets)
        if self.order.active:
            self.unblock(self.order.leave(offsets.tolist()))
        return [JournalEntry(self.topic.name, self.name, JournalOp.ACK, first, end) for first, end in intervals]

    def drop(self, offsets: Int64s, states: State | States, event: StateEvent) -> None:
        """Settle these offsets (ascending; ``states`` is that of all, or of each) without a consumer."""
        if len(offsets):
            move(states, event) if isinstance(states, State) else move_all(states, event)
            self._journal.write(self.settle(offsets), self._ticket())

    def discard(self, offset: int) -> list[JournalEntry]:
        """Settle one offset, whichever consumer has it; return the entries for the journal.

        There are none if it was settled, was not there, or is being copied.
        """
        one = np.array([offset], np.int64)
        if not max(self.floor, self.topic.first) <= offset < self.topic.end or self._settled.mask(one)[0]:
            return []
        if any(offset in batch.offsets for batch in self.copies):
            return []
        for lease in list(self.leases):
            if (place := lease.place(offset)) is not None:
                self.leases.end(lease, np.array([place], np.intp), StateEvent.ACK)
        # A message that waits for its moment, or behind another one, or that the cursor has not reached, is passed over
        # when its turn comes.
        self.passing_end = max(self.passing_end, offset + 1)
        return self.settle(one)

    def unblock(self, offsets: list[int]) -> None:
        """Release offsets (ascending) that the order held back, so that they may be handed out."""
        if offsets:
            state = move(State.BLOCKED, StateEvent.UNBLOCK)
            now = self._clock.now_ms()
            self.upcoming.push(now, np.array(offsets, np.int64), np.ones(len(offsets), np.int32), state)

    def retry_entries(self, at_ms: int, offsets: Int64s, attempts: Int32s) -> Iterator[JournalEntry]:
        """Yield the entries for the journal of rows that are to be tried again at ``at_ms``."""
        for attempt in np.unique(attempts).tolist():
            for first, end in runs(offsets[attempts == attempt]):
                yield JournalEntry(self.topic.name, self.name, JournalOp.RETRY, first, end, attempt, at_ms)

    def make_dead_letters(self, offsets: Int64s, attempts: Int32s, cause: str) -> list[JournalEntry]:
        """Copy these offsets, which are BURYING, to the dead letters; return the entries for the journal.

        The copies are made later. ``attempts``: as in :class:`~tarry.groups.copies.CopyBatch`.
        """
        self.copies.add(offsets, attempts, cause)
        return list(self.retry_entries(0, offsets[attempts > 1], attempts[attempts > 1]))

    # -- what retention deleted --------------------------------------------------------------------------------------

    def forget(self, first: int) -> None:
        """Nothing of the topic is left below ``first``. What a consumer holds of it is still its to settle."""
        # Leased messages and those being copied may still end well; they are counted when they do not.
        on_way = [lease.offsets[lease.held] for lease in self.leases] + [batch.offsets for batch in self.copies]
        lost = self.unsettled_between(self.floor, first)
        lost -= sum(int(np.sum((offsets >= self.floor) & (offsets < first))) for offsets in on_way)
        self.upcoming.drop_below(first)
        freed: list[int] = []
        if self.order.active:
            self.order.drop_below(first)
            freed = self.order.leave(self.order.below(first) - {o for offsets in on_way for o in offsets.tolist()})
        self.floor = self._settled.drop_below(max(self.floor, first))
        self.cursor = max(self.cursor, first)
        self.unblock(freed)
        self._count_lost(lost, [])

    def lose(self, offsets: Int64s) -> None:
        """Settle offsets that cannot be read any more, and count them as lost."""
        if len(offsets):
            self._count_lost(len(offsets), self.settle(offsets))

    def _count_lost(self, count: int, entries: list[JournalEntry]) -> None:
        if count > 0:
            self.lost += count
            log.warning(
                "group %r of topic %r: %d messages are older than the retention, and were deleted before it had them",
                self.name, self.topic.name, count,
            )  # fmt: skip
            self._journal.write([*entries, self.group_entry()], self._ticket())

    # -- moving ------------------------------------------------------------------------------------------------------

    def move_to(self, target: int) -> JournalEntry:
        """Go on from ``target``: all below it is settled, nothing above is, and all leases are void."""
        self.again_below = max(self.again_below, self.cursor)
        self.grace = None
        self.leases.void()
        self.upcoming.clear()
        self.copies.clear()
        self.reasons.clear()
        self._settled.clear()
        self._passing.clear()
        self.passing_end = 0
        self.order.reset(active=self.order.active)
        self.floor = self.cursor = target
        return JournalEntry(self.topic.name, self.name, JournalOp.SEEK, target)

    def set_ordered(self, ordered: bool) -> None:
        """Keep the order of keys from now on, or do not any more."""
        if ordered and not self.order.active:
            self.order.reset(active=True)
            self._look_again()  # the keys of the messages on their way are not known
        elif self.order.active and not ordered:
            self.unblock(self.order.reset(active=False))

    def _look_again(self) -> None:
        """Begin at the floor once more, passing over what is on its way."""
        self.passing_end = max(self.passing_end, self.cursor)
        self._passing.clear()
        for _, offsets, _ in self.on_way():
            for first, end in runs(offsets):
                self._passing.add(first, end)
        self.cursor = self.floor

    # -- for the journal ---------------------------------------------------------------------------------------------

    def group_entry(self) -> JournalEntry:
        """Return the journal's entry that says that the group exists."""
        return JournalEntry(
            self.topic.name, self.name, JournalOp.GROUP, self.floor, self.lost, STARTS.index(self.start)
        )

    def entries(self) -> list[JournalEntry]:
        """Yield the whole state, for a snapshot of the journal; without first tries: the ready log has them."""
        entries = [self.group_entry()]
        entries += [JournalEntry(self.topic.name, self.name, JournalOp.ACK, first, end) for first, end in self._settled]
        for at_ms, offsets, attempts in self.on_way():
            tried = attempts > 1
            entries += self.retry_entries(at_ms, offsets[tried], attempts[tried])
        return entries
