"""Connections to Kafka with the relay's settings, and Kafka's errors as :mod:`tarry.base.errors`."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

from confluent_kafka import Consumer, IsolationLevel, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic, OffsetSpec

from tarry.base.errors import InvalidArgumentError, TarryError, UnavailableError
from tarry_relay.positions import Partition
from tarry_relay.settings import RelaySettings

log = logging.getLogger(__name__)

T = TypeVar("T")

CALL_TIMEOUT_S = 15.0
_QUIET = {"log_level": 3, "socket.nagle.disable": "true", "reconnect.backoff.max.ms": 2_000}
# The next transaction begins while Kafka still ends the last one, and is retried: soon, not after 100 ms.
_RETRY_SOON = {"retry.backoff.ms": 5, "retry.backoff.max.ms": 200}
_CONSUMER_ONLY = ("fetch.", "max.partition.fetch", "queued.", "isolation.level", "check.crcs", "client.rack")
_PRODUCER_ONLY = ("linger.", "batch.", "compression.", "queue.buffering.", "acks", "request.required.acks", "sticky.")


class FencedError(TarryError):
    """Another producer has taken over this transactional id.

    Another relay of this name runs, or a later attempt.
    """

    code = "fenced"


def bounded(what: str, call: Callable[[], T], timeout_s: float) -> T:
    """Return the result of a call that may not return within its own time limit.

    Past ``timeout_s`` the call is abandoned, with all that it uses.

    Raises:
        UnavailableError: it has not returned in time. Else what the call raises.
    """
    results: list[T] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(call())
        except BaseException as error:  # noqa: BLE001 - it is raised in the thread that waits
            errors.append(error)

    thread = threading.Thread(target=run, name="tarry-relay-call", daemon=True)
    thread.start()
    thread.join(timeout_s)
    if thread.is_alive():
        raise UnavailableError(f"{what}: no answer for {timeout_s:g} s")
    if errors:
        raise errors[0]
    return results[0]


@contextmanager
def errors(what: str) -> Iterator[None]:
    """Raise Kafka's errors as Tarry's.

    Raises:
        FencedError, InvalidArgumentError, UnavailableError: by what Kafka says; most are a matter of time.
    """
    try:
        yield
    except KafkaException as error:
        raise translated(what, error.args[0]) from error


def translated(what: str, error: Any) -> TarryError:
    """Return Tarry's error for a KafkaError."""
    if not isinstance(error, KafkaError):
        return UnavailableError(f"{what}: {error}")
    if error.code() in _FENCED:
        return FencedError(f"{what}: {error.str()}")
    if error.code() in (KafkaError._INVALID_ARG, KafkaError._CONFLICT):
        return InvalidArgumentError(f"{what}: {error.str()}")
    return UnavailableError(f"{what}: {error.name()}: {error.str()}")


_FENCED = (KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH)


def _options(settings: RelaySettings, without: tuple[str, ...]) -> dict[str, Any]:
    given = {name: value for name, value in settings.kafka_options if not name.startswith(without)}
    return {"bootstrap.servers": settings.kafka, "client.id": f"tarry-{settings.name}", **_QUIET, **given}


def consumer(settings: RelaySettings, group: str, **options: Any) -> Any:
    """Return a consumer that never joins its group.

    It reads the partitions that it is assigned, and the group's offsets.
    """
    config = _options(settings, _PRODUCER_ONLY) | {
        "group.id": group,
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "isolation.level": "read_committed",
        # An offset that no longer exists must be an error, not a silent jump.
        "auto.offset.reset": "error",
        "allow.auto.create.topics": False,
        # Reading goes on between the ranges (``reading``): no request for each few records, and none that delays the
        # end of a range.
        "fetch.wait.max.ms": 50,
        "fetch.min.bytes": 65_536,
    }
    with errors("the consumer's options"):
        return Consumer(config | options)


def producer(settings: RelaySettings, transactional_id: str | None, on_error: Callable[[KafkaError], None]) -> Any:
    """Return a producer; with an id, a transactional one.

    Polling it calls ``on_error`` when a broker is lost.
    """
    config = _options(settings, _CONSUMER_ONLY) | _RETRY_SOON
    config |= {
        "enable.idempotence": True,
        # A flush does not wait for it: batches are as large as the records of a step.
        "linger.ms": 20,
        "queue.buffering.max.messages": 200_000,
        # The brokers decide which messages are too large, by topic.
        "message.max.bytes": 200_000_000,
        "delivery.report.only.error": True,
        "error_cb": on_error,
    }
    if transactional_id is not None:
        config |= {"transactional.id": transactional_id, "transaction.timeout.ms": settings.transaction_timeout_ms}
    else:
        config |= {"delivery.timeout.ms": settings.transaction_timeout_ms}
    given = {n: v for n, v in settings.kafka_options if n.startswith(_PRODUCER_ONLY)}
    with errors("the producer's options"):
        return Producer(config | given)


class KafkaAdmin:
    """Admin client: the cluster's topics and offsets, and creation of the relay's own topics."""

    def __init__(self, settings: RelaySettings) -> None:
        self._settings = settings
        with errors("the options of Kafka"):
            self._admin = AdminClient(_options(settings, (*_CONSUMER_ONLY, *_PRODUCER_ONLY)))

    def partitions(self) -> dict[str, list[int]]:
        """Return all topics of the cluster, with their partitions."""
        with errors(f"Kafka at {self._settings.kafka} cannot be asked for its topics"):
            topics = self._admin.list_topics(timeout=CALL_TIMEOUT_S).topics
        return {name: sorted(topic.partitions) for name, topic in topics.items() if topic.error is None}

    def offsets(self, partitions: Iterable[Partition], which: str) -> dict[Partition, int]:
        """Return each partition's first offset ("earliest") or the one after its last readable ("latest")."""
        wanted = [TopicPartition(*p) for p in partitions]
        if not wanted:
            return {}
        spec = OffsetSpec.earliest() if which == "earliest" else OffsetSpec.latest()
        with errors(f"Kafka at {self._settings.kafka} cannot be asked for offsets"):
            answers = self._admin.list_offsets(
                dict.fromkeys(wanted, spec),
                isolation_level=IsolationLevel.READ_COMMITTED,
                request_timeout=CALL_TIMEOUT_S,
            )
            return {(tp.topic, tp.partition): int(future.result().offset) for tp, future in answers.items()}

    def ensure_topic(self, name: str, partitions: int, config: Mapping[str, str] | None = None) -> None:
        """Create a topic if it is missing, or give it more partitions."""
        partitions_now = self.partitions().get(name)
        with errors(f"topic {name!r} cannot be made"):
            if partitions_now is None:
                futures = self._admin.create_topics([NewTopic(name, partitions, config=dict(config or {}))])
            elif len(partitions_now) < partitions:
                futures = self._admin.create_partitions([NewPartitions(name, partitions)])
            else:
                return
            try:
                futures[name].result(CALL_TIMEOUT_S)
            except KafkaException as error:
                if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                    raise
