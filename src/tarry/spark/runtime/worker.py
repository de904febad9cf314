"""What a task does last, in a Python worker that Spark keeps for the next one."""

from __future__ import annotations

import gc

import pyarrow as pa


def rest() -> None:
    """Give back memory that is not used, and make the pause between two tasks short.

    Spark's daemon collects all garbage after each task (``pyspark/daemon.py``). That looks at each object of all the
    modules that are imported, tens of milliseconds of CPU. What is there at the end of a worker's first task stays, and
    is not looked at again.
    """
    pa.default_memory_pool().release_unused()  # the worker stays, idle, for a minute
    if not gc.get_freeze_count():
        gc.collect()
        gc.freeze()
