"""The driver: both queries in one Spark session, kept running for as long as the relay is wanted.

A query that fails (Kafka away, an executor lost) is started again after a pause that grows to a minute, for ever: its
batch is repeated, and what the batch had done is recognised. Only what no repetition mends ends the relay: another
relay of the same name, settings that do not fit.
"""

from __future__ import annotations

import json
import logging
import os
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tarry.base.errors import InvalidArgumentError, TarryError, UnavailableError
from tarry.relay import upkeep
from tarry.relay.clients import Admin, FencedError
from tarry.relay.follow import Follower, places_of
from tarry.relay.positions import Positions, changes
from tarry.relay.rules import Rules
from tarry.relay.running import Runner
from tarry.relay.schedule import Done, SchedulePlan
from tarry.relay.settings import Settings
from tarry.relay.start import prepare
from tarry.relay.status import Status
from tarry.relay.table import RelayStore
from tarry.spark.pipeline.job import one_line
from tarry.spark.pipeline.session import build_session
from tarry.store import StaleCommitError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

log = logging.getLogger(__name__)

PAUSE_S_MIN, PAUSE_S_MAX = 1.0, 60.0
HEALTHY_S = 60.0
RIVALS_MAX = 3
"""So many takeovers within :data:`HEALTHY_S` of each other are another relay, and not a task that was left behind."""
LOOK_S = 0.5


@dataclass(frozen=True, slots=True)
class Running:
    """How a relay is run: what does not change what becomes of a record."""

    checkpoint: Path
    master: str = "local[*]"
    memory: str = "1g"
    schedule_interval_ms: int = 500
    deliver_interval_ms: int = 50
    deliver_batch_ms: int = 60_000
    compact_interval_ms: int = 60_000
    status_interval_ms: int = 10_000


class Batch:
    """The function for ``foreachBatch`` of a query; ``error`` is why the last one failed, which Spark wraps."""

    name: str

    def __init__(self, relay: Relay, store: RelayStore, runner: Runner) -> None:
        self._settings, self._running, self._status = relay.settings, relay.running, relay.status
        self._store, self.runner = store, runner
        self._stop = threading.Event()
        self.error: Exception | None = None

    def __call__(self, plans: DataFrame, batch_id: int) -> None:
        try:
            self.work(plans, batch_id)
        except Exception as error:
            self.error = error
            raise

    def work(self, plans: DataFrame, batch_id: int) -> None:
        """Do it."""
        raise NotImplementedError

    def stop(self) -> None:
        """End the batch soon, and make none that lasts."""
        self._stop.set()


class ScheduleBatch(Batch):
    """Has the shards do their part, and commits their files as one."""

    name = "schedule"

    def work(self, plans: DataFrame, batch_id: int) -> None:
        started = time.monotonic()
        for row in plans.collect():
            plan = json.loads(row.plan)
            done = self.runner.run([SchedulePlan.from_json(text) for text in plan["plans"]])
            start, end = Positions.from_json(plan["start"]), Positions.from_json(plan["end"])
            files = [file for part in done for file in part.files]
            snapshot = self._store.commit_records(files, changes(start, end), end.next_number)
            seconds = round(time.monotonic() - started, 3)
            told = {"batch_id": batch_id, "files": len(files), "version": snapshot.version, "seconds": seconds}
            self._status.batch_done(self.name, told, done)


class DeliverBatch(Batch):
    """Of the other query: a batch is a stretch of time."""

    name = "deliver"
    _follower: Follower | None = None

    def work(self, _: DataFrame, batch_id: int) -> None:
        until = time.monotonic() + self._running.deliver_batch_ms / 1000
        follower = self._follower or self._begin()
        self._follower = None  # after an error the markers say where to begin

        def tell(done: list[Done]) -> None:
            self._status.batch_done(self.name, {"batch_id": batch_id, "end": asdict(follower.place)}, done)

        follower.follow(until, self._running.deliver_interval_ms / 1000, self._stop, tell)
        if self._stop.is_set():
            _settled(follower)
        self._follower = follower

    def _begin(self) -> Follower:
        return Follower(self._settings, self._store, self.runner, places_of(self._settings))


def _settled(follower: Follower) -> None:
    try:
        follower.settle()
    except TarryError as error:  # it is the end, and was no promise
        log.warning("the shards are left at different places: %s", error)


