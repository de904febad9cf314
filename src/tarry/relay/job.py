"""The driver: both queries in one Spark session, kept running for as long as the relay is wanted.

A query that fails (Kafka away, an executor lost) is started again after a pause that grows to a minute, for ever: its
batch is repeated, and what the batch had done is recognised. The relay ends only where repeating cannot help: another
relay of the same name is at work, or the settings do not fit.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tarry.base.errors import InvalidArgumentError, TarryError, UnavailableError
from tarry.relay import upkeep
from tarry.relay.clients import Admin, FencedError
from tarry.relay.prepare import prepare
from tarry.relay.queries import BatchWork, DeliverBatches, ScheduleBatches
from tarry.relay.rules import Rules
from tarry.relay.runner import Runner
from tarry.relay.settings import RelaySettings, RunOptions
from tarry.relay.status import RelayStatus
from tarry.relay.table import RelayStore
from tarry.spark.runtime.conf import user_conf
from tarry.spark.runtime.session import build_session, one_line
from tarry.store import StaleCommitError
from tarry.store.place import Place

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

log = logging.getLogger(__name__)

PAUSE_S_MIN, PAUSE_S_MAX = 1.0, 60.0
HEALTHY_S = 60.0
RIVALS_MAX = 3
"""So many takeovers within :data:`HEALTHY_S` of each other are those of another relay, not of an abandoned task."""
LOOK_S = 0.5


class Relay:
    """Both queries and their supervision. ``run`` once."""

    def __init__(self, settings: RelaySettings, running: RunOptions, status: RelayStatus | None = None) -> None:
        # Sources and tasks run in other processes, with working directories of their own.
        self.settings = replace(settings, store=Place.of(settings.store).uri)
        self.running = replace(running, checkpoint=running.checkpoint.absolute())
        self.status = status or RelayStatus(settings.name)
        Rules(settings)  # refuses patterns that are none
        self._conf = user_conf(running.spark_conf, running.spark_conf_file)

    def run(self, stop: threading.Event, on_status: Callable[[dict[str, Any]], None]) -> None:
        """Relay until ``stop``; ``on_status`` gets the status every ``status_interval_ms``.

        Raises:
            TarryError: it cannot start, or another relay of this name has taken over.
        """
        store = RelayStore.open_relay(self.settings.store, shard=self.settings.store_shard)
        threading.Thread(
            target=self._watch, args=(stop, on_status, store), name="tarry-relay-status", daemon=True
        ).start()
        if not self._when_kafka_answers(stop, lambda: prepare(self.settings, store, self.running.checkpoint)):
            return
        spark = self.session()
        try:
            self.serve(spark, store, stop)
        finally:
            spark.stop()

    def serve(self, spark: SparkSession, store: RelayStore, stop: threading.Event) -> None:
        """Keep both queries running in a session until ``stop``.

        Raises:
            TarryError: repeating cannot help.
        """
        runners = [Runner(spark, self.settings, store, deliver=deliver) for deliver in (False, True)]
        works: list[BatchWork] = [
            ScheduleBatches(self.settings, store, runners[0], self.status),
            DeliverBatches(self.settings, self.running, store, runners[1], self.status),
        ]
        queries: list[_QueryRunner] = []
        try:
            queries += [_QueryRunner(self, spark, work) for work in works]
            with upkeep.beside(spark, store, self.running.compact_interval_ms):
                while not stop.wait(LOOK_S):
                    for query in queries:
                        query.look()
        finally:
            for query in queries:
                query.stop()
            for work in works:
                work.close()

    def session(self) -> SparkSession:
        """Spark, as a relay needs it."""
        # Tasks wait for Kafka and the disk most of the time, and a delivery must not wait for them.
        cores = max(4, 2 * (os.cpu_count() or 1))
        return build_session(
            name=f"tarry relay {self.settings.name}",
            master=f"local[{cores}]" if self.running.master == "local[*]" else self.running.master,
            memory=self.running.memory,
            work=self.running.checkpoint.with_name(f".{self.running.checkpoint.name}.spark-tmp"),
            settings={"spark.scheduler.mode": "FAIR"},
            conf=self._conf,
        )

    def start(self, spark: SparkSession, name: str, on_batch: Callable[[DataFrame, int], None]) -> StreamingQuery:
        """Start a query, from its checkpoint or from where the store and the markers are."""
        from tarry.relay.sources import DeliverSource, ScheduleSource

        source = ScheduleSource if name == ScheduleBatches.name else DeliverSource
        interval_ms = self.running.schedule_interval_ms if source is ScheduleSource else 0
        spark.dataSource.register(source)
        spark.sparkContext.setLocalProperty("spark.scheduler.pool", name)  # of the query's thread, too
        return (
            spark.readStream.format(source.name())
            .option("settings", self.settings.to_json())
            .load()
            .writeStream.queryName(f"{self.settings.name}-{name}")
            .foreachBatch(on_batch)
            .option("checkpointLocation", (self.running.checkpoint / name).as_uri())
            .trigger(processingTime=f"{interval_ms} milliseconds")
            .start()
        )

    # -- inside ------------------------------------------------------------------------------------------------------

    def _when_kafka_answers(self, stop: threading.Event, action: Callable[[], None]) -> bool:
        """Do ``action`` as soon as Kafka can be reached; false when ``stop`` came before."""
        pause_s = PAUSE_S_MIN
        while not stop.is_set():
            try:
                action()
            except UnavailableError as error:
                self.status.on_kafka(one_line(error))
                log.warning("waiting: %s; next try in %g s", error, pause_s)
                stop.wait(pause_s)
                pause_s = min(2 * pause_s, PAUSE_S_MAX)
            else:
                self.status.on_kafka(None)
                return True
        return False

    def _watch(self, stop: threading.Event, on_status: Callable[[dict[str, Any]], None], store: RelayStore) -> None:
        admin, rules = Admin(self.settings), Rules(self.settings)
        while not stop.wait(self.running.status_interval_ms / 1000):
            try:
                topics = admin.partitions()
                _, positions = store.positions_of((t, p) for t in rules.sources(topics) for p in topics[t])
                latest = admin.offsets(positions, "latest")
                self.status.on_kafka(None, sum(max(0, latest[p] - at.offset) for p, at in positions.items()))
            except TarryError as error:
                self.status.on_kafka(one_line(error))
            on_status(self.status.as_dict())


class _QueryRunner:
    """Keeps one query running."""

    def __init__(self, relay: Relay, spark: SparkSession, work: BatchWork) -> None:
        self._relay, self._spark, self._work = relay, spark, work
        self._error: Exception | None = None
        """Why the last batch failed: Spark wraps it in texts."""
        self._pause_s = PAUSE_S_MIN
        self._rivals = 0
        self._begun = time.monotonic()
        self._query: StreamingQuery | None = relay.start(spark, work.name, self._on_batch)
        relay.status.on_query(work.name, state="running")

    def _on_batch(self, plans: DataFrame, batch_id: int) -> None:
        try:
            self._work(plans, batch_id)
        except Exception as error:
            self._error = error
            raise

    def look(self) -> None:
        """Start it again when it has ended and its pause is over.

        Raises:
            TarryError: repeating cannot help.
        """
        if self._query is not None:
            if self._query.isActive:
                return
            self._on_end(self._error, one_line(self._error or self._query.exception() or "it has ended"))
        elif time.monotonic() >= self._begun:
            self._begun, self._error = time.monotonic(), None
            self._query = self._relay.start(self._spark, self._work.name, self._on_batch)

    def stop(self) -> None:
        """End the query."""
        self._work.stop()
        if self._query is not None:
            self._query.stop()

    def _on_end(self, error: Exception | None, text: str) -> None:
        lasted = time.monotonic() - self._begun
        if lasted >= HEALTHY_S:
            self._pause_s, self._rivals = PAUSE_S_MIN, 0
        if isinstance(error, FencedError | StaleCommitError):
            self._rivals += 1
        if isinstance(error, InvalidArgumentError) or self._rivals >= RIVALS_MAX:
            raise error or TarryError(text)
        log.warning("the query %s has failed (%s); again in %g s", self._work.name, text, self._pause_s)
        self._work.drop()
        self._relay.status.on_restart(self._work.name, text)
        self._query = None
        self._begun = time.monotonic() + self._pause_s
        self._pause_s = min(2 * self._pause_s, PAUSE_S_MAX)
