"""The driver: the long tasks and the schedule query in one Spark session, kept running.

Whatever fails (Kafka away, an executor lost) is started again after a pause that grows to a minute, for ever: a batch
is repeated, and what it had done is recognised. The relay ends only if repeating cannot help: another relay of the same
name is at work, or the settings do not fit.
"""

from __future__ import annotations

import logging
import os
import re
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from tarry.base.back_off import BackOff
from tarry.base.errors import InvalidArgumentError, TarryError, UnavailableError
from tarry.spark.runtime.conf import user_conf
from tarry.spark.runtime.failures import one_line
from tarry.spark.runtime.session import build_session
from tarry.spark.runtime.sole_user import sole_user
from tarry.store.place import Place
from tarry_relay import upkeep
from tarry_relay.attempts import Attempts
from tarry_relay.clients import KafkaAdmin
from tarry_relay.files import Reached
from tarry_relay.long_tasks import Launch, LongTasks, in_spark
from tarry_relay.messages import TaskQuery
from tarry_relay.prepare import prepare
from tarry_relay.queries import ScheduleBatches
from tarry_relay.rules import TopicRules
from tarry_relay.settings import RelaySettings, RunOptions
from tarry_relay.status import RelayStatus
from tarry_relay.table import RelayStore

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

log = logging.getLogger(__name__)

T = TypeVar("T")

LOOK_S = 0.5
PAUSE_S_MIN, PAUSE_S_MAX = 1.0, 60.0
"""Seconds between two looks whether Kafka answers."""
DELIVER_FIRST_S = 10.0
"""Seconds that everything else waits for the delivering tasks.

They may fail for as long as Kafka is away.
"""
SLOTS_BESIDE = 4
"""Slots for short tasks: the schedule query's, and those of upkeep."""
EXECUTOR_SLOTS = 4
"""Slots of an executor on YARN or Kubernetes: the most that YARN allows by default."""


class Relay:
    """The tasks, the query and their supervision. Call ``run`` once."""

    def __init__(self, settings: RelaySettings, running: RunOptions, status: RelayStatus | None = None) -> None:
        # Sources and tasks run in other processes, with working directories of their own.
        self.settings = replace(settings, store=Place.of(settings.store).uri)
        self.running = replace(running, checkpoint=running.checkpoint.absolute())
        self.status = status or RelayStatus(settings.name)
        TopicRules(settings)  # refuses invalid patterns
        self._conf = user_conf(running.spark_conf, running.spark_conf_file)

    def run(self, stop: threading.Event, on_status: Callable[[dict[str, Any]], None]) -> None:
        """Relay until ``stop``; ``on_status`` gets the status every ``status_interval_ms``.

        Raises:
            TarryError: it cannot start, or another relay of this name has taken over.
        """
        with sole_user(self.running.checkpoint, stop):
            self._run(stop, on_status)

    def _run(self, stop: threading.Event, on_status: Callable[[dict[str, Any]], None]) -> None:
        store = RelayStore.open_relay(self.settings.store, shard=self.settings.store_shard)
        threading.Thread(
            target=self._watch, args=(stop, on_status, store), name="tarry-relay-status", daemon=True
        ).start()
        # Spark takes seconds to start, and Kafka's answers do not need it.
        with ThreadPoolExecutor(1, thread_name_prefix="tarry-relay-prepare") as pool:
            prepared = pool.submit(
                self._when_kafka_answers, stop, lambda: prepare(self.settings, store, self.running.checkpoint)
            )
            try:
                self._serve_when_ready(store, stop, prepared)
            finally:
                stop.set()  # it may be waiting for Kafka

    def serve(
        self,
        spark: SparkSession,
        store: RelayStore,
        stop: threading.Event,
        places: Mapping[int, Reached],
        launch: Launch | None = None,
    ) -> None:
        """Relay in a session until ``stop``.

        ``places`` are the shards', as :func:`prepare` found them; ``launch`` runs the long tasks, by default in Spark's
        executors.

        Raises:
            TarryError: repeating cannot help.
        """
        conf = spark.sparkContext.getConf()
        host = conf.get("spark.driver.host") or "127.0.0.1"
        address = (host, conf.get("spark.driver.bindAddress") or host)
        status = self.status
        tasks = LongTasks(launch or in_spark(spark), address, self.settings, self.running, store, status, places)
        batches = ScheduleBatches(self.settings, store, tasks, status)
        query: _QueryRunner | None = None
        try:
            # What falls due now comes first: everything started beside it would take the processor from it.
            tasks.start(TaskQuery.DELIVER)
            tasks.wait(TaskQuery.DELIVER, DELIVER_FIRST_S)
            tasks.start(TaskQuery.SCHEDULE)
            query = _QueryRunner(self, spark, batches)
            with upkeep.beside(spark, store, self.running.compact_interval_ms):
                while not stop.wait(LOOK_S):
                    query.look()
                    tasks.look()
        finally:
            if query is not None:
                query.stop()
            if not batches.end():
                log.warning("the last batch does not end; the shards may be left at different places")
            tasks.close()

    def session(self) -> SparkSession:
        """Return a Spark session with the settings that a relay needs."""
        # Slots for the long tasks, which wait for Kafka and the clock most of the time, and for the rest: the schedule
        # query, and upkeep.
        slots = 2 * self.settings.shards + max(SLOTS_BESIDE, os.cpu_count() or 1)
        return build_session(
            name=f"tarry relay {self.settings.name}",
            master=f"local[{slots}]" if self.running.master == "local[*]" else self._checked_master(),
            memory=self.running.memory,
            work=self.running.checkpoint.with_name(f".{self.running.checkpoint.name}.spark-tmp"),
            settings={
                "spark.scheduler.mode": "FAIR",
                "spark.python.daemon.module": "tarry_relay.daemon",
                **_enough(self.running.master, 2 * self.settings.shards + SLOTS_BESIDE),
            },
            conf=self._conf,
        )

    def start(self, spark: SparkSession, on_batch: Callable[[DataFrame, int], None]) -> StreamingQuery:
        """Start the schedule query, from its checkpoint or from the store's place."""
        from tarry_relay.sources import ScheduleSource

        spark.dataSource.register(ScheduleSource)
        spark.sparkContext.setLocalProperty("spark.scheduler.pool", "plan")  # for the query's thread, too
        return (
            spark.readStream.format(ScheduleSource.name())
            .option("settings", self.settings.to_json())
            .load()
            .writeStream.queryName(f"{self.settings.name}-{TaskQuery.SCHEDULE}")
            .foreachBatch(on_batch)
            .option("checkpointLocation", (self.running.checkpoint / TaskQuery.SCHEDULE).as_uri())
            .trigger(processingTime=f"{self.running.schedule_interval_ms} milliseconds")
            .start()
        )

    # -- inside ------------------------------------------------------------------------------------------------------

    def _serve_when_ready(
        self, store: RelayStore, stop: threading.Event, prepared: Future[dict[int, Reached] | None]
    ) -> None:
        spark = self.session()
        self.status.on_moment("session_ms")
        try:
            places = prepared.result()
            if places is not None:
                self.serve(spark, store, stop, places)
        finally:
            spark.stop()

    def _checked_master(self) -> str:
        master, slots = self.running.master, 2 * self.settings.shards + 1
        given = re.fullmatch(r"local(?:\[(\d+).*\])?", master)
        if given is not None and int(given[1] or 1) < slots:
            raise InvalidArgumentError(
                f"master {master!r} has too few slots for {self.settings.shards} shards, of two long tasks each; "
                f"allowed: local[*], or local[{slots}] and more"
            )
        return master

    def _when_kafka_answers(self, stop: threading.Event, action: Callable[[], T]) -> T | None:
        """Do ``action`` as soon as Kafka can be reached.

        Returns None if ``stop`` came before.
        """
        back_off = BackOff(PAUSE_S_MIN, PAUSE_S_MAX)
        while not stop.is_set():
            try:
                done = action()
            except UnavailableError as error:
                pause_s = back_off.fail()
                self.status.on_kafka(one_line(error))
                log.warning("waiting: %s; next try in %g s", error, pause_s)
                stop.wait(pause_s)
            else:
                self.status.on_kafka(None)
                return done
        return None

    def _watch(self, stop: threading.Event, on_status: Callable[[dict[str, Any]], None], store: RelayStore) -> None:
        admin, rules = KafkaAdmin(self.settings), TopicRules(self.settings)
        while not stop.wait(self.running.status_interval_ms / 1000):
            try:
                topics = admin.partitions()
                _, positions = store.positions_of((t, p) for t in rules.sources(topics) for p in topics[t])
                latest = admin.offsets(positions, "latest")
                self.status.on_kafka(None, sum(max(0, latest[p] - at.offset) for p, at in positions.items()))
            except TarryError as error:
                self.status.on_kafka(one_line(error))
            on_status(self.status.as_dict())


