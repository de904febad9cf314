"""Makes, sets and deletes groups, durably, and restores them after a restart."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pyarrow as pa

from tarry.api.groups import GroupSettings, TopicSettings
from tarry.api.settings import EARLIEST, LATEST, Start
from tarry.base.errors import DiskFullError, InvalidArgumentError, OverloadedError, TarryError
from tarry.base.waiting import wait_for
from tarry.groups.beginning import Beginning
from tarry.groups.control import GroupControl
from tarry.groups.registry import GroupRegistry
from tarry.groups.services import GroupServices, ScheduleRows
from tarry.groups.settings_file import SettingsFile
from tarry.message.dead_topics import DEAD_LETTER_GROUP
from tarry.message.topics import RESERVED
from tarry.queue.entries import JournalEntry, JournalOp
from tarry.queue.journal import Journal
from tarry.queue.log import ReadyLog
from tarry.queue.topic import Topic

NAME_LOCKS = 1024


@dataclass(eq=False)
class GroupLifecycle:
    """Lifecycle of groups. Any thread.

    ``schedule`` schedules messages of groups for other topics; ``check_topics`` raises if topics are new and too many.
    """

    _ready: ReadyLog
    _journal: Journal
    _registry: GroupRegistry
    _settings: SettingsFile
    _services: GroupServices
    _schedule: ScheduleRows
    _check_topics: Callable[[Collection[str]], None]
    _groups_max: int
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _name_locks: Sequence[threading.Lock] = field(
        default_factory=lambda: tuple(threading.Lock() for _ in range(NAME_LOCKS))
    )
    _creations: dict[GroupControl, Future[bool]] = field(default_factory=dict)
    """Groups that are not durable yet, each with the end of its creation: whether it is durable then."""

    def get_or_create(self, topic: str, name: str, start: Start = EARLIEST) -> GroupControl:
        """Return the group; make it if there is none, at the earliest kept message, or behind the latest.

        Its name is not checked. A new one becomes durable before all that is written to the journal from now on.
        """
        control = self._registry.find(topic, name)
        return control if control is not None else self._create(topic, name, start)[0]

    def get_or_create_durably(self, topic: str, name: str, start: Start) -> GroupControl:
        """Return the group as :meth:`get_or_create` does; a new one is durable.

        On a full disk it is not yet: consumers are served all the same, and it is written when there is room.

        Raises:
            TarryError: it is new, and cannot become durable any more.
        """
        control, creation = self._registry.find(topic, name), None
        if control is None or control in self._creations:
            control, creation = self._create(topic, name, start)
        if creation is not None:
            creation.result()
        return control

    def _create(self, topic_name: str, name: str, start: Start) -> tuple[GroupControl, Future[bool] | None]:
        """Return the group, and the end of its creation while that is under way."""
        with self._name_lock(topic_name, name), self._lock:
            control = self._registry.find(topic_name, name)
            if control is not None:
                return control, self._creations.get(control)
            self._check_bounds(topic_name, name)
            self._journal.check_room()
            # Under the lock: a topic that is forgotten meanwhile would be another one afterwards.
            topic = self._ready.topic(topic_name)
            # A crash may have come between the deletion of a group of that name and that of its settings.
            self._settings.set_group(topic.name, name, None)
            floor = topic.end if start == LATEST else topic.first
            control = self._add(topic, name, GroupSettings.of(topic.name), Beginning(floor, start))
            creation = self._creations[control] = Future[bool]()
            try:
                # "Latest" is behind rows that may not be durable; the journal must not be ahead of them.
                ticket = self._ready.ticket() if start == LATEST else 0
                control.confirm(partial(self._on_created, control, creation), ticket)
            except BaseException:
                self._creations.pop(control, None)  # without threads, it has ended by now
                raise
            return control, creation

    def _on_created(self, control: GroupControl, creation: Future[bool], error: TarryError | None) -> None:
        self._creations.pop(control, None)
        if error is None or isinstance(error, DiskFullError | OverloadedError):
            creation.set_result(error is None)
        else:
            creation.set_exception(error)

    def _check_bounds(self, topic: str, name: str) -> None:
        if name.startswith(RESERVED):
            return
        if self._registry.count >= self._groups_max:
            raise InvalidArgumentError(
                f"group {name!r} of topic {topic!r} would be one more than the {self._registry.count} that there are; "
                f"allowed: {self._groups_max} (groups_max)"
            )
        self._check_topics([topic])

    def forget_topics(self, names: Collection[str], forget: Callable[[list[str]], None]) -> None:
        """Call ``forget`` with those of the topics that have neither a group nor settings.

        None of them gets one meanwhile.
        """
        with self._lock:
            forget([name for name in names if not self.uses_topic(name)])

    def uses_topic(self, name: str) -> bool:
        """Return whether the topic has a group or settings."""
        return self._settings.topic(name) is not None or bool(self._registry.of_topic(name))

    def _add(
        self,
        topic: Topic,
        name: str,
        settings: GroupSettings,
        beginning: Beginning,
        grace_until_ms: int | None = None,
    ) -> GroupControl:
        topic_settings = self._settings.topic(topic.name)
        control = GroupControl(
            topic, name, self._services, self.put_copies, settings, topic_settings, beginning, grace_until_ms
        )
        self._registry.add(control)
        return control

    def put_copies(self, copies: pa.RecordBatch, on_result: Callable[[Any], None]) -> None:
        """Schedule copies of messages for the dead letters of their group.

        See :data:`tarry.groups.services.ScheduleRows`.
        """
        self.prepare_listing(copies)
        self._schedule(copies, on_result)

    def prepare_listing(self, copies: pa.RecordBatch) -> None:
        """Make the group that lists these copies, if there is none.

        Call before they are scheduled, so that its entry is in the journal before any that could release them.
        """
        self.get_or_create(copies.column("topic")[0].as_py(), DEAD_LETTER_GROUP)

    def configure(self, control: GroupControl, changes: dict[str, object]) -> None:
        """Change settings of a group (None: as it is), durably when it returns."""
        topic, name = control.topic.name, control.name
        with self._name_lock(topic, name):
            settings = control.group.settings.changed(**changes)
            # Settings of a group that is not in the journal would be those of a deleted one.
            creation = self._creations.get(control)
            if creation is None or not creation.result():
                wait_for(control.confirm)
            self._settings.set_group(topic, name, settings)
            with self._lock:
                control.configure(settings, self._settings.topic(topic))

    def configure_topic(self, topic: str, changes: dict[str, object]) -> None:
        """Change settings of a topic (None: as it is), durably when it returns; one that is new is made."""
        with self._lock:
            self._check_topics([topic])
            settings = (self._settings.topic(topic) or TopicSettings()).changed(**changes)
            self._settings.set_topic(topic, settings)
            self._ready.topic(topic)
            for control in self._registry.of_topic(topic):
                control.configure(control.group.settings, self._settings.topic(topic))

    def delete(self, control: GroupControl) -> None:
        """Durably when it returns. Its dead letters stay."""
        # Without the lock: it waits for copies that are being made for the dead letters, and those may want to make the
        # group that lists them.
        wait_for(control.delete)
        topic, name = control.topic.name, control.name
        with self._name_lock(topic, name):
            with self._lock:
                is_removed = self._registry.remove(control)
            if is_removed:
                self._settings.set_group(topic, name, None)

    def _name_lock(self, topic: str, name: str) -> threading.Lock:
        """Return the lock of what is durable of groups of that name, deleted ones among them.

        Taken before the other lock. Groups have locks of their own, so that one write is for many of them.
        """
        return self._name_locks[hash((topic, name)) % len(self._name_locks)]

    def recover(self, entries: Iterable[JournalEntry], grace_until_ms: int | None = None) -> None:
        """Bring back the groups that the journal's ``entries`` tell of, with their settings.

        ``grace_until_ms``: they hand out nothing of what is ready now before that moment.

        Raises:
            CorruptError: the entries are damaged, or ahead of the ready log.
        """
        for topic_name in self._settings.topics:
            self._ready.topic(topic_name)
        beginnings: dict[tuple[str, str], Beginning] = {}
        for entry in entries:
            self._ready.topic(entry.topic)
            if entry.op is JournalOp.DELETE:
                beginnings.pop((entry.topic, entry.group), None)
            else:
                beginnings.setdefault((entry.topic, entry.group), Beginning()).replay(entry)
        for (topic_name, name), beginning in beginnings.items():
            settings = self._settings.group(topic_name, name)
            self._add(self._ready.topic(topic_name), name, settings, beginning, grace_until_ms)
