"""A row as a result of Django's, and each step by which it changes.

A step is one UPDATE with a condition, so that of two processes one does it: a worker that begins a task and somebody
who cancels it, or two workers of which the first was slow.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from django.core.exceptions import SuspiciousOperation
from django.db import router
from django.utils import timezone
from django.utils.module_loading import import_string

from tarry.django.compat import Task, TaskError, TaskResult, TaskResultStatus
from tarry.django.errors import TaskCancelled
from tarry.django.models import TaskRecord

UNFINISHED = (TaskResultStatus.READY, TaskResultStatus.RUNNING)


def database() -> str:
    """Return the alias of the database that has the rows."""
    alias: str = router.db_for_write(TaskRecord)
    return alias


def rows() -> Any:
    """Return all rows, where they are written: a replica may be behind."""
    return TaskRecord.objects.using(database())


def to_send(found: Any) -> Any:
    """Return rows without what may be large, and is not sent."""
    return found.defer("args", "kwargs", "return_value")


def path_of(error: type[BaseException]) -> str:
    """Return the name by which an exception's class is imported."""
    return f"{error.__module__}.{error.__qualname__}"


def task_of(record: TaskRecord) -> Task:
    """Return the task as it was enqueued.

    Raises:
        ImportError: the code has it no more. SuspiciousOperation: the name is of something else.
    """
    task = import_string(record.task_path)
    if not isinstance(task, Task):
        raise SuspiciousOperation(f"{record.task_path} is no task of Django's, as task {record.id} says")
    return task.using(
        priority=record.priority, queue_name=record.queue_name, run_after=record.run_after, backend=record.backend
    )


def result_of(record: TaskRecord, task: Task | None = None) -> TaskResult:
    """Return a row as Django's result.

    Raises:
        ImportError, SuspiciousOperation: as of :func:`task_of`.
    """
    result = TaskResult(
        task=task or task_of(record),
        id=record.id,
        status=TaskResultStatus[record.status],
        enqueued_at=record.enqueued_at,
        started_at=record.started_at,
        finished_at=record.finished_at,
        last_attempted_at=record.last_attempted_at,
        args=record.args,
        kwargs=record.kwargs,
        backend=record.backend,
        errors=[TaskError(**each) for each in record.errors],
        worker_ids=list(record.worker_ids),
    )
    object.__setattr__(result, "_return_value", record.return_value)  # frozen, and no argument of it
    return result


# -- steps: True, if this call did it ----------------------------------------------------------------------------------


def begin(record: TaskRecord, worker_id: str, message_seq: int) -> bool:
    """Note that a worker begins the task; False: it was cancelled, or another worker has begun it since."""
    now = timezone.now()
    return _step(
        record,
        UNFINISHED,
        status=TaskResultStatus.RUNNING,
        started_at=record.started_at or now,
        last_attempted_at=now,
        attempts=record.attempts + 1,
        worker_ids=[*record.worker_ids, worker_id],
        message_seq=message_seq,
        sent_at=record.sent_at or now,
    )


def succeed(record: TaskRecord, return_value: Any) -> bool:
    """Note its end; False: another worker has begun it since, whose result counts."""
    return _step(
        record,
        UNFINISHED,
        status=TaskResultStatus.SUCCESSFUL,
        finished_at=timezone.now(),
        return_value=return_value,
    )


def fail(record: TaskRecord, error: type[BaseException], traceback: str) -> bool:
    """Note that it failed, as :func:`succeed`."""
    return _step(
        record,
        UNFINISHED,
        status=TaskResultStatus.FAILED,
        finished_at=timezone.now(),
        errors=[*record.errors, {"exception_class_path": path_of(error), "traceback": traceback}],
    )


def put_back(record: TaskRecord, error: type[BaseException], traceback: str) -> bool:
    """Note that it failed, and is to be tried again."""
    return _step(
        record,
        UNFINISHED,
        status=TaskResultStatus.READY,
        errors=[*record.errors, {"exception_class_path": path_of(error), "traceback": traceback}],
    )


def cancel(record: TaskRecord) -> bool:
    """Note that it never runs; False: it has begun."""
    cancelled = {"exception_class_path": path_of(TaskCancelled), "traceback": "The task was cancelled.\n"}
    return record.attempts == 0 and _step(
        record,
        (TaskResultStatus.READY,),
        status=TaskResultStatus.FAILED,
        finished_at=timezone.now(),
        errors=[cancelled],
    )


def note_sent(task_ids: Sequence[str], sent_at: datetime) -> None:
    """Note that the broker has them."""
    rows().filter(pk__in=task_ids, sent_at=None).update(sent_at=sent_at)


def _step(record: TaskRecord, statuses: Sequence[TaskResultStatus], **changes: Any) -> bool:
    """Change a row that is in one of ``statuses``, and was begun as often as ``record`` says."""
    found = rows().filter(pk=record.pk, status__in=statuses, attempts=record.attempts)
    if not found.update(**changes):
        return False
    for name, value in changes.items():
        setattr(record, name, value)
    return True
