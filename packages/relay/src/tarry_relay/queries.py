"""The driver's work on a batch of the schedule query: the function for ``foreachBatch``."""

from __future__ import annotations

import json
import threading
import time
from typing import TYPE_CHECKING

from tarry.base.errors import UnavailableError
from tarry_relay.long_tasks import LongTasks
from tarry_relay.messages import TaskQuery
from tarry_relay.positions import SourcePositions, changes, ranges
from tarry_relay.schedule import SchedulePlan
from tarry_relay.settings import RelaySettings
from tarry_relay.status import RelayStatus
from tarry_relay.table import RelayStore

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

BATCH_S_MAX = 60.0
"""Seconds that the end of the relay waits for the batch that is under way."""


class ScheduleBatches:
    """Has the shards' tasks carry out their parts, and commits their files as one."""

    def __init__(self, settings: RelaySettings, store: RelayStore, tasks: LongTasks, status: RelayStatus) -> None:
        self._settings, self._store, self._tasks, self._status = settings, store, tasks, status
        self._busy = threading.Lock()
        self._ended = False

    def __call__(self, batches: DataFrame, batch_id: int) -> None:
        with self._busy:
            if self._ended:
                raise UnavailableError("the relay ends")
            for row in batches.collect():
                self._batch(
                    SourcePositions.from_json(json.loads(row.start)),
                    SourcePositions.from_json(json.loads(row.end)),
                    batch_id,
                )

    def end(self) -> bool:
        """Wait until nothing is committed to the store any more.

        Returns whether that was reached in time.
        """
        self._ended = True
        if not self._busy.acquire(timeout=BATCH_S_MAX):
            return False
        self._busy.release()
        return True

    def _batch(self, start: SourcePositions, end: SourcePositions, batch_id: int) -> None:
        started = time.monotonic()
        cut_ms, by_shard = end.clock_ms + self._settings.near_ms, ranges(start, end, self._settings.shards)
        results = self._tasks.schedule([SchedulePlan(n, cut_ms, tuple(some)) for n, some in by_shard.items()])
        files = [file for result in results for file in result.files]
        snapshot = self._store.commit_records(files, changes(start, end), end.next_number)
        seconds = round(time.monotonic() - started, 3)
        batch = {"batch_id": batch_id, "files": len(files), "version": snapshot.version, "seconds": seconds}
        self._status.on_batch(TaskQuery.SCHEDULE, batch, results)
