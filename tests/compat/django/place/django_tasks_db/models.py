"""The row of a task, as the tests of django-tasks-db ask for it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.db import models
from django.db.models import Q
from django.utils import timezone
from django.utils.crypto import get_random_string

from tarry.django import records
from tarry.django.compat import Task, TaskResult, TaskResultStatus
from tarry.django.models import TaskRecord
from tarry.django.sending import UNSENT_S

get_date_max: Any = None


class Results(models.QuerySet):  # type: ignore[misc]
    """Rows by status; columns have that package's names."""

    def ready(self) -> Any:
        return self.filter(Q(run_after=None) | Q(run_after__lte=timezone.now()), status=TaskResultStatus.READY)

    def successful(self) -> Any:
        return self.filter(status=TaskResultStatus.SUCCESSFUL)

    def failed(self) -> Any:
        return self.filter(status=TaskResultStatus.FAILED)

    def create(self, args_kwargs: Any, backend_name: str, **columns: Any) -> Any:
        """Make a row that nobody has sent, so long ago that a worker sends it."""
        return super().create(
            id=get_random_string(32),
            backend=backend_name,
            queue_name="default",
            status=TaskResultStatus.READY,
            enqueued_at=timezone.now() - timedelta(seconds=2 * UNSENT_S),
            **args_kwargs,
            **columns,
        )

    def update(self, **columns: Any) -> int:
        """Change rows; that package has one column for the times of the first and the last attempt."""
        if "started_at" in columns:
            columns["last_attempted_at"] = columns["started_at"]
        return int(super().update(**columns))


class DBTaskResult(TaskRecord):
    """A task's row."""

    objects = Results.as_manager()

    class Meta:
        proxy = True
        app_label = "tarry_django"

    @property
    def task(self) -> Task:
        return records.task_of(self)

    @property
    def task_result(self) -> TaskResult:
        return records.result_of(self)

    @property
    def traceback(self) -> str:
        return str(self.errors[0]["traceback"])
