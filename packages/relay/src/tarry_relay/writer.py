"""Writes to Kafka: records and the marker that covers them, in one transaction.

A marker is an offset (with a text) that is committed for a group. A replay is exact by the order of three steps: take
over the transactional id (its former owner can commit nothing any more), read the marker, and only then write what is
behind it. So nothing depends on earlier plans.

A writer without transactions ("at least once") writes the marker after the records are acknowledged. A crash between
the two brings all of them again.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from tarry.base.errors import TarryError, UnavailableError
from tarry_relay.clients import CALL_TIMEOUT_S, bounded, consumer, errors, producer, translated
from tarry_relay.headers import Header
from tarry_relay.markers import Marker, read_markers
from tarry_relay.positions import Partition
from tarry_relay.reading import RangeReader
from tarry_relay.settings import RelaySettings

log = logging.getLogger(__name__)

EXISTS_S = 60.0
"""Seconds for which a topic that existed is assumed to exist still."""
FLUSH_S = 0.5
"""Seconds of delay with which an error that ends the producer may be seen."""
CREATION_S = 5.0
"""Seconds that Kafka may take to create a topic by itself."""

# Refusals that no later attempt of the same record can change.
_REFUSALS = {
    KafkaError.MSG_SIZE_TOO_LARGE: "it is larger than the topic allows",
    KafkaError.INVALID_RECORD: "the topic refuses it",
    KafkaError.INVALID_TIMESTAMP: "the topic refuses its timestamp",
    KafkaError.UNKNOWN_TOPIC_OR_PART: "the topic does not exist",
    KafkaError._UNKNOWN_TOPIC: "the topic does not exist",
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "writing to the topic is not allowed",
    KafkaError.TOPIC_EXCEPTION: "the topic's name is not allowed",
}
_ABSENT = (
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError._UNKNOWN_TOPIC,
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.TOPIC_EXCEPTION,
)
# Errors of records behind one that failed, in the same transaction: they fail with it.
_PURGED = (KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT, KafkaError._STATE)


class TooLargeError(TarryError):
    """Batches were refused for their size.

    Nothing of the transaction may be committed; the next attempt avoids it.
    """

    code = "too_large"


class KafkaRecord(NamedTuple):
    """A record to write. ``source`` names it; ``timestamp_ms`` None is the moment of writing."""

    source: str
    topic: str
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...]
    timestamp_ms: int | None


class KafkaWriter:
    """Writes the records of one shard, from one thread at a time.

    :meth:`close` aborts an open transaction. The constructor takes over the transactional id.
    """

    def __init__(
        self, settings: RelaySettings, transactional_id: str, group: str, alone: set[str] | None = None
    ) -> None:
        self._settings = settings
        self._exact = settings.exactly_once
        self.reader = consumer(settings, group, **{"enable.partition.eof": True})
        """A consumer of the same group, also for reading: it is connected already."""
        self.source = RangeReader(self.reader)
        self._group = self.reader.consumer_group_metadata()
        self._producer = producer(settings, transactional_id if self._exact else None, self._on_error)
        self._exists_until: dict[str, float] = {}
        self._absent: set[str] = set()
        self._failed: dict[str, tuple[str, Any]] = {}
        self._open = False
        self._lost = self._stuck = False
        self._markers: dict[Partition, Marker] = {}
        """Markers that this writer has committed: as long as it can commit, nobody else could."""
        self.alone: set[str] = set() if alone is None else alone
        """Topics that refused a batch for its size.

        From now on each record goes in a batch of its own, so that only those that are too large themselves are
        refused. (A topic's limit is on batches, and librdkafka does not divide them.)
        """
        if self._exact:
            with errors(f"transactional id {transactional_id!r} cannot be taken over"):
                self._producer.init_transactions(CALL_TIMEOUT_S * 2)

    def markers(self, partitions: Sequence[Partition]) -> dict[Partition, Marker]:
        """Return the current markers of these partitions.

        Kafka is not asked if nobody else can have committed since.
        """
        if all(p in self._markers for p in partitions):
            return {p: self._markers[p] for p in partitions}
        return read_markers(self.reader, partitions)

    def missing(self, topics: set[str]) -> dict[str, str]:
        """Return those of ``topics`` that cannot be written to, with the reason.

        Kafka may be set to create a topic that is asked for: the first time this waits for it, later it only asks
        again.
        """
        now = time.monotonic()
        unsure = {topic for topic in topics if self._exists_until.get(topic, 0.0) < now}
        waited = unsure <= self._absent
        deadline = now + CREATION_S
        absent: dict[str, str] = {}
        while unsure:
            absent = {topic: why for topic in sorted(unsure) if (why := self._absence(topic)) is not None}
            unsure = set(absent)
            if waited or time.monotonic() >= deadline:
                break
            if unsure:
                time.sleep(0.1)  # Kafka creates it or will not, and gives no other sign
        self._absent = (self._absent - topics) | set(absent)
        return absent

    def _absence(self, topic: str) -> str | None:
        with errors(f"Kafka cannot be asked for topic {topic!r}"):
            error = self._producer.list_topics(topic, timeout=CALL_TIMEOUT_S).topics[topic].error
        # A topic without a leader at this moment exists: writing waits for the leader.
        if error is not None and error.code() in _ABSENT:
            return f"{_REFUSALS[error.code()]} ({error.name()})"
        self._exists_until[topic] = time.monotonic() + EXISTS_S
        return None

    def write(self, records: Sequence[KafkaRecord]) -> None:
        """Begin to write records, in order; :meth:`failures` and :meth:`commit` tell the outcome."""
        if self._exact and not self._open:
            with errors("a transaction cannot be begun"):
                self._producer.begin_transaction()
        self._open = True
        with self._errors("the records cannot be written"):
            self._produce(records)

    def failures(self) -> dict[str, str]:
        """Wait until all is written; return the reasons, by source, of records that Kafka never accepts.

        Raises:
            TooLargeError: some are in batches that are too large; from now on each is sent alone. TarryError: it failed
            for another reason; a later attempt may succeed.
        """
        with self._errors("the records cannot be written"):
            self._flush()
        failed, self._failed = self._failed, {}
        large = {t for t, error in failed.values() if error.code() == KafkaError.MSG_SIZE_TOO_LARGE} - self.alone
        if large:
            self.alone |= large
            raise TooLargeError(f"batches for {', '.join(sorted(large))} are larger than the topics allow")
        reasons = {}
        for source, (_, error) in failed.items():
            reason = _REFUSALS.get(error.code())
            if reason is not None:
                reasons[source] = f"{reason} ({error.name()})"
            elif error.code() not in _PURGED:
                raise translated("the records cannot be written", error)
        if failed and not reasons:
            raise UnavailableError("the records cannot be written: the transaction was given up")
        return reasons

    def commit(self, markers: Mapping[Partition, Marker]) -> None:
        """Make the written records visible, and the markers with them.

        Raises:
            FencedError: somebody took over the transactional id; nothing was committed.
            TarryError: it is unknown whether it was; a new writer's :meth:`markers` show it.
        """
        marked = [
            TopicPartition(*p, marker.offset, metadata=json.dumps(marker.data, separators=(",", ":")))
            for p, marker in markers.items()
        ]
        with self._errors("the transaction cannot be committed"):
            if not self._exact:
                self.reader.commit(offsets=marked, asynchronous=False)
            else:
                if not self._open:
                    self._producer.begin_transaction()
                self._open = True
                committed, self._markers = self._markers, {}
                self._check_connected()
                self._bounded(lambda: self._end(marked))
                self._markers = {**committed, **markers}
        self._open = False

    def _flush(self) -> None:
        # In steps: an error that ends the producer, as when it was fenced, is raised at the end of a call only.
        while self._producer.flush(FLUSH_S):
            pass

    def _produce(self, records: Sequence[KafkaRecord]) -> None:
        produce, failed, alone = self._producer.produce, self._fail, self.alone
        for number, (source, topic, key, value, headers, timestamp_ms) in enumerate(records):
            on_delivery = partial(failed, source, topic)
            if alone and topic in alone:
                self._flush()
            while True:
                try:
                    # By position, which takes half of the time: partition -1 is any, timestamp 0 is now.
                    produce(topic, value, key, -1, on_delivery, None, timestamp_ms or 0, list(headers))
                    break
                except BufferError:
                    self._producer.poll(0.05)
                except KafkaException as error:
                    self._failed[source] = (topic, error.args[0])
                    break
            if alone and topic in alone:
                self._flush()
            elif not number & 1023:
                self._producer.poll(0)
            if self._failed and self._exact:
                return  # the transaction is spoilt

    @contextmanager
    def _errors(self, what: str) -> Iterator[None]:
        """Raise errors as :func:`errors` does, also where confluent-kafka (2.x) loses the error.

        It raises a fatal one, as that of a producer that was fenced, inside its callbacks, and the next callback makes
        a SystemError of it.
        """
        with errors(what):
            try:
                yield
            except SystemError as error:
                if isinstance(error.__cause__, KafkaException):
                    raise error.__cause__ from error
                self._producer.abort_transaction(CALL_TIMEOUT_S)  # raises the fatal error again
                raise UnavailableError(f"{what}: {error}") from error

    def _end(self, marked: Sequence[TopicPartition]) -> None:
        self._producer.send_offsets_to_transaction(marked, self._group, CALL_TIMEOUT_S)
        self._producer.commit_transaction(CALL_TIMEOUT_S * 2)

    def _bounded(self, call: Callable[[], None]) -> None:
        # librdkafka (2.16) sends offsets to the coordinator that it knew before a broker went away, and waits for that
        # connection for ever, whatever its time limit is.
        try:
            bounded("the transaction cannot be committed", call, CALL_TIMEOUT_S * 4)
        except UnavailableError:
            self._stuck = True
            raise

    def _check_connected(self) -> None:
        self._producer.poll(0)
        if self._lost:
            raise UnavailableError("the transaction cannot be committed: all brokers were out of reach since it began")

    def _on_error(self, error: KafkaError) -> None:
        self._lost = self._lost or error.code() == KafkaError._ALL_BROKERS_DOWN

    def abort(self) -> None:
        """Undo what was written since the last commit; without transactions it stays."""
        if self._open and self._exact and not self._stuck:
            with errors("the transaction cannot be aborted"):
                self._producer.abort_transaction(CALL_TIMEOUT_S)
        self._open = False
        self._failed = {}

    def close(self) -> None:
        """Close both clients. An open transaction is aborted, now or by the next writer with this id."""
        try:
            self.abort()
        except TarryError as error:
            log.debug("the open transaction is left to the next writer: %s", error)
        if self._stuck:
            return  # the abandoned call still uses both clients
        self._producer.purge()
        self.reader.close()
        try:
            # Otherwise it would live on, with its threads, until the cycle of it and its error_cb is collected.
            bounded("the producer cannot be closed", self._producer.close, CALL_TIMEOUT_S)
        except (TarryError, KafkaException) as error:
            log.debug("a producer is left to itself: %s", error)

    def _fail(self, source: str, topic: str, error: Any, _: Any) -> None:
        if error is not None:
            self._failed[source] = (topic, error)


class KafkaWriters:
    """The writers that a process keeps between batches: taking over an id costs Kafka 60 to 500 ms."""

    def __init__(self, settings: RelaySettings, group: str) -> None:
        self._settings = settings
        self._group = group
        self._kept: dict[int, KafkaWriter] = {}
        self._alone: set[str] = set()

    def of(self, shard: int) -> KafkaWriter:
        """Return the writer of a shard; make one, which takes over the id, if none is kept."""
        kept = self._kept.get(shard)
        if kept is None:
            kept = self._kept[shard] = KafkaWriter(self._settings, f"{self._group}-{shard}", self._group, self._alone)
        return kept

    def rest(self) -> None:
        """Ask Kafka for no records for now: nothing is to be read."""
        for kept in self._kept.values():
            kept.source.rest()

    def drop(self, shard: int) -> None:
        """Close a shard's writer, after an error or because a task will take its id over."""
        kept = self._kept.pop(shard, None)
        if kept is not None:
            kept.close()

    def close(self) -> None:
        """Close all writers."""
        for shard in list(self._kept):
            self.drop(shard)
