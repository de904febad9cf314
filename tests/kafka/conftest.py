"""One Kafka and one Spark session a run; a relay in this process, and what its consumers see."""

from __future__ import annotations

import tempfile
import threading
import time
import uuid
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tarry.base.errors import NotFoundError
from tarry.spark.runtime.java import find_java_home
from tarry_relay.headers import Header
from tarry_relay.job import Relay
from tarry_relay.long_tasks import Launch
from tarry_relay.prepare import prepare
from tarry_relay.settings import RelaySettings, RunOptions
from tarry_relay.table import RelayStore
from tests.kafka.server import Kafka, jars
from tests.kafka.server import kafka as running_kafka

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PARTITIONS = 2


@pytest.fixture(scope="session")
def kafka() -> Iterator[Kafka]:
    try:
        jars()
        find_java_home(Path(tempfile.gettempdir()))
    except NotFoundError as error:
        warnings.warn(f"THE RELAY IS NOT TESTED AGAINST KAFKA: {error}", stacklevel=1)
        pytest.skip(str(error))
    with running_kafka() as server:
        yield server


class World:
    """Topics of a test's own, what it produces, and what came out of its relay."""

    def __init__(self, kafka: Kafka, directory: Path) -> None:
        self.kafka = kafka
        self.directory = directory
        self.name = f"t{uuid.uuid4().hex[:8]}"
        self.orders, self.out = f"{self.name}-orders", f"{self.name}-orders-due"
        self.settings = RelaySettings(
            kafka=kafka.address,
            topics=f"{self.name}-(orders|delay-.*)",
            store=str(directory / "store"),
            name=self.name,
            delays=(f"{self.name}-delay-<seconds>s",),
        )
        self.running = RunOptions(directory / "checkpoint", schedule_interval_ms=100)
        self.make(self.orders, self.out)
        self.producer = Producer({"bootstrap.servers": kafka.address, "linger.ms": 2})

    def make(self, *topics: str, **config: str) -> None:
        admin = AdminClient({"bootstrap.servers": self.kafka.address})
        for future in admin.create_topics([NewTopic(t, PARTITIONS, config=config) for t in topics]).values():
            future.result(30)

    def send(
        self,
        value: bytes | None,
        headers: Sequence[Header] = (),
        *,
        key: bytes | None = None,
        topic: str | None = None,
        **more: Any,
    ) -> None:
        self.producer.produce(topic or self.orders, value, key, headers=list(headers), **more)

    def close(self) -> None:
        """Its producer's threads would go on trying to reach a Kafka that is gone."""
        self.producer.close()

    def flush(self) -> None:
        assert self.producer.flush(30) == 0

    def store(self) -> RelayStore:
        return RelayStore.open_relay(self.settings.store)

    @contextmanager
    def relaying(self, spark: SparkSession, launch: Launch | None = None, **changes: Any) -> Iterator[Relay]:
        """The relay in the run's session, as the command starts it. What ends it is raised at the end. Where its long
        tasks are to be broken from here, ``launch`` is ``in_process``.
        """
        relay = Relay(replace(self.settings, **changes), self.running)
        store, stop, ended = self.store(), threading.Event(), []
        places = prepare(relay.settings, store, self.running.checkpoint)

        def serve() -> None:
            try:
                relay.serve(spark, store, stop, places, launch)
            except Exception as error:  # noqa: BLE001
                ended.append(error)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield relay
        finally:
            stop.set()
            thread.join(60)
            assert not thread.is_alive()
        if ended:
            raise ended[0]

    def received(
        self, done: Callable[[list[Any]], bool], *topics: str, timeout_s: float = 60, isolation: str = "read_committed"
    ) -> list[Any]:
        """Records of topics from their beginning, until ``done`` says that it has seen enough."""
        consumer = Consumer(
            {
                "bootstrap.servers": self.kafka.address,
                "group.id": uuid.uuid4().hex,
                "auto.offset.reset": "earliest",
                "isolation.level": isolation,
                "enable.auto.commit": False,
                "fetch.wait.max.ms": 50,
            }
        )
        consumer.subscribe(list(topics or [self.out]))
        messages: list[Any] = []
        deadline = time.monotonic() + timeout_s
        try:
            while not done(messages):
                assert time.monotonic() < deadline, f"{len(messages)} records: {[m.value() for m in messages[:20]]}"
                messages += [m for m in consumer.consume(1000, 0.2) if m.error() is None]
        finally:
            consumer.close()
        return messages

    def values(self, count: int, *topics: str, **more: Any) -> list[bytes | None]:
        """The values of the first records, ``count`` at least."""
        return [m.value() for m in self.received(lambda messages: len(messages) >= count, *topics, **more)]


@pytest.fixture
def world(kafka: Kafka, tmp_path: Path) -> Iterator[World]:
    world = World(kafka, tmp_path)
    yield world
    world.close()


def now_ms() -> int:
    return time.time_ns() // 1_000_000
