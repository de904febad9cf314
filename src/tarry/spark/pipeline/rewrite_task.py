"""What a Spark task does with a piece of the store's upkeep: rewrite some files as one sorted run, and stage it.

Runs inside ``mapInArrow``, as ``stage_task.py`` does. The works travel with the function and only their numbers through
the JVM; what comes back are descriptions of files.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from tarry.store import Rewritten, Work, rewrite

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RESULT_SCHEMA = "number long, result string"
_RESULT = pa.schema([("number", pa.int64()), ("result", pa.string())])
POOL = JOB_GROUP = "tarry-compact"


@dataclass(frozen=True)
class RewriteTask:
    """The function for ``mapInArrow``; plain data, so that it travels to any executor."""

    works: tuple[str, ...]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                result = rewrite(Work.of_json(self.works[number])).to_json()
                yield pa.RecordBatch.from_pydict({"number": [number], "result": [result]}, schema=_RESULT)


def rewrite_on_spark(spark: SparkSession, works: list[Work]) -> list[Rewritten]:
    """Carry works out at once, a task each, in a pool of their own; results in the order of the works."""
    context = spark.sparkContext
    context.setLocalProperty("spark.scheduler.pool", POOL)  # of this thread alone
    context.setJobGroup(JOB_GROUP, "upkeep of the store", interruptOnCancel=False)
    task = RewriteTask(tuple(work.to_json() for work in works))
    rows = spark.range(0, len(works), 1, len(works)).mapInArrow(task, RESULT_SCHEMA).collect()
    results = {row["number"]: row["result"] for row in rows}
    return [Rewritten.of_json(results[number]) for number in range(len(works))]
