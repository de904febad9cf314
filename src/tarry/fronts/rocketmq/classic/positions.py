"""Positions of each group in each queue of a topic, as its classic consumers commit them.

The broker has one position of a group in a topic: that of the queue that is furthest behind. Those of the single queues
are in the file ``DATA/rocketmq/classic-positions.json``, which is written every :data:`SAVE_S` seconds and when the
front stops. After a crash a group may so get again messages that it committed in the last seconds in queues that were
ahead; but never below the broker's position, which is durable with each commit.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tarry.api.audit import AskedBy
from tarry.api.local import FrontState, LocalBroker
from tarry.api.operations import AdvanceGroup, FollowQueue, GetQueues, Seek
from tarry.base.errors import CorruptError, InvalidArgumentError, NotFoundError
from tarry.fronts.rocketmq.classic.queues import TopicQueues

log = logging.getLogger(__name__)

SAVE_S = 5.0


@dataclass(slots=True)
class _Group:
    """One group in one topic.

    ``lock`` is held while the broker is told, so that a reset and a commit do not mix.
    """

    offsets: list[int | None]
    """By queue; None if no consumer has said where it begins."""
    stands: int
    """The broker's position."""
    gaps: dict[int, tuple[int, int]] = field(default_factory=dict)
    """By queue: the range in which the last pull found nothing."""
    lock: threading.Lock = field(default_factory=threading.Lock)


