"""The project's worker: a :class:`tarry.Worker` whose handlers run tasks."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import socket
import uuid
from collections.abc import AsyncIterator
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

from django.db import Error as DbError
from django.db import close_old_connections

from tarry.base.errors import InvalidArgumentError, TarryError
from tarry.client.delivery import Delivery
from tarry.django.backend import TarryBackend
from tarry.django.compat import InvalidTaskBackend, backend_of
from tarry.django.execution import Executor
from tarry.django.places import GROUP, topics_of
from tarry.django.sending import PRIORITY, TaskBroker, broker_of, send_unsent
from tarry.django.slots import Slots
from tarry.worker import Reject, Worker
from tarry.worker.handler import HandlerOptions
from tarry.worker.threads import WorkThread

log = logging.getLogger(__name__)

CONCURRENCY = 4
LOOK_S = 5.0
"""Seconds between looks for rows that nobody has sent."""
VARIABLE = "TARRY_DJANGO_WORKER"
"""The environment of a worker's processes has its settings there, as JSON."""


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    """Options of a worker.

    ``queues`` empty: all that the backend names. ``concurrency``: tasks at a time in a process.
    """

    backend: str = "default"
    queues: tuple[str, ...] = ()
    concurrency: int = CONCURRENCY

    def to_environment(self) -> None:
        """Leave them to processes that are started."""
        os.environ[VARIABLE] = json.dumps(asdict(self))

    @classmethod
    def of_environment(cls) -> WorkerSettings:
        """Return what :meth:`to_environment` has left."""
        given = json.loads(os.environ.get(VARIABLE, "{}"))
        return cls(**{**given, "queues": tuple(given.get("queues", ()))})


def make_worker(settings: WorkerSettings) -> Worker:
    """Return the worker of a backend's queues.

    Raises:
        InvalidArgumentError: there is no such backend, or it has no such queue.
    """
    backend = _backend(settings.backend)
    options = backend.settings
    executor = Executor(_worker_id(), options.attempts, type(backend))
    worker = Worker(options.endpoint, token=options.token)
    held: HandlerOptions = {} if options.lease is None else {"lease": options.lease}

    async def run_task(message: Delivery) -> None:
        task_id, priority = _task_id(message), _priority(message)
        async with worker.state.slots.take(priority) as thread:
            await thread.run(partial(executor.handle, task_id, message.seq, message.attempt))

    @worker.lifespan
    async def slots() -> AsyncIterator[None]:
        worker.state.slots = Slots(settings.concurrency)
        sending = asyncio.create_task(_send_unsent(broker_of(options), settings.backend))
        yield
        sending.cancel()

    for queue in _queues(backend, settings.queues):
        for topic in topics_of(options.prefix, queue):
            # Twice as many as there are threads: where one is free, the next of a higher priority is here already.
            at_hand = 2 * settings.concurrency
            on = worker.on(topic, group=GROUP, concurrency=at_hand, retry={DbError: "exponential 1s max 1m"}, **held)
            on(run_task)
    return worker


def _backend(alias: str) -> TarryBackend:
    try:
        backend = backend_of(alias)
    except InvalidTaskBackend as error:
        raise InvalidArgumentError(str(error)) from error
    if not isinstance(backend, TarryBackend):
        kind = type(backend)
        raise InvalidArgumentError(
            f"TASKS[{alias!r}] is {kind.__module__}.{kind.__qualname__}; allowed: one with tarry.django.TarryBackend"
        )
    return backend


def _queues(backend: TarryBackend, given: tuple[str, ...]) -> list[str]:
    known = sorted(backend.queues)
    if not given and not known:
        raise InvalidArgumentError(f"TASKS[{backend.alias!r}]['QUEUES'] is empty, for any; allowed: --queue NAME")
    for queue in given:
        if known and queue not in known:
            raise InvalidArgumentError(f"there is no queue {queue!r}; allowed: {', '.join(known)}")
    return list(dict.fromkeys(given)) or known


def _worker_id() -> str:
    return f"{socket.gethostname()[:40]}-{os.getpid()}-{uuid.uuid4().hex[:8]}"


def _task_id(message: Delivery) -> str:
    try:
        return str(json.loads(message.body)["task"])
    except (ValueError, KeyError, TypeError):
        raise Reject('the body is no task\'s; allowed: {"task": ID}') from None


def _priority(message: Delivery) -> int:
    text: Any = message.properties.get(PRIORITY, "")
    return int(text) if text.removeprefix("-").isdecimal() else 0


async def _send_unsent(broker: TaskBroker, backend: str) -> None:
    thread = WorkThread("tarry-task-sending")

    def send() -> int:
        close_old_connections()
        try:
            return send_unsent(broker, backend)
        finally:
            close_old_connections()

    while True:
        try:
            if sent := await thread.run(send):
                log.info("sent %d tasks that were enqueued while the broker was away, or by a process that ended", sent)
        except (TarryError, DbError) as error:
            log.warning("tasks that were not sent wait: %s", error)
        await asyncio.sleep(LOOK_S)
