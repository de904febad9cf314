"""The upkeep of a broker's store: expires its files, merges and cuts them, and deletes unused ones.

It runs in a thread of the schedule job, beside its query and in its Spark session (``schedule.py``); by itself as
``python -m tarry.spark.pipeline.compact --flight HOST:PORT``. Works are planned in the driver (``tarry.store.upkeep``),
carried out by Spark tasks, and published by one Delta commit each (``upkeep.py``).
"""

from __future__ import annotations

import argparse
import logging
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tarry.base.errors import CorruptError, OwnershipLostError, TarryError
from tarry.spark.broker_client import BrokerClient, IntakeState
from tarry.spark.broker_store import open_store
from tarry.spark.pipeline.job import Reporter, given_token, job_parser, run_job, wait_for_broker
from tarry.spark.pipeline.upkeep import (
    Cores,
    Result,
    Rewrite,
    StoreRewriter,
    UpkeepSettings,
    cores_for_upkeep,
    in_thread,
    loop,
    on_spark,
    one_core,
)
from tarry.spark.runtime.conf import user_conf
from tarry.spark.runtime.failures import one_line
from tarry.spark.runtime.session import build_session
from tarry.store import Store, Work
from tarry.store.rewrite import rewrite_sound
from tarry.store.run import FILE_BYTES_MAX
from tarry.store.upkeep import expired, plan

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

INTERVAL_MS_MIN = 100
DAMAGE_SHOWN_MAX = 3
"""Damaged files whose texts are in the status; the log has all."""
NOTHING_FIRED_MS = int(np.iinfo(np.int64).min)
"""A due time below all others."""


class Upkeep:
    """Maintains a broker's store. :meth:`round` does the work that is due now; not thread-safe."""

    def __init__(
        self,
        store: Store,
        client: BrokerClient,
        reporter: Reporter,
        settings: UpkeepSettings,
        rewrite: Rewrite,
        monotonic: Callable[[], float] = time.monotonic,
        cores: Cores = one_core,
    ) -> None:
        """Call ``cores`` for the number of works at once if the settings do not say."""
        self._cores = cores
        self._store, self._client, self._reporter, self._settings = store, client, reporter, settings
        self._rewriter = StoreRewriter(store, settings, rewrite, monotonic)

    @property
    def totals(self) -> Counter[str]:
        """Counts of the work done until now."""
        return self._rewriter.totals

    def round(self, stop: threading.Event) -> int:
        """Expire, then plan, rewrite and publish; return the number of published works.

        Damaged files stay as they are, and the status lists them (:attr:`damage`).

        Raises:
            OwnershipLostError: a later owner has the store, or answers in the place of this one's; this is the end.
            TarryError: the broker or the store is out of reach.
        """
        self._store.check_epoch()  # also where nothing is to be done: a driver of nobody would stay for ever
        snapshot = self._store.snapshot()
        state = self._client.state()
        if passed := expired(snapshot, safe_floor(state, snapshot.committed_seq), state.cancelled_jobs):
            snapshot = self._rewriter.remove_expired(passed)
            log.info("%d files have expired", len(passed))
        self._rewriter.begin_round(snapshot)
        published = 0
        works = self._plan(state)
        tasks = self._settings.tasks or self._cores()
        for start in range(0, len(works), tasks):
            if stop.is_set():
                return published
            self._reporter.update(state="running", works=len(works), done=start)
            published += self._rewriter.publish(works[start : start + tasks])
        if passed or published:
            self._notify()
        self._rewriter.tidy()
        files = self._store.snapshot().files
        shape = {"files": len(files), "bytes": int(files.size.sum()), "works": len(works), "done": len(works)}
        error = "; ".join(self.damage[:DAMAGE_SHOWN_MAX]) or None
        self._reporter.update(state="idle", error=error, damaged=len(self.damage), totals=dict(self.totals), **shape)
        return published

    @property
    def damage(self) -> list[str]:
        """Texts about files that could not be read, and stay as they are until they are put back."""
        return list(self._rewriter.damage)

    def on_failure(self, error: Exception) -> None:
        """Log the failure, and report it to the broker."""
        log.warning("the upkeep of the store failed, and will be tried again: %s", one_line(error))
        self._reporter.update(state="failed", error=one_line(error))

    def _plan(self, state: IntakeState) -> list[Work]:
        if not self._settings.compact:
            return []
        snapshot = self._store.snapshot()
        return plan(
            snapshot,
            state.now_ms,
            shard=self._store.shard,
            # Computed anew: this snapshot may have messages that came after the broker's answer.
            floor_ms=safe_floor(state, snapshot.committed_seq),
            cancelled_jobs=state.cancelled_jobs,
            file_bytes_max=self._settings.file_bytes_max,
            memory=self._rewriter.memory,
            older=self._settings.older,
        )

    def _notify(self) -> None:
        try:
            self._client.store_committed()
        except TarryError as error:
            log.debug("the broker could not be notified of the new version, and will see it by itself: %s", error)


