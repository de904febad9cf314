"""Ends of leases: acknowledged, given back, expired, or abandoned by the consumer.

A message that failed comes again as its next try, after the group's back-off, until its tries are used up. Then it is
copied to the dead letters, and settled when the copy is durable.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from tarry.api.consuming import OnLease, OnResult, OnSettled
from tarry.base.delay import due_after
from tarry.base.errors import StaleLeaseError, TarryError
from tarry.base.types import Int64s, Mask
from tarry.groups.copier import DeadLetterCopier
from tarry.groups.dead_letter_rows import TRIES
from tarry.groups.group_state import GroupState
from tarry.groups.leases import Holder, Lease, Places
from tarry.groups.policy import Policy
from tarry.groups.services import GroupServices
from tarry.groups.states import State, StateEvent
from tarry.groups.wakeups import Wakeups
from tarry.queue.entries import JournalEntry


@dataclass(eq=False)
class LeaseManager:
    """Any thread; its methods take the group's lock, but for :meth:`expire`.

    What consumers ask for is refused (OverloadedError) before anything is changed while the journal has too much to
    write; what happens by itself goes on. See :class:`tarry.queue.journal.Journal`.
    """

    _state: GroupState
    _policy: Policy
    _news: Wakeups
    _copier: DeadLetterCopier
    _services: GroupServices
    _random: np.random.Generator = field(default_factory=np.random.default_rng)

    # -- settled -----------------------------------------------------------------------------------------------------

    def ack(self, leases: Int64s, offsets: Int64s, on_result: OnResult | None = None) -> int:
        """See :meth:`tarry.api.consuming.ConsumerGroup.ack`."""
        self._services.journal.check_room()
        ticket = self._services.ticket()
        with self._state.lock:
            count, entries = self._settle(self._state.leases.find(leases, offsets))
            answer = self._record(entries, ticket, len(offsets) - count, len(offsets), on_result)
            more = self._has_more()
        if more:
            self._news.notify()
        if answer is not None:
            answer()
        return count

    def ack_each(self, leases: Int64s, offsets: Int64s, on_settled: OnSettled) -> None:
        """See :meth:`tarry.api.consuming.ConsumerGroup.ack_each`."""
        self._services.journal.check_room()
        ticket = self._services.ticket()
        with self._state.lock:
            held, by_lease = self._state.leases.find_each(leases, offsets)
            _, entries = self._settle(by_lease)
            answer = self._record(entries, ticket, 0, len(offsets), partial(_answer_each, on_settled, held))
            more = self._has_more()
        if more:
            self._news.notify()
        if answer is not None:
            answer()

    def _has_more(self) -> bool:
        """Return whether an acknowledgement may give a waiting consumer something. With the lock held.

        Waking a consumer costs more than acknowledging.
        """
        # A consumer may have waited for room, or for the next message of a key.
        more = self._state.cursor < self._state.topic.end or self._state.upcoming.next_ms is not None
        return more or self.waits_for_acks

    @property
    def waits_for_acks(self) -> bool:
        """True if an acknowledgement may free other messages."""
        return self._state.order.active or self._policy.settings.inflight_max > 0

    def _settle(self, by_lease: list[tuple[Lease, Places]]) -> tuple[int, list[JournalEntry]]:
        """Acknowledge rows; return how many, and the entries for the journal."""
        if not by_lease:
            return 0, []
        settled = []
        for lease, at in by_lease:
            self._state.leases.end(lease, at, StateEvent.ACK)
            settled.append(lease.offsets[at])
        offsets = settled[0] if len(settled) == 1 else np.sort(np.concatenate(settled))
        self._state.acknowledged += len(offsets)
        return len(offsets), self._state.settle(offsets)

    # -- given back --------------------------------------------------------------------------------------------------

    def nack(
        self,
        leases: Int64s,
        offsets: Int64s,
        delay_ms: int | None = None,
        on_result: OnResult | None = None,
        reason: str | None = None,
    ) -> int:
        """See :meth:`tarry.api.consuming.ConsumerGroup.nack`; a dead letter where that was the last try."""

        def fail(lease: Lease, at: Places) -> list[JournalEntry]:
            self._state.reasons.note(lease.offsets[at], reason)
            return self._fail(lease, at, StateEvent.NACK, self._services.clock.now_ms(), delay_ms)

        return self._give_back(leases, offsets, fail, on_result)

    def reject(
        self, leases: Int64s, offsets: Int64s, on_result: OnResult | None = None, reason: str | None = None
    ) -> int:
        """Reject messages; see :meth:`tarry.api.consuming.ConsumerGroup.reject`.

        After a crash before their copies are durable, they may come once more.
        """

        def exhaust(lease: Lease, at: Places) -> list[JournalEntry]:
            self._state.reasons.note(lease.offsets[at], reason)
            return self._exhaust(lease, at)

        return self._give_back(leases, offsets, exhaust, on_result)

    def _give_back(
        self,
        leases: Int64s,
        offsets: Int64s,
        fail: Callable[[Lease, Places], list[JournalEntry]],
        on_result: OnResult | None,
    ) -> int:
        self._services.journal.check_room()
        ticket = self._services.ticket()
        with self._state.lock:
            entries: list[JournalEntry] = []
            count = 0
            for lease, at in self._state.leases.find(leases, offsets):
                entries += fail(lease, at)
                count += len(at)
            answer = self._record(entries, ticket, len(offsets) - count, len(offsets), on_result)
        self._news.notify()
        if answer is not None:
            answer()
        self._copier.run()
        return count

    def give_back(self, leases: Int64s, offsets: Int64s, on_result: OnResult | None = None) -> int:
        """Give messages back; see :meth:`tarry.api.consuming.Subscription.give_back`.

        Nothing is written to the journal: its entries for these messages, with their tries, stay true.
        """
        with self._state.lock:
            now, count = self._services.clock.now_ms(), 0
            for lease, at in self._state.leases.find(leases, offsets):
                self._state.leases.end(lease, at, StateEvent.RETURN)
                self._state.upcoming.push(now, lease.offsets[at], lease.attempts[at], State.WAITING)
                count += len(at)
            # The next consumer that takes them finds out which ones retention has deleted meanwhile.
            answer = self._record([], 0, len(offsets) - count, len(offsets), on_result)
        self._news.notify()
        if answer is not None:
            answer()
        return count

    def resize(self, holder: Holder, window: int) -> None:
        """See :meth:`tarry.api.consuming.Subscription.resize`."""
        with self._state.lock:
            wider, holder.prefetch = window > holder.prefetch or holder.silent, window
            holder.answers, holder.silent = True, False
        if wider:
            self._news.notify()

    def hear(self, holder: Holder) -> None:
        """Note that the consumer was heard of, so it does not stand still."""
        if holder.silent:  # seldom; else the lock is not worth it
            with self._state.lock:
                holder.silent = False
            self._news.notify()

    def release(self, holder: Holder) -> None:
        """Release all that a consumer holds, which is gone: deliver it again at once, as the next attempt.

        The consumer may have seen it, so the attempt counts. A second call does nothing.
        """
        with self._state.lock:
            if holder.closed:
                return
            holder.closed = True
        ticket = self._services.ticket()
        with self._state.lock:
            now = self._services.clock.now_ms()
            entries: list[JournalEntry] = []
            for lease in self._state.leases.of(holder):
                entries += self._fail(lease, lease.held, StateEvent.RELEASE, now, 0)
            if entries and not self._state.closed:
                self._services.journal.write(entries, ticket)
        self._news.notify()
        if not self._state.closed:
            self._copier.run()

    def expire(self, now_ms: int) -> None:
        """End expired leases. With the lock held.

        Their time was the wait, so their messages come again at once; but not to a consumer that should have extended
        them, since it may have been stopped.
        """
        entries: list[JournalEntry] = []
        for lease in self._state.leases.expired(now_ms):
            lease.holder.silent = lease.holder.answers
            entries += self._fail(lease, lease.held, StateEvent.EXPIRE, now_ms, 0)
        if entries:
            self._services.journal.write(entries, self._services.ticket())

    def end_over(self) -> None:
        """End expired leases of a group that is not polled, as :meth:`expire`; waiting consumers are notified.

        In a paused group no lease ends.
        """
        if self._policy.settings.paused:
            return
        with self._state.lock:
            now = self._services.clock.now_ms()
            deadline = self._state.leases.next_deadline_ms
            if deadline is None or deadline > now or self._state.closed:
                return
            self.expire(now)
        self._news.notify()

    # -- held for longer ---------------------------------------------------------------------------------------------

    def extend(self, leases: Int64s, offsets: Int64s, lease_ms: int) -> int:
        """See :meth:`tarry.api.consuming.ConsumerGroup.extend`."""
        with self._state.lock:
            return self._state.leases.extend(leases, offsets, self._services.clock.now_ms() + lease_ms)

    def change_lease(self, lease: int, offset: int, lease_ms: int, on_lease: OnLease) -> None:
        """See :meth:`tarry.api.consuming.ConsumerGroup.change_lease`."""
        with self._state.lock:
            number = self._state.leases.split_off(lease, offset, self._services.clock.now_ms() + lease_ms)
        on_lease(number)

    def renew(self, holder: Holder, held_ms_max: int) -> int:
        """See :meth:`tarry.api.consuming.Subscription.renew`."""
        with self._state.lock:
            now = self._services.clock.now_ms()
            return self._state.leases.renew(holder, now, now - held_ms_max)

    # -- what failed -------------------------------------------------------------------------------------------------

    def _fail(
        self, lease: Lease, at: Places, event: StateEvent, now_ms: int, delay_ms: int | None
    ) -> list[JournalEntry]:
        """Fail the try of these leased rows; return the entries for the journal."""
        exhausted = self._policy.exhausted(lease.attempts[at] + 1, None if lease.tries is None else lease.tries[at])
        if not exhausted.any():
            return self._retry(lease, at, event, now_ms, delay_ms)
        entries = self._retry(lease, at[~exhausted], event, now_ms, delay_ms) if not exhausted.all() else []
        return entries + self._exhaust(lease, at[exhausted])

    def _exhaust(self, lease: Lease, at: Places) -> list[JournalEntry]:
        self._state.leases.end(lease, at, StateEvent.EXHAUST)
        # As a next try, so that it is not the same one again after a crash; there is none, as will be found then.
        return self._state.make_dead_letters(lease.offsets[at], lease.attempts[at] + 1, TRIES)

    def _retry(
        self, lease: Lease, at: Places, event: StateEvent, now_ms: int, delay_ms: int | None
    ) -> list[JournalEntry]:
        self._state.leases.end(lease, at, event)
        offsets, attempts = lease.offsets[at], lease.attempts[at]
        if offsets[0] < self._state.floor:  # retention has deleted it since it was handed out
            deleted = int(np.searchsorted(offsets, self._state.floor))
            self._state.lose(offsets[:deleted])
            offsets, attempts = offsets[deleted:], attempts[deleted:]
        if delay_ms is None:
            delays_ms = self._policy.retry.delays_ms(attempts, self._random)
            moments = delays_ms + np.where(delays_ms > 0, self._services.clock.start_ms(), now_ms)
            self._state.upcoming.push_each(moments, offsets, attempts + 1, State.WAITING)
            distinct = np.unique(moments).tolist()
        else:
            moment = due_after(delay_ms, now_ms, self._services.clock.start_ms())
            moments, distinct = np.full(len(offsets), moment, np.int64), [moment]
            self._state.upcoming.push(moment, offsets, attempts + 1, State.WAITING)
        entries: list[JournalEntry] = []
        for moment in distinct:
            rows = moments == moment
            entries += self._state.retry_entries(moment, offsets[rows], attempts[rows] + 1)
        return entries

    # -- the journal -------------------------------------------------------------------------------------------------

    def _record(
        self, entries: list[JournalEntry], ticket: int, stale: int, given: int, on_result: OnResult | None
    ) -> Callable[[], None] | None:
        """Have the journal write entries, and call ``on_result`` when they are durable.

        If there are none, returns that call, for the caller to make without the lock.
        """
        error = (
            StaleLeaseError(f"{stale} of {given} leases are stale: expired, settled before, or never given")
            if stale
            else None
        )
        if not entries:
            return partial(on_result, error) if on_result is not None else None
        if on_result is None or error is None:
            self._services.journal.write(entries, ticket, on_result)
        else:
            self._services.journal.write(entries, ticket, partial(_answer, on_result, error))
        return None


def _answer(on_result: OnResult, stale: StaleLeaseError, failure: TarryError | None) -> None:
    on_result(failure or stale)


def _answer_each(on_settled: OnSettled, held: Mask, failure: TarryError | None) -> None:
    on_settled(held if failure is None else failure)
