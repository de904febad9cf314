"""What a group knows of each offset of its topic, how that becomes durable, and how it comes back after a crash.

Offsets below ``floor`` are settled. From ``floor`` to ``cursor`` each is settled, leased, waiting for its next try,
held back by the order, or being buried; from ``cursor`` on nothing was handed out yet. After a recovery, and when the
order is switched on, the cursor begins at the floor again, and passes over what is on its way already.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from tarry.api.groups import GroupSettings
from tarry.api.retry import RetryPolicy
from tarry.base.clock import Clock
from tarry.base.errors import CorruptError, TarryError
from tarry.base.types import Int32s, Int64s
from tarry.groups.graves import Graves
from tarry.groups.intervals import Intervals, runs
from tarry.groups.leases import Leases
from tarry.groups.order import Order
from tarry.groups.states import Event, State, move
from tarry.groups.waiting import Waiting
from tarry.queue.journal import Entry, Journal, Op
from tarry.queue.topic import Topic

log = logging.getLogger(__name__)

Done = Callable[[TarryError | None], None]
EARLIEST, LATEST = STARTS = ("earliest", "latest")
Retries = dict[int, tuple[int, int]]
"""From a journal: offset → (attempt, at_ms)."""


Bury = Callable[[pa.RecordBatch, Callable[[Any], None]], None]
"""Schedules copies for the dead letters, as ``Broker.put`` does: the answer is a TarryError, or comes when they are
durable.
"""


@dataclass(frozen=True, slots=True)
class Services:
    """What the groups of a broker share."""

    clock: Clock
    journal: Journal
    ticket: Callable[[], int]
    """See :meth:`tarry.queue.log.ReadyLog.ticket`."""
    lease_ids: Iterator[int]
    on_handout: Callable[[Int64s, int, str, int | None], None]
    """Told (due times, now, topic, since when the consumer had been waiting for more; None for what it gets again) of
    what is handed out.
    """
    bury: Bury
    retry: RetryPolicy
    """Back-off of the groups that have none of their own."""


class Ledger:
    """All state is guarded by ``lock``; methods that begin with ``_`` are called with it held.

    Entries go to the journal under the lock, so that they are there in the order in which they happened: an
    acknowledgement from before a seek must not count after it. A ticket is best taken before: that may wait a little
    for the dispatcher, and what the entries are about could be read before.
    """

    def __init__(self, topic: Topic, name: str, services: Services, settings: GroupSettings, floor: int = 0) -> None:
        self.topic = topic
        self.name = name
        self.settings = settings
        # Reentrant: without threads, a write to the journal may be one of those that begin a new file, of all entries.
        self.lock = threading.RLock()
        self._wake = threading.Condition()
        self._news = 0  # counts what may be of interest to who waits
        self._listeners: tuple[Callable[[], None], ...] = ()
        self.floor = self.cursor = floor
        self.start = EARLIEST
        """Where it began when it was made."""
        self.lost = 0
        """How many messages retention deleted before the group had settled them."""
        self._settled = Intervals()
        self._passing = Intervals()  # on their way already: the cursor must pass over these
        self._passing_end = 0  # from here on there is nothing settled or on its way
        self._leases = Leases(services.lease_ids)
        self._waiting = Waiting()
        self._graves = Graves()
        self._order: Order | None = Order() if self.ordered else None
        self._services = services
        self._clock = services.clock
        self._journal = services.journal
        self._ticket = services.ticket
        self.closed = False
        self.deleted = False

    @property
    def ordered(self) -> bool:
        """Of each ordering key one message at a time: by its own settings, or its topic's."""
        by_topic = self.topic.settings
        return self.settings.ordered or (by_topic is not None and by_topic.ordered)

    def now_ms(self) -> int:
        """The time of the broker's clock."""
        return self._clock.now_ms()

    def notify(self) -> None:
        """Wake those who wait: there may be something for them."""
        self._wake_up()

    def _wake_up(self) -> None:
        with self._wake:
            self._news += 1
            self._wake.notify_all()
            listeners = self._listeners
        for listener in listeners:
            listener()

    def listen(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Have ``listener`` called whenever there may be something for who waits: from any thread, the dispatcher's
        above all, so it must be quick and not raise. Call what is returned to end that.
        """

        def end() -> None:
            with self._wake:
                self._listeners = tuple(known for known in self._listeners if known is not listener)

        with self._wake:
            self._listeners = (*self._listeners, listener)
        return end

    # -- settling ----------------------------------------------------------------------------------------------------

    def _settle(self, offsets: Int64s) -> list[Entry]:
        """These (ascending) are settled, whatever for; what the journal has to know."""
        intervals = runs(offsets)
        for first, end in intervals:
            self._settled.add(first, end)
        self.floor = self._settled.drop_below(self.floor)
        if self._order is not None:
            self._let_go(self._order.leave(offsets.tolist()))
        return [Entry(self.topic.name, self.name, Op.ACK, first, end) for first, end in intervals]

    def _let_go(self, offsets: list[int]) -> None:
        """What the order held back may be handed out."""
        if offsets:
            state = move(State.BLOCKED, Event.UNBLOCK)
            now = self._clock.now_ms()
            self._waiting.push(now, np.array(offsets, np.int64), np.ones(len(offsets), np.int32), state)

    def _retry_entries(self, at_ms: int, offsets: Int64s, attempts: Int32s) -> Iterator[Entry]:
        for attempt in np.unique(attempts).tolist():
            for first, end in runs(offsets[attempts == attempt]):
                yield Entry(self.topic.name, self.name, Op.RETRY, first, end, attempt, at_ms)

    # -- what retention deleted --------------------------------------------------------------------------------------

    def forget(self, first: int) -> None:
        """Nothing of the topic is left below ``first``. What a consumer holds of it is still its to settle."""
        with self.lock:
            if first > self.floor and not self.deleted:
                self._forget(first)
        self._wake_up()

    def _forget(self, first: int) -> None:
        # What is leased or being buried may still end well, and is counted when it does not.
        on_way = [lease.offsets[lease.held] for lease in self._leases] + [burial.offsets for burial in self._graves]
        lost = first - self.floor - self._settled.count(self.floor, first)
        lost -= sum(int(np.sum((offsets >= self.floor) & (offsets < first))) for offsets in on_way)
        self._waiting.drop_below(first)
        freed: list[int] = []
        if self._order is not None:
            self._order.drop_below(first)
            freed = self._order.leave(self._order.below(first) - {o for offsets in on_way for o in offsets.tolist()})
        self.floor = self._settled.drop_below(max(self.floor, first))
        self.cursor = max(self.cursor, first)
        self._let_go(freed)
        self._count_lost(lost, [])

    def _lose(self, offsets: Int64s) -> None:
        """These cannot be read any more: there is nothing to deliver, or to bury."""
        if len(offsets):
            self._count_lost(len(offsets), self._settle(offsets))

    def _count_lost(self, count: int, entries: list[Entry]) -> None:
        if count > 0:
            self.lost += count
            log.warning(
                "group %r of topic %r: %d messages are older than the retention, and were deleted before it had them",
                self.name, self.topic.name, count,
            )  # fmt: skip
            self._journal.write([*entries, self.group_entry()], self._ticket())

    def group_entry(self) -> Entry:
        """That the group exists."""
        return Entry(self.topic.name, self.name, Op.GROUP, self.floor, self.lost, STARTS.index(self.start))

    # -- seeking -----------------------------------------------------------------------------------------------------

    def _move_to(self, target: int) -> Entry:
        """Go on from ``target``: below it all is settled, from it on nothing is, and no lease is good any more."""
        self._leases.void()
        self._waiting.clear()
        self._graves.clear()
        self._settled, self._passing, self._passing_end = Intervals(), Intervals(), 0
        self._order = None if self._order is None else Order()
        self.floor = self.cursor = target
        return Entry(self.topic.name, self.name, Op.SEEK, target)

    # -- recovery ----------------------------------------------------------------------------------------------------

    def replay(self, entry: Entry, retries: Retries) -> None:
        """Apply an entry of the journal; ``retries`` collects what :meth:`recovered` needs."""
        if entry.op is Op.GROUP:
            self.floor = max(self.floor, entry.first)
            self.lost = max(self.lost, entry.last)
            self.start = STARTS[entry.attempt]
        elif entry.op is Op.SEEK:
            self.floor, self._settled = entry.first, Intervals()
            retries.clear()
        elif entry.op is Op.ACK:
            self._settled.add(entry.first, entry.last)
            for offset in range(entry.first, entry.last) if retries else ():
                retries.pop(offset, None)
        else:
            retries.update(dict.fromkeys(range(entry.first, entry.last), (entry.attempt, entry.at_ms)))

    def recovered(self, retries: Retries) -> None:
        """All entries were replayed: what is neither settled nor to be retried is handed out anew.

        Raises:
            CorruptError: they name offsets that the ready log does not have, which new messages would get.
        """
        self.cursor = self.floor = self._settled.drop_below(self.floor)
        self._passing_end = max([self.cursor, *(end for _, end in self._settled), *(o + 1 for o in retries)])
        if self._passing_end > self.topic.end:
            raise CorruptError(
                f"group {self.name!r} has settled offsets below {self._passing_end} of topic {self.topic.name!r}, "
                f"but the ready log ends at {self.topic.end}: a segment or the checkpoint is missing or too old"
            )
        found = np.array(sorted(o for o in retries if o >= self.floor), np.int64)
        found = found[~self._settled.mask(found)]
        for first, end in runs(found):
            self._passing.add(first, end)
        told = [retries[o] for o in found.tolist()]
        attempts, moments = (np.array([t[i] for t in told], kind) for i, kind in enumerate((np.int32, np.int64)))
        self._waiting.push_each(moments, found, attempts, State.WAITING)

    def entries(self) -> Iterator[Entry]:
        """The group's state, for a snapshot of the journal. First tries are not in it: they are found in the log."""
        with self.lock:
            if self.deleted:  # its last entry may be in the file before
                return
            found = [self.group_entry()]
            found += [Entry(self.topic.name, self.name, Op.ACK, first, end) for first, end in self._settled]
            for at_ms, offsets, attempts in self._on_way():
                again = attempts > 1
                found += self._retry_entries(at_ms, offsets[again], attempts[again])
        yield from found

    def _on_way(self) -> Iterator[tuple[int, Int64s, Int32s]]:
        """What was looked at and is not settled, but for what the order holds back: (moment, offsets, attempts)."""
        yield from self._waiting
        for burial in self._graves:
            yield 0, burial.offsets, burial.attempts
        for lease in self._leases:
            held = lease.held
            yield 0, lease.offsets[held], lease.attempts[held]

    def _look_again(self) -> None:
        """Begin at the floor once more, passing over what is on its way."""
        self._passing_end = max(self._passing_end, self.cursor)
        self._passing = Intervals()
        for _, offsets, _ in self._on_way():
            for first, end in runs(offsets):
                self._passing.add(first, end)
        self.cursor = self.floor

    # -- counting ----------------------------------------------------------------------------------------------------

    @property
    def unsettled(self) -> int:
        """Ready messages that are not settled."""
        with self.lock:
            return self._unsettled()

    def _unsettled(self) -> int:
        floor = max(self.floor, self.topic.first)  # below is what retention deleted
        return self.topic.end - floor - self._settled.count(floor, self.topic.end)

    def oldest_due_ms(self) -> int | None:
        """Due time of the first message in the queue that is not settled (it may be read from disk)."""
        found = self.topic.read(self.floor, 1)
        return None if found is None else int(found[1].column("due_ms")[0].as_py())

    def counts(self) -> dict[str, int]:
        """How many messages are ready, leased, waiting (for their next try), blocked (by the order) and being buried;
        their sum is what is not settled (lag). And lost: deleted by retention before they were settled.
        """
        with self.lock:
            if self.topic.first > self.floor:
                self._forget(self.topic.first)  # it may have been in memory for longer than its segment
            _, waiting = self._waiting.count(self._clock.now_ms())
            lag, leased, burying = self._unsettled(), self._leases.rows, self._graves.rows
            blocked = 0 if self._order is None else self._order.held
            return {
                "ready": max(0, lag - leased - waiting - blocked - burying),
                "leased": leased,
                "waiting": waiting,
                "blocked": blocked,
                "burying": burying,
                "lag": lag,
                "lost": self.lost,
            }

    def unsettled_offsets(self, first: int, end: int, limit: int | None = None) -> Int64s:
        """The offsets from ``first`` to before ``end`` that are not settled, ascending; up to ``limit`` of them."""
        with self.lock:
            at, end, found, count = max(first, self.floor, self.topic.first), min(end, self.topic.end), [], 0
            while at < end and (limit is None or count < limit):
                window = np.arange(at, min(end, at + 65_536), dtype=np.int64)
                found.append(window[~self._settled.mask(window)])
                count += len(found[-1])
                at += len(window)
        return np.concatenate([np.empty(0, np.int64), *found])[:limit]
