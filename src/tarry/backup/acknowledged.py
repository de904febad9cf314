"""Takes acknowledgements back in a restored directory: those of messages that came since an instant.

The journal of the groups says which messages are settled, and not since when, so the instant is that at which a message
could be had: its due time, or, if it was accepted later, that moment. An acknowledgement comes after that. So all later
acknowledgements of such messages are taken back; those of older messages stay. Decision 63 has what was weighed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from tarry.base.errors import NotFoundError
from tarry.base.types import Int64s
from tarry.broker.directory import Checkpoint
from tarry.groups.beginning import Beginning
from tarry.groups.intervals import Intervals, runs
from tarry.log.file_engine import DIRECTORIES, FileEngine
from tarry.log.files import OsFiles
from tarry.log.frame import LogKind
from tarry.log.segment import SegmentReader, list_segments, segment_path
from tarry.message.schema import SCHEMA, accepted_ms
from tarry.message.topics import RESERVED
from tarry.queue.entries import JournalEntry, JournalOp
from tarry.queue.journal import Journal

_NEVER_BYTES = 1 << 62
"""No new file is begun: it would begin with a snapshot of groups, which only a broker has."""


@dataclass(frozen=True, slots=True)
class GroupChange:
    """A group of which acknowledgements were taken back.

    Of so many ``messages``, the first of which came at ``first_ms``.
    """

    topic: str
    group: str
    messages: int
    first_ms: int


@dataclass(slots=True)
class _Queue:
    """The messages of a topic that the ready log has: their offsets, ascending, and when each came."""

    _offsets: list[Int64s] = field(default_factory=list)
    _came_ms: list[Int64s] = field(default_factory=list)

    def add(self, first: int, came_ms: Int64s) -> None:
        self._offsets.append(np.arange(first, first + len(came_ms)))
        self._came_ms.append(came_ms)

    @property
    def offsets(self) -> Int64s:
        return np.concatenate(self._offsets)

    @property
    def came_ms(self) -> Int64s:
        return np.concatenate(self._came_ms)


def take_back(data: Path, until_ms: int, groups: Sequence[tuple[str, str]] = ()) -> list[GroupChange]:
    """Have messages that came from ``until_ms`` on count as not settled; return the groups with such.

    ``data`` is a directory that no broker has open, without a torn tail. ``groups``: (topic, name) of those that it is
    about; without any, all but the broker's own. What the queue does not keep any more cannot come again.

    Raises:
        NotFoundError: there is no such group; nothing was changed.
    """
    failures: list[BaseException] = []
    journal = Journal(
        FileEngine(OsFiles(), data).log(LogKind.ACKS),
        segment_bytes_max=_NEVER_BYTES,
        sync_ready=lambda _: None,  # it is durable
        snapshot=lambda: (),
        on_fatal=failures.append,
        threaded=False,
        durable=Checkpoint.read(data).acks,
    )
    try:
        beginnings = _beginnings(journal.entries())
        chosen = _chosen(beginnings, groups)
        queues = _queues_of(data, {topic for topic, _ in chosen})
        changes = []
        for topic, name in chosen:
            if topic not in queues:
                continue
            found = _taken_back(topic, name, beginnings[topic, name], queues[topic], until_ms)
            if found is not None:
                change, entries = found
                journal.write(entries, 0)
                changes.append(change)
        for failure in failures:
            raise failure
        return changes
    finally:
        journal.close()


def _beginnings(entries: Iterator[JournalEntry]) -> dict[tuple[str, str], Beginning]:
    """Return the state of each group, as a start reads it."""
    found: defaultdict[tuple[str, str], Beginning] = defaultdict(Beginning)
    for entry in entries:
        if entry.op is JournalOp.DELETE:
            found.pop((entry.topic, entry.group), None)
        else:
            found[entry.topic, entry.group].replay(entry)
    return dict(found)


def _chosen(
    beginnings: Mapping[tuple[str, str], Beginning], groups: Sequence[tuple[str, str]]
) -> list[tuple[str, str]]:
    own = sorted(each for each in beginnings if not each[1].startswith(RESERVED))
    for topic, name in groups:
        if (topic, name) not in own:
            others = ", ".join(f"{group!r} of {each!r}" for each, group in own[:10]) or "none"
            raise NotFoundError(f"topic {topic!r} has no group {name!r} in the backup; allowed: {others}")
    return list(groups) or own


def _queues_of(data: Path, topics: set[str]) -> dict[str, _Queue]:
    """Read when the messages of some topics came, in the order of their offsets."""
    queues: defaultdict[str, _Queue] = defaultdict(_Queue)
    directory = data / DIRECTORIES[LogKind.READY]
    for base in list_segments(directory):
        with SegmentReader(segment_path(directory, base)) as reader:
            for at, topic, batch in reader.read_all(SCHEMA):
                if topic in topics:
                    due_ms = batch.column("due_ms").to_numpy()
                    queues[topic].add(at.header.base, np.maximum(due_ms, accepted_ms(batch)))
    return dict(queues)


def _taken_back(
    topic: str, name: str, group: Beginning, queue: _Queue, until_ms: int
) -> tuple[GroupChange, list[JournalEntry]] | None:
    """Return what is taken back of a group, and the journal's entries for that; None: nothing is."""
    offsets, came_ms = queue.offsets, queue.came_ms
    again = (came_ms >= until_ms) & ((offsets < group.floor) | group.settled.mask(offsets))
    if not again.any():
        return None
    floor = min(group.floor, int(offsets[again][0]))
    group.settled.add(floor, max(floor, group.floor))
    entries = [JournalEntry(topic, name, JournalOp.SEEK, floor)]
    for first, end in _without(group.settled, runs(offsets[again])):
        if end > floor:
            entries.append(JournalEntry(topic, name, JournalOp.ACK, max(first, floor), end))
    for offset, (attempt, at_ms) in group.retries.items():
        entries.append(JournalEntry(topic, name, JournalOp.RETRY, offset, offset + 1, attempt, at_ms))
    return GroupChange(topic, name, int(again.sum()), int(came_ms[again].min())), entries


def _without(intervals: Intervals, cuts: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Yield what is in the intervals and in none of the cuts, which ascend."""
    for first, end in intervals:
        for cut, cut_end in cuts:
            if cut_end > first and cut < end:
                if cut > first:
                    yield first, cut
                first = cut_end
        if first < end:
            yield first, end
