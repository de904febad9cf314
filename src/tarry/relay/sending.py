"""Handing on: rows and records as Kafka gets them, with dead letters for what it will never take."""

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
from tarry.relay import headers as names
from tarry.relay.headers import Header
from tarry.relay.outbox import Out, Outbox, Outboxes, TooLargeError
from tarry.relay.record import headers_of, kept_headers, key_bytes
from tarry.relay.settings import Settings

log = logging.getLogger(__name__)

T = TypeVar("T")


def handed_on(
    settings: Settings,
    *,
    target: str,
    key: bytes | None,
    value: bytes | None,
    headers: Sequence[Header],
    source: str,
    timestamp_ms: int | None,
    due_ms: int | None,
) -> Out:
    """A record for its target: the producer's key, value and headers, and then where it comes from. ``source`` is
    ``topic/partition/offset``; ``due_ms`` None: it waited for nothing.
    """
    stamp = _STAMPS[settings.timestamp](timestamp_ms, due_ms)
    return Out(source, target, key, value, _told(headers, source, timestamp_ms, due_ms), stamp)


_STAMPS: dict[str, Callable[[int | None, int | None], int | None]] = {
    "source": lambda timestamp_ms, _: timestamp_ms,
    "due": lambda timestamp_ms, due_ms: timestamp_ms if due_ms is None else due_ms,
    "now": lambda *_: None,
}


def _told(headers: Sequence[Header], source: str, timestamp_ms: int | None, due_ms: int | None) -> tuple[Header, ...]:
    # Tuples, not lists: the garbage collector lets go of them, and there may be hundreds of thousands waiting.
    place, _, offset = source.rpartition("/")
    told = (*headers, *_source_headers(place), (names.SOURCE_OFFSET, offset.encode()))
    if timestamp_ms is not None:
        told = (*told, (names.SOURCE_TIMESTAMP, b"%d" % timestamp_ms))
    return told if due_ms is None else (*told, (names.DUE_AT, b"%d" % due_ms))


@lru_cache(maxsize=1024)
def _source_headers(place: str) -> tuple[Header, Header]:
    topic, _, partition = place.rpartition("/")
    return (names.SOURCE_TOPIC, topic.encode()), (names.SOURCE_PARTITION, partition.encode())


def of_rows(settings: Settings, batch: pa.RecordBatch) -> list[Out]:
    """Rows of the store as records."""
    wanted = ("topic", "due_ms", "id", "key", "body", "born_ms")
    columns = [batch.column(name).to_pylist() for name in wanted]
    stamp, made = _STAMPS[settings.timestamp], []
    for topic, due_ms, source, key, body, born_ms, headers in zip(*columns, kept_headers(batch), strict=True):
        timestamp_ms = None if born_ms < 0 else born_ms
        told = _told(headers_of(headers) if headers else (), source, timestamp_ms, due_ms)
        made.append(Out(source, topic, key_bytes(key), body, told, stamp(timestamp_ms, due_ms)))
    return made


@dataclass(slots=True)
class Ready:
    """Some rows of one shard, by due time, and the same as records."""

    batch: pa.RecordBatch
    records: list[Out]
    due_ms: Int64s

    @classmethod
    def of(cls, settings: Settings, batch: pa.RecordBatch) -> Ready:
        """Make them ready."""
        return cls(batch, of_rows(settings, batch), batch.column("due_ms").to_numpy())

    def between(self, after_ms: int, until_ms: int) -> Ready:
        """What is due in ``(after_ms, until_ms]``."""
        low, high = (int(n) for n in np.searchsorted(self.due_ms, (after_ms, until_ms), "right"))
        if high - low == len(self.records):
            return self
        return Ready(self.batch.slice(low, high - low), self.records[low:high], self.due_ms[low:high])

    def place(self, row: int) -> tuple[int, int]:
        """Due time and seq of a row; of the last for -1."""
        return int(self.due_ms[row]), int(self.batch.column("seq")[row % len(self.due_ms)].as_py())


def dead_letter(settings: Settings, record: Out, reason: str, *, value: bool = True) -> Out:
    """A record for the dead letters; ``value`` false where it is the value that cannot be written."""
    told = (*record.headers, (names.REASON, reason.encode()[:2000]))
    return Out(record.source, settings.dead_topic, record.key, record.value if value else None, told, None)


class RefusedError(TarryError):
    """Kafka does not take some of the records so. Nothing of the transaction may be committed, and its outbox is of no
    use any more: librdkafka loses count of what it has sent. Who tries again, with another, knows them now.
    """

    code = "refused"


def until_taken(outboxes: Outboxes, shard: int, work: Callable[[Outbox, dict[str, str]], T]) -> T:
    """Do a shard's work, again as long as that finds records that Kafka does not take so; it gets those that are known
    by then, by source. After any other error the shard's outbox is let go of.
    """
    refused: dict[str, str] = {}
    try:
        while True:
            try:
                return work(outboxes.of(shard), refused)
            except RefusedError as error:
                log.warning("again, with what cannot be written apart: %s", error)
                outboxes.drop(shard)
    except BaseException:
        outboxes.drop(shard)
        raise


class Sender:
    """Writes records; what Kafka will never take goes to the dead letters instead.

    One record that is refused spoils its transaction. So :meth:`settle` raises then, the shard begins again from its
    marker, and finds in ``refused`` (by source) what to do otherwise this time. Each attempt knows more than the last.
    """

    def __init__(self, settings: Settings, outbox: Outbox, refused: dict[str, str]) -> None:
        self._settings, self._outbox, self._refused = settings, outbox, refused
        self.dead = 0

    def send(self, records: Sequence[Out]) -> None:
        """Begin to write records, in order."""
        missing = self._outbox.missing({record.topic for record in records})
        if missing or self._refused:
            records = [self._instead(record, missing) for record in records]
        self._outbox.write(records)

    def settle(self) -> None:
        """Wait until Kafka has all of them.

        Raises:
            RefusedError: it does not take some; nothing is written. TarryError: it failed, for a time.
        """
        try:
            failed = self._outbox.failures()
        except TooLargeError as error:
            raise RefusedError(str(error)) from error
        if not failed:
            return
        for source, why in failed.items():
            if source.endswith(_BARE):
                raise OSError(f"the dead letters {self._settings.dead_topic!r} take nothing of {source}: {why}")
            # Refused as a dead letter, too: then it is the value that is too large; its place in the source is told.
            told = source.removesuffix(_DEAD)
            self._refused[told] = f"{_BARE}{why}" if source.endswith(_DEAD) else why
        raise RefusedError(f"Kafka does not take {len(failed)} records, the first: {next(iter(failed.items()))}")

    def _instead(self, record: Out, missing: Mapping[str, str]) -> Out:
        why = self._refused.get(record.source) or missing.get(record.topic)
        if why is None:
            return record
        self.dead += 1
        bare = why.startswith(_BARE)
        reason = f"topic {record.topic!r}: {why.removeprefix(_BARE)}"
        letter = dead_letter(self._settings, record, reason, value=not bare)
        return letter._replace(source=record.source + (_BARE if bare else _DEAD))


_DEAD, _BARE = "/dead", "/dead without value"
