"""Where the work of a batch is done: what is small in the driver, what is large in Spark's tasks.

A Spark job and a transactional id taken over cost more than a small batch itself, and a message that is due now waits
for them. So small batches are done here, by threads that keep their shard's outbox open. A large one is shared out, a
task a shard, on whatever machine: the task takes the id over, and the driver takes it back afterwards. Both do the same
work.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tarry.relay.deliver import DeliverPlan, DeliverWork
from tarry.relay.outbox import Outboxes
from tarry.relay.schedule import Done, SchedulePlan, ScheduleWork
from tarry.relay.sending import Ready
from tarry.relay.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class Task:
    """The work as a function for Spark: plain data, so that it travels to any executor."""

    settings: Settings
    root: str
    deliver: bool

    def __call__(self, plan: str) -> str:
        outboxes = Outboxes(self.settings, _group(self.settings, self.deliver))
        try:
            if self.deliver:
                return DeliverWork(self.settings, self.root)(DeliverPlan.from_json(plan), outboxes).to_json()
            return ScheduleWork(self.settings, self.root)(SchedulePlan.from_json(plan), outboxes).to_json()
        finally:
            outboxes.close()


class Runner:
    """Does the plans of one query, one batch after the other."""

    def __init__(self, spark: SparkSession, settings: Settings, root: str, *, deliver: bool) -> None:
        self._spark = spark
        self._settings = settings
        self._root = root
        self._task = Task(settings, root, deliver)
        self._outboxes = Outboxes(settings, _group(settings, deliver))
        self._work: Any = (DeliverWork if deliver else ScheduleWork)(settings, root)
        self._threads = ThreadPoolExecutor(settings.shards, thread_name_prefix="tarry-relay")

    def read_ahead(self, ahead: Callable[[int, int, int], Iterator[Ready]]) -> None:
        """Here, and not in tasks, some of what is to be delivered was read before it was due."""
        self._work = DeliverWork(self._settings, self._root, ahead)

    def run(self, parts: Sequence[SchedulePlan] | Sequence[DeliverPlan], *, direct: bool = False) -> list[Done]:
        """Do a batch; what each shard did. ``direct``: in the driver, however large it is.

        Raises:
            Exception: a shard could not; the others have done theirs, which is no harm: the batch is repeated.
        """
        if not parts:
            return []
        if direct or sum(part.rows for part in parts) <= self._settings.direct_rows_max:
            futures = [self._threads.submit(self._work, part, self._outboxes) for part in parts]
            wait(futures)  # also where one has failed: the batch is repeated when nobody works on it any more
            return [future.result() for future in futures]
        for part in parts:
            self._outboxes.drop(part.shard)
        plans = [part.to_json() for part in parts]
        told = self._spark.sparkContext.parallelize(plans, len(plans)).map(self._task).collect()
        return [Done.from_json(text) for text in told]

    def drop(self) -> None:
        """Let go of all outboxes, after a failure."""
        self._outboxes.close()

    def close(self) -> None:
        """End."""
        self._threads.shutdown(wait=True, cancel_futures=True)
        self._outboxes.close()


def _group(settings: Settings, deliver: bool) -> str:
    return settings.deliver_group if deliver else settings.schedule_group