def _enough(master: str, slots: int) -> dict[str, str]:
    """Return settings for ``slots`` slots on a cluster.

    By default the first long tasks would take all slots, for ever, and leave none to the others. They wait most of the
    time, so Kubernetes need not set a processor aside for each.
    """
    if master.startswith("spark://"):
        return {"spark.cores.max": str(slots)}
    return {
        "spark.executor.cores": str(EXECUTOR_SLOTS),
        "spark.executor.instances": str(-(-slots // EXECUTOR_SLOTS)),
        "spark.kubernetes.executor.request.cores": "1",
    }


class _QueryRunner:
    """Keeps the schedule query running."""

    def __init__(self, relay: Relay, spark: SparkSession, work: ScheduleBatches) -> None:
        self._relay, self._spark, self._work = relay, spark, work
        self._error: Exception | None = None
        """Error of the last batch: Spark wraps it in texts."""
        self._attempts = Attempts()
        self._attempts.begin()
        self._next_s = 0.0
        """Monotonic time of the next attempt, when there is no query."""
        self._query: StreamingQuery | None = relay.start(spark, self._on_batch)
        relay.status.on_query(TaskQuery.SCHEDULE, state="running")

    def _on_batch(self, plans: DataFrame, batch_id: int) -> None:
        try:
            self._work(plans, batch_id)
        except Exception as error:
            self._error = error
            raise

    def look(self) -> None:
        """Start the query again when it has ended and its pause is over.

        Raises:
            TarryError: repeating cannot help.
        """
        if self._query is not None:
            if self._query.isActive:
                return
            self._on_end(self._error, one_line(self._error or self._query.exception() or "it has ended"))
        elif time.monotonic() >= self._next_s:
            self._attempts.begin()
            self._error = None
            self._query = self._relay.start(self._spark, self._on_batch)

    def stop(self) -> None:
        if self._query is not None:
            self._query.stop()

    def _on_end(self, error: Exception | None, text: str) -> None:
        pause_s = self._attempts.fail(error)
        log.warning("the schedule query has failed (%s); again in %g s", text, pause_s)
        self._relay.status.on_restart(TaskQuery.SCHEDULE, text)
        self._query = None
        self._next_s = time.monotonic() + pause_s
