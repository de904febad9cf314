"""A DataFrame in no more partitions than its size and the cores can use.

A task of Python costs 20 to 30 ms of CPU before it has a row, as much as two thousand messages. A DataFrame of 200
partitions with a thousand rows each costs three times the same rows in two.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

PARTITION_BYTES = 8 << 20
"""Bytes, by Spark's statistics, at which a task's own cost is a tenth of its work."""
UNKNOWN_BYTES = 1 << 50
"""Spark's statistics say 8 EiB for an unknown size."""
MULTIPLYING = ("Generate", "MapIn", "MapPartitions", "MapGroups", "MapElements", "FlatMap", "CoGroup")
"""Nodes that make any number of rows of one, or rows of any size.

Spark's statistics take the number for unchanged.
"""
WAVES = 4
"""Minimum number of tasks for each core, so that none waits long for one that takes longer."""


def fewer_partitions(df: DataFrame) -> DataFrame:
    """Return ``df`` in as few tasks as are of use, without a shuffle.

    Returns ``df`` itself if its size is not known, or the cores.

    Spark's statistics are too high rather than too low, but for strings, which it takes for short. Where they are too
    low there are still some tasks for each core, whose memory does not depend on how much each of them writes.
    """
    frame = getattr(df, "_jdf", None)  # missing in Spark Connect, whose server plans
    if frame is None or (cores := cores_of(df.sparkSession.sparkContext)) is None:
        return df
    plan = frame.queryExecution().optimizedPlan()
    size = int(str(plan.stats().sizeInBytes()))
    if size >= UNKNOWN_BYTES or any(name.startswith(MULTIPLYING) for name in nodes(plan)):
        return df
    return df.coalesce(max(WAVES * cores, -(-size // PARTITION_BYTES)))


def nodes(plan: Any) -> Iterator[str]:
    """Yield the names of a plan's nodes."""
    yield str(plan.nodeName())
    children = plan.children()
    for index in range(children.size()):
        yield from nodes(children.apply(index))


def cores_of(context: Any) -> int | None:
    """Return the cores of an application, as when all its executors are there; None: not known yet."""
    conf = context.getConf()
    if conf.get("spark.dynamicAllocation.enabled", "false").lower() == "true":
        return None
    # Not Spark's default parallelism, which a user may have set.
    executors = context._jsc.sc().statusStore().executorList(True)  # noqa: SLF001 - PySpark has nothing that knows them
    there: int = sum(executors.apply(i).totalCores() for i in range(executors.size()))
    if not there:
        return None
    asked = int(conf.get("spark.executor.instances", "0")) * int(conf.get("spark.executor.cores", "1"))
    return max(there, asked, int(conf.get("spark.cores.max", "0")))
