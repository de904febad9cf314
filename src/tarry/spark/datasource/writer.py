"""``df.write.format("tarry")``: the whole DataFrame is one job, scheduled by one commit or not at all.

The driver begins the job, the tasks stage files, the driver commits them. A job is known by its name: one that is
committed is not loaded again, so a run with an unknown outcome is simply run again under the same name. Each begin
makes a new attempt and ends the one before, so that a driver that was cut off for a while cannot commit.
"""

from __future__ import annotations

import logging
import math
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from tarry.base.back_off import BackOff
from tarry.base.errors import InvalidArgumentError, OverloadedError, TarryError, UnavailableError
from tarry.spark.broker_client import BrokerClient, BulkAttempt, Staged
from tarry.spark.datasource.columns import check_columns
from tarry.spark.datasource.options import BrokerPlace, WriteOptions
from tarry.spark.datasource.rows import RowChecker
from tarry.spark.datasource.staging import StagingTask
from tarry.spark.runtime.worker import rest

log = logging.getLogger(__name__)

T = TypeVar("T")

TRIES = 5
PAUSE_S = 1.0
"""Seconds between tries, doubled each time: a broker that restarts is back after some seconds."""


@dataclass
class TaskStaged(WriterCommitMessage):  # type: ignore[misc]
    """Files that a task staged."""

    staged: Staged


class BulkWriter(DataSourceArrowWriter):  # type: ignore[misc]
    """Made on the driver, where it checks everything it can and begins the job.

    A copy goes to each task.
    """

    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        check_columns(schema, options.defaults)
        self._options = options
        name = options.job or f"spark-{uuid.uuid4().hex}"
        with options.broker.client() as client:
            self._job = begin(client, name)
        if self._job.state == "cancelled":
            raise InvalidArgumentError(f"job {name!r} was cancelled; allowed: another job id, to load it after all")
        if self._job.state != "open":
            check_same_job(name, self._job.topics, schema, options)
            # Only an error keeps Spark from computing rows that the tasks ignore.
            check_may_be_committed(name, self._job.rows, options)
            log.warning(
                "job %r is committed already, with %d messages: nothing is written; other messages need another job id",
                name,
                self._job.rows,
            )

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskStaged:
        """Stage a partition. Runs in a task.

        If the job is committed already, no row is read.
        """
        if self._job.state != "open":
            return TaskStaged(Staged((), {}))
        with self._options.broker.client() as client:
            return TaskStaged(staged_partition(client, self._job, self._options, iterator))

    def commit(self, messages: list[TaskStaged | None]) -> None:
        """Commit when all tasks are done. Runs on the driver."""
        if self._job.state == "open":
            with self._options.broker.client() as client:
                commit(client, self._job, merged(messages))

    def abort(self, messages: list[TaskStaged | None]) -> None:
        """Give up the attempt after a failure. Runs on the driver."""
        if self._job.state == "open":
            give_up(self._options.broker, self._job.number)


def staged_partition(
    client: BrokerClient, job: BulkAttempt, options: WriteOptions, batches: Iterator[pa.RecordBatch]
) -> Staged:
    """Stage a task's partition."""
    context = TaskContext.get()
    partition = context.partitionId() if context is not None else 0
    checker = RowChecker(job.now_ms, job.limits, options.defaults)
    staged = StagingTask(client, job).run(batches, checker, partition, options.way)
    rest()
    return staged


def check_may_be_committed(job: str, rows: int, options: WriteOptions) -> None:
    """Refuse a committed job if the option ``ifCommitted`` says so.

    Raises:
        InvalidArgumentError: ``ifCommitted`` says that a job that is committed already is an error.
    """
    if options.if_committed == "fail":
        raise InvalidArgumentError(
            f"job {job!r} is committed already, with {rows} messages; allowed: ifCommitted 'skip', or another job id "
            "for other messages"
        )


def check_same_job(job: str, topics: Mapping[str, int], schema: StructType, options: WriteOptions) -> None:
    """Refuse a job that is certainly not the one committed under this name; rows are not compared.

    Raises:
        InvalidArgumentError: the option ``topic`` names the topic of all rows, and another is committed.
    """
    topic = options.defaults.get("topic")
    if topic is None or any(name.lower() == "topic" for name in schema.names):
        return
    if others := sorted(set(topics) - {topic}):
        raise InvalidArgumentError(
            f"job {job!r} is committed with messages of topic {', '.join(map(repr, others[:3]))}, and these are of "
            f"{topic!r}; allowed: another job id for other messages"
        )


def merged(messages: Sequence[Any]) -> Staged:
    """Join the results of all tasks."""
    several = [message.staged for message in messages if message is not None]
    topics: Counter[str] = Counter()
    keys: int | None = 0
    for staged in several:
        topics.update(staged.topics)
        keys = None if keys is None or staged.keys is None else keys + staged.keys
    return Staged(tuple(file for staged in several for file in staged.files), dict(topics), keys)


def begin(client: BrokerClient, name: str, attempt: str | None = None) -> BulkAttempt:
    """Begin a job, waiting for an earlier run's commit that is under way."""
    return with_retries(lambda: client.begin(name, attempt), OverloadedError)


def commit(client: BrokerClient, job: BulkAttempt, staged: Staged) -> None:
    """Have the broker publish the staged files.

    Without an answer it is asked again, and then answers with the outcome of the commit.

    Raises:
        UnavailableError: it did not answer. Running the job again shows whether the commit took place.
    """
    try:
        with_retries(lambda: client.commit(job.number, staged), TarryError)
    except UnavailableError as error:
        raise UnavailableError(
            f"the commit of job {job.job!r} was not answered, and may have taken place: {error}; "
            "run it again with the same job id: it is loaded once"
        ) from error


def with_retries(call: Callable[[], T], kind: type[TarryError]) -> T:
    """Return the result of ``call``, retried some times after a retryable error of this kind."""
    back_off = BackOff(PAUSE_S, math.inf)
    for left in reversed(range(TRIES)):
        try:
            return call()
        except kind as error:
            if not error.retryable or not left:
                raise
            time.sleep(back_off.fail())
    raise AssertionError("the last try returns or raises")


def give_up(broker: BrokerPlace, number: int) -> None:
    """Abort the attempt.

    If the broker cannot be reached, the next attempt ends this one all the same.
    """
    try:
        with broker.client() as client:
            client.abort(number)
    except TarryError:
        pass  # the user has to see the error that made the job fail
