"""The upkeep of a store, shared by a broker's pipeline (``compact.py``) and a relay.

Planned works are carried out and published by one commit each, and files that nobody reads any more are deleted. A
crash on the way leaves files that the table does not name, which the search for orphans deletes. If two rewrite the
same files, the table refuses the later commit.
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
from typing import TYPE_CHECKING, Protocol

from tarry.base.errors import OwnershipLostError
from tarry.store import Rewritten, Snapshot, StaleCommitError, Store, Work, remove_orphans, remove_replaced
from tarry.store.damaged import state_of
from tarry.store.orphans import ORPHAN_AGE_HOURS
from tarry.store.place import Place
from tarry.store.rewrite import DamagedWork, rewrite_sound
from tarry.store.run import FILE_BYTES_MAX
from tarry.store.upkeep import Memory

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

TIDY_EVERY_S = 3600.0
ORPHANS_EVERY_S = 86_400.0
"""Seconds between searches for orphans, each of which lists the whole table."""

STOP_WAIT_S = 5.0
JOB_GROUP = "tarry-compact"

Result = Rewritten | DamagedWork
Rewrite = Callable[[list[Work]], list[Result]]
"""Rewrites files, here or on Spark; results in the order of the works."""


Cores = Callable[[], int]
"""Returns the number of works that may be carried out at once, if no setting says it."""


def one_core() -> int:
    """Allow one work at a time."""
    return 1


@dataclass(frozen=True, slots=True)
class UpkeepSettings:
    """Settings of the upkeep.

    ``interval_ms`` 0: never. ``retention_ms`` None: as the table has it.
    """

    interval_ms: int = 60_000
    tasks: int = 0
    """Works that are carried out at once; 0: as many as there are cores for it."""
    file_bytes_max: int = FILE_BYTES_MAX
    retention_ms: int | None = None
    compact: bool = True
    """False: expire and delete alone."""
    older: bool = False
    """Also rewrite all files that lack columns of the table."""

    @classmethod
    def of(cls, options: argparse.Namespace) -> UpkeepSettings:
        """Return the settings of a command line with :func:`tarry.spark.pipeline.compact.add_options`."""
        return cls(
            interval_ms=options.compact_interval_ms,
            tasks=options.compact_tasks,
            file_bytes_max=options.compact_file_bytes,
            retention_ms=options.store_retention_ms,
        )


class Rounds(Protocol):
    """The upkeep of a broker's or of a relay's store."""

    def round(self, stop: threading.Event) -> int: ...
    def on_failure(self, error: Exception) -> None: ...


def retention_hours(store: Store, retention_ms: int | None) -> int:
    """Return the hours for which replaced files stay, and write them to the table if they are new.

    They are rounded up, since Delta counts in hours.

    Raises:
        UnavailableError: the log cannot be written.
    """
    if retention_ms is None:
        return store.kept_hours
    hours = -(-retention_ms // 3_600_000)
    store.keep_for(hours)
    return hours


class StoreRewriter:
    """Has files of one store rewritten, and publishes them; not thread-safe.

    ``monotonic``: a clock in seconds.
    """

    def __init__(
        self, store: Store, settings: UpkeepSettings, rewrite: Rewrite, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._store, self._settings, self._rewrite, self._monotonic = store, settings, rewrite, monotonic
        self.memory = Memory()
        self.totals: Counter[str] = Counter()
        """Counts of the work done until now."""
        self.damage: dict[str, tuple[str, ...]] = {}
        """Files that stay as they are for damage: by the error, those to be replaced that it names."""
        self._said: set[str] = set()
        self._tidied = self._searched = -float("inf")

    def begin_round(self, snapshot: Snapshot) -> None:
        """Forget files that are gone, and damage that was mended.

        Damaged files are left out of the plan until they are put back or changed: each is looked at, which costs no
        read.
        """
        memory, place = self.memory, Place.of(self._store.root)
        memory.forget_all_but([*snapshot.files.path, *snapshot.cancelled])
        for path in [path for path, state in memory.damaged.items() if state_of(place, path) != state]:
            del memory.damaged[path]
        self._said &= self.damage.keys()
        self.damage = {
            error: paths for error, paths in self.damage.items() if paths and memory.damaged.keys() >= {*paths}
        }

    def remove_expired(self, paths: list[str]) -> Snapshot:
        """Remove files from the table; return the version without them.

        Raises:
            TarryError: the store is out of reach, or somebody else has replaced one of them.
        """
        snapshot = self._store.replace(paths, [])
        self.totals.update(expired_files=len(paths))
        return snapshot

    def publish(self, works: list[Work]) -> int:
        """Have works carried out, and commit each; return the number of commits.

        A work with a damaged file is passed over (:attr:`damage`), which does not affect the others.

        Raises:
            TarryError: the store is out of reach.
        """
        started, published = time.monotonic(), 0
        for work, result in zip(works, self._rewrite(works), strict=True):
            if isinstance(result, DamagedWork):
                self._pass_over(work, result)
                continue
            self.memory.note(work, result)
            if not result.removed:
                continue
            try:
                self._store.replace(result.removed, result.files)
            except StaleCommitError as error:
                # Somebody else was quicker. The staged files are left to the search for orphans: after a commit without
                # an answer, this may be our own commit.
                log.warning("files were rewritten in vain: %s", error)
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

    def _pass_over(self, work: Work, result: DamagedWork) -> None:
        place = Place.of(work.root)
        self.memory.damaged.update((path, state_of(place, path)) for path in result.paths)
        self.damage[result.error] = result.paths
        self.totals.update(damaged_works=1)
        if result.error not in self._said:  # a file that is to be merged with others is found in each round
            self._said.add(result.error)
            log.warning("%s: %d files stay as they are: %s", work.reason, len(work.files), result.error)

    def tidy(self) -> None:
        """Delete files replaced longer than the retention ago, and files that were never committed.

        Each is done when it is time to look again.

        Raises:
            OwnershipLostError: a later owner has the store. UnavailableError: it is out of reach.
        """
        now = self._monotonic()
        tidy, search = now - self._tidied >= TIDY_EVERY_S, now - self._searched >= ORPHANS_EVERY_S
        if not tidy and not search:
            return
        self._store.check_epoch()  # deletions are no commits; orphans.py says what protects a later owner's files
        hours = retention_hours(self._store, self._settings.retention_ms)
        if tidy:
            self._tidied = now
            self.totals.update(deleted_files=len(remove_replaced(self._store.root, older_than_hours=hours)))
        if search:
            self._searched = now
            orphans = remove_orphans(self._store.root, older_than_hours=max(hours, ORPHAN_AGE_HOURS))
            self.totals.update(deleted_files=len(orphans))


def on_spark(spark: SparkSession) -> Rewrite:
    """Return a function that rewrites in Spark tasks, one a work.

    They have a pool of their own: they do not wait for another job's tasks.
    """

    def rewrite_all(works: list[Work]) -> list[Result]:
        context = spark.sparkContext
        context.setLocalProperty("spark.scheduler.pool", JOB_GROUP)  # for this thread alone
        context.setJobGroup(JOB_GROUP, "upkeep of the store", interruptOnCancel=False)
        results: list[Result] = context.parallelize(works, len(works)).map(rewrite_sound).collect()
        return results

    return rewrite_all


def cores_for_upkeep(spark: SparkSession) -> int:
    """Return half of the executors' current cores, as the schedule query has tasks, too.

    It is one if Spark is on one machine.
    """
    context = spark.sparkContext
    return 1 if context.master.startswith("local") else max(1, int(context.defaultParallelism) // 2)


@contextmanager
def in_thread(
    spark: SparkSession,
    upkeep: Rounds,
    interval_ms: int,
    on_lost: Callable[[OwnershipLostError], None] = lambda _: None,
) -> Iterator[threading.Thread | None]:
    """Do rounds in a thread of their own, in the session of another job.

    They never disturb that job by failing; ``on_lost`` is told of the end by a takeover. An interval of 0 means no
    rounds.
    """
    if interval_ms == 0:
        yield None
        return
    stop = threading.Event()

    def rounds() -> None:
        try:
            loop(upkeep, stop, interval_ms / 1000)
        except OwnershipLostError as error:
            on_lost(error)

    thread = threading.Thread(target=rounds, name="tarry-compact", daemon=True)
    thread.start()
    try:
        yield thread
    finally:
        stop.set()
        with suppress(Exception):  # the JVM may be what has failed
            spark.sparkContext.cancelJobGroup(JOB_GROUP)
        thread.join(STOP_WAIT_S)


def loop(upkeep: Rounds, stop: threading.Event, interval_s: float) -> None:
    """Do a round every ``interval_s``, also after a failed one, until ``stop`` is set.

    Raises:
        OwnershipLostError: a later owner has the store; no round will work any more.
    """
    while not stop.wait(interval_s):
        try:
            upkeep.round(stop)
        except OwnershipLostError as error:
            upkeep.on_failure(error)
            raise
        except Exception as error:  # noqa: BLE001 - any error is logged, and the next round begins anew
            if not stop.is_set():
                upkeep.on_failure(error)
