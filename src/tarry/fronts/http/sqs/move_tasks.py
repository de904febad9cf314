"""StartMessageMoveTask and its two companions: from a dead-letter queue back.

A task lives in this process. Each message is in its new queue before it leaves the old one, so that a task which ends
in the middle has lost nothing: it is started again.
"""

from __future__ import annotations

import asyncio
import base64
import itertools
import logging
from dataclasses import dataclass, field
from typing import Any

from tarry.api.needs import Right
from tarry.api.operations import GetGroup
from tarry.base.errors import TarryError
from tarry.fronts.http.services import HttpServices
from tarry.fronts.http.sqs import message_attributes as kept
from tarry.fronts.http.sqs.errors import SqsError, invalid, missing
from tarry.fronts.http.sqs.names import GROUP, name_of_arn
from tarry.fronts.http.sqs.queue_attributes import Queue
from tarry.fronts.http.sqs.queue_table import QueueTable
from tarry.fronts.http.sqs.received import SqsDelivery, deliveries_of
from tarry.fronts.http.sqs.redriving import Redriving
from tarry.fronts.http.sqs.request import SqsRequest
from tarry.fronts.kit.receiving import FILTERING_S, give_back, poll_now

log = logging.getLogger(__name__)

BATCH_ROWS = 100
LEASE_MS = 60_000
PER_SECOND_MAX = 500
KEPT_MAX = 10
"""Tasks of a queue that are remembered; as many as can be listed."""


@dataclass(slots=True, eq=False)
class MoveTask:
    """A task, under way or ended."""

    number: int
    source_arn: str
    destination_arn: str | None
    per_second: int | None
    started_ms: int
    to_move: int
    moved: int = 0
    status: str = "RUNNING"
    failure: str | None = None
    work: asyncio.Task[None] | None = field(default=None, repr=False)

    @property
    def handle(self) -> str:
        return base64.b64encode(f"{self.number}:{self.source_arn}".encode()).decode()

    def form(self) -> dict[str, Any]:
        """Return it as in an answer."""
        given = {
            "TaskHandle": self.handle if self.status == "RUNNING" else None,
            "Status": self.status,
            "SourceArn": self.source_arn,
            "DestinationArn": self.destination_arn,
            "MaxNumberOfMessagesPerSecond": self.per_second,
            "ApproximateNumberOfMessagesMoved": self.moved,
            "ApproximateNumberOfMessagesToMove": self.to_move,
            "FailureReason": self.failure,
            "StartedTimestamp": self.started_ms,
        }
        return {name: value for name, value in given.items() if value is not None}