class Positions:
    """All positions. Any thread; every call may wait for the disk."""

    def __init__(self, broker: LocalBroker, queues: TopicQueues) -> None:
        self._broker = broker
        self._queues = queues
        self._file = broker.front_state("positions")
        self._saved, self._resets = _load(self._file)
        """Content of the file, by topic and group; and the number of resets in any topic, by group."""
        self._groups: dict[tuple[str, str], _Group] = {}
        self._lock = threading.Lock()
        self._changed = False

    def meet(self, topic: str, group: str) -> None:
        """Note a group before it is made, to tell new ones from existing ones."""
        self._group(topic, group)

    def find(self, topic: str, group: str, queue: int) -> int | None:
        """Return a group's position in a queue; None if no consumer has said one yet."""
        if (topic, group) not in self._groups:
            try:
                self._broker.find_group(topic, group)
            except NotFoundError:
                return None  # nothing is kept for a name that is only asked about
        entry = self._group(topic, group)
        with entry.lock:
            offset = entry.offsets[queue]
        # Consumers that lease may have gone further meanwhile.
        return None if offset is None else max(offset, self._broker.call(FollowQueue(topic, group)))

    def glance(self, topic: str, group: str) -> list[int] | None:
        """Return a group's current position in each queue, for display; None if there is no such group.

        The positions may not be durable yet.
        """
        try:
            self._broker.find_group(topic, group)
        except NotFoundError:
            return None
        entry = self._group(topic, group)
        # It moves nothing, and so waits for no disk; FollowQueue would, for each of hundreds of groups.
        stands = self._broker.call(AdvanceGroup(topic, group, 0))
        with entry.lock:
            return [max(offset or 0, stands) for offset in entry.offsets]

    def forget(self, topic: str, group: str) -> None:
        """Have the group go on from its position in the broker, in all queues."""
        with self._lock:
            self._groups.pop((topic, group), None)
            self._saved.pop((topic, group), None)
            self._changed = True

    def commit(self, topic: str, group: str, queue: int, offset: int) -> None:
        """Commit that everything below is done in that queue. A position never goes back.

        Raises:
            InvalidArgumentError: the queue does not reach that far.
        """
        self.settle(topic, group, {queue: offset}, {})

    def settle(self, topic: str, group: str, offsets: Mapping[int, int], gaps: Mapping[int, tuple[int, int]]) -> None:
        """Commit several queues, and skip ranges in which pulls found nothing.

        A queue committed up to such a range has then reached its end.

        Raises:
            InvalidArgumentError: the queue does not reach that far.
        """
        entry = self._group(topic, group)
        end = self._broker.call(GetQueues([topic]))[topic][1]
        furthest = max(offsets.values(), default=0)
        if furthest > end:
            raise InvalidArgumentError(f"offset {furthest} of topic {topic!r}; allowed: 0 to {end}")
        with entry.lock:
            for queue, (start, stop) in gaps.items():
                begin, until = entry.gaps.get(queue, (start, start))
                entry.gaps[queue] = (begin if begin <= start <= until else start), stop
            for queue, offset in offsets.items():
                entry.offsets[queue] = max(offset, entry.offsets[queue] or 0)
            self._settle(topic, group, entry, {*offsets, *gaps})

    def reset(self, topic: str, group: str, to: int | str, asked: AskedBy) -> int:
        """Have a group go on from a time, or from the "latest"; return the offset, of all queues.

        It is durable when it returns. ``asked``: the caller, for the audit log.
        """
        entry = self._group(topic, group)
        with entry.lock:
            self._broker.call(FollowQueue(topic, group))
            self._broker.call_by(Seek(topic, group, to), asked)
            entry.stands = self._broker.call(FollowQueue(topic, group))
            entry.offsets = [entry.stands] * len(entry.offsets)
            entry.gaps.clear()
            with self._lock:
                self._resets[group] = self._resets.get(group, 0) + 1
                self._changed = True
        self.save()
        return entry.stands

    def resets(self, group: str) -> int:
        """Return how often a group was reset, in any of its topics."""
        return self._resets.get(group, 0)

    def save(self) -> None:
        """Save all changes since the last time."""
        with self._lock:
            if not self._changed:
                return
            self._changed = False
            groups = [
                {"topic": topic, "group": group, "stands": entry.stands, "offsets": entry.offsets}
                for (topic, group), entry in self._groups.items()
            ]
            kept = [saved for key, saved in self._saved.items() if key not in self._groups]
            try:
                self._file.write({"groups": groups + kept, "resets": self._resets})
            except BaseException:
                self._changed = True
                raise

    def _settle(self, topic: str, group: str, entry: _Group, queues: Iterable[int]) -> None:
        """Advance the group after queues have, or may have, advanced. Called with the entry's lock."""
        for queue in queues:
            offset, (begin, end) = entry.offsets[queue], entry.gaps.get(queue, (0, -1))
            if offset is not None and begin <= offset < end:
                entry.offsets[queue] = end
        self._changed = True
        reported = [offset for offset in entry.offsets if offset is not None]
        if len(reported) == len(entry.offsets) and min(reported) > entry.stands:
            try:
                entry.stands = self._broker.call(AdvanceGroup(topic, group, min(reported)))
            except NotFoundError:
                # A consumer that has pulled nothing yet commits where it begins.
                self._broker.call(FollowQueue(topic, group))
                entry.stands = self._broker.call(AdvanceGroup(topic, group, min(reported)))

    def _group(self, topic: str, group: str) -> _Group:
        key = topic, group
        entry, count = self._groups.get(key), self._queues.count(topic)
        if entry is None or len(entry.offsets) != count:
            with self._lock:
                entry = self._groups.get(key)
                # A topic whose number of queues has changed is treated as a new one.
                if entry is None or len(entry.offsets) != count:
                    entry = self._groups[key] = self._meet(topic, group, count)
        return entry

    def _meet(self, topic: str, group: str, count: int) -> _Group:
        try:
            self._broker.find_group(topic, group)
        except NotFoundError:
            return _Group([None] * count, 0)
        stands = self._broker.call(FollowQueue(topic, group))
        saved = self._saved.get((topic, group))
        # If a group is further back than it was, it was sent back meanwhile. With another number of queues, messages
        # are divided differently.
        if saved is None or saved["stands"] > stands or len(saved["offsets"]) != count:
            return _Group([stands] * count, stands)
        offsets = [None if offset is None else max(offset, stands) for offset in saved["offsets"]]
        return _Group(offsets, stands)


def _load(file: FrontState) -> tuple[dict[tuple[str, str], dict[str, Any]], dict[str, int]]:
    """Read the file: its content by topic and group, and the resets of groups.

    If it cannot be read, positions are the broker's.
    """
    try:
        content = file.read() or {"groups": []}
        groups = {
            (group["topic"], group["group"]): group
            for group in content["groups"]
            if group["offsets"] and group["stands"] >= 0
        }
        # Earlier versions had none.
        return groups, {str(group): int(count) for group, count in content.get("resets", {}).items()}
    except (CorruptError, OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        log.warning("positions cannot be read, so groups go on from the queue that is furthest behind: %s", error)
        return {}, {}
