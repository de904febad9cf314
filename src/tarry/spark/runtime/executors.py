"""Says when a cluster gives an application nothing to work with: Spark waits for it without a word."""

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
"""An executor is there within some seconds where it gets a place at all."""
LOOK_S = 1.0


class ExecutorWatch:
    """Of an application on the cluster ``master``; ``waits`` says whether it has work and no executor. One thread."""

    def __init__(self, master: str, waits: Callable[[], bool], clock: Callable[[], float] = time.monotonic) -> None:
        self._master, self._waits, self._clock = master, waits, clock
        self._well_s = clock()

    @classmethod
    def of(cls, spark: SparkSession) -> ExecutorWatch:
        """For a session; one within this process has all that it needs."""
        context = spark.sparkContext
        if context.master.startswith("local"):
            return cls(context.master, lambda: False)
        jobs = context.statusTracker()
        executors = context._jsc.sc().statusTracker()  # noqa: SLF001 - PySpark's own tracker does not know them
        # With dynamic allocation there is none where there is no work; the driver is one of those that are told.
        return cls(context.master, lambda: bool(jobs.getActiveJobsIds()) and len(executors.getExecutorInfos()) < 2)

    def missing(self) -> str | None:
        """What is wrong and what to do, when there was work and no executor for :data:`PATIENCE_S`; None otherwise."""
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
    """Log once when there is no executor, while a program waits for its result: from a thread, until ``ended``."""
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
