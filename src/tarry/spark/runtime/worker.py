"""The last step of a task, in a Python worker that Spark keeps for the next one."""

from __future__ import annotations

import gc
from functools import cache

import pyarrow as pa


def rest() -> None:
    """Give back unused memory, and make the pause between two tasks short.

    Spark's daemon collects all garbage after each task (``pyspark/daemon.py``). That looks at each object of all
    imported modules, tens of milliseconds of CPU. Objects that exist at the end of a worker's first task stay, and are
    not looked at again.
    """
    pa.default_memory_pool().release_unused()  # the worker stays, idle, for a minute
    freeze_once()


@cache
def freeze_once() -> None:
    """Hide all existing objects from the collector, in a worker's first task."""
    # ``gc.get_freeze_count()`` would say that it is done, but it counts the objects, which takes as long again.
    gc.collect()
    gc.freeze()
