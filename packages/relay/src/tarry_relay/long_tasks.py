"""The driver's side of the long tasks: keeps one for each shard and query, in its own Spark job.

A task whose time is over is followed by the next at once; one that failed, after a pause that grows to a minute, for
ever. Reports of a delivering task go to the status; a scheduling task is given plans. Each job has one task, so that a
failed one does not end the others.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from tarry.base.clock import SystemClock
from tarry.base.errors import InvalidArgumentError, TarryError, UnavailableError
from tarry.base.supervision import keep_running
from tarry.spark.runtime.failures import one_line
from tarry_relay.attempts import Attempts
from tarry_relay.files import Reached
from tarry_relay.line import Channel, Lines
from tarry_relay.messages import Failure, Hello, Message, ShardProgress, StopOrder, TaskQuery
from tarry_relay.schedule import SchedulePlan, ShardResult
from tarry_relay.settings import RelaySettings, RunOptions
from tarry_relay.status import RelayStatus
from tarry_relay.table import RelayStore
from tarry_relay.tasks import ShardTask

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

TASK_S = 30.0
"""Seconds that a plan waits for its shard's task, and that a task may take to end."""
TRIES = 3
"""Tasks that may end under one plan.

They do at the end of their time, or with their executor.
"""
SETTLE_MS = 250
"""Milliseconds from the order to stop to the moment up to which all shards deliver."""

Launch = Callable[[ShardTask], Failure | None]
"""Runs a task to its end, somewhere; raises other errors that ended it."""


class LongTasks:
    """All long tasks of a relay. ``places`` are those of the shards' markers at the start."""

    def __init__(
        self,
        launch: Launch,
        address: tuple[str, str],
        settings: RelaySettings,
        running: RunOptions,
        store: RelayStore,
        status: RelayStatus,
        places: Mapping[int, Reached],
    ) -> None:
        self._settings, self._running, self._store, self._status = settings, running, store, status
        self._launch = launch
        self._places, self._lock = dict(places), threading.Lock()
        self._delivering: set[int] = set()
        self._lines = Lines(*address, self._on_line)
        self._kept: dict[Hello, _Kept] = {}

    def start(self, query: TaskQuery) -> None:
        """Start the tasks of a query, and keep them running."""
        for shard in range(self._settings.shards):
            self._kept[Hello(query, shard)] = _Kept(self._task(query, shard), self._launch, self._status)
        for kept in self._of(query):
            kept.start()

    def wait(self, query: TaskQuery, timeout_s: float) -> None:
        """Wait until all tasks of a query work, or one of them has failed."""
        end = time.monotonic() + timeout_s
        for kept in self._of(query):
            kept.begun.wait(max(0.0, end - time.monotonic()))

    def look(self) -> None:
        """Raise the error of a task for which repeating cannot help.

        Raises:
            TarryError: repeating cannot help.
        """
        for kept in list(self._kept.values()):
            if kept.fatal is not None:
                raise kept.fatal

    def schedule(self, plans: list[SchedulePlan]) -> list[ShardResult]:
        """Have a batch's plans carried out by their shards' tasks; return their results.

        Raises:
            Exception: a shard could not; the others have done theirs, which is no harm: the batch is repeated.
        """
        results: list[ShardResult] = []
        errors: list[Exception] = []

        def do(plan: SchedulePlan) -> None:
            try:
                results.append(self._kept[Hello(TaskQuery.SCHEDULE, plan.shard)].do(plan))
            except Exception as error:  # noqa: BLE001 - it is raised when nobody works on the batch any more
                errors.append(error)

        threads = [threading.Thread(target=do, args=(plan,), name="tarry-relay-plan") for plan in plans[1:]]
        for thread in threads:
            thread.start()
        for plan in plans[:1]:
            do(plan)
        for thread in threads:
            thread.join()
        if errors:
            raise errors[0]
        return results

    def close(self) -> None:
        """End all tasks; the delivering ones come to one place.

        Nothing may be committed to the store any more.
        """
        settle_ms = SystemClock().now_ms() + SETTLE_MS
        for kept in self._kept.values():
            kept.stop(StopOrder(settle_ms) if kept.task.query == TaskQuery.DELIVER else None)
        end = time.monotonic() + TASK_S
        for kept in self._kept.values():
            if not kept.join(end - time.monotonic()):
                log.warning("shard %d's task of %s does not end", kept.task.shard, kept.task.query)
        self._lines.close()

    # -- inside ------------------------------------------------------------------------------------------------------

    def _of(self, query: TaskQuery) -> list[_Kept]:
        return [kept for kept in self._kept.values() if kept.task.query == query]

    def _task(self, query: TaskQuery, shard: int) -> ShardTask:
        running = self._running
        return ShardTask(
            settings=self._settings,
            root=self._store.root,
            table_id=self._store.table_id,
            query=query,
            shard=shard,
            address=self._lines.address,
            seconds=running.deliver_batch_ms / 1000,
            interval_ms=running.deliver_interval_ms,
        )

    def _on_line(self, line: Channel, hello: Message) -> None:
        if not isinstance(hello, Hello):
            raise InvalidArgumentError(f"a task began with {hello!r:.80}; allowed: who it is")
        kept = self._kept[hello]
        if hello.query == TaskQuery.SCHEDULE:
            line.receive()  # it has taken over its transactional id
            kept.on_line(line)
            kept.begun.set()
            return
        kept.on_line(line)
        while True:
            try:
                progress = line.receive()
            except UnavailableError:
                return  # the task has ended, and its job reports the reason
            if isinstance(progress, ShardProgress):
                self._on_progress(hello.shard, progress)
                kept.begun.set()

    def _on_progress(self, shard: int, progress: ShardProgress) -> None:
        with self._lock:
            self._places[shard] = progress.committed
            places = [self._places.get(n, Reached(0, 0)) for n in range(self._settings.shards)]
            self._store.delivered = Reached(min(p.t for p in places), min(p.v for p in places))
            self._delivering.add(shard)
            if len(self._delivering) == self._settings.shards:
                self._status.on_moment("delivers_ms")
        if progress.results:
            batch = {"shard": shard, "end": {"t": progress.committed.t, "v": progress.committed.v}}
            self._status.on_batch(TaskQuery.DELIVER, batch, list(progress.results))
        else:
            self._status.on_query(TaskQuery.DELIVER, state="running", error=None)