class Relay:
    """Both queries and their supervision. ``run`` once."""

    def __init__(self, settings: Settings, running: Running, status: Status | None = None) -> None:
        self.settings, self.running = settings, running
        self.status = status or Status(settings.name)
        Rules(settings)  # refuses patterns that are none

    def run(self, stop: threading.Event, tell: Callable[[dict[str, Any]], None]) -> None:
        """Relay until ``stop``; ``tell`` gets the status now and then.

        Raises:
            TarryError: it cannot start, or another relay of this name has taken over.
        """
        store = RelayStore.open_relay(self.settings.store, shard=self.settings.store_shard)
        threading.Thread(target=self._watch, args=(stop, tell, store), name="tarry-relay-status", daemon=True).start()
        if not self._when_kafka_is_there(stop, lambda: prepare(self.settings, store, self.running.checkpoint)):
            return
        spark = self.session()
        try:
            self.serve(spark, store, stop)
        finally:
            spark.stop()

    def serve(self, spark: SparkSession, store: RelayStore, stop: threading.Event) -> None:
        """Keep both queries running in a session until ``stop``.

        Raises:
            TarryError: what no repetition mends.
        """
        batches: list[Batch] = [
            kind(self, store, Runner(spark, self.settings, store.root, deliver=kind is DeliverBatch))
            for kind in (ScheduleBatch, DeliverBatch)
        ]
        keepers: list[_Keeper] = []
        try:
            keepers += [_Keeper(self, spark, batch) for batch in batches]
            with upkeep.beside(spark, store, self.running.compact_interval_ms):
                while not stop.wait(LOOK_S):
                    for keeper in keepers:
                        keeper.look()
        finally:
            for keeper in keepers:
                keeper.stop()
            for batch in batches:
                batch.runner.close()

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
        )

    def start(self, spark: SparkSession, batch: Batch) -> StreamingQuery:
        """Start a query, from its checkpoint or from what store and markers say."""
        from tarry.relay.deliver_source import DeliverSource
        from tarry.relay.schedule_source import ScheduleSource

        source = ScheduleSource if isinstance(batch, ScheduleBatch) else DeliverSource
        interval_ms = self.running.schedule_interval_ms if source is ScheduleSource else 0
        spark.dataSource.register(source)
        spark.sparkContext.setLocalProperty("spark.scheduler.pool", batch.name)  # of the query's thread, too
        return (
            spark.readStream.format(source.name())
            .option("settings", self.settings.to_json())
            .load()
            .writeStream.queryName(f"{self.settings.name}-{batch.name}")
            .foreachBatch(batch)
            .option("checkpointLocation", (self.running.checkpoint.absolute() / batch.name).as_uri())
            .trigger(processingTime=f"{interval_ms} milliseconds")
            .start()
        )

    # -- inside ------------------------------------------------------------------------------------------------------

    def _when_kafka_is_there(self, stop: threading.Event, what: Callable[[], None]) -> bool:
        pause_s = PAUSE_S_MIN
        while not stop.is_set():
            try:
                what()
            except UnavailableError as error:
                self.status.kafka(one_line(error))
                log.warning("waiting: %s; next try in %g s", error, pause_s)
                stop.wait(pause_s)
                pause_s = min(2 * pause_s, PAUSE_S_MAX)
            else:
                self.status.kafka(None)
                return True
        return False

    def _watch(self, stop: threading.Event, tell: Callable[[dict[str, Any]], None], store: RelayStore) -> None:
        admin, rules = Admin(self.settings), Rules(self.settings)
        while not stop.wait(self.running.status_interval_ms / 1000):
            try:
                topics = admin.partitions()
                _, known = store.known((t, p) for t in rules.sources(topics) for p in topics[t])
                latest = admin.offsets(known, "latest")
                self.status.kafka(None, sum(max(0, latest[p] - at.offset) for p, at in known.items()))
            except TarryError as error:
                self.status.kafka(one_line(error))
            tell(self.status.as_dict())


class _Keeper:
    """Keeps one query running."""

    def __init__(self, relay: Relay, spark: SparkSession, batch: Batch) -> None:
        self._relay, self._spark, self._batch = relay, spark, batch
        self._pause_s = PAUSE_S_MIN
        self._rivals = 0
        self._begun = self._begin()
        self._query: StreamingQuery | None = relay.start(spark, batch)
        relay.status.query(batch.name, state="running")

    def _begin(self) -> float:
        self._batch.error = None
        return time.monotonic()

    def look(self) -> None:
        """Is it running? Start it again when its pause is over.

        Raises:
            TarryError: what no repetition mends.
        """
        if self._query is not None:
            if self._query.isActive:
                return
            self._failed(self._batch.error, one_line(self._batch.error or self._query.exception() or "it has ended"))
        elif time.monotonic() >= self._begun:
            self._begun = self._begin()
            self._query = self._relay.start(self._spark, self._batch)

    def stop(self) -> None:
        """End the query."""
        self._batch.stop()
        if self._query is not None:
            self._query.stop()

    def _failed(self, error: Exception | None, text: str) -> None:
        lasted = time.monotonic() - self._begun
        if lasted >= HEALTHY_S:
            self._pause_s, self._rivals = PAUSE_S_MIN, 0
        if isinstance(error, FencedError | StaleCommitError):
            self._rivals += 1
        if isinstance(error, InvalidArgumentError) or self._rivals >= RIVALS_MAX:
            raise error or TarryError(text)
        log.warning("the query %s has failed (%s); again in %g s", self._batch.name, text, self._pause_s)
        self._batch.runner.drop()
        self._relay.status.restarted(self._batch.name, text)
        self._query = None
        self._begun = time.monotonic() + self._pause_s
        self._pause_s = min(2 * self._pause_s, PAUSE_S_MAX)
