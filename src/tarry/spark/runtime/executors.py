"""Reports a cluster that gives an application no executors: Spark waits for them without a word."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

PATIENCE_S = 20.0
"""Seconds to wait; an executor starts within some seconds if there is a place for it."""
LOOK_S = 1.0


class ExecutorWatch:
    """Watches an application on the cluster ``master``. One thread.

    ``waits`` returns whether it has work and no executor.
    """

    def __init__(self, master: str, waits: Callable[[], bool], clock: Callable[[], float] = time.monotonic) -> None:
        self._master, self._waits, self._clock = master, waits, clock
        self._well_s = clock()

    @classmethod
    def of(cls, spark: SparkSession) -> ExecutorWatch:
        """Return the watch of a session; one within this process has all that it needs."""
        context = spark.sparkContext
        if context.master.startswith("local"):
            return cls(context.master, lambda: False)
        jobs = context.statusTracker()
        executors = context._jsc.sc().statusTracker()  # noqa: SLF001 - PySpark's own tracker does not know them
        # With dynamic allocation there is none without work; the driver is one of those that are listed.
        return cls(context.master, lambda: bool(jobs.getActiveJobsIds()) and len(executors.getExecutorInfos()) < 2)

    def missing(self) -> str | None:
        """Return problem and advice after work without an executor for :data:`PATIENCE_S`, else None."""
        now_s = self._clock()
        if not self._waits():
            self._well_s = now_s
        waited_s = now_s - self._well_s
        if waited_s < PATIENCE_S:
            return None
        return (
            f"the cluster {self._master} has given no executor for {waited_s:.0f} s; other applications have its "
            "cores, or no worker offers the memory; allowed: a smaller spark.cores.max of theirs (Tarry's own take 2 "
            "where nothing is said), or a smaller spark.executor.memory of this one"
        )


def warn_of_missing(spark: SparkSession, ended: threading.Event) -> None:
    """Log once if there is no executor, while a program waits for its result.

    It runs in a thread, until ``ended``.
    """
    watch = ExecutorWatch.of(spark)

    def look() -> None:
        while not ended.wait(LOOK_S):
            try:
                text = watch.missing()
            except Exception:  # noqa: BLE001 - the session ends meanwhile
                return
            if text is not None:
                log.warning("%s", text)
                return

    threading.Thread(target=look, name="tarry-executors", daemon=True).start()
