"""``df.writeStream.format("tarry")``: each micro-batch is a bulk job, written exactly once.

A job is named after the query and the batch. Spark makes a writer for each micro-batch, and gives it neither query nor
batch before the commit; the tasks have both. So the tasks begin the job, all with the same ``attempt`` (a number that
the writer drew), for which the broker answers all of them with the same attempt of the job. A micro-batch that is
replayed after a crash finds its job committed.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from tarry.base.errors import TarryError
from tarry.spark.broker_client import BulkAttempt, Staged
from tarry.spark.datasource.columns import check_columns
from tarry.spark.datasource.options import WriteOptions
from tarry.spark.datasource.writer import begin, commit, give_up, merged, staged_partition

QUERY_KEY, BATCH_KEY = "sql.streaming.queryId", "streaming.sql.batchId"
"""Spark's names of local properties that a task can read."""


@dataclass
class BatchStaged(WriterCommitMessage):  # type: ignore[misc]
    """Files that a task staged, and their job."""

    job: BulkAttempt
    staged: Staged


class BulkSink(DataSourceStreamArrowWriter):  # type: ignore[misc]
    """Plain data: Spark makes one writer for each micro-batch, and another for its commit."""

    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        check_columns(schema, options.defaults)
        self._options = options
        self._attempt = uuid.uuid4().hex

    def write(self, iterator: Iterator[pa.RecordBatch]) -> BatchStaged:
        """Stage a partition. Runs in a task."""
        name = job_name()
        with self._options.broker.client() as client:
            job = begin(client, name, self._attempt)
            if job.state != "open":  # a replay; or its messages were cancelled since
                return BatchStaged(job, Staged((), {}))
            return BatchStaged(job, staged_partition(client, job, self._options, iterator))

    def commit(self, messages: list[BatchStaged | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Commit when all tasks are done. Runs on the driver."""
        jobs = {message.job.number: message.job for message in messages if message is not None}
        still_open = [job for job in jobs.values() if job.state == "open"]
        if not still_open:
            return
        if len(jobs) > 1:
            raise TarryError(f"the tasks of micro-batch {batchId} have several attempts: {sorted(jobs)}")
        with self._options.broker.client() as client:
            commit(client, still_open[0], merged(messages))

    def abort(self, messages: list[BatchStaged | None], batchId: int) -> None:  # noqa: N803
        """Give up the attempts after a failure. Runs on the driver."""
        for number in {m.job.number for m in messages if m is not None and m.job.state == "open"}:
            give_up(self._options.broker, number)


def job_name() -> str:
    """Return the name of the micro-batch's job.

    Raises:
        TarryError: this is no task of a streaming query.
    """
    context = TaskContext.get()
    query = context.getLocalProperty(QUERY_KEY) if context is not None else None
    batch = context.getLocalProperty(BATCH_KEY) if context is not None else None
    if not query or batch is None:
        raise TarryError(f"this task does not know its query and batch ({query!r}, {batch!r})")
    return f"stream/{query}/{batch}"
