"""A consumer group, as its broker sees it: made of its parts, set, moved, and ended."""

from __future__ import annotations

from collections.abc import Callable

from tarry.api.consuming import OnResult
from tarry.api.filter_pause import FilterPause
from tarry.api.groups import GroupSettings, TopicSettings
from tarry.base.types import Int64s
from tarry.groups.beginning import Beginning
from tarry.groups.copier import DeadLetterCopier
from tarry.groups.delivery import GroupDelivery
from tarry.groups.filtering import Filtering
from tarry.groups.group import Group
from tarry.groups.group_state import GroupState
from tarry.groups.lease_manager import LeaseManager
from tarry.groups.policy import Policy
from tarry.groups.selection import Selection
from tarry.groups.services import GroupServices, ScheduleRows
from tarry.groups.wakeups import Wakeups
from tarry.queue.entries import JournalEntry, JournalOp
from tarry.queue.topic import Topic

COPY_LOOK_S = 0.25
"""Seconds after which a wait for a copy looks at whether the group was closed."""


class GroupControl:
    """Administration of a group. Any thread. ``group`` is the part that consumers get.

    It is notified of new rows of its topic until it is deleted. ``grace_until_ms``: it hands out nothing of what is
    ready now before that moment.

    Raises:
        CorruptError: ``beginning`` is ahead of the ready log.
    """

    def __init__(
        self,
        topic: Topic,
        name: str,
        services: GroupServices,
        put_copies: ScheduleRows,
        settings: GroupSettings,
        topic_settings: TopicSettings | None,
        beginning: Beginning,
        grace_until_ms: int | None = None,
    ) -> None:
        self.name = name
        self.topic = topic
        self._policy = Policy(topic.name, settings, topic_settings, services.retry)
        self._state = GroupState(topic, name, services, beginning, ordered=self._policy.ordered)
        if grace_until_ms is not None:
            self._state.begin_grace(grace_until_ms)
        self._news = Wakeups(services.clock)
        self._copier = DeadLetterCopier(self._state, self._news, services, put_copies)
        self._filtering = filtering = Filtering(
            name,
            topic.name,
            self._policy,
            self._state.lock,
            self._news,
            FilterPause(name, topic.name, services.clock),
            services.run_apart,
            topic.read_rows,
        )
        selection = Selection(self._state, self._policy, filtering, services)
        leases = LeaseManager(self._state, self._policy, self._news, self._copier, services)
        delivery = GroupDelivery(self._state, self._policy, selection, leases, self._copier, self._news, services)
        self.group = Group(
            self._state, self._policy, self._news, filtering, leases, delivery, services.clock, services.may_hand_out
        )
        self._end_over = leases.end_over
        self._journal = services.journal
        self._ticket = services.ticket
        self._stop_listening = topic.listen(self._news.notify)

    def configure(self, settings: GroupSettings, topic_settings: TopicSettings | None) -> None:
        """Other settings, from now on, or other ones of its topic: what consumers hold is not touched."""
        with self._state.lock:
            self._policy.change(settings, topic_settings)
            self._filtering.restart()
            self._state.set_ordered(self._policy.ordered)
        self._news.notify()

    # -- moving ------------------------------------------------------------------------------------------------------

    def seek(self, target: int, on_result: OnResult) -> None:
        """Go on from offset ``target``: skip messages below it, deliver all others again, as first tries.

        ``on_result`` is called when that is durable.
        """
        self._restart(lambda: self._state.move_to(target), on_result)

    def advance(self, target: int, on_result: OnResult) -> None:
        """Seek as :meth:`seek`, but never back.

        For readers that keep their own offsets, and lease nothing.
        """

        def move() -> JournalEntry:
            to = max(target, self._state.floor)
            passed = self._state.unsettled_between(self._state.floor, to)
            self._state.handed_out += passed
            self._state.acknowledged += passed
            return self._state.move_to(to)

        self._restart(move, on_result)

    def delete(self, on_result: OnResult) -> None:
        """Delete the group; ``on_result`` is called when that is durable. Its consumers get no more messages."""

        def end() -> JournalEntry:
            self._state.move_to(self.topic.end)
            self._state.deleted = self._state.closed = True
            return JournalEntry(self.topic.name, self.name, JournalOp.DELETE, 0)

        self._restart(end, on_result)
        self._stop_listening()

    def _restart(self, change: Callable[[], JournalEntry], on_result: OnResult) -> None:
        self._journal.check_room()
        # Wait for copies under way: their result would find another state, or settle messages delivered again.
        while True:
            self._copier.run()
            with self._state.lock:
                self._state.check_open()
                if not self._state.copies.is_copying:
                    self._journal.write([change()], self._ticket(), on_result)
                    break
                self._copier.wait(1)
        self._news.notify()

    # -- without a lease ---------------------------------------------------------------------------------------------

    def confirm(self, on_result: OnResult | None = None, ticket: int | None = None) -> None:
        """Write to the journal that the group exists.

        ``on_result`` is called when that is durable, and with it all of the ready log up to ``ticket`` (None: as it is
        now).
        """
        self._journal.check_room()
        with self._state.lock:
            self._state.check_open()
            entry = self._state.group_entry()
            self._journal.write([entry], self._ticket() if ticket is None else ticket, on_result)

    def settle(self, offsets: Int64s, on_result: OnResult) -> int:
        """Settle messages that are not leased (offsets ascend): those of the list of dead letters.

        Returns the number of those that were not settled before; ``on_result`` is called when that is durable.
        """
        # Not refused while the journal has too much to write: their successors may be durable already, and would be
        # there twice. Callers wait for the result, so there are few at a time.
        with self._state.lock:
            kept = offsets[offsets >= self._state.floor]
            fresh = kept[~self._state.settled_mask(kept)]
            entries = self._state.settle(fresh)
            if entries:
                self._journal.write(entries, self._ticket(), on_result)
        if not entries:
            on_result(None)
        return len(fresh)

    def discard(self, offset: int, on_result: OnResult) -> bool:
        """Settle a message, whichever consumer has it.

        Returns False if it was settled, or is being copied to the dead letters. ``on_result`` is called when that is
        durable.

        Raises:
            OverloadedError: the journal has too much to write; nothing was changed.
        """
        self._journal.check_room()
        ticket = self._ticket()
        with self._state.lock:
            self._state.check_open()
            entries = self._state.discard(offset)
            if entries:
                self._journal.write(entries, ticket, on_result)
        if not entries:
            on_result(None)
            return False
        self._news.notify()
        return True

    # -- what goes on ------------------------------------------------------------------------------------------------

    def on_deleted(self, first: int) -> None:
        """Retention has deleted all of the topic below offset ``first``."""
        with self._state.lock:
            if first > self._state.floor and not self._state.deleted:
                self._state.forget(first)
        self._news.notify()

    def retry_copies(self) -> None:
        """End expired leases, and retry copies to the dead letters that were refused. Called now and then.

        In a group without consumers nothing else ends leases.
        """
        self._end_over()
        self._copier.run()

    def do_due(self) -> None:
        """End expired leases, and wait until no copy to the dead letters is under way."""
        self.retry_copies()
        with self._state.lock:
            while self._state.copies.is_copying and not self._state.closed:
                self._copier.wait(COPY_LOOK_S)

    def wake(self) -> None:
        """Have those who wait look again: the clock was moved."""
        self._news.notify()

    def next_ms(self, now_ms: int) -> int | None:
        """Return the next moment, after ``now_ms``, at which a lease, a back-off or a wait for a copy ends."""
        with self._state.lock:
            moments = [self._state.copies.next_ms, *self._state.upcoming.moments()]
            if not self._policy.settings.paused:  # in a paused group no lease ends
                moments.append(self._state.leases.next_deadline_ms)
        return min((each for each in moments if each is not None and each > now_ms), default=None)

    def entries(self) -> list[JournalEntry]:
        """Return the group's state, for a snapshot of the journal.

        It is empty for a deleted group, whose last entry may be in the file before.
        """
        with self._state.lock:
            return [] if self._state.deleted else self._state.entries()

    def stop(self) -> None:
        """Nothing is handed out any more; who waits gets nothing."""
        self._state.closed = True
        self._news.notify()
