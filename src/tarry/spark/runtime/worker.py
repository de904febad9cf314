"""What a task does last, in a Python worker that Spark keeps for the next one."""

from __future__ import annotations

import gc

import pyarrow as pa

_frozen = False
"""``gc.get_freeze_count()`` would tell, too, but it counts all those objects, one by one."""


def rest() -> None:
    """Give back memory that is not used, and make the pause between two tasks short.

    Spark's daemon collects all garbage after each task (``pyspark/daemon.py``). That looks at each object of all the
    modules that are imported, tens of milliseconds of CPU. What is there at the end of a worker's first task stays, and
    is not looked at again.
    """
    global _frozen
    pa.default_memory_pool().release_unused()  # the worker stays, idle, for a minute
    if not _frozen:
        gc.collect()
        gc.freeze()
        _frozen = True
