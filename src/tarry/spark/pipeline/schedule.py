"""The schedule job: moves messages from the broker's intake to the store, exactly once.

It uses Structured Streaming. Run as ``python -m tarry.spark.pipeline.schedule --flight HOST:PORT --checkpoint DIR``;
``supervisor.py`` does so beside a broker. Spark plans ranges of seqs (``intake_source.py``), its tasks fetch and stage
them (``stage_task.py``), and here, in the driver, one Delta commit publishes a batch and moves ``committed_seq``. A
crash at any point leaves either a batch that is replayed, or one that is recognised as done.
"""

from __future__ import annotations

import argparse
import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tarry.base.errors import CorruptError, OwnershipLostError, TarryError
from tarry.link.credentials import find_token
from tarry.spark.broker_client import BrokerClient, IntakeState
from tarry.spark.broker_store import open_store
from tarry.spark.pipeline import compact, upkeep
from tarry.spark.pipeline.checkpoint import reconcile
from tarry.spark.pipeline.job import Reporter, given_token, job_parser, run_job, wait_for_broker
from tarry.spark.pipeline.plan import Trigger
from tarry.spark.pipeline.stage_task import RESULT_SCHEMA, RangeResult, StageTask, decode
from tarry.spark.runtime.conf import user_conf
from tarry.spark.runtime.executors import ExecutorWatch
from tarry.spark.runtime.failures import one_line, ownership_lost
from tarry.spark.runtime.session import build_session
from tarry.spark.runtime.sole_user import sole_user
from tarry.store import Store, remove_orphans
from tarry.store.orphans import ORPHAN_AGE_HOURS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

log = logging.getLogger(__name__)

REPORT_EVERY_S = 5.0


class ScheduleBatch:
    """The function for ``foreachBatch``: has the ranges staged and commits them as one."""

    def __init__(
        self,
        store: Store,
        client: BrokerClient,
        reporter: Reporter,
        flight_for_tasks: str,
        token: Callable[[], str | None] = lambda: None,
    ) -> None:
        """Call ``token``, for each batch, for what its tasks show to the broker."""
        self._store = store
        self._client = client
        self._reporter = reporter
        self._task = StageTask(flight_for_tasks, store.root, store.table_id, store.shard, epoch=store.epoch)
        self._token = token
        self._notified = True
        self._batches = 0

    def notify(self) -> None:
        """Notify the broker of the last commit, unless that was done.

        The commit stands even if that fails.
        """
        if not self._notified:
            try:
                self._client.store_committed()
                self._notified = True
            except TarryError as error:
                log.warning("the broker could not be notified of the last commit, trying again later: %s", error)

    def __call__(self, ranges: DataFrame, batch_id: int) -> None:
        started = time.monotonic()
        self._reporter.update(state="running")
        try:
            task = replace(self._task, token=self._token())
            rows = ranges.mapInArrow(task, RESULT_SCHEMA).collect()
            done = self.commit(decode(rows))
        except Exception as error:
            self._reporter.update(state="failed", error=one_line(error))
            raise
        if done is None:
            self._reporter.update(state="idle")
            return
        seconds = time.monotonic() - started
        done |= {"batch_id": batch_id, "seconds": round(seconds, 3), "rows_per_second": round(done["rows"] / seconds)}
        log.info("batch %(batch_id)d: seqs %(start_seq)d to %(end_seq)d, %(rows)d rows in %(seconds).2f s", done)
        self._batches += 1
        self._reporter.update(
            state="idle", batches=self._batches, last_batch=done, committed_seq=done["end_seq"], error=None
        )

    def commit(self, results: Sequence[RangeResult]) -> dict[str, Any] | None:
        """Publish the staged files, and notify the broker; return the batch's summary, None if it is empty.

        Raises:
            StaleCommitError: the store is not where this batch starts. OwnershipLostError: it is a later owner's.
        """
        if not results:
            return None
        for before, after in pairwise(results):
            if before.end_seq != after.start_seq:
                # Committing around a hole would lose the messages in it.
                raise CorruptError(
                    f"the tasks' ranges do not join: one ends at {before.end_seq}, the next starts at {after.start_seq}"
                )
        files = [file for result in results for file in result.files]
        start_seq, end_seq = results[0].start_seq, results[-1].end_seq
        snapshot = self._store.commit(files, start_seq, end_seq)
        self._notified = False
        self.notify()
        return {
            "start_seq": start_seq,
            "end_seq": end_seq,
            "rows": sum(result.rows_read for result in results),
            "stored_rows": sum(file.rows for file in files),
            "files": len(files),
            "version": snapshot.version,
        }


def start_query(
    spark: SparkSession,
    batch: ScheduleBatch,
    *,
    flight: str,
    start_seq: int,
    trigger: Trigger,
    checkpoint: Path,
    poll_ms: int,
    token: str | None = None,
    epoch: int | None = None,
) -> StreamingQuery:
    """Start the streaming query; without a checkpoint it begins at ``start_seq``.

    ``token``: shown to the broker; None: the process that plans finds one by itself. ``epoch``: that of the broker's
    owner for which this driver works; it plans with no other one.
    """
    from tarry.spark.pipeline.intake_source import IntakeSource

    spark.dataSource.register(IntakeSource)
    reader = spark.readStream.format(IntakeSource.name()).option("flight", flight)
    if token is not None:
        reader = reader.option("token", token)
    if epoch is not None:
        reader = reader.option("epoch", epoch)
    return (
        reader.option("start_seq", start_seq)
        .option("cores", spark.sparkContext.defaultParallelism)
        .option("bytes_min", trigger.bytes_min)
        .option("interval_ms", trigger.interval_ms)
        .option("rows_max", trigger.rows_max)
        .load()
        .writeStream.queryName("schedule")
        .foreachBatch(batch)
        .option("checkpointLocation", checkpoint.absolute().as_uri())
        .trigger(processingTime=f"{poll_ms} milliseconds")
        .start()
    )


