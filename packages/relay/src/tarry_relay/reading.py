"""Reads ranges of offsets completely, and proves that no more records are in them.

Offsets have holes: markers of transactions, aborted records, records that compaction has removed. So the end of a range
is known to be reached by a record at or behind it, or by the end of the partition, never by a count.

Records that a consumer has fetched beyond a range begin the next one. So it reads on from batch to batch: beginning
anew at each range would throw them away, and fetch them twice.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import KafkaError, TopicPartition

from tarry.base.errors import CorruptError, UnavailableError
from tarry_relay.clients import errors, translated
from tarry_relay.positions import OffsetRange, Partition

READ_ROWS = 10_000
KEPT_ROWS_MAX = 50_000
"""Records behind the end of a range that are kept for the next one.

A partition that brings more, while another one is waited for, is read anew.
"""
WAIT_S = 0.05
STALL_S = 60.0
"""Seconds that a read waits for the next record. Longer than brokers take to elect a leader."""


@dataclass(slots=True)
class _Place:
    """Next offset of a partition, and what was fetched beyond: records, and ends of the partition."""

    number: int
    offset: int
    kept: list[Any] = field(default_factory=list)


class RangeReader:
    """Reader of ranges, with a consumer of its own.

    The consumer reports ends of partitions (``enable.partition.eof``). After an error neither is used any more.
    """

    def __init__(self, consumer: Any) -> None:
        self._consumer = consumer
        self._places: dict[Partition, _Place] = {}
        """The partitions that are assigned."""
        self._left: dict[Partition, OffsetRange] = {}

    def read(self, some: Iterable[OffsetRange], *, stall_s: float = STALL_S) -> Iterator[tuple[OffsetRange, list[Any]]]:
        """Yield ranges, each with some of its records, until all were read.

        Raises:
            CorruptError: the first records of a range were deleted: retention was shorter than the relay's pause.
            UnavailableError: nothing came for ``stall_s``.
        """
        self._left = {(r.topic, r.partition): r for r in some if r.start < r.end}
        yield from self._by_range(self._begin())
        last = time.monotonic()
        while self._left:
            # ``consume`` waits for this many records, or for the time-out: so ask for no more than may come, and not
            # for long, since offsets have holes.
            missing = sum(whole.end - self._places[at].offset for at, whole in self._left.items())
            with errors("the source cannot be read"):
                batch = self._consumer.consume(min(READ_ROWS, missing), timeout=WAIT_S)
            if batch:
                last = time.monotonic()
            elif time.monotonic() - last > stall_s:
                raise UnavailableError(f"nothing came of {_named(self._left.values())} for {stall_s:g} s")
            yield from self._by_range(batch)

    def rest(self) -> None:
        """Ask Kafka for nothing until the next ranges."""
        self._let_go(list(self._places))

    # -- inside ------------------------------------------------------------------------------------------------------

    def _begin(self) -> list[Any]:
        """Begin with the ranges; return the records of them that were fetched already."""
        kept, anew = [], []
        for at, whole in self._left.items():
            place = self._places.get(at)
            if place is not None and (place.number, place.offset) == (whole.number, whole.start):
                kept += place.kept
                place.kept = []
            else:
                anew.append(at)
        self._let_go([at for at in anew if at in self._places])
        if anew:
            with errors("the source cannot be read"):
                self._consumer.incremental_assign([TopicPartition(*at, self._left[at].start) for at in anew])
        for at in anew:
            self._places[at] = _Place(self._left[at].number, self._left[at].start)
        return kept

    def _let_go(self, some: Sequence[Partition]) -> None:
        if some:
            with errors("the source cannot be let go"):
                self._consumer.incremental_unassign([TopicPartition(*at) for at in some])
            for at in some:
                del self._places[at]

    def _by_range(self, batch: list[Any]) -> Iterator[tuple[OffsetRange, list[Any]]]:
        left, places = self._left, self._places
        records_of: dict[Partition, list[Any]] = {}
        done = []
        for message in batch:
            at = (message.topic(), message.partition())
            error = message.error()
            whole = left.get(at)
            if whole is None:
                if at in places:
                    places[at].kept.append(message)
                elif error is not None and error.code() in _DELETED:
                    _raise(error, left)
                continue
            offset = message.offset()
            if error is None:
                if offset < whole.end:
                    records_of.setdefault(at, []).append(message)
                    places[at].offset = offset + 1
                else:
                    places[at].kept.append(message)
            elif error.code() == KafkaError._PARTITION_EOF:
                if offset > whole.end:
                    places[at].kept.append(message)
            else:
                _raise(error, left)
            if offset >= whole.end - (error is None):
                places[at].offset = whole.end
                done.append((left.pop(at), records_of.pop(at, [])))
        self._let_go([at for at, place in places.items() if len(place.kept) > KEPT_ROWS_MAX])
        yield from done
        yield from ((left[at], records) for at, records in records_of.items())


_DELETED = (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE)


def _raise(error: Any, left: dict[Partition, OffsetRange]) -> None:
    if error.code() in _DELETED:
        raise CorruptError(
            f"records of {_named(left.values())} are not there any more: {error.str()}; retention has deleted them, or "
            "the topic was made anew; see docs/cluster.md, 'Records that are gone'"
        )
    if not error.retriable() and error.fatal():
        raise translated("the source cannot be read", error)
    # Brokers come and go; librdkafka goes on by itself, and the stall has an end.


def _named(some: Iterable[OffsetRange]) -> str:
    return ", ".join(f"{r.topic}/{r.partition} [{r.start}, {r.end})" for r in list(some)[:3])
