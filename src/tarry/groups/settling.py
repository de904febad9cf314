"""How messages leave a consumer's hands: acknowledged, given back, run out of time, or left behind by who had them.

What failed comes again as its next try, after the group's back-off, until its tries are used up; then it is buried: it
is copied to the dead letters, and settled when the copy is durable.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from tarry.api.groups import GroupSettings
from tarry.api.retry import parse_retry
from tarry.base.dead_topics import is_dead_topic
from tarry.base.errors import ClosedError, StaleLeaseError, TarryError
from tarry.base.types import Int32s, Int64s
from tarry.groups import dead
from tarry.groups.graves import Burial
from tarry.groups.leases import Lease
from tarry.groups.ledger import Done, Ledger, Services
from tarry.groups.states import Event, State, move
from tarry.groups.subscription import Subscription
from tarry.queue.journal import Entry, Op
from tarry.queue.topic import Topic

log = logging.getLogger(__name__)

_NO_TRIES = np.iinfo(np.int32).max


class Settling(Ledger):
    """The consumers' side of a :class:`Ledger`."""

    def __init__(self, topic: Topic, name: str, services: Services, settings: GroupSettings, floor: int = 0) -> None:
        super().__init__(topic, name, services, settings, floor)
        self._mortal = not is_dead_topic(topic.name)  # a dead letter is not buried again
        self._random = np.random.default_rng()
        self._rested = threading.Condition(self.lock)  # told when a copy is not under way any more
        self._apply(settings)

    def _apply(self, settings: GroupSettings) -> None:
        self.settings = settings
        self._retry = parse_retry(settings.retry) if settings.retry else self._services.retry

    # -- by consumers ------------------------------------------------------------------------------------------------

    def ack(self, leases: Int64s, offsets: Int64s, done: Done | None = None) -> int:
        """Settle for good. ``done`` is told when that is durable; after a crash before, the messages come again.

        Returns:
            How many were settled; if fewer than given, the others' leases were stale, and ``done`` gets a
            StaleLeaseError.
        """
        ticket = self._ticket()
        with self.lock:
            settled = []
            for lease, at in self._leases.find(leases, offsets):
                self._leases.end(lease, at, Event.ACK)
                settled.append(lease.offsets[at])
            count = sum(len(o) for o in settled)
            entries = self._settle(np.sort(np.concatenate(settled))) if settled else []
            answer = self._write(entries, ticket, len(offsets) - count, len(offsets), done)
        self._wake_up()
        if answer is not None:
            answer()
        return count

    def ack_each(self, leases: Int64s, offsets: Int64s, done: Done) -> npt.NDArray[np.bool_]:
        """:meth:`ack`, and which of them were settled; of one that is given twice, the first. ``done`` is told of
        failures alone: to be stale is none.
        """
        ticket = self._ticket()
        with self.lock:
            held, found = self._leases.find_each(leases, offsets)
            settled = []
            for lease, at in found:
                self._leases.end(lease, at, Event.ACK)
                settled.append(lease.offsets[at])
            entries = self._settle(np.sort(np.concatenate(settled))) if settled else []
            answer = self._write(entries, ticket, 0, len(offsets), done)
            # Room is made, or the next one's turn has come: news only where somebody may wait for that.
            more = self.cursor < self.topic.end or self._waiting.next_ms is not None
        if more or self.waits_for_acks:
            self._wake_up()
        if answer is not None:
            answer()
        return held

    @property
    def waits_for_acks(self) -> bool:
        """Whether an acknowledgement may let something else be handed out."""
        return self._order is not None or self.settings.inflight_max > 0

    def relet(self, lease: int, offset: int, lease_ms: int) -> int | None:
        """Hold one leased message for ``lease_ms`` from now under a lease of its own, which the former gives way to;
        the new one's number, or None where the former was stale. Its try is the same.
        """
        with self.lock:
            return self._leases.part(lease, offset, self._clock.now_ms() + lease_ms)

    def renew(self, holder: Subscription, held_ms_max: int) -> int:
        """Hold all that a consumer has for its ``lease_ms`` from now, but for what it has had for longer than
        ``held_ms_max``; how many leases were renewed.
        """
        with self.lock:
            now = self._clock.now_ms()
            return self._leases.renew(holder, now, now - held_ms_max)

    def nack(self, leases: Int64s, offsets: Int64s, delay_ms: int | None = None, done: Done | None = None) -> int:
        """Give back, to be delivered again after ``delay_ms`` (None: the group's back-off) with the next attempt
        number, or to be buried when that was the last; counts as :meth:`ack` does.
        """
        ticket = self._ticket()
        with self.lock:
            now = self._clock.now_ms()
            entries: list[Entry] = []
            count = 0
            for lease, at in self._leases.find(leases, offsets):
                entries += self._fail(lease, at, Event.NACK, now, delay_ms)
                count += len(at)
            answer = self._write(entries, ticket, len(offsets) - count, len(offsets), done)
        self._wake_up()
        if answer is not None:
            answer()
        self.bury()
        return count

    def bury_now(self, leases: Int64s, offsets: Int64s, done: Done | None = None) -> int:
        """The consumer has no hope for these: they go to the dead letters, whatever tries are left; counts as
        :meth:`ack` does. After a crash before their copies are durable, they may come once more.
        """
        ticket = self._ticket()
        with self.lock:
            entries: list[Entry] = []
            count = 0
            for lease, at in self._leases.find(leases, offsets):
                entries += self._bury_rows(lease, at)
                count += len(at)
            answer = self._write(entries, ticket, len(offsets) - count, len(offsets), done)
        self._wake_up()
        if answer is not None:
            answer()
        self.bury()
        return count

    def extend(self, leases: Int64s, offsets: Int64s, lease_ms: int) -> int:
        """Hold the whole batches that these belong to for ``lease_ms`` from now; how many of the offsets are still
        held.
        """
        with self.lock:
            return self._leases.extend(leases, offsets, self._clock.now_ms() + lease_ms)

    def release(self, holder: Subscription) -> None:
        """A consumer is gone: what it holds is delivered again at once, as the same attempt plus one (it may have seen
        it).
        """
        ticket = self._ticket()
        with self.lock:
            now = self._clock.now_ms()
            entries: list[Entry] = []
            for lease in self._leases.of(holder):
                entries += self._fail(lease, lease.held, Event.RELEASE, now, 0)
            if not self.closed:
                self._write(entries, ticket, 0, 0, None)
        self._wake_up()
        if not self.closed:
            self.bury()

    def _write(self, entries: list[Entry], ticket: int, stale: int, given: int, done: Done | None) -> Any:
        """Make entries durable, and tell ``done``; where there are none, what is to be called without the lock."""
        error = (
            StaleLeaseError(f"{stale} of {given} leases are stale: expired, settled before, or never given")
            if stale
            else None
        )
        if entries:
            told = (lambda failure: done(failure or error)) if done is not None else None
            self._journal.write(entries, ticket, told)
            return None
        return partial(done, error) if done is not None else None

    # -- what failed -------------------------------------------------------------------------------------------------

    def _expire(self, now: int) -> None:
        """Leases whose time is up; they were the wait, so what they held comes again at once."""
        entries: list[Entry] = []
        for lease in self._leases.expired(now):
            entries += self._fail(lease, lease.held, Event.EXPIRE, now, 0)
        if entries:
            self._journal.write(entries, self._ticket())

    def _fail(
        self, lease: Lease, at: npt.NDArray[np.intp], event: Event, now: int, delay_ms: int | None
    ) -> list[Entry]:
        """The try of leased rows failed; what the journal has to know."""
        spent = self._spent(lease.attempts[at] + 1, None if lease.tries is None else lease.tries[at])
        if not spent.any():
            return self._retry_rows(lease, at, event, now, delay_ms)
        entries = self._retry_rows(lease, at[~spent], event, now, delay_ms) if not spent.all() else []
        return entries + self._bury_rows(lease, at[spent])

    def _bury_rows(self, lease: Lease, at: npt.NDArray[np.intp]) -> list[Entry]:
        self._leases.end(lease, at, Event.EXHAUST)
        # As a next try, so that it is not the same one again after a crash; there is none, as will be found then.
        return self._lay_out(lease.offsets[at], lease.attempts[at] + 1, dead.TRIES)

    def _spent(self, attempts: Int32s, own_tries: Int32s | None) -> npt.NDArray[np.bool_]:
        """Which of these tries (1 is the first) are one too many."""
        if not self._mortal:
            return np.zeros(len(attempts), np.bool_)
        limit = self.settings.tries or _NO_TRIES
        if own_tries is None:
            return attempts > limit
        return attempts > np.where(own_tries > 0, own_tries, limit)

    def _retry_rows(
        self, lease: Lease, at: npt.NDArray[np.intp], event: Event, now: int, delay_ms: int | None
    ) -> list[Entry]:
        self._leases.end(lease, at, event)
        offsets, attempts = lease.offsets[at], lease.attempts[at]
        if offsets[0] < self.floor:  # retention has deleted it since it was handed out
            gone = int(np.searchsorted(offsets, self.floor))
            self._lose(offsets[:gone])
            offsets, attempts = offsets[gone:], attempts[gone:]
        if delay_ms is None:
            moments = now + self._retry.delays_ms(attempts, self._random)
            self._waiting.push_each(moments, offsets, attempts + 1, State.WAITING)
            kinds = np.unique(moments).tolist()
        else:
            moments, kinds = np.full(len(offsets), now + delay_ms, np.int64), [now + delay_ms]
            self._waiting.push(now + delay_ms, offsets, attempts + 1, State.WAITING)
        entries: list[Entry] = []
        for moment in kinds:
            mine = moments == moment
            entries += self._retry_entries(moment, offsets[mine], attempts[mine] + 1)
        return entries

    # -- burying -----------------------------------------------------------------------------------------------------

    def _lay_out(self, offsets: Int64s, attempts: Int32s, cause: str) -> list[Entry]:
        """These (BURYING) are to be copied by :meth:`bury`; what the journal has to know."""
        self._graves.add(offsets, attempts, cause)
        return list(self._retry_entries(0, offsets[attempts > 1], attempts[attempts > 1]))

    def bury(self) -> None:
        """Copy what is to be buried. Without the lock: the copy is told of from the intake's writer, which must not
        wait for who waits for it, and without threads from within.
        """
        while self._graves and not self.closed:
            with self.lock:
                burial = self._graves.take(self._clock.now_ms())
            if burial is None:
                return
            try:
                self._copy(burial)
            except TarryError as error:
                self._buried(burial, error)
            except BaseException:
                with self.lock:
                    if burial.state is State.BURYING:
                        self._graves.failed(burial, self._clock.now_ms())
                        self._rested.notify_all()
                raise

    def _copy(self, burial: Burial) -> None:
        looked, found, batch = self.topic.read_rows(burial.offsets)
        with self.lock:
            if looked < len(burial.offsets):
                self._graves.shorten(burial, looked)
            gone = burial.offsets[~np.isin(burial.offsets, found)]
            if len(gone):
                burial.attempts = burial.attempts[np.isin(burial.offsets, found)]
                burial.offsets = found
                move(move(State.BURYING, Event.BURY_FAILED), Event.DROP)
                self._lose(gone)
        if batch is None:
            self._buried(burial, None)
            return
        copies = dead.letters(
            batch,
            topic=self.topic.name,
            group=self.name,
            cause=burial.cause,
            attempts=burial.attempts - 1,
            now_ms=self._clock.now_ms(),
        )
        self._services.bury(copies, partial(self._buried, burial))

    def _buried(self, burial: Burial, answer: object) -> None:
        """The copies are durable, or were refused. Settled only now: a crash before makes them once more."""
        try:
            ticket = self._ticket()
            with self.lock:
                if isinstance(answer, TarryError):
                    self._graves.failed(burial, self._clock.now_ms())
                    log.warning(
                        "group %r of topic %r: %d dead letters were refused, to be tried again: %s",
                        self.name, self.topic.name, len(burial.offsets), answer,
                    )  # fmt: skip
                else:
                    self._graves.buried(burial)
                    entries = self._settle(burial.offsets)
                    if entries and not self.deleted:
                        self._journal.write(entries, ticket)
                self._rested.notify_all()
            self._wake_up()
        except TarryError as error:
            # The journal is closed, or has failed: the copies are made again after the restart.
            log.warning("group %r of topic %r: %s", self.name, self.topic.name, error)

    def tend(self) -> None:
        """Called now and then: copy what was refused before."""
        self.bury()

    # -- seeking -----------------------------------------------------------------------------------------------------

    def seek(self, target: int, done: Done) -> None:
        """Go on from offset ``target``: what is below is skipped, from it on all is delivered again, as first tries.
        ``done`` is told when that is durable.
        """
        self._restart(lambda: self._move_to(target), done)

    def advance(self, target: int, done: Done) -> None:
        """As :meth:`seek`, but never back: for who keeps its own offsets, and leases nothing."""
        self._restart(lambda: self._move_to(max(target, self.floor)), done)

    def confirm(self, done: Done) -> None:
        """``done`` is told when the group is durable."""
        with self.lock:
            self._check_open()
            self._journal.write([self.group_entry()], self._ticket(), done)

    def delete(self, done: Done) -> None:
        """The group is no more; ``done`` is told when that is durable. Its consumers are let go."""

        def gone() -> Entry:
            self._move_to(self.topic.end)
            self.deleted = self.closed = True
            return Entry(self.topic.name, self.name, Op.DELETE, 0)

        self._restart(gone, done)

    def _restart(self, change: Callable[[], Entry], done: Done) -> None:
        # Copies under way are waited for: their answer would come to another state, or settle what is delivered again.
        while True:
            self.bury()
            with self.lock:
                self._check_open()
                if not self._graves.busy:
                    self._journal.write([change()], self._ticket(), done)
                    break
                self._rested.wait(1)
        self._wake_up()

    def _check_open(self) -> None:
        if self.closed:
            why = "was deleted" if self.deleted else "is closed"
            raise ClosedError(f"group {self.name!r} of topic {self.topic.name!r} {why}")

    def settle_now(self, offsets: Int64s, done: Done) -> int:
        """Settle messages that nobody leased (the keeper's, of dead letters); those settled before are none. How many;
        ``done`` is told when that is durable.
        """
        with self.lock:
            fresh = offsets[(offsets >= self.floor) & ~self._settled.mask(offsets)]
            entries = self._settle(fresh)
            answer = self._write(entries, self._ticket(), 0, 0, done)
        if answer is not None:
            answer()
        return len(fresh)
