"""Positions of the schedule query in the source partitions, and the extent of a batch. Pure functions.

A partition has a *number*, given once and kept in the store. A record's seq is its number and its offset, so that seqs
are unique, rise with the offset within a partition, and tell the partition again::

    seq = number * 2**46 + offset          number below 2**16, offset below 2**46: seq below 2**62

Spark's offset of the query is
``{"t": clock, "next": first free number, "at": {topic: {partition: [number, offset]}}}``.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tarry.base.errors import InvalidArgumentError

OFFSET_BITS = 46
NUMBERS_MAX = 1 << 16
OFFSET_MAX = (1 << OFFSET_BITS) - 1

Partition = tuple[str, int]
"""Topic and partition."""


def seq_of(number: int, offset: int) -> int:
    """Return the seq of a record.

    Raises:
        InvalidArgumentError: one of the two has no room in it.
    """
    if not (0 <= number < NUMBERS_MAX and 0 <= offset <= OFFSET_MAX):
        raise InvalidArgumentError(
            f"partition number {number}, offset {offset}; allowed: below {NUMBERS_MAX} and up to {OFFSET_MAX}"
        )
    return number << OFFSET_BITS | offset


def number_of(seq: int) -> int:
    """Return the number of the partition that a seq belongs to."""
    return seq >> OFFSET_BITS


def shard_of(number: int, shards: int) -> int:
    """Return the shard that sends on a partition's records.

    It is always the same, so that the order of a key is kept.
    """
    return number % shards


@dataclass(frozen=True, slots=True)
class At:
    """A partition's number and next offset."""

    number: int
    offset: int


@dataclass(frozen=True, slots=True)
class SourcePositions:
    """Position in all source partitions."""

    clock_ms: int
    next_number: int
    at: Mapping[Partition, At]

    def to_json(self) -> dict[str, Any]:
        """Return the position as Spark keeps it."""
        topics: dict[str, dict[str, list[int]]] = defaultdict(dict)
        for (topic, partition), at in sorted(self.at.items()):
            topics[topic][str(partition)] = [at.number, at.offset]
        return {"t": self.clock_ms, "next": self.next_number, "at": dict(topics)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> SourcePositions:
        at = {
            (topic, int(partition)): At(*numbers)
            for topic, partitions in data["at"].items()
            for partition, numbers in partitions.items()
        }
        return cls(data["t"], data["next"], at)

    def with_new(self, begins: Mapping[Partition, int]) -> SourcePositions:
        """Return the position with new partitions, which begin at these offsets.

        Each gets a number of its own: also one that is there already, when its topic was created anew.

        Raises:
            InvalidArgumentError: there are more than numbers.
        """
        new = {p: At(self.next_number + i, begins[p]) for i, p in enumerate(sorted(begins))}
        if self.next_number + len(new) > NUMBERS_MAX:
            raise InvalidArgumentError(f"more than {NUMBERS_MAX} source partitions were seen; allowed: as many")
        return SourcePositions(self.clock_ms, self.next_number + len(new), {**self.at, **new})

    def advanced(self, ends: Mapping[Partition, int], rows_max: int, now_ms: int) -> SourcePositions:
        """Return the end of a batch from here towards ``ends``, with at most about ``rows_max`` records.

        It is this position itself if nothing is new. If there is more, each partition has its share of the batch.
        """
        ahead = {p: max(0, end - self.at[p].offset) for p, end in ends.items() if p in self.at}
        total = sum(ahead.values())
        if total == 0:
            return self
        # Rounded up, so that a partition with few is not starved by one with many.
        rows_of = {p: rows if total <= rows_max else -(-rows * rows_max // total) for p, rows in ahead.items()}
        at = {p: At(a.number, a.offset + rows_of.get(p, 0)) for p, a in self.at.items()}
        return SourcePositions(now_ms, self.next_number, at)


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """Records ``[start, end)`` of a partition."""

    topic: str
    partition: int
    number: int
    start: int
    end: int


def ranges(start: SourcePositions, end: SourcePositions, shards: int) -> dict[int, list[OffsetRange]]:
    """Return the ranges that a batch reads, by shard.

    A partition that ``start`` does not have yet is not read in this batch.
    """
    by_shard: dict[int, list[OffsetRange]] = defaultdict(list)
    for (topic, partition), to in sorted(end.at.items()):
        at = start.at.get((topic, partition))
        if at is not None and at.number == to.number and at.offset < to.offset:
            by_shard[shard_of(to.number, shards)].append(OffsetRange(topic, partition, to.number, at.offset, to.offset))
    return dict(by_shard)


def changes(start: SourcePositions, end: SourcePositions) -> dict[Partition, tuple[int | None, At]]:
    """Return the partitions whose position changes.

    Each has its offset before (None: it was new) and its position after.
    """
    moved = {}
    for partition, to in end.at.items():
        at = start.at.get(partition)
        if at != to:
            moved[partition] = (None if at is None else at.offset, to)
    return moved
