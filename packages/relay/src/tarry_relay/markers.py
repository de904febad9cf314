"""Markers: offsets with a text, committed for a group, that record a shard's progress.

They are committed in the same transaction as the records that they cover (``writer``).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import OFFSET_INVALID, TopicPartition

from tarry.base.errors import UnavailableError
from tarry_relay.clients import CALL_TIMEOUT_S, consumer, errors, translated
from tarry_relay.positions import Partition
from tarry_relay.settings import RelaySettings


@dataclass(frozen=True, slots=True)
class Marker:
    """A committed number, and its meaning as plain data.

    ``offset`` is None for a partition without one.
    """

    offset: int | None
    data: Mapping[str, Any] = field(default_factory=dict)


def markers_of(settings: RelaySettings, group: str, partitions: Sequence[Partition]) -> dict[Partition, Marker]:
    """Return a group's markers of partitions, read by a connection of its own."""
    if not partitions:
        return {}
    reader = consumer(settings, group)
    try:
        return read_markers(reader, partitions)
    finally:
        reader.close()


def read_markers(reader: Any, partitions: Sequence[Partition]) -> dict[Partition, Marker]:
    """Return the markers of partitions, for the group of a consumer.

    Raises:
        UnavailableError: Kafka does not say, or another program has committed there.
    """
    with errors("the marker cannot be read"):
        committed = reader.committed([TopicPartition(*p) for p in partitions], CALL_TIMEOUT_S)
    for tp in committed:
        if tp.error is not None:
            raise translated(f"the marker of {tp.topic}/{tp.partition} cannot be read", tp.error)
    return {(tp.topic, tp.partition): _marker(tp) for tp in committed}


def _marker(committed: Any) -> Marker:
    if committed.offset == OFFSET_INVALID:
        return Marker(None)
    try:
        return Marker(committed.offset, json.loads(committed.metadata or "{}"))
    except ValueError as error:
        raise UnavailableError(
            f"the offset of {committed.topic}/{committed.partition} was committed by another program: "
            f"{committed.metadata!r}"
        ) from error
