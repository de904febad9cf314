"""The consumer groups of a broker: which there are, what they are told to do, and where they stand."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

from tarry.api.filter import EVERYTHING
from tarry.api.groups import GroupInfo, GroupSettings, TopicInfo, TopicSettings
from tarry.api.retry import parse_retry
from tarry.base.clock import Clock
from tarry.base.config import Config
from tarry.base.dead_topics import KEEPER, dead_topic, is_dead_topic
from tarry.base.errors import InvalidArgumentError, NotFoundError
from tarry.base.message import RESERVED, check_topic
from tarry.base.types import Int64s
from tarry.broker.dead_letters import DeadLetters
from tarry.broker.settings import Policies
from tarry.broker.waiting import wait_for
from tarry.groups import Group, Services
from tarry.groups.ledger import EARLIEST, LATEST, STARTS, Bury, Retries
from tarry.log.files import Files
from tarry.queue import Journal, ReadyLog, Topic
from tarry.queue.journal import Entry, Op

NAME_BYTES_MAX = 255


class Groups:
    """Thread-safe. ``put`` schedules what groups send to other topics (``Broker.put``)."""

    def __init__(
        self,
        config: Config,
        clock: Clock,
        files: Files,
        ready: ReadyLog,
        journal: Journal,
        lease_ids: Iterator[int],
        on_handout: Callable[[Int64s, int, str, int | None], None],
        put: Bury,
    ) -> None:
        self._config = config
        self._ready = ready
        self._journal = journal
        self._lock = threading.Lock()
        self._policies = Policies(files, config.data)
        self.letters = DeadLetters(self, clock, put, config.delay_ms_max)
        retry = parse_retry(f"fixed {config.retry_ms}ms")
        bury = self.letters.bury
        self._services = Services(clock, journal, ready.ticket, lease_ids, on_handout, bury, retry)
        ready.keeper = self

    # -- which there are ---------------------------------------------------------------------------------------------

    def get(self, topic: str, name: str, *, start: str | None = None, broadcast: str | None = None) -> Group:
        """The group of that name, made (durably) when it is new: from the earliest message that is kept, or the latest.

        With ``broadcast``, the group of that consumer alone, ``name@consumer``, which begins at the latest.
        """
        check_topic(topic)
        check_group(name)
        _check_start(start)
        if broadcast is not None:
            name, start = broadcast_group(name, broadcast), start or LATEST
        queue = self._ready.topic(topic)
        found = queue.groups.get(name)
        return self.made(queue, name, start or EARLIEST) if found is None or found.deleted else found

    def find(self, topic: str, name: str) -> Group:
        """The group of that name.

        Raises:
            NotFoundError: there is none.
        """
        queue = self._ready.topics.get(topic)
        found = queue.groups.get(name) if queue is not None else None
        if found is None or found.deleted:
            raise NotFoundError(f"topic {topic!r} has no group {name!r}")
        return found

    def made(self, queue: Topic, name: str, start: str = EARLIEST) -> Group:
        """The group, made if there is none; its name is not checked."""
        with self._lock:
            found = queue.groups.get(name)
            if found is None or found.deleted:
                # A crash may have come between the deletion of a group of that name and that of its settings.
                self._policies.set_group(queue.name, name, None)
                floor = queue.end if start == LATEST else queue.first
                found = Group(queue, name, self._services, GroupSettings.of(queue.name), floor)
                found.start = start
                queue.groups[name] = found
                # "Latest" is behind rows that may not be durable; the journal must not be ahead of them.
                self._journal.write([found.group_entry()], self._ready.ticket() if start == LATEST else 0)
            return found

    def keeper(self, dead_topic: str, *, make: bool = False) -> Group | None:
        """The group that keeps the letters of a dead-letter topic; None where there is none, and none is to be made."""
        queue = self._ready.topic(dead_topic) if make else self._ready.topics.get(dead_topic)
        found = queue.groups.get(KEEPER) if queue is not None else None
        return self.made(queue, KEEPER) if found is None and make and queue is not None else found

    def all(self, topic: str | None = None) -> list[Group]:
        """The groups, of one topic or of all, without the broker's own."""
        topics = [self._ready.topics.get(topic)] if topic is not None else list(self._ready.topics.values())
        groups = [group for queue in topics if queue is not None for group in list(queue.groups.values())]
        return sorted(
            (g for g in groups if not g.name.startswith(RESERVED)), key=lambda group: (group.topic.name, group.name)
        )

    def delete(self, topic: str, name: str) -> None:
        """Durably when it returns. Its dead letters stay."""
        group = self.find(topic, name)
        # Without the lock: it waits for copies that are being made for the dead letters, and those may want a keeper.
        wait_for(group.delete)
        with self._lock:
            if group.topic.groups.get(name) is group:  # else somebody has made it anew
                del group.topic.groups[name]
                self._policies.set_group(topic, name, None)

    # -- what they are told ------------------------------------------------------------------------------------------

    def set(self, topic: str, name: str, start: str | None, **given: object) -> GroupInfo:
        """Change settings (None: as it is), durably when it returns; a group that is new is made."""
        _check_start(start)
        known = self._ready.topics.get(check_topic(topic))
        group = known.groups.get(check_group(name)) if known is not None else None
        settings = (group.settings if group is not None else GroupSettings.of(topic)).changed(**given)
        if is_dead_topic(topic) and settings.tries:
            raise InvalidArgumentError(f"tries is {settings.tries} for dead letters; allowed: 0 (no limit)")
        group = self.get(topic, name, start=start)
        with self._lock:
            settings = group.settings.changed(**given)
            # Settings of a group that is not in the journal would be those of a deleted one.
            wait_for(group.confirm)
            self._policies.set_group(topic, name, settings)
            group.configure(settings)
        return self.info(group)

    def seek(self, topic: str, name: str, to: int | str) -> int:
        """Go on from a time (UTC milliseconds), the earliest or the latest; how many ready messages are ahead then."""
        group = self.find(topic, name)
        if to == EARLIEST:
            target = group.topic.first
        elif to == LATEST:
            target = group.topic.end
        elif isinstance(to, int) and not isinstance(to, bool):
            target = self._ready.first_due(group.topic, to)
        else:
            raise InvalidArgumentError(f"seek to {to!r}; allowed: UTC milliseconds, {' or '.join(STARTS)}")
        wait_for(lambda done: group.seek(target, done))
        return max(0, group.topic.end - target)

    def set_topic(self, topic: str, **given: object) -> TopicInfo:
        """Change a topic's settings, durably when it returns."""
        if is_dead_topic(check_topic(topic)) and any(
            given.get(name) is not None for name in ("late", "lateness_ms_max")
        ):
            raise InvalidArgumentError(f"{topic!r} is for dead letters, which are never late; allowed: other topics")
        with self._lock:
            settings = self._policies.topics.get(topic, TopicSettings()).changed(**given)
            self._policies.set_topic(topic, settings)
            queue = self._ready.topic(topic)
            queue.settings = None if settings == TopicSettings() else settings
            for group in list(queue.groups.values()):
                group.configure(group.settings)
        return self.topic_info(topic)

    def pause(self, topic: str, name: str, *, paused: bool) -> None:
        """Have a group that is there hand out nothing, or again."""
        self.find(topic, name)
        self.set(topic, name, None, paused=paused)

    def ready_count(self, topic: str) -> int:
        """How many messages of a topic are ready and not settled by the group that has the most of them."""
        queue = self._ready.topics.get(topic)
        if queue is None:
            return 0
        return max((g.unsettled for g in list(queue.groups.values())), default=queue.end - queue.first)

    def stop(self) -> None:
        """Nothing is handed out any more; who waits is let go."""
        for queue in list(self._ready.topics.values()):
            for group in list(queue.groups.values()):
                group.stop()

    def has_topic(self, topic: str) -> bool:
        """Whether it has settings, groups, or messages that have become due."""
        return topic in self._ready.topics

    # -- where they stand --------------------------------------------------------------------------------------------

    def info(self, group: Group) -> GroupInfo:
        """A group's settings and counts."""
        s, topic = group.settings, group.topic.name
        return GroupInfo(
            topic=topic,
            group=group.name,
            retry=str(parse_retry(s.retry) if s.retry else self._services.retry),
            tries=s.tries,
            inflight_max=s.inflight_max,
            filter=s.filter or EVERYTHING,
            ordered=group.ordered,
            paused=s.paused,
            lease_ms=s.lease_ms or self._config.lease_ms,
            start=group.start,
            dead=self.letters.count(dead_topic(topic, group.name)),
            oldest_due_ms=group.oldest_due_ms(),
            **group.counts(),
        )

    def topic_info(self, topic: str) -> TopicInfo:
        """What becomes of a topic's late messages."""
        s = self._policies.topics.get(check_topic(topic), TopicSettings())
        latest = s.lateness_ms_max if s.lateness_ms_max >= 0 else None
        return TopicInfo(topic, s.late or "drop", latest, s.ordered, s.declared)

    # -- recovery, and what goes on ----------------------------------------------------------------------------------

    def recover(self) -> None:
        """Bring back what the journal and the policies have.

        Raises:
            CorruptError: they are damaged, or ahead of the ready log.
        """
        # Before there are groups, which look at them.
        for topic_name, topic_settings in self._policies.topics.items():
            self._ready.topic(topic_name).settings = topic_settings
        retries: dict[tuple[str, str], Retries] = {}
        for entry in self._journal.recover():
            topic, key = self._ready.topic(entry.topic), (entry.topic, entry.group)
            if entry.op is Op.DELETE:
                topic.groups.pop(entry.group, None)
                retries.pop(key, None)
                continue
            group = topic.groups.get(entry.group)
            if group is None:
                floor = entry.first if entry.op is Op.GROUP else 0
                settings = self._policies.group(*key)
                group = topic.groups[entry.group] = Group(topic, entry.group, self._services, settings, floor)
            group.replay(entry, retries.setdefault(key, {}))
        groups = [(t.name, n, g) for t in list(self._ready.topics.values()) for n, g in t.groups.items()]
        for topic_name, name, group in groups:
            group.recovered(retries.get((topic_name, name), {}))

    def entries(self) -> Iterator[Entry]:
        """The state of all groups, for a snapshot of the journal."""
        for topic in list(self._ready.topics.values()):
            for group in list(topic.groups.values()):
                yield from group.entries()

    def tend(self) -> None:
        """Called by the ready log now and then: do what waits."""
        for topic in list(self._ready.topics.values()):
            for group in list(topic.groups.values()):
                group.tend()

    def take_over(self, segment: int) -> bool:
        """Called by the ready log before a segment is deleted for its age; whether it may be."""
        return self.letters.take_over(list(self._ready.topics.values()), segment)


def check_group(name: str) -> str:
    """``name`` itself, when a group may have it.

    Raises:
        InvalidArgumentError: otherwise.
    """
    if not isinstance(name, str) or not name or len(name.encode(errors="replace")) > NAME_BYTES_MAX:
        raise InvalidArgumentError(f"group {name!r} is not a group name; allowed: 1 to {NAME_BYTES_MAX} bytes")
    if name.startswith(RESERVED) or not _encodes(name):
        raise InvalidArgumentError(
            f"group {name!r} is not a group name; allowed: UTF-8 that begins without {RESERVED!r}"
        )
    return name


def broadcast_group(group: str, consumer: str) -> str:
    """The name of the group that one consumer of a broadcast has for itself.

    Raises:
        InvalidArgumentError: the consumer's name is not allowed, or both together are too long.
    """
    if not isinstance(consumer, str) or not consumer or "@" in consumer:
        raise InvalidArgumentError(f"broadcast consumer {consumer!r}; allowed: 1 or more characters without '@'")
    return check_group(f"{group}@{consumer}")


def _check_start(start: str | None) -> None:
    if start is not None and start not in STARTS:
        raise InvalidArgumentError(f"start is {start!r}; allowed: {' or '.join(STARTS)}")


def _encodes(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
