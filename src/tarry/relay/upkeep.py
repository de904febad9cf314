"""The upkeep of a relay's store: files whose records are all delivered go, small ones are merged, wide ones are cut.

As for a broker's store (``tarry.store.upkeep``), with two differences. What is delivered is said by the markers, of a
clock and a version: a file may go when it was there at that version, and all of it was due by that time. And nothing is
left out of files that are merged, neither what is delivered nor what is cancelled: that would have to be known for each
row. It goes with its file.
"""

from __future__ import annotations

import logging
import threading
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from tarry.base.clock import Clock, SystemClock
from tarry.relay.ledger import Reached
from tarry.relay.table import RelayStore
from tarry.spark.pipeline.carry import Carrier, Runner, Settings, in_thread, spark_runner
from tarry.store import Snapshot
from tarry.store.upkeep import expired, plan

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

SOON_MS = 120_000
"""What is due so soon is not worth a rewriting: it goes by itself."""
_NOTHING_MS = int(np.iinfo(np.int64).min)


class RelayUpkeep(Carrier):
    """Looks after one store. :meth:`round` does what is to be done now; not thread-safe."""

    def __init__(
        self, store: RelayStore, run: Runner, settings: Settings | None = None, clock: Clock | None = None
    ) -> None:
        super().__init__(store.table, settings or Settings(), run)
        self._relay_store = store
        self._clock = clock or SystemClock()
        self._before: Snapshot | None = None

    def round(self, stop: threading.Event) -> int:
        """Let go of what is delivered, then plan and carry out; how many works were published.

        Raises:
            TarryError: the store is out of reach, or a file is damaged.
        """
        self._expire(self._relay_store.delivered)
        snapshot = self._store.snapshot()
        self._memory.forget_all_but([*snapshot.files.path, *snapshot.cancelled])
        now_ms, published = self._clock.now_ms(), 0
        works = plan(
            _worthwhile(snapshot, now_ms),
            now_ms,
            shard=self._store.shard,
            floor_ms=_NOTHING_MS,
            file_bytes_max=self._settings.file_bytes_max,
            memory=self._memory,
        )
        for work in works:
            if stop.is_set():
                return published
            published += self.carry_out([work])
        self.tidy()
        return published

    def _expire(self, delivered: Reached) -> None:
        # Which version a file came with is not told; but it was there at the last round, and so was that version.
        now = self._store.snapshot()
        before = self._before = self._before or now
        if before.version > delivered.v:
            return
        there = {*now.files.path, *now.cancelled}
        passed = [path for path in expired(before, delivered.t) if path in there]
        self._before = self._store.replace(passed, []) if passed else now
        if passed:
            self.totals.update(expired_files=len(passed))
            log.info("%d files are delivered, and go", len(passed))


def _worthwhile(snapshot: Snapshot, now_ms: int) -> Snapshot:
    """Files that are merged or cut with profit. Cancellations are the relay's own kind, and stay as they are."""
    files = snapshot.files
    kept = files.take(np.flatnonzero(files.due_max_ms > now_ms + SOON_MS).tolist())
    return replace(snapshot, files=kept, cancellations=snapshot.cancellations.take([]))


def beside(spark: SparkSession, store: RelayStore, interval_ms: int) -> AbstractContextManager[threading.Thread | None]:
    """The upkeep of a relay's store in a thread of its own, in the relay's session."""
    return in_thread(spark, RelayUpkeep(store, spark_runner(spark)), interval_ms)