def safe_floor(state: IntakeState, committed_seq: int) -> int:
    """Return the due time below which all rows of the store at ``committed_seq`` have fired durably.

    The broker's due times hold for messages below ``fired_seq`` alone: a late one that came after its checkpoint, and
    is in the store already, may not have fired.
    """
    return state.expire_until_ms if state.fired_seq >= committed_seq else NOTHING_FIRED_MS


def in_process(works: list[Work]) -> list[Result]:
    """Rewrite in this process, one work after the other."""
    return [rewrite_sound(work) for work in works]


def beside(
    spark: SparkSession,
    store: Store,
    client: BrokerClient,
    settings: UpkeepSettings,
    on_lost: Callable[[OwnershipLostError], None] = lambda _: None,
) -> AbstractContextManager[threading.Thread | None]:
    """Start the upkeep of a broker's store in a thread of its own, in the session of another job.

    It ends with ``on_lost``, called in that thread, where a later owner has the store.
    """
    cores = partial(cores_for_upkeep, spark)
    upkeep = Upkeep(store, client, Reporter(client, "compact"), settings, on_spark(spark), cores=cores)
    return in_thread(spark, upkeep, settings.interval_ms, on_lost)


# -- by itself ---------------------------------------------------------------------------------------------------------


def run(options: argparse.Namespace, stop: threading.Event) -> Counter[str]:
    """Work until ``stop`` is set, or with ``--once`` until nothing is left to do; return the counts.

    Raises:
        OwnershipLostError: a later owner has the store.
        TarryError: the job cannot start, or with ``--once`` a round failed.
    """
    with BrokerClient(options.flight, given_token(options.token_fd)) as client:
        state = wait_for_broker(client, stop)
        if state is None:
            return Counter()
        settings = UpkeepSettings.of(options)
        with _rewrite(options, state.shard) as (rewrite, cores):
            if options.once:
                return once(client, options.store, settings, rewrite, stop, cores)
            store = open_store(state, options.store)
            upkeep = Upkeep(store, client, Reporter(client, "compact"), settings, rewrite, cores=cores)
            loop(upkeep, stop, max(settings.interval_ms, INTERVAL_MS_MIN) / 1000)
            return upkeep.totals


def once(
    client: BrokerClient,
    uri: str | None,
    settings: UpkeepSettings,
    rewrite: Rewrite,
    stop: threading.Event,
    cores: Cores = one_core,
) -> Counter[str]:
    """Do rounds until nothing is left to do, on the store at ``uri``; return the counts.

    ``uri`` None: the broker's.

    Raises:
        OwnershipLostError: a later owner has the store. TarryError: the broker or the store is out of reach.
        CorruptError: files are damaged; all else was done.
    """
    store = open_store(client.join(), uri)
    upkeep = Upkeep(store, client, Reporter(client, "compact"), settings, rewrite, cores=cores)
    published, known = 1, 0
    # Without a damaged file, those that were to be merged with it may be merged.
    while not stop.is_set() and (published or len(upkeep.damage) > known):
        known = len(upkeep.damage)
        published = upkeep.round(stop)
    if upkeep.damage:
        raise CorruptError("; ".join(upkeep.damage))
    return upkeep.totals


@contextmanager
def _rewrite(options: argparse.Namespace, shard: int) -> Iterator[tuple[Rewrite, Cores]]:
    if options.master == "none":
        yield in_process, one_core
        return
    with tempfile.TemporaryDirectory(prefix="tarry-compact-") as work:
        spark = build_session(
            name=f"tarry compact {shard}",
            master=options.master,
            memory=options.memory,
            work=Path(work) / "spark",
            conf=user_conf(options.spark_conf, *options.spark_conf_file),
        )
        try:
            yield on_spark(spark), partial(cores_for_upkeep, spark)
        finally:
            spark.stop()


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the upkeep, for any job that runs it."""
    parser.add_argument(
        "--compact-interval-ms", type=int, default=60_000, metavar="MS", help="how often to look; 0: never"
    )
    parser.add_argument(
        "--compact-tasks",
        type=int,
        default=0,
        metavar="N",
        help="most tasks at once; 0: half of the executors' cores, one where Spark is local",
    )
    parser.add_argument("--compact-file-bytes", type=int, default=FILE_BYTES_MAX, metavar="N", help="largest file made")
    parser.add_argument(
        "--store-retention-ms",
        type=int,
        metavar="MS",
        help="how long replaced files stay (default: what the table says)",
    )


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Parse the command line."""
    description = "Merges, cuts and expires the files of a broker's store; the schedule job does so itself."
    parser = job_parser("tarry.spark.pipeline.compact", description, masters='; "none": without Spark')
    parser.add_argument("--once", action="store_true", help="end when nothing is left to do")
    add_options(parser)
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the job until SIGTERM, SIGINT, the parent's end, or with ``--once`` until nothing is left."""
    options = parse(arguments)
    return run_job(lambda stop: _logged(run(options, stop)), options.parent_pid)


def _logged(totals: dict[str, Any]) -> None:
    log.info("done: %s", ", ".join(f"{name} {count}" for name, count in sorted(totals.items())) or "nothing")


if __name__ == "__main__":
    sys.exit(main())
