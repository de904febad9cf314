"""What a task does last, in a Python worker that Spark keeps for the next one."""

from __future__ import annotations

import gc
from functools import cache

import pyarrow as pa


def rest() -> None:
    """Give back memory that is not used, and make the pause between two tasks short.

    Spark's daemon collects all garbage after each task (``pyspark/daemon.py``). That looks at each object of all the
    modules that are imported, tens of milliseconds of CPU. What is there at the end of a worker's first task stays, and
    is not looked at again.
    """
    pa.default_memory_pool().release_unused()  # the worker stays, idle, for a minute
    freeze_once()


@cache
def freeze_once() -> None:
    """Take all objects that there are out of the collector's sight, in a worker's first task."""
    # ``gc.get_freeze_count()`` would say that it is done, but it counts the objects, which takes as long again.
    gc.collect()
    gc.freeze()
