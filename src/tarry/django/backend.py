"""The backend: ``enqueue`` is a row of the database, and a message once that is committed."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from django.apps import apps
from django.core import checks
from django.utils import timezone

from tarry.django.compat import (
    BaseTaskBackend,
    Task,
    TaskResult,
    TaskResultDoesNotExist,
    TaskResultStatus,
    task_enqueued,
)
from tarry.django.options import BackendOptions

if TYPE_CHECKING:
    from tarry.django.models import TaskRecord

# What has to do with the model is imported when it is used: tasks are decorated, and so backends made, before the apps
# are ready.


class TarryBackend(BaseTaskBackend):  # type: ignore[misc]
    """See ``tarry.django``."""

    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = True

    def __init__(self, alias: str, params: Mapping[str, Any]) -> None:
        """Make one of an entry of ``TASKS``. Raises InvalidTaskBackend: an option is not allowed."""
        super().__init__(alias, params)
        self.settings = BackendOptions.of(alias, self.options)

    def enqueue(self, task: Task, args: Sequence[Any], kwargs: Mapping[str, Any]) -> TaskResult:
        """Enqueue a task, as a part of the transaction that is open; a rollback takes it back.

        Raises:
            InvalidTask: the task is not allowed. TypeError: an argument is no JSON.
            TarryError: the broker refuses the task at each try, as one due in more than 40 years. It has failed then.
        """
        self.validate_task(task)
        from tarry.django import records
        from tarry.django.outgoing import send_after_commit
        from tarry.django.sending import broker_of

        record = self._record(task, args, kwargs)
        record.save(force_insert=True, using=records.database())
        result = records.result_of(record, task)
        task_enqueued.send(type(self), task_result=result)
        send_after_commit(broker_of(self.settings), record)
        return result

    def _record(self, task: Task, args: Sequence[Any], kwargs: Mapping[str, Any]) -> TaskRecord:
        from tarry.django.models import TaskRecord

        # As the task will get them: the result normalizes them, and refuses what is no JSON.
        given = TaskResult(
            task=task, id=str(uuid.uuid4()), status=TaskResultStatus.READY, enqueued_at=timezone.now(), started_at=None,
            finished_at=None, last_attempted_at=None, args=list(args), kwargs=dict(kwargs), backend=self.alias,
            errors=[], worker_ids=[],
        )  # fmt: skip
        return TaskRecord(
            id=given.id,
            backend=self.alias,
            task_path=task.module_path,
            queue_name=task.queue_name,
            priority=task.priority,
            run_after=task.run_after,
            args=given.args,
            kwargs=given.kwargs,
            status=given.status,
            enqueued_at=given.enqueued_at,
        )

    def get_result(self, result_id: str) -> TaskResult:
        """Return what is known of a task.

        Raises:
            TaskResultDoesNotExist: nothing is. ImportError: the code has the task no more.
        """
        from tarry.django import records

        record = records.rows().filter(pk=str(result_id), backend=self.alias).first()
        if record is None:
            raise TaskResultDoesNotExist(result_id)
        return records.result_of(record)

    def check(self, **kwargs: Any) -> list[checks.CheckMessage]:
        """Return what is wrong with the project's settings."""
        found = list(super().check(**kwargs))
        if not apps.is_installed("tarry.django"):
            found.append(
                checks.Error(
                    f"TASKS[{self.alias!r}] is Tarry's, whose app is not installed.",
                    hint="Add 'tarry.django' to INSTALLED_APPS, and run manage.py migrate.",
                    id="tarry.E001",
                )
            )
        return found
