"""A message of a task, in a worker's thread.

The row says whether the task is to run, and then what came of it.

The end of a task is in the database before its message is acknowledged. So a message that comes again, because its
acknowledgement was lost, finds a finished task and is dropped; and a task whose worker was killed is begun again.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from traceback import format_exception
from typing import Any

from django.db import Error as DbError
from django.db import close_old_connections, connections

from tarry.django import records
from tarry.django.compat import (
    Task,
    TaskContext,
    TaskResultStatus,
    normalize_json,
    task_finished,
    task_started,
)
from tarry.django.errors import WorkerLost
from tarry.django.models import TaskRecord
from tarry.worker import Retry

log = logging.getLogger(__name__)

SAVE_AGAIN_S = (0.1, 0.5, 2.0, 5.0)
"""Pauses before the end of a task is written again: to run it once more would be worse than to wait."""


@dataclass(frozen=True, slots=True)
class Executor:
    """Runs tasks in this process. Any thread."""

    worker_id: str
    attempts_max: int
    backend_class: type
    """The sender of signals."""

    def handle(self, task_id: str, message_seq: int, message_attempt: int) -> None:
        """Do what a message asks for.

        Raises:
            Retry: the message is to come again.
            django.db.Error: the database is away, so it comes again.
        """
        close_old_connections()  # as for a request: one that the database has closed is of no use
        try:
            self._handle(task_id, message_seq, message_attempt)
        finally:
            close_old_connections()

    def _handle(self, task_id: str, message_seq: int, message_attempt: int) -> None:
        record = records.rows().filter(pk=task_id).first()
        if record is None:
            raise Retry(f"this project's database has no task {task_id}; another project's needs another prefix")
        if record.status not in records.UNFINISHED:
            log.debug("task %s is %s already", task_id, record.status)
            return
        if record.status == TaskResultStatus.RUNNING and record.message_seq != message_seq:
            log.debug("task %s was begun by another message", task_id)
            return
        try:
            task = records.task_of(record)
        except DbError:
            raise
        except BaseException as error:
            if message_attempt < self.attempts_max:  # newer code may be on its way to this worker
                raise Retry(f"{type(error).__name__}: {error}") from error
            log.error("task %s has failed: %s", task_id, error)
            records.fail(record, type(error), _text(error))
            return
        if record.attempts >= self.attempts_max:
            text = f"{record.attempts} workers ended while they ran the task: {', '.join(record.worker_ids)}\n"
            if records.fail(record, WorkerLost, text):
                task_finished.send(self.backend_class, task_result=records.result_of(record, task))
        elif records.begin(record, self.worker_id, message_seq):
            self._run(record, task)
        else:  # it was cancelled meanwhile, or is somebody else's
            self._handle(task_id, message_seq, message_attempt)

    def _run(self, record: TaskRecord, task: Task) -> None:
        result = records.result_of(record, task)
        task_started.send(self.backend_class, task_result=result)
        try:
            context = (TaskContext(task_result=result),) if task.takes_context else ()
            value = normalize_json(task.call(*context, *result.args, **result.kwargs))
        except Retry as error:
            if record.attempts < self.attempts_max:
                _save(records.put_back, record, type(error), _text(error))
                raise
            self._fail(record, task, error)
        except BaseException as error:  # noqa: BLE001 - a task that ends its thread has failed, and no more
            self._fail(record, task, error)
        else:
            if _save(records.succeed, record, value):
                task_finished.send(self.backend_class, task_result=records.result_of(record, task))

    def _fail(self, record: TaskRecord, task: Task, error: BaseException) -> None:
        if _save(records.fail, record, type(error), _text(error)):
            # Within the handling of the exception, as Django does: its log shows it.
            task_finished.send(self.backend_class, task_result=records.result_of(record, task))


def _text(error: BaseException) -> str:
    return "".join(format_exception(error))


def _save(step: Callable[..., bool], record: TaskRecord, *args: Any) -> bool:
    """Write the end of a task, in some tries; return whether it counts.

    Raises django.db.Error: it cannot be written.
    """
    for pause_s in (*SAVE_AGAIN_S, None):
        try:
            is_saved = step(record, *args)
        except DbError as error:
            if pause_s is None:
                raise
            log.warning("the end of task %s is written again in %g s: %s", record.id, pause_s, error)
            time.sleep(pause_s)
            # Not one that the task left within a failed transaction, or that the database has closed.
            connections[records.database()].close()
        else:
            if not is_saved:
                log.warning("task %s was begun by another worker meanwhile: its result is that one's", record.id)
            return is_saved
    raise AssertionError("it is returned or raised above")
