"""Reading ranges of offsets: all records that they hold, and certainty that there are no more.

Offsets have holes: markers of transactions, what was aborted, what compaction has removed. So a record at or behind the
end of a range shows that it was read, or the end of the partition does, never a count.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import Any

from confluent_kafka import KafkaError, TopicPartition

from tarry.base.errors import CorruptError, UnavailableError
from tarry.relay.clients import errors, translated
from tarry.relay.positions import OffsetRange, Partition

READ_ROWS = 10_000
WAIT_S = 0.05
STALL_S = 60.0
"""How long a read waits for the next record. Longer than brokers take to elect a leader."""


def read(
    consumer: Any, some: Iterable[OffsetRange], *, stall_s: float = STALL_S
) -> Iterator[tuple[OffsetRange, list[Any]]]:
    """Ranges, each with some of its records, until all were read.

    ``consumer`` must report ends of partitions (``enable.partition.eof``).

    Raises:
        CorruptError: the first records of a range were deleted: retention was shorter than the relay's pause.
        UnavailableError: nothing came for ``stall_s``.
    """
    left: dict[Partition, OffsetRange] = {(r.topic, r.partition): r for r in some if r.start < r.end}
    with errors("the source cannot be read"):
        consumer.assign([TopicPartition(r.topic, r.partition, r.start) for r in left.values()])
    try:
        last, missing = time.monotonic(), sum(r.end - r.start for r in left.values())
        while left:
            # It waits for so many records, or for the time-out: so for no more than may come, and not for long, since
            # offsets have holes.
            with errors("the source cannot be read"):
                batch = consumer.consume(max(1, min(READ_ROWS, missing)), timeout=WAIT_S)
            if batch:
                last = time.monotonic()
                missing -= len(batch)
            elif time.monotonic() - last > stall_s:
                raise UnavailableError(f"nothing came of {_named(left.values())} for {stall_s:g} s")
            yield from _by_range(consumer, batch, left)
    finally:
        with errors("the source cannot be let go"):
            consumer.unassign()


def _by_range(
    consumer: Any, batch: list[Any], left: dict[Partition, OffsetRange]
) -> Iterator[tuple[OffsetRange, list[Any]]]:
    records_of: dict[Partition, list[Any]] = {}
    done = []
    for message in batch:
        at = (message.topic(), message.partition())
        error = message.error()
        if at not in left:
            if error is not None and error.code() in _DELETED:
                _raise(error, left)
            continue
        if error is None and message.offset() < left[at].end:
            records_of.setdefault(at, []).append(message)
        if error is not None and error.code() != KafkaError._PARTITION_EOF:
            _raise(error, left)
        if message.offset() >= left[at].end - (error is None):
            done.append((at, left.pop(at), records_of.pop(at, [])))
    if done and left:
        with errors("the source cannot be let go"):
            consumer.incremental_unassign([TopicPartition(*at) for at, _, _ in done])
    yield from ((whole, records) for _, whole, records in done)
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