class MoveTasks:
    """On the event loop's thread."""

    def __init__(self, services: HttpServices, table: QueueTable, redriving: Redriving) -> None:
        self._services = services
        self._table = table
        self._redriving = redriving
        self._tasks: dict[str, list[MoveTask]] = {}
        """Tasks by the name of their source, the newest last."""
        self._numbers = itertools.count(services.broker.clock.now_ms())
        services.on_close(lambda _: self._close())

    async def start(self, request: SqsRequest) -> dict[str, Any]:
        """Begin to move the messages of a dead-letter queue to where they came from, or to one queue."""
        source = self._queue(request, "SourceArn")
        if not self._table.sources_of(source.name):
            raise invalid("Source queue must be configured as a Dead Letter Queue.")
        wanted = request.parameters.get("DestinationArn")
        destination = None if wanted is None else self._queue(request, "DestinationArn")
        per_second = request.whole("MaxNumberOfMessagesPerSecond", 0, 1, PER_SECOND_MAX)
        info = await self._services.call(GetGroup(source.name, GROUP))
        # After that wait, in which another request may have begun one.
        if any(task.status == "RUNNING" for task in self._tasks.get(source.name, ())):
            raise invalid("There is already a task running. Only one active task is allowed for a source queue arn.")
        task = MoveTask(
            next(self._numbers),
            str(request.parameters["SourceArn"]),
            wanted,
            per_second or None,
            self._services.broker.clock.now_ms(),
            info.lag,
        )
        self._tasks[source.name] = [*self._tasks.get(source.name, ()), task][-KEPT_MAX:]
        task.work = self._services.loop.create_task(self._carry_out(task, source, destination))
        return {"TaskHandle": task.handle}

    async def cancel(self, request: SqsRequest) -> dict[str, Any]:
        """End a task; what it has moved stays where it is."""
        handle = request.parameters.get("TaskHandle")
        if not handle:
            raise missing("TaskHandle")
        for name, tasks in self._tasks.items():
            for task in tasks:
                if task.handle == handle:
                    request.desk.principal.check(Right.MANAGE, name, GROUP, peer=request.http.host)
                    if task.status != "RUNNING" or task.work is None:
                        raise _unknown("Only active tasks can be cancelled.")
                    task.status = "CANCELLED"
                    task.work.cancel()
                    return {"ApproximateNumberOfMessagesMoved": task.moved}
        raise _unknown("Task does not exist.")

    async def list(self, request: SqsRequest) -> dict[str, Any]:
        """Return the last tasks of a queue, the newest first."""
        source = self._queue(request, "SourceArn")
        count = request.whole("MaxResults", 1, 1, KEPT_MAX)
        return {"Results": [task.form() for task in reversed(self._tasks.get(source.name, []))][:count]}

    # ------------------------------------------------------------------------------------------------------------------

    def _queue(self, request: SqsRequest, parameter: str) -> Queue:
        arn = request.parameters.get(parameter)
        if not arn:
            raise missing(parameter)
        name = name_of_arn(arn)
        if name is not None:
            request.desk.principal.check(Right.MANAGE, name, GROUP, peer=request.http.host)
        queue = None if name is None else self._table.get(name)
        if queue is None:
            raise _unknown(f"The resource that you specified for the {parameter} parameter doesn't exist.")
        return queue

    async def _carry_out(self, task: MoveTask, source: Queue, destination: Queue | None) -> None:
        try:
            await self._move_all(task, source, destination)
        except SqsError as error:
            task.status, task.failure = "FAILED", str(error)
        except TarryError as error:
            task.status, task.failure = "FAILED", str(error)
            log.warning("moving the messages of queue %s has ended: %s", source.name, error)
        else:
            task.status = "COMPLETED"

    async def _move_all(self, task: MoveTask, source: Queue, destination: Queue | None) -> None:
        """Move what is there when it begins: a message that comes back meanwhile is left alone."""
        loop = self._services.loop
        group = (await self._services.receive_queue(source.name, GROUP)).group
        rows_max = min(BATCH_ROWS, task.per_second or BATCH_ROWS)
        while task.moved < task.to_move:
            begun_s = loop.time()
            rows = min(rows_max, task.to_move - task.moved)
            batch = await poll_now(loop, group.subscribe(prefetch=rows, lease_ms=LEASE_MS), rows, FILTERING_S)
            if batch is None:
                return
            done = 0
            try:
                for delivery in deliveries_of(source, batch):
                    move = self._redriving.move(delivery, source, group, self._target(delivery, destination), back=True)
                    done += 1
                    # Whoever cancels the task does not stop between the copy and the end of the original.
                    await asyncio.shield(move)
                    task.moved += 1
            finally:
                give_back(group, batch.slice(done))
            if task.per_second is not None:
                await asyncio.sleep(max(0.0, begun_s + batch.num_rows / task.per_second - loop.time()))

    def _target(self, delivery: SqsDelivery, destination: Queue | None) -> Queue:
        if destination is not None:
            return destination
        name = delivery.properties.get(kept.SOURCE)
        queue = None if name is None else self._table.get(name)
        if queue is None:
            raise SqsError("ResourceNotFoundException", "A message's original queue is not known, or was deleted.")
        return queue

    def _close(self) -> None:
        for tasks in self._tasks.values():
            for task in tasks:
                if task.work is not None:
                    task.work.cancel()


def _unknown(text: str) -> SqsError:
    return SqsError("ResourceNotFoundException", text, 404)
