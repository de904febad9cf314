"""A job that is computed once, and in no more tasks than are of use.

The broker is asked before Spark is. Spark makes a data source's writer when the stages before the write may have run
already, so a second run of a job that is committed still pays for its shuffles. Here it costs one call. And only the
owner of the DataFrame can choose the number of tasks that write it: a data source gets one for each partition.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tarry.api.jobs import Job, JobState
from tarry.base.errors import InvalidArgumentError
from tarry.spark.broker_client import BrokerClient
from tarry.spark.datasource.columns import check_columns
from tarry.spark.datasource.options import WriteOptions
from tarry.spark.datasource.partitions import fewer_partitions
from tarry.spark.datasource.writer import check_may_be_committed, check_same_job

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True, slots=True)
class WrittenJob:
    """A job in the broker: number of messages, their topics, and the time of its commit.

    The time is in UTC milliseconds. ``already``: it was committed before this call, which has computed nothing.
    """

    job: str
    rows: int
    topics: dict[str, int]
    committed_ms: int | None
    already: bool


def write_once(df: DataFrame, job: str, *, endpoint: str, **options: Any) -> WrittenJob:
    """Write a DataFrame as the job of this name, unless it is committed: then ``df`` is not computed.

    Messages committed under a name stay, even if ``df`` has other rows now: other messages need another name. If there
    are many partitions with little in them, by Spark's statistics, one task writes several.

    Args:
        endpoint: HOST:PORT or tls://HOST:PORT of the broker, which this process asks, and the tasks.
        options: those of ``format("tarry")``, such as ``topic`` or ``mode``.

    Raises:
        InvalidArgumentError: an option, or the job was cancelled, or what is committed are messages of other topics.
        InvalidMessageError: the columns of ``df`` are not those of messages. UnavailableError: no broker there.
        What Spark raises, for what fails in its tasks.
    """
    if not isinstance(job, str):
        raise InvalidArgumentError(f"job is {job!r:.100}; allowed: a text, by which a second run knows the first")
    given = {"endpoint": endpoint, "job": job, **options}
    checked = WriteOptions.of({name: _text(value) for name, value in given.items()})
    check_columns(df.schema, checked.defaults)
    with BrokerClient(checked.endpoint) as client:
        known = client.job(job)
        if known is not None and known.state is JobState.CANCELLED:
            raise InvalidArgumentError(f"job {job!r} was cancelled; allowed: another job id, to load it after all")
        already = known is not None and known.state is JobState.COMMITTED
        if known is not None and already:
            check_same_job(job, known.topics, df.schema, checked)
            check_may_be_committed(job, known.rows, checked)
        else:
            # If there are two calls at once, the writer's attempts decide.
            fewer_partitions(df).write.format("tarry").mode("append").options(**given).save()
            known = client.job(job)
    return _written(job, known, already)


def _written(job: str, known: Job | None, already: bool) -> WrittenJob:
    if known is None:
        raise InvalidArgumentError(f"the broker does not know job {job!r}, which was written just now; is it another?")
    return WrittenJob(job, known.rows, known.topics, known.committed_ms, already)


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
