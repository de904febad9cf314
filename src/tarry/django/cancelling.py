"""Cancelling a task that has not begun.

The row is the truth, so the answer is definite, with or without the broker.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING

from asgiref.sync import sync_to_async
from django.db import transaction

from tarry.base.errors import TarryError
from tarry.django.compat import TaskResult, TaskResultDoesNotExist, backend_of

if TYPE_CHECKING:
    from tarry.django.models import TaskRecord

log = logging.getLogger(__name__)


def cancel(result: TaskResult | str) -> bool:
    """Cancel a task, given by its result or its id, as a part of the transaction that is open.

    Returns:
        True: no worker ever runs it. It is FAILED, with the error :class:`tarry.django.TaskCancelled`.
        False: it has begun, or is finished, or was cancelled before.

    Raises:
        TaskResultDoesNotExist: there is no such task.
    """
    from tarry.django import records

    task_id = result if isinstance(result, str) else result.id
    record = records.rows().filter(pk=task_id).first()
    if record is None:
        raise TaskResultDoesNotExist(task_id)
    if not records.cancel(record):
        return False
    transaction.on_commit(partial(_take_out, record), using=records.database())
    return True


acancel = sync_to_async(cancel, thread_sensitive=True)
""":func:`cancel`, to be awaited."""


def _take_out(record: TaskRecord) -> None:
    """Cancel its message, so that none comes for nothing."""
    from tarry.django.sending import broker_of

    try:
        broker_of(backend_of(record.backend).settings).cancel(record)
    except TarryError as error:
        log.warning("the message of the cancelled task %s comes when it is due, and is dropped: %s", record.id, error)
