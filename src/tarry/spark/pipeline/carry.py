"""Carrying out what the upkeep has planned: works by whoever runs them, a commit for each, and the deletion of what
nobody reads any more.

Whoever dies on the way leaves files that nothing names; whoever comes second with the same files is refused by the
table.
"""

from __future__ import annotations

import argparse
import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tarry.spark.pipeline.job import one_line
from tarry.spark.pipeline.rewrite_task import JOB_GROUP, on_spark
from tarry.store import Rewritten, StaleCommitError, Store, Work, remove_orphans, remove_replaced
from tarry.store.orphans import ORPHAN_AGE_HOURS
from tarry.store.run import FILE_BYTES_MAX
from tarry.store.upkeep import Memory

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

TIDY_EVERY_S = 3600.0
ORPHANS_EVERY_S = 86_400.0
"""A search for orphans lists the whole table."""

STOP_WAIT_S = 5.0

Runner = Callable[[list[Work]], list[Rewritten]]


@dataclass(frozen=True, slots=True)
class Settings:
    """``interval_ms`` 0: never. ``retention_ms`` None: what the table says."""

    interval_ms: int = 60_000
    tasks: int = 1
    file_bytes_max: int = FILE_BYTES_MAX
    retention_ms: int | None = None
    compact: bool = True
    """False: expire and tidy alone."""

    @classmethod
    def of(cls, options: argparse.Namespace) -> Settings:
        """From a command line that has :func:`add_options`."""
        return cls(
            interval_ms=options.compact_interval_ms,
            tasks=options.compact_tasks,
            file_bytes_max=options.compact_file_bytes,
            retention_ms=options.store_retention_ms,
        )


def retention_hours(store: Store, retention_ms: int | None) -> int:
    """How long files that were replaced stay, rounded up, since Delta counts in hours. Tells the table, if it is new.

    Raises:
        UnavailableError: the log cannot be written.
    """
    if retention_ms is None:
        return store.kept_hours
    hours = -(-retention_ms // 3_600_000)
    store.keep_for(hours)
    return hours


class Carrier:
    """For one store; not thread-safe."""

    def __init__(self, store: Store, settings: Settings, run: Runner) -> None:
        self._store, self._settings, self._run = store, settings, run
        self._memory = Memory()
        self.totals: Counter[str] = Counter()
        """What was done until now."""
        self._tidied = self._searched = -float("inf")

    def round(self, stop: threading.Event) -> int:
        """Do what is to be done now; how many works were published.

        Raises:
            TarryError: the store, or who knows what may go, is out of reach; or a file is damaged.
        """
        raise NotImplementedError

    def failed(self, error: Exception) -> None:
        """Say that a round has failed; the next one begins anew."""
        log.warning("the upkeep of the store failed, and will be tried again: %s", one_line(error))

    def carry_out(self, works: list[Work]) -> int:
        """Have works done, and publish them; how many.

        Raises:
            TarryError: the store is out of reach, or a file is damaged.
        """
        started, published = time.monotonic(), 0
        for work, result in zip(works, self._run(works), strict=True):
            self._memory.note(work, result)
            if not result.removed:
                continue
            try:
                self._store.replace(result.removed, result.files)
            except StaleCommitError as error:
                # Somebody else was quicker. What was staged is left to the search for orphans: after a commit of which
                # no answer came, it may be our own that we see.
                log.warning("a rewriting was in vain: %s", error)
                continue
            published += 1
            self.totals.update(
                works=1,
                files_removed=len(result.removed),
                files_added=len(result.files),
                rows_read=result.rows_read,
                rows_written=result.rows,
                bytes_read=result.bytes_read,
                bytes_written=result.bytes,
            )
            log.info(
                "%s: %d files of %d rows became %d of %d, %.2f s",
                work.reason,
                *(len(result.removed), result.rows_read, len(result.files), result.rows),
                time.monotonic() - started,
            )
        return published

    def tidy(self) -> None:
        """Now and then: delete files that were replaced a retention ago, and what was never committed."""
        now = time.monotonic()
        if now - self._tidied < TIDY_EVERY_S and now - self._searched < ORPHANS_EVERY_S:
            return
        hours = retention_hours(self._store, self._settings.retention_ms)
        if now - self._tidied >= TIDY_EVERY_S:
            self._tidied = now
            self.totals.update(deleted_files=len(remove_replaced(self._store.root, older_than_hours=hours)))
        if now - self._searched >= ORPHANS_EVERY_S:
            self._searched = now
            found = remove_orphans(self._store.root, older_than_hours=max(hours, ORPHAN_AGE_HOURS))
            self.totals.update(deleted_files=len(found))


def spark_runner(spark: SparkSession) -> Runner:
    """Carry works out as tasks."""
    return lambda works: on_spark(spark, works)


@contextmanager
def in_thread(spark: SparkSession, carrier: Carrier, interval_ms: int) -> Iterator[threading.Thread | None]:
    """Rounds in a thread of their own, in the session of another job, which they never disturb by failing; none where
    the interval is 0.
    """
    if interval_ms == 0:
        yield None
        return
    stop = threading.Event()
    thread = threading.Thread(target=loop, args=(carrier, stop, interval_ms / 1000), name="tarry-compact", daemon=True)
    thread.start()
    try:
        yield thread
    finally:
        stop.set()
        with suppress(Exception):  # the JVM may be what has failed
            spark.sparkContext.cancelJobGroup(JOB_GROUP)
        thread.join(STOP_WAIT_S)


def loop(carrier: Carrier, stop: threading.Event, interval_s: float) -> None:
    """A round every ``interval_s``, whatever becomes of it, until ``stop`` is set."""
    while not stop.wait(interval_s):
        try:
            carrier.round(stop)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is said, and the next round begins anew
            if not stop.is_set():
                carrier.failed(error)