def run(options: argparse.Namespace, stop: threading.Event) -> None:
    """Work until ``stop`` is set.

    Raises:
        OwnershipLostError: a later owner has the store, or answers in the place of this driver's.
        TarryError: the job cannot start, or the query has failed.
    """
    token = given_token(options.token_fd)
    with BrokerClient(options.flight, token) as client:
        reporter = Reporter.of_job(client, "schedule")
        state = wait_for_broker(client, stop)
        if state is None:
            return
        try:
            with sole_user(options.checkpoint, stop):
                _run_query(options, stop, client, reporter, state, token)
        except Exception as error:
            reporter.update(state="failed", error=one_line(error))
            raise


def _run_query(
    options: argparse.Namespace,
    stop: threading.Event,
    client: BrokerClient,
    reporter: Reporter,
    state: IntakeState,
    token: str | None,
) -> None:
    reporter.send()
    store = open_store(state, options.store)
    kept_hours = upkeep.retention_hours(store, options.store_retention_ms)
    remove_orphans(store.root, older_than_hours=max(kept_hours, ORPHAN_AGE_HOURS))
    committed_seq = store.snapshot().committed_seq
    reconcile(options.checkpoint, committed_seq, store.epoch)
    spark = build_session(
        name=f"tarry schedule {state.shard}",
        master=options.master,
        memory=options.memory,
        work=options.checkpoint.with_name(f".{options.checkpoint.name}.spark-tmp"),
        conf=user_conf(options.spark_conf, *options.spark_conf_file),
    )
    reporter.update(ui=spark.sparkContext.uiWebUrl)
    for_tasks = options.flight_for_tasks or options.flight
    # For each batch anew: a token that was not given, but found, may be exchanged meanwhile.
    batch = ScheduleBatch(store, client, reporter, for_tasks, lambda: token or find_token(options.flight))
    query = start_query(
        spark,
        batch,
        flight=options.flight,
        start_seq=committed_seq,
        trigger=Trigger(options.schedule_bytes, options.schedule_interval_ms, options.schedule_rows_max),
        checkpoint=options.checkpoint,
        poll_ms=options.poll_ms,
        token=token,
        # Of the owner that was there when this driver began. It is never asked for again: what was planned with one
        # owner must not be committed under another one's epoch.
        epoch=state.epoch,
    )
    reporter.update(state="idle", committed_seq=committed_seq)
    lost: list[OwnershipLostError] = []
    # A connection to the table of its own: neither waits for the other's commits.
    with compact.beside(spark, open_store(state, store.root), client, upkeep.UpkeepSettings.of(options), lost.append):
        _watch(query, stop, batch, reporter, ExecutorWatch.of(spark), lost)
    reporter.update(state="stopping")
    query.stop()
    spark.stop()


def _watch(
    query: StreamingQuery,
    stop: threading.Event,
    batch: ScheduleBatch,
    reporter: Reporter,
    executors: ExecutorWatch,
    lost: Sequence[OwnershipLostError],
) -> None:
    """Report until ``stop``.

    It is an error if the query ends before, or if ``lost`` has one of the upkeep.
    """
    reported = time.monotonic()
    idle: str | None = None
    while not stop.wait(1.0):
        if lost:
            raise lost[0]
        if not query.isActive:
            cause = one_line(query.exception() or "without an error")
            raise ownership_lost(cause) or TarryError(f"the query has ended: {cause}")
        before, idle = idle, executors.missing()
        if idle is not None and before is None:
            log.warning("%s", idle)
            reporter.update(error=idle)
        elif before is not None and idle is None:
            reporter.update(error=None)
        if time.monotonic() - reported >= REPORT_EVERY_S:
            reported = time.monotonic()
            batch.notify()
            reporter.send()


# -- the process -------------------------------------------------------------------------------------------------------


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Parse the command line."""
    description = "Moves messages from a broker's intake to its store, with Spark; 'tarry serve' starts it itself."
    parser = job_parser("tarry.spark.pipeline.schedule", description)
    parser.add_argument("--flight-for-tasks", metavar="HOST:PORT", help="where executors reach it, if not there")
    parser.add_argument("--checkpoint", required=True, type=Path, metavar="DIR", help="Spark's checkpoint; may be lost")
    parser.add_argument(
        "--schedule-interval-ms", type=int, default=60_000, metavar="MS", help="commit at least this often..."
    )
    parser.add_argument(
        "--schedule-bytes", type=int, default=256 << 20, metavar="N", help="...or when so many bytes wait"
    )
    parser.add_argument(
        "--schedule-rows-max", type=int, default=4_000_000, metavar="N", help="most messages in a batch"
    )
    parser.add_argument(
        "--poll-ms", type=int, default=1_000, metavar="MS", help="how often to ask the broker what waits"
    )
    compact.add_options(parser)
    options = parser.parse_args(arguments)
    options.checkpoint = options.checkpoint.absolute()
    return options


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the job until SIGTERM, SIGINT or the parent's end.

    The exit code is 0 then, 1 after a failure, 10 after a takeover.
    """
    options = parse(arguments)
    return run_job(lambda stop: run(options, stop), options.parent_pid)


if __name__ == "__main__":
    main()
