"""From the row to the broker: after the commit, and by a worker where the process ended before that.

The row comes first, so no task is at the broker of which the database knows nothing. Sent again in doubt, it has the
same id and key, so what waits or has come within the broker's dedupe window is not doubled; and a worker drops a
message of a task that another message has begun.
"""

from __future__ import annotations

import json
import logging
import os
import threading
from collections.abc import Sequence
from datetime import UTC, timedelta
from functools import cache
from typing import Any

from django.utils import timezone

from tarry.base.errors import DiskFullError, OverloadedError, OwnershipLostError, TarryError, UnavailableError
from tarry.client import Client
from tarry.django import records
from tarry.django.compat import TaskResultStatus
from tarry.django.models import TaskRecord
from tarry.django.options import BackendOptions
from tarry.django.places import GROUP, topic_of

log = logging.getLogger(__name__)

TRIES = 1000
"""Tries of a message.

Its row counts how often a task is begun; a database that is away must not use the message's tries up.
"""
UNSENT_S = 10.0
"""Age of an unsent row from which its process has ended, or the broker was away."""
TOGETHER_MAX = 500
"""So many are sent at a time."""
PRIORITY = "priority"
"""The property of a message with its exact priority."""
AWAY = (UnavailableError, OverloadedError, DiskFullError, OwnershipLostError)
"""Errors that pass: to send again later helps."""


class TaskBroker:
    """The broker of a backend, for all threads of this process; what is forked off makes its own."""

    def __init__(self, options: BackendOptions) -> None:
        self._options = options
        self._lock = threading.Lock()
        self._client: Client | None = None
        self._process = 0
        self._topics: set[str] = set()

    @property
    def client(self) -> Client:
        """The client, which connects when it is used."""
        with self._lock:
            if self._client is None or self._process != os.getpid():
                options = self._options
                self._client = Client(options.endpoint, token=options.token, timeout=options.timeout_s)
                self._process, self._topics = os.getpid(), set()
            return self._client

    def send(self, *tasks: TaskRecord) -> None:
        """Schedule the messages of tasks, and note that.

        Raises:
            TarryError: one is refused, or there is no broker. Some of the others may have been accepted.
        """
        if not tasks:
            return
        client = self.client
        messages = [self._message(each) for each in tasks]
        for topic in {each["topic"] for each in messages} - self._topics:
            # Else what is due while no worker was ever there would be kept for the retention alone.
            client.set_group(topic, GROUP)
            self._topics.add(topic)
        if len(messages) == 1:
            client.schedule(**messages[0])
        else:
            client.schedule_many(messages)
        records.note_sent([each.pk for each in tasks], timezone.now())

    def _message(self, record: TaskRecord) -> dict[str, Any]:
        due = record.run_after
        if due is not None and timezone.is_naive(due):
            due = timezone.make_aware(due)
        return {
            "topic": topic_of(self._options.prefix, record.queue_name, record.priority),
            "body": json.dumps({"task": record.id}),
            "due": None if due is None else due.astimezone(UTC),
            "properties": {PRIORITY: str(record.priority)},
            "id": record.id,
            "key": record.id,
            "on_key": "keep",
            "tries": TRIES,
        }

    def cancel(self, record: TaskRecord) -> None:
        """Cancel the message, if it waits. Raises TarryError: as of :meth:`send`."""
        self.client.cancel_key(topic_of(self._options.prefix, record.queue_name, record.priority), record.id)


@cache
def broker_of(options: BackendOptions) -> TaskBroker:
    """Return the broker that options name.

    Django makes a backend for each thread, and all share a connection.
    """
    return TaskBroker(options)


def send_each(broker: TaskBroker, tasks: Sequence[TaskRecord]) -> list[TarryError]:
    """Send tasks; return why some were refused. These have failed.

    Raises:
        TarryError: one of :data:`AWAY`. The rows say what was sent.
    """
    try:
        broker.send(*tasks)
    except AWAY:
        raise
    except TarryError as error:
        if len(tasks) > 1:
            half = len(tasks) // 2  # so the others travel together still
            return send_each(broker, tasks[:half]) + send_each(broker, tasks[half:])
        records.fail(tasks[0], type(error), f"The broker refused the task: {error}\n")
        return [error]
    return []


def send_unsent(broker: TaskBroker, backend: str) -> int:
    """Send what no process has sent that enqueued it; return how many were sent.

    Raises:
        TarryError: there is no broker now.
    """
    until = timezone.now() - timedelta(seconds=UNSENT_S)
    unsent = records.rows().filter(sent_at=None, enqueued_at__lt=until, status=TaskResultStatus.READY, backend=backend)
    sent = 0
    while tasks := list(records.to_send(unsent).order_by("enqueued_at")[:TOGETHER_MAX]):
        refused = send_each(broker, tasks)
        for error in refused:
            log.error("a task was refused: %s", error)
        sent += len(tasks) - len(refused)
    return sent
