"""The main program of a Spark task: the work of one shard in one of the two queries.

The task takes the shard's transactional id over and keeps its Kafka connections from one batch to the next. It ends
when its time is over or the driver says so; when it fails, with the error as its result, so that the driver knows the
reason; and when its driver is gone. A task that was left behind all the same can commit nothing once another has taken
the id over.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from tarry.base.errors import TarryError
from tarry.store import check_same_table
from tarry_relay.deliver import DeliverWork, reached
from tarry_relay.files import Reached
from tarry_relay.follow import Follower
from tarry_relay.line import Address, Channel
from tarry_relay.messages import Failure, Hello, ShardProgress, StopOrder, TaskQuery
from tarry_relay.schedule import SchedulePlan, ScheduleWork, ShardResult
from tarry_relay.settings import RelaySettings
from tarry_relay.writer import KafkaWriters

REPORT_S = 0.25
LOOK_S = 1.0


@dataclass(frozen=True, slots=True)
class ShardTask:
    """A task as a function for Spark: plain data, so that it travels to any executor."""

    settings: RelaySettings
    root: str
    table_id: str
    query: TaskQuery
    shard: int
    address: Address
    seconds: float
    interval_ms: int

    def __call__(self, _: Iterable[int]) -> Iterator[Failure | None]:
        """Work until the end; yield the error that ended it early, or None."""
        try:
            check_same_table(self.root, self.table_id)
            line = Channel.connect(self.address, Hello(self.query, self.shard))
            try:
                (self._deliver if self.query == TaskQuery.DELIVER else self._schedule)(line)
            finally:
                line.close()
        except (TarryError, OSError) as error:
            yield error
        else:
            yield None

    def _deliver(self, line: Channel) -> None:
        settings, at = self.settings, (self.settings.marker_topic, self.shard)
        writers, work = KafkaWriters(settings, settings.deliver_group), DeliverWork(settings, self.root)
        try:
            # First the id, then the marker: from now on nobody else can move it.
            place = reached(writers.of(self.shard).markers([at])[at]) or Reached(0, 0)
            follower = Follower(settings, self.root, self.shard, lambda plan, ahead: work(plan, writers, ahead), place)
            driver = _Driver(line, follower, time.monotonic() + self.seconds)
            follower.follow(self.interval_ms / 1000, driver, driver.add)
            if driver.order is not None:
                follower.settle(driver.order.settle_ms)
            driver.report()
        finally:
            writers.close()

    def _schedule(self, line: Channel) -> None:
        settings = self.settings
        writers, work = KafkaWriters(settings, settings.schedule_group), ScheduleWork(settings, self.root)
        try:
            writers.of(self.shard)  # before the first plan, which then does not wait for it
            line.send(Hello(self.query, self.shard))
            until = time.monotonic() + self.seconds
            while True:
                left = until - time.monotonic()
                if not line.waits(max(0.0, min(left, LOOK_S))):
                    if left <= 0:
                        return
                    writers.rest()
                    continue
                plan = line.receive()
                if not isinstance(plan, SchedulePlan):
                    return
                try:
                    line.send(work(plan, writers))
                except (TarryError, OSError) as error:
                    line.send(error)
        finally:
            writers.close()


class _Driver:
    """The driver, as the delivering task sees it.

    It gets reports now and then, and may order the task to stop.
    """

    def __init__(self, line: Channel, follower: Follower, until: float) -> None:
        self._line, self._follower, self._until = line, follower, until
        self._result: ShardResult | None = None
        self.order: StopOrder | None = None
        self.report()

    def add(self, result: ShardResult) -> None:
        """Add a result to the next report."""
        if self._result is None:
            self._result = replace(result)
        else:
            self._result.counts += result.counts
            self._result.lateness_ms.merge(result.lateness_ms)

    def report(self) -> None:
        """Report the progress and the results."""
        self._said, self._reported = self._follower.committed, time.monotonic()
        self._line.send(ShardProgress(self._said, () if self._result is None else (self._result,)))
        self._result = None

    def is_set(self) -> bool:
        """Return whether to stop."""
        if time.monotonic() - self._reported >= REPORT_S and (self._result or self._said != self._follower.committed):
            self.report()
        if self.order is None and self._line.waits():
            order = self._line.receive()
            self.order = order if isinstance(order, StopOrder) else None
        return self.order is not None or time.monotonic() >= self._until

    def wait(self, timeout: float) -> None:
        """Wait, but not longer than until a message of the driver arrives."""
        self._line.waits(timeout)
