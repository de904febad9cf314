"""What the driver does with a batch of each of the two queries: the functions for ``foreachBatch``."""

from __future__ import annotations

import json
import logging
import threading
import time
from dataclasses import asdict
from typing import TYPE_CHECKING

from tarry.base.errors import TarryError
from tarry.relay.follow import Follower, places_of
from tarry.relay.positions import Positions, changes, ranges
from tarry.relay.runner import Runner
from tarry.relay.schedule import SchedulePlan, ShardResult
from tarry.relay.settings import RelaySettings, RunOptions
from tarry.relay.status import RelayStatus
from tarry.relay.table import RelayStore

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

log = logging.getLogger(__name__)


class ScheduleBatches:
    """Has the shards do their part, and commits their files as one."""

    name = "schedule"

    def __init__(self, settings: RelaySettings, store: RelayStore, runner: Runner, status: RelayStatus) -> None:
        self._settings, self._store, self._runner, self._status = settings, store, runner, status
        self.drop, self.close = runner.drop, runner.close

    def __call__(self, batches: DataFrame, batch_id: int) -> None:
        started = time.monotonic()
        for row in batches.collect():
            start, end = Positions.from_json(json.loads(row.start)), Positions.from_json(json.loads(row.end))
            cut_ms, by_shard = end.clock_ms + self._settings.near_ms, ranges(start, end, self._settings.shards)
            results = self._runner.run([SchedulePlan(n, cut_ms, tuple(some)) for n, some in by_shard.items()])
            files = [file for result in results for file in result.files]
            snapshot = self._store.commit_records(files, changes(start, end), end.next_number)
            seconds = round(time.monotonic() - started, 3)
            batch = {"batch_id": batch_id, "files": len(files), "version": snapshot.version, "seconds": seconds}
            self._status.on_batch(self.name, batch, results)

    def stop(self) -> None:
        """A batch is short."""


class DeliverBatches:
    """A batch is a stretch of time, in which a :class:`Follower` delivers."""

    name = "deliver"

    def __init__(
        self, settings: RelaySettings, running: RunOptions, store: RelayStore, runner: Runner, status: RelayStatus
    ) -> None:
        self._settings, self._running, self._store = settings, running, store
        self._runner, self._status = runner, status
        self._stop = threading.Event()
        self._follower: Follower | None = None
        self.drop, self.close = runner.drop, runner.close

    def __call__(self, batches: DataFrame, batch_id: int) -> None:
        until = time.monotonic() + self._running.deliver_batch_ms / 1000
        follower = self._follower or Follower(self._settings, self._store, self._runner, places_of(self._settings))
        self._follower = None  # after an error the markers say where to begin

        def on_result(results: list[ShardResult]) -> None:
            self._status.on_batch(self.name, {"batch_id": batch_id, "end": asdict(follower.place)}, results)

        follower.follow(until, self._running.deliver_interval_ms / 1000, self._stop, on_result)
        if self._stop.is_set():
            _settle(follower)
        self._follower = follower

    def stop(self) -> None:
        """End the batch soon, and make none that lasts."""
        self._stop.set()


def _settle(follower: Follower) -> None:
    try:
        follower.settle()
    except TarryError as error:  # the relay ends all the same; only a change of the number of shards needs it
        log.warning("the shards are left at different places: %s", error)


BatchWork = ScheduleBatches | DeliverBatches
"""``drop`` closes what is kept for the next batch, after a failure; ``close`` frees everything at the end."""
