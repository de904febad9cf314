"""The consumer groups of a broker: lookup, settings, and states."""

from __future__ import annotations

import itertools
import secrets
from collections.abc import Callable, Collection, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from tarry.api.group_info import ConsumerInfo, GroupInfo, TopicInfo
from tarry.api.groups import GroupSettings, TopicSettings
from tarry.api.retry import parse_retry
from tarry.api.settings import EARLIEST, LATEST, STARTS, Start
from tarry.base.clock import Clock
from tarry.base.config import Config
from tarry.base.delay import DUE_MS_MIN, format_ms
from tarry.base.errors import InvalidArgumentError
from tarry.base.types import Int64s
from tarry.base.waiting import wait_for
from tarry.groups.control import GroupControl
from tarry.groups.dead_letter_rows import TRIES, dead_letter_copies
from tarry.groups.dead_letters import DeadLetters, GroupRetention
from tarry.groups.filter_threads import FilterThreads
from tarry.groups.group import Group
from tarry.groups.lifecycle import GroupLifecycle
from tarry.groups.registry import GroupRegistry, broadcast_group, check_group
from tarry.groups.services import GroupServices, HandOutTraces, ScheduleRows
from tarry.groups.settings_file import SettingsFile
from tarry.log.files import Files
from tarry.message.dead_topics import is_dead_topic
from tarry.message.filter import EVERYTHING, check_meant
from tarry.message.topics import RESERVED, check_topic
from tarry.queue.journal import Journal
from tarry.queue.log import ReadyLog


