"""Where the work of a batch is done: what is small in the driver, what is large in Spark's tasks.

A Spark job and a transactional id taken over cost more than a small batch itself, and a message that is due now waits
for them. So small batches are done here, by threads that keep their shard's Kafka writer open. A large one is shared
out, a task a shard, on whatever machine: the task takes the id over, and the driver takes it back afterwards. Both do
the same work.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from tarry.relay.deliver import DeliverPlan, DeliverWork, ReadAheadRows
from tarry.relay.schedule import SchedulePlan, ScheduleWork, ShardResult
from tarry.relay.settings import RelaySettings
from tarry.relay.table import RelayStore
from tarry.relay.writer import KafkaWriters
from tarry.store import check_same_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class Task:
    """The work of one query as a function for Spark: plain data, so that it travels to any executor."""

    settings: RelaySettings
    root: str
    table_id: str
    deliver: bool

    def __call__(self, plan: SchedulePlan | DeliverPlan) -> ShardResult:
        check_same_table(self.root, self.table_id)
        writers = self.writers()
        try:
            return self.work()(plan, writers)
        finally:
            writers.close()

    def work(self) -> Callable[..., ShardResult]:
        """What is done with a plan and with the writers of this process."""
        return (DeliverWork if self.deliver else ScheduleWork)(self.settings, self.root)

    def writers(self) -> KafkaWriters:
        """Writers of the query's group."""
        group = self.settings.deliver_group if self.deliver else self.settings.schedule_group
        return KafkaWriters(self.settings, group)


class Runner:
    """Does the plans of one query, one batch after the other."""

    def __init__(self, spark: SparkSession, settings: RelaySettings, store: RelayStore, *, deliver: bool) -> None:
        self._spark = spark
        self._direct_rows_max = settings.direct_rows_max
        self._task = Task(settings, store.root, store.table_id, deliver)
        self._work, self._writers = self._task.work(), self._task.writers()
        self._threads = ThreadPoolExecutor(settings.shards, thread_name_prefix="tarry-relay")

    def run(
        self,
        parts: Sequence[SchedulePlan] | Sequence[DeliverPlan],
        *,
        direct: bool = False,
        ahead: ReadAheadRows | None = None,
    ) -> list[ShardResult]:
        """Do a batch; what each shard did. ``direct``: in the driver, however large it is; ``ahead`` is what was read
        there before it was due.

        Raises:
            Exception: a shard could not; the others have done theirs, which is no harm: the batch is repeated.
        """
        if not parts:
            return []
        if direct or sum(part.rows for part in parts) <= self._direct_rows_max:
            work = self._work if ahead is None else partial(self._work, ahead=ahead)
            futures = [self._threads.submit(work, part, self._writers) for part in parts]
            wait(futures)  # also where one has failed: the batch is repeated when nobody works on it any more
            return [future.result() for future in futures]
        for part in parts:
            self._writers.drop(part.shard)
        results: list[ShardResult] = self._spark.sparkContext.parallelize(parts, len(parts)).map(self._task).collect()
        return results

    def drop(self) -> None:
        """Close all writers, after a failure."""
        self._writers.close()

    def close(self) -> None:
        """End."""
        self._threads.shutdown(wait=True, cancel_futures=True)
        self._writers.close()
