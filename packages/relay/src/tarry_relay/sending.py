"""Conversion of rows and records to those sent to Kafka, and dead letters for those it never accepts."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeVar

import numpy as np
import pyarrow as pa

from tarry.base.errors import TarryError
from tarry.base.types import Int64s
from tarry_relay import headers as names
from tarry_relay.headers import Decision, Header, RecordAction
from tarry_relay.positions import OFFSET_BITS, OFFSET_MAX
from tarry_relay.record import headers_column, headers_of, key_bytes
from tarry_relay.settings import RelaySettings
from tarry_relay.writer import KafkaRecord, KafkaWriter, KafkaWriters, TooLargeError

log = logging.getLogger(__name__)

T = TypeVar("T")


def record_to_send(
    settings: RelaySettings,
    source: str,
    key: bytes | None,
    value: bytes | None,
    timestamp_ms: int | None,
    decision: Decision,
) -> KafkaRecord:
    """Return a record for its target, or as a dead letter.

    It has the producer's key, value and headers, and headers that name its origin. ``source`` is
    ``topic/partition/offset``.
    """
    due_ms = decision.due_ms if decision.action == RecordAction.AT else None
    headers = _with_source(decision.headers, source, timestamp_ms, due_ms)
    stamp = _STAMPS[settings.timestamp](timestamp_ms, due_ms)
    record = KafkaRecord(source, decision.target, key, value, headers, stamp)
    return dead_letter(settings, record, decision.reason) if decision.action == RecordAction.DEAD else record


_STAMPS: dict[str, Callable[[int | None, int | None], int | None]] = {
    "source": lambda timestamp_ms, _: timestamp_ms,
    "due": lambda timestamp_ms, due_ms: timestamp_ms if due_ms is None else due_ms,
    "now": lambda *_: None,
}


def _with_source(
    headers: Sequence[Header], source: str, timestamp_ms: int | None, due_ms: int | None
) -> tuple[Header, ...]:
    # Tuples, not lists: the garbage collector stops tracking them, and there may be hundreds of thousands waiting.
    place, _, offset = source.rpartition("/")
    return (*headers, *_place_headers(place), (names.SOURCE_OFFSET, offset.encode()), *_times(timestamp_ms, due_ms))


def _times(timestamp_ms: int | None, due_ms: int | None) -> tuple[Header, ...]:
    born = () if timestamp_ms is None else ((names.SOURCE_TIMESTAMP, b"%d" % timestamp_ms),)
    return born if due_ms is None else (*born, (names.DUE_AT, b"%d" % due_ms))


@lru_cache(maxsize=1024)
def _place_headers(place: str) -> tuple[Header, Header]:
    topic, _, partition = place.rpartition("/")
    return (names.SOURCE_TOPIC, topic.encode()), (names.SOURCE_PARTITION, partition.encode())


_NOWHERE: tuple[Header, ...] = ()


def of_rows(settings: RelaySettings, batch: pa.RecordBatch) -> list[KafkaRecord]:
    """Return rows of the store as records."""
    wanted = ("seq", "topic", "due_ms", "id", "key", "body", "born_ms")
    columns = [batch.column(name).to_pylist() for name in wanted]
    stamp, records = _STAMPS[settings.timestamp], []
    place, place_number = _NOWHERE, -1
    for seq, topic, due_ms, source, key, body, born_ms, text in zip(*columns, headers_column(batch), strict=True):
        if (number := seq >> OFFSET_BITS) != place_number:  # it stands for one source partition, for ever
            place, place_number = _place_headers(source.rpartition("/")[0]), number
        timestamp_ms = None if born_ms < 0 else born_ms
        headers = (*place, (names.SOURCE_OFFSET, b"%d" % (seq & OFFSET_MAX)), *_times(timestamp_ms, due_ms))
        if text:
            headers = (*headers_of(text), *headers)
        records.append(KafkaRecord(source, topic, key_bytes(key), body, headers, stamp(timestamp_ms, due_ms)))
    return records


@dataclass(slots=True)
class ReadyRecords:
    """Some rows of one shard, by due time, and the same as records."""

    batch: pa.RecordBatch
    records: list[KafkaRecord]
    due_ms: Int64s

    @classmethod
    def of(cls, settings: RelaySettings, batch: pa.RecordBatch) -> ReadyRecords:
        """Convert rows."""
        return cls(batch, of_rows(settings, batch), batch.column("due_ms").to_numpy())

    def between(self, after_ms: int, until_ms: int) -> ReadyRecords:
        """Return the records that are due in ``(after_ms, until_ms]``."""
        low, high = (int(n) for n in np.searchsorted(self.due_ms, (after_ms, until_ms), "right"))
        if high - low == len(self.records):
            return self
        return ReadyRecords(self.batch.slice(low, high - low), self.records[low:high], self.due_ms[low:high])

    def place(self, row: int) -> tuple[int, int]:
        """Return due time and seq of a row; of the last for -1."""
        return int(self.due_ms[row]), int(self.batch.column("seq")[row % len(self.due_ms)].as_py())


def dead_letter(settings: RelaySettings, record: KafkaRecord, reason: str, *, value: bool = True) -> KafkaRecord:
    """Return a record as a dead letter; ``value`` is false if the value cannot be written."""
    headers = (*record.headers, (names.REASON, reason.encode()[:2000]))
    return KafkaRecord(record.source, settings.dead_topic, record.key, record.value if value else None, headers, None)


class RefusedError(TarryError):
    """Kafka refuses some of the records as they are.

    Nothing of the transaction may be committed, and its writer is not used any more: librdkafka loses count of its sent
    messages. The next attempt, with a new writer, avoids them.
    """

    code = "refused"


def retry_while_refused(writers: KafkaWriters, shard: int, work: Callable[[KafkaWriter, dict[str, str]], T]) -> T:
    """Do a shard's work, and repeat it as long as Kafka refuses more records.

    ``work`` gets the refused records so far: the reason by source. After any other error the shard's writer is dropped.
    """
    refused: dict[str, str] = {}
    try:
        while True:
            try:
                return work(writers.of(shard), refused)
            except RefusedError as error:
                log.warning("again, with what cannot be written apart: %s", error)
                writers.drop(shard)
    except BaseException:
        writers.drop(shard)
        raise


class RecordSender:
    """Writes records; those that Kafka never accepts go to the dead letters instead.

    One record that is refused spoils its transaction. So :meth:`settle` raises then, the shard begins again from its
    marker, and finds in ``refused`` (by source) which records to write as dead letters this time. Each attempt knows
    more of them than the last.
    """

    def __init__(self, settings: RelaySettings, writer: KafkaWriter, refused: dict[str, str]) -> None:
        self._settings, self._writer, self._refused = settings, writer, refused
        self.dead = 0

    def send(self, records: Sequence[KafkaRecord]) -> None:
        """Begin to write records, in order."""
        missing = self._writer.missing({record.topic for record in records})
        if missing or self._refused:
            records = [self._or_dead_letter(record, missing) for record in records]
        self._writer.write(records)

    def settle(self) -> None:
        """Wait until Kafka has all records.

        Raises:
            RefusedError: it refuses some; nothing is written. TarryError: it failed, for a time.
        """
        try:
            failed = self._writer.failures()
        except TooLargeError as error:
            raise RefusedError(str(error)) from error
        if not failed:
            return
        for source, why in failed.items():
            if source.endswith(_BARE):
                raise OSError(f"the dead letters {self._settings.dead_topic!r} take nothing of {source}: {why}")
            # Refused as a dead letter, too: then its value is too large, and its place in the source is enough.
            place = source.removesuffix(_DEAD)
            self._refused[place] = f"{_BARE}{why}" if source.endswith(_DEAD) else why
        raise RefusedError(f"Kafka does not take {len(failed)} records, the first: {next(iter(failed.items()))}")

    def _or_dead_letter(self, record: KafkaRecord, missing: Mapping[str, str]) -> KafkaRecord:
        why = self._refused.get(record.source) or missing.get(record.topic)
        if why is None:
            return record
        self.dead += 1
        bare = why.startswith(_BARE)
        reason = f"topic {record.topic!r}: {why.removeprefix(_BARE)}"
        copy = dead_letter(self._settings, record, reason, value=not bare)
        return copy._replace(source=record.source + (_BARE if bare else _DEAD))


_DEAD, _BARE = "/dead", "/dead without value"
