"""The upkeep of a relay's store: delivered files are removed, small ones merged, wide ones cut.

It works as for a broker's store (``tarry.store.upkeep``), with two differences. The progress of delivery is in the
markers, as a clock and a version: a file is removed when it was there at that version, and all of it was due by that
time. And a rewrite keeps all rows, also those that are delivered or cancelled, because the markers do not cover single
rows: they are removed with their file.
"""

from __future__ import annotations

import logging
import threading
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from tarry.base.clock import Clock, SystemClock
from tarry.spark.pipeline.upkeep import Rewrite, StoreRewriter, UpkeepSettings, in_thread, on_spark
from tarry.spark.runtime.failures import one_line
from tarry.store import Snapshot
from tarry.store.upkeep import expired, plan
from tarry_relay.files import Reached
from tarry_relay.table import RelayStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

SOON_MS = 120_000
"""Files whose rows are all due this soon are not rewritten.

They are delivered and removed before it pays.
"""
_NOTHING_FIRED_MS = int(np.iinfo(np.int64).min)


class RelayUpkeep:
    """Maintains one store. :meth:`round` does the work that is due now; not thread-safe."""

    def __init__(
        self, store: RelayStore, rewrite: Rewrite, settings: UpkeepSettings | None = None, clock: Clock | None = None
    ) -> None:
        self._store = store
        self._settings = settings or UpkeepSettings()
        self._rewriter = StoreRewriter(store.table, self._settings, rewrite)
        self._clock = clock or SystemClock()
        self._before: Snapshot | None = None

    def round(self, stop: threading.Event) -> int:
        """Remove delivered files, then plan, rewrite and publish; return the number of published works.

        Damaged files stay as they are.

        Raises:
            TarryError: the store is out of reach.
        """
        self._expire(self._store.delivered)
        snapshot = self._store.snapshot()
        self._rewriter.begin_round(snapshot)
        now_ms, published = self._clock.now_ms(), 0
        works = plan(
            _worthwhile(snapshot, now_ms),
            now_ms,
            shard=self._store.table.shard,
            floor_ms=_NOTHING_FIRED_MS,
            file_bytes_max=self._settings.file_bytes_max,
            memory=self._rewriter.memory,
        )
        for work in works:
            if stop.is_set():
                return published
            published += self._rewriter.publish([work])
        self._rewriter.tidy()
        return published

    def on_failure(self, error: Exception) -> None:
        """Log the failure."""
        log.warning("the upkeep of the store failed, and will be tried again: %s", one_line(error))

    def _expire(self, delivered: Reached) -> None:
        # The table does not tell with which version a file came; but it was there at the last round, at that version.
        now = self._store.snapshot()
        before = self._before = self._before or now
        if before.version > delivered.v:
            return
        present = {*now.files.path, *now.cancelled}
        passed = [path for path in expired(before, delivered.t) if path in present]
        self._before = self._rewriter.remove_expired(passed) if passed else now
        if passed:
            log.info("%d files are delivered, and are removed", len(passed))


def _worthwhile(snapshot: Snapshot, now_ms: int) -> Snapshot:
    """Return the files that are worth a merge or a cut.

    Cancellations are the relay's own kind, and stay as they are.
    """
    files = snapshot.files
    kept = files.take(np.flatnonzero(files.due_max_ms > now_ms + SOON_MS).tolist())
    return replace(snapshot, files=kept, cancellations=snapshot.cancellations.take([]))


def beside(spark: SparkSession, store: RelayStore, interval_ms: int) -> AbstractContextManager[threading.Thread | None]:
    """Start the upkeep of a relay's store in a thread of its own, in the relay's session."""
    return in_thread(spark, RelayUpkeep(store, on_spark(spark)), interval_ms)