@dataclass(eq=False)
class ConsumerGroups:
    """Consumer groups of a broker. Any thread. Open with :meth:`open`.

    ``dead_letters`` are those of all groups. The ready log asks ``retention_guard`` before it deletes.
    """

    _ready: ReadyLog
    _registry: GroupRegistry
    _lifecycle: GroupLifecycle
    dead_letters: DeadLetters
    _settings: SettingsFile
    _default_retry: str
    _default_lease_ms: int
    retention_guard: GroupRetention
    _filters: FilterThreads | None

    @classmethod
    def open(
        cls,
        config: Config,
        clock: Clock,
        files: Files,
        ready: ReadyLog,
        journal: Journal,
        registry: GroupRegistry,
        on_handout: Callable[[Int64s, Int64s, int, str, int], None],
        schedule: ScheduleRows,
        check_topics: Callable[[Collection[str]], None] = lambda _: None,
        *,
        threaded: bool = False,
        may_hand_out: Callable[[], bool] | None = None,
        traces: HandOutTraces | None = None,
    ) -> ConsumerGroups:
        """Bring back what the journal, just opened, and the file of settings have.

        Args:
            registry: the one that the journal takes its snapshots from; no group is in it yet.
            on_handout: see :class:`tarry.groups.services.GroupServices`.
            schedule: schedules what groups send to other topics.
            check_topics: raises where these topics are new and too many.
            threaded: filters that take their time are evaluated in threads.
            may_hand_out: see :class:`tarry.groups.services.GroupServices`.
            traces: see there, too.

        Raises:
            CorruptError: they are damaged, or ahead of the ready log.
        """
        settings = SettingsFile(files, config.data)
        # Lease numbers must not repeat those of a former run: a consumer that outlived it may still settle with them.
        # Not from the clock, which may have been set back since.
        lease_numbers = itertools.count(secrets.randbits(42) << 20)
        retry = parse_retry(f"fixed {config.retry_ms}ms")
        filters = FilterThreads() if threaded else None
        run_apart = None if filters is None else filters.run
        services = GroupServices(
            clock, journal, ready.ticket, lease_numbers, on_handout, retry, may_hand_out, run_apart, traces
        )
        lifecycle = GroupLifecycle(
            ready, journal, registry, settings, services, schedule, check_topics, config.groups_max
        )
        has_grace = may_hand_out is not None and config.takeover_grace_ms > 0
        lifecycle.recover(journal.entries(), clock.now_ms() + config.takeover_grace_ms if has_grace else None)
        dead_letters = DeadLetters(registry, clock, schedule, config.delay_ms_max)
        guard = GroupRetention(registry, dead_letters)
        return cls(ready, registry, lifecycle, dead_letters, settings, str(retry), config.lease_ms, guard, filters)

    # -- which there are ---------------------------------------------------------------------------------------------

    def get_or_create(self, topic: str, name: str, *, start: str | None = None, broadcast: str | None = None) -> Group:
        """Return the group of that name; a new one is made, durably.

        It begins at the earliest message that is kept, or the latest.

        With ``broadcast``, the group of that consumer alone, ``name@consumer``, which begins at the latest.
        """
        begin = _parse_start(start)
        if broadcast is not None:
            check_group(name)
            name, begin = broadcast_group(name, broadcast), begin or LATEST
        control = self._lifecycle.get_or_create_durably(check_topic(topic), check_group(name), begin or EARLIEST)
        return control.group

    def _get_or_create(self, topic: str, name: str, start: str | None) -> GroupControl:
        """For callers that wait for something of theirs in the journal, which is behind the group's creation."""
        return self._lifecycle.get_or_create(check_topic(topic), check_group(name), _parse_start(start) or EARLIEST)

    def find(self, topic: str, name: str) -> Group:
        """Return the group of that name.

        Raises:
            NotFoundError: there is none.
        """
        return self._registry.get(topic, name).group

    def has(self, topic: str, name: str) -> bool:
        """Return whether there is a group of that name."""
        return self._registry.find(topic, name) is not None

    def dead_letters_of(
        self, batch: pa.RecordBatch, topic: str, group: str, attempts: Sequence[int], now_ms: int
    ) -> pa.RecordBatch:
        """Return messages that consumers of a group have given up as dead letters of the group.

        Both are :data:`tarry.message.schema.SCHEMA`. The dead letters are listed as soon as they are scheduled.
        """
        tried = np.asarray(attempts, np.int32)
        copies = dead_letter_copies(
            batch, topic=topic, group=group, cause=TRIES, attempts=tried, now_ms=now_ms, own_ids=True
        )
        self._lifecycle.prepare_listing(copies)
        return copies

    def all(self, topic: str | None = None) -> list[Group]:
        """Return the groups, of one topic or of all, by name; without the broker's own."""
        controls = self._registry.all() if topic is None else self._registry.of_topic(topic)
        groups = [control.group for control in controls if not control.name.startswith(RESERVED)]
        return sorted(groups, key=lambda group: (group.topic_name, group.name))

    def delete(self, topic: str, name: str) -> None:
        """Durably when it returns. Its dead letters stay."""
        self._lifecycle.delete(self._registry.get(topic, name))

    # -- settings, and where they go on --------------------------------------------------------------------------------

    def set(self, topic: str, name: str, start: str | None, **changes: object) -> GroupInfo:
        """Change settings (None: as it is), durably when it returns; a group that is new is made."""
        _parse_start(start)
        existing = self._registry.find(check_topic(topic), check_group(name))
        former = GroupSettings.of(topic) if existing is None else existing.group.settings
        settings = former.changed(**changes)
        if settings.filter != former.filter:
            check_meant(settings.filter)
        if is_dead_topic(topic) and settings.tries:
            raise InvalidArgumentError(f"tries is {settings.tries} for dead letters; allowed: 0 (no limit)")
        control = self._get_or_create(topic, name, start)
        self._lifecycle.configure(control, changes)
        return self.info(control.group)

    def set_topic(self, topic: str, **changes: object) -> TopicInfo:
        """Change a topic's settings, durably when it returns."""
        if is_dead_topic(check_topic(topic)) and any(
            changes.get(name) is not None for name in ("late", "lateness_ms_max")
        ):
            raise InvalidArgumentError(f"{topic!r} is for dead letters, which are never late; allowed: other topics")
        self._lifecycle.configure_topic(topic, changes)
        return self.topic_info(topic)

    def seek(self, topic: str, name: str, to: int | str) -> int:
        """Go on from a time (UTC milliseconds), the earliest or the latest.

        Returns the number of ready messages that are ahead then.

        Raises:
            NotFoundError: there is no such group. InvalidArgumentError: ``to`` is no time, or one before 2000, as a
                year or seconds are.
        """
        control = self._registry.get(topic, name)
        if to == EARLIEST:
            target = control.topic.first
        elif to == LATEST:
            target = control.topic.end
        elif (
            isinstance(to, int) and not isinstance(to, bool) and 0 < to < DUE_MS_MIN
        ):  # all that is kept would come again
            raise InvalidArgumentError(
                f"seek to {to} ({format_ms(to)}); allowed: milliseconds since 1970, from {DUE_MS_MIN} "
                f"({format_ms(DUE_MS_MIN)}) on, {' or '.join(STARTS)}; are these seconds for milliseconds?"
            )
        elif isinstance(to, int) and not isinstance(to, bool):
            target = self._ready.first_due(control.topic, to)
        else:
            raise InvalidArgumentError(f"seek to {to!r}; allowed: UTC milliseconds, {' or '.join(STARTS)}")
        wait_for(lambda on_result: control.seek(target, on_result))
        return max(0, control.topic.end - target)

    def discard(self, topic: str, name: str, offset: int) -> bool:
        """Ensure, durably, that a group never gets this message (again), whichever consumer has it.

        Returns False if it is settled, or on its way to the dead letters. A group that is new is made.
        """
        control = self._get_or_create(topic, name, None)
        return wait_for(lambda on_result: control.discard(offset, on_result))

    # -- readers that keep their own offsets -------------------------------------------------------------------------

    def follow(self, topic: str, name: str, start: str | None) -> int:
        """Return, durably, the offset below which a group has settled all messages.

        A new group is made, from the earliest message that is kept. ``start`` makes the group begin there, even if it
        is not new.
        """
        control = self._get_or_create(topic, name, start)
        if start is not None:
            self.seek(topic, name, start)
        else:
            wait_for(control.confirm)
        return max(control.group.floor, control.topic.first)

    def advance(self, topic: str, name: str, offset: int) -> int:
        """Settle all messages below ``offset`` for a group, durably; return the offset that it has reached.

        A group never goes back.

        Raises:
            InvalidArgumentError: the queue does not reach that far.
        """
        control = self._lifecycle.get_or_create_durably(check_topic(topic), check_group(name), EARLIEST)
        if offset > control.topic.end:
            raise InvalidArgumentError(f"offset {offset} of topic {topic!r}; allowed: up to {control.topic.end}")
        if offset > control.group.floor:
            wait_for(lambda on_result: control.advance(offset, on_result))
        return max(control.group.floor, control.topic.first)

    # -- where they stand --------------------------------------------------------------------------------------------

    def info_now(self, topic: str, name: str) -> GroupInfo:
        """Return a group's settings and counts, after ending its expired leases."""
        control = self._registry.get(topic, name)
        control.retry_copies()
        return self.info(control.group)

    def consumers(self, topic: str, name: str, limit: int) -> list[ConsumerInfo]:
        """Return the consumers of a group, and what each holds, after ending its expired leases."""
        control = self._registry.get(topic, name)
        control.retry_copies()
        return control.group.consumers(limit)

    def info(self, group: Group) -> GroupInfo:
        """Return a group's settings and counts."""
        settings, topic = group.settings, group.topic_name
        effective: dict[str, Any] = asdict(settings) | {
            "retry": str(parse_retry(settings.retry)) if settings.retry else self._default_retry,
            "filter": settings.filter or EVERYTHING,
            "ordered": group.ordered,
            "lease_ms": settings.lease_ms or self._default_lease_ms,
            "filter_paused": group.filter_paused,
            **group.counts(),
        }
        return GroupInfo(
            **effective,
            topic=topic,
            group=group.name,
            start=group.start,
            dead=self.dead_letters.count(topic, group.name),
            oldest_due_ms=group.oldest_due_ms(),
        )

    def has_topic(self, topic: str) -> bool:
        """Return whether the topic has settings, groups, or messages that have become due."""
        return topic in self._ready.topics

    def topic_info(self, topic: str) -> TopicInfo:
        """Return a topic's settings."""
        settings = self._settings.topic(check_topic(topic)) or TopicSettings()
        latest = settings.lateness_ms_max if settings.lateness_ms_max >= 0 else None
        late = settings.late or "drop"
        return TopicInfo(
            topic=topic,
            late=late,
            lateness_ms_max=latest,
            ordered=settings.ordered,
            declared=settings.declared,
            max_per_second=settings.max_per_second,
            queues=settings.queues,
        )

    def uses_topic(self, topic: str) -> bool:
        """Return whether a topic has a group or settings."""
        return self._lifecycle.uses_topic(topic)

    def forget_topics(self, topics: Collection[str], forget: Callable[[list[str]], None]) -> None:
        """See :meth:`GroupLifecycle.forget_topics`."""
        self._lifecycle.forget_topics(topics, forget)

    def unsettled(self, topic: str) -> int | None:
        """Return the number of ready messages that the topic's slowest group has not settled; None: no group."""
        return max((control.group.unsettled for control in self._registry.of_topic(topic)), default=None)

    # -- what goes on ------------------------------------------------------------------------------------------------

    def retry_copies(self) -> None:
        """End expired leases, and retry copies to the dead letters that were refused. Called now and then."""
        for control in self._registry.all():
            control.retry_copies()

    def do_due(self) -> None:
        """End expired leases, and wait until all copies to the dead letters are durable, or refused for now."""
        for control in self._registry.all():
            control.do_due()

    def wake(self) -> None:
        """Have all consumers that wait look again: the clock was moved."""
        for control in self._registry.all():
            control.wake()

    def next_ms(self, now_ms: int) -> int | None:
        """Return the next moment after ``now_ms`` at which a lease, a back-off or a wait ends."""
        moments = [control.next_ms(now_ms) for control in self._registry.all()]
        return min((each for each in moments if each is not None), default=None)

    def is_busy(self) -> bool:
        """Return whether a group that is not paused has messages that are ready, or with a consumer."""
        for group in self.all():
            counts = group.counts()
            if not group.settings.paused and (counts["ready"] or counts["leased"] or counts["burying"]):
                return True
        return False

    def stop(self) -> None:
        """Nothing is handed out any more; consumers that wait get nothing."""
        for control in self._registry.all():
            control.stop()
        if self._filters is not None:
            self._filters.stop()


def _parse_start(start: str | None) -> Start | None:
    if start is None or start in STARTS:
        return start
    raise InvalidArgumentError(f"start is {start!r}; allowed: {' or '.join(STARTS)}")
