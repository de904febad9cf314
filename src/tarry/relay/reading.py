"""Reading ranges of offsets: all records that are there in them, and the knowledge that there are no more.

Offsets have holes: markers of transactions, what was aborted, what compaction has taken. So the end of a range is known
by a record at or behind it, or by the end of the partition, never by a count.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import Any

from confluent_kafka import KafkaError, TopicPartition

from tarry.base.errors import CorruptError, UnavailableError
from tarry.relay.clients import errors, translated
from tarry.relay.positions import Partition, Range

READ_ROWS = 10_000
WAIT_S = 0.05
STALL_S = 60.0
"""How long a read waits for the next record. Longer than brokers take to elect a leader."""


def read(consumer: Any, some: Iterable[Range], *, stall_s: float = STALL_S) -> Iterator[tuple[Range, list[Any]]]:
    """Records of ranges, each with the range that they are of; within one, in the order of their offsets.

    ``consumer`` must tell ends of partitions (``enable.partition.eof``).

    Raises:
        CorruptError: the first of a range are gone: retention was shorter than the relay was away.
        UnavailableError: nothing came for ``stall_s``.
    """
    left: dict[Partition, Range] = {(r.topic, r.partition): r for r in some if r.start < r.end}
    with errors("the source cannot be read"):
        consumer.assign([TopicPartition(r.topic, r.partition, r.start) for r in left.values()])
    try:
        last, missing = time.monotonic(), sum(r.end - r.start for r in left.values())
        while left:
            # It waits until it has as many, or for as long: so no more than may come, and not for long, for offsets
            # have holes.
            with errors("the source cannot be read"):
                batch = consumer.consume(max(1, min(READ_ROWS, missing)), timeout=WAIT_S)
            if batch:
                last = time.monotonic()
                missing -= len(batch)
            elif time.monotonic() - last > stall_s:
                raise UnavailableError(f"nothing came of {_named(left.values())} for {stall_s:g} s")
            yield from _sorted_out(consumer, batch, left)
    finally:
        with errors("the source cannot be let go"):
            consumer.unassign()


def _sorted_out(consumer: Any, batch: list[Any], left: dict[Partition, Range]) -> Iterator[tuple[Range, list[Any]]]:
    found: dict[Partition, list[Any]] = {}
    done = []
    for message in batch:
        at = (message.topic(), message.partition())
        error = message.error()
        if at not in left:
            if error is not None and error.code() in _GONE:
                _raise(error, left)
            continue
        if error is None and message.offset() < left[at].end:
            found.setdefault(at, []).append(message)
        if error is not None and error.code() != KafkaError._PARTITION_EOF:
            _raise(error, left)
        if message.offset() >= left[at].end - (error is None):
            done.append((at, left.pop(at), found.pop(at, [])))
    if done and left:
        with errors("the source cannot be let go"):
            consumer.incremental_unassign([TopicPartition(*at) for at, _, _ in done])
    yield from ((whole, records) for _, whole, records in done)
    yield from ((left[at], records) for at, records in found.items())


_GONE = (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE)


def _raise(error: Any, left: dict[Partition, Range]) -> None:
    if error.code() in _GONE:
        raise CorruptError(
            f"records of {_named(left.values())} are not there any more: {error.str()}; retention has deleted them, or "
            "the topic was made anew; see docs/cluster.md, 'Records that are gone'"
        )
    if not error.retriable() and error.fatal():
        raise translated("the source cannot be read", error)
    # Brokers come and go; librdkafka goes on by itself, and the stall has an end.


def _named(some: Iterable[Range]) -> str:
    return ", ".join(f"{r.topic}/{r.partition} [{r.start}, {r.end})" for r in list(some)[:3])