class _Kept:
    """One task that is kept running, from a thread of its own."""

    def __init__(self, task: ShardTask, launch: Launch, status: RelayStatus) -> None:
        self.task = task
        self.begun = threading.Event()
        """Set once it works, or has failed once."""
        self.fatal: Exception | None = None
        self._launch, self._status = launch, status
        self._attempts = Attempts()
        self._line: Channel | None = None
        self._has_line = threading.Condition()
        self._order: StopOrder | None = None
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._keep, name=f"tarry-relay-{task.query}-{task.shard}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def on_line(self, line: Channel) -> None:
        """Take the connection of a task.

        It is the next task, or another attempt, which Spark began elsewhere.
        """
        with self._has_line:
            former, self._line = self._line, line
            self._has_line.notify_all()
        if former is not None:
            former.end()
        if self._stopped.is_set():
            self._say_stop()

    def do(self, plan: SchedulePlan) -> ShardResult:
        """Have the task carry out a plan. One caller at a time.

        Raises:
            TarryError, OSError: what the task says, or there is none.
        """
        for tries_left in reversed(range(TRIES)):
            line = self._await_line()
            try:
                line.send(plan)
                answer = line.receive()
            except UnavailableError:
                # A plan that is repeated does exactly what is missing.
                self._forget(line)
                if not tries_left:
                    raise
            else:
                if isinstance(answer, ShardResult):
                    return answer
                if isinstance(answer, TarryError | OSError):
                    raise answer
                raise InvalidArgumentError(f"shard {self.task.shard} answered a plan with {answer!r:.80}")
        raise AssertionError("unreachable")

    def stop(self, order: StopOrder | None) -> None:
        """Make the task end, and start no other."""
        self._order = order
        self._stopped.set()
        self._say_stop()

    def join(self, timeout_s: float) -> bool:
        """Return whether it has ended in time."""
        self._thread.join(max(0.0, timeout_s))
        return not self._thread.is_alive()

    # -- inside ------------------------------------------------------------------------------------------------------

    def _say_stop(self) -> None:
        with self._has_line:
            line = self._line
        if line is not None:
            try:
                line.send(self._order)
            except UnavailableError as error:
                log.debug("it has ended already: %s", error)

    def _await_line(self) -> Channel:
        with self._has_line:
            if not self._has_line.wait_for(lambda: self._line is not None, TASK_S) or self._line is None:
                raise UnavailableError(
                    f"shard {self.task.shard} has no task of the query {self.task.query} after {TASK_S:g} s: Spark has "
                    "no slot for it, or its task fails"
                )
            return self._line

    def _forget(self, line: Channel) -> None:
        with self._has_line:
            if self._line is line:
                self._line = None
        line.end()

    def _keep(self) -> None:
        try:
            keep_running(self._run, self._on_failure, self._stopped)
        except Exception as error:  # noqa: BLE001 - the driver's thread raises it
            self.fatal = error

    def _on_failure(self, error: Exception) -> float:
        pause_s, text = self._attempts.fail(error), one_line(error)
        log.warning(
            "shard %d's task of %s has failed (%s); again in %g s", self.task.shard, self.task.query, text, pause_s
        )
        self._status.on_restart(self.task.query, text)
        return pause_s

    def _run(self) -> Exception | None:
        self._attempts.begin()
        error = self._launched()
        self.begun.set()
        return error

    def _launched(self) -> Exception | None:
        try:
            return self._launch(self.task)
        except Exception as error:  # noqa: BLE001 - any error of Spark about a lost executor
            if isinstance(error, TarryError | OSError):
                return error
            killed = "Python worker exited unexpectedly" in str(error)
            return UnavailableError("its process was killed" if killed else one_line(error))


def in_spark(spark: SparkSession) -> Launch:
    """Return a function that runs a task in a Spark job of its own, in its query's scheduler pool."""
    context = spark.sparkContext

    def launch(task: ShardTask) -> Failure | None:
        context.setLocalProperty("spark.scheduler.pool", str(task.query))
        context.setJobDescription(f"{task.settings.name}: {task.query}, shard {task.shard}")
        [end] = context.parallelize([task.shard], 1).mapPartitions(task).collect()
        return end  # type: ignore[no-any-return]

    return launch


def in_process(task: ShardTask) -> Failure | None:
    """Run a task in this process: as in Spark, but without the executor."""
    [end] = task(())
    return end
