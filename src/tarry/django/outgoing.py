"""The tasks of a transaction, which go to the broker together when it is committed.

Each is a callback of the commit, since Django drops those of a savepoint that is rolled back. The first that is called
sends all that the database has of them, and the others find that done.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from functools import partial

from django.db import transaction

from tarry.base.errors import TarryError
from tarry.django import records
from tarry.django.compat import TaskResultStatus
from tarry.django.models import TaskRecord
from tarry.django.sending import AWAY, TOGETHER_MAX, TaskBroker, send_each

log = logging.getLogger(__name__)

TASKS_MAX = 10_000
"""Most tasks that are kept together.

Those of transactions that were rolled back are among them, until one is committed.
"""


class TransactionTasks:
    """Tasks of one transaction; some may belong to one before it that was rolled back. One thread's."""

    def __init__(self, broker: TaskBroker) -> None:
        self._broker = broker
        self._ids: list[str] = []
        self.is_open = True
        """Until it is sent, or full."""

    def add(self, record: TaskRecord) -> None:
        """Add a task of the transaction that is open."""
        self._ids.append(record.pk)
        self.is_open = len(self._ids) < TASKS_MAX
        transaction.on_commit(partial(self._send, record), using=records.database())

    def _send(self, record: TaskRecord) -> None:
        ids, self._ids, self.is_open = self._ids, [], False
        refused: list[TarryError] = []
        try:
            if len(ids) == 1:
                refused += send_each(self._broker, [record])
            else:
                for start in range(0, len(ids), TOGETHER_MAX):
                    refused += send_each(self._broker, _committed(ids[start : start + TOGETHER_MAX]))
        except AWAY as error:
            # The rest is not tried, which would take the time-out once more for each part.
            log.warning("tasks are sent when the broker is back: %s", error)
        if refused:
            raise refused[0]


def _committed(ids: Sequence[str]) -> list[TaskRecord]:
    """Return those that the database has, and that are to be sent."""
    found = records.rows().filter(pk__in=ids, sent_at=None, status=TaskResultStatus.READY)
    return list(records.to_send(found).order_by("enqueued_at"))


class _Open(threading.local):
    def __init__(self) -> None:
        self.tasks: dict[tuple[TaskBroker, str], TransactionTasks] = {}


_open = _Open()


def send_after_commit(broker: TaskBroker, record: TaskRecord) -> None:
    """Send a task once it is committed, so at once outside a transaction.

    Where the broker is away, a worker does it later.

    Raises:
        TarryError: the broker refuses it, at each try. The task has failed. In a transaction, its commit raises this.
    """
    place = broker, records.database()
    tasks = _open.tasks.get(place)
    if tasks is None or not tasks.is_open:
        tasks = _open.tasks[place] = TransactionTasks(broker)
    tasks.add(record)
