"""Django's tasks, wherever they are found.

From Django 6 on they are in Django itself, before in the package django-tasks, with other names of errors.
"""

from __future__ import annotations

from typing import Any

from django.core.exceptions import ImproperlyConfigured

from tarry.base.extras import how_to_install

try:
    from django.tasks import Task, TaskContext, TaskResult, TaskResultStatus, task_backends
    from django.tasks.backends.base import BaseTaskBackend
    from django.tasks.base import TASK_MAX_PRIORITY, TASK_MIN_PRIORITY, TaskError
    from django.tasks.exceptions import InvalidTask, InvalidTaskBackend, TaskResultDoesNotExist
    from django.tasks.signals import task_enqueued, task_finished, task_started
    from django.utils.json import normalize_json
except ModuleNotFoundError as missing:
    if missing.name != "django.tasks":  # Django itself
        raise
    try:
        from django_tasks import TaskContext, TaskResult, TaskResultStatus, task_backends
        from django_tasks.backends.base import BaseTaskBackend
        from django_tasks.base import TASK_MAX_PRIORITY, TASK_MIN_PRIORITY, Task, TaskError
        from django_tasks.exceptions import InvalidTaskBackendError as InvalidTaskBackend
        from django_tasks.exceptions import InvalidTaskError as InvalidTask
        from django_tasks.exceptions import TaskResultDoesNotExist
        from django_tasks.signals import task_enqueued, task_finished, task_started
        from django_tasks.utils import normalize_json
    except ModuleNotFoundError as error:
        raise ImproperlyConfigured(
            f"tarry.django needs Django's tasks: there is no module {error.name!r}; allowed: Django 6, or Django 5.2 "
            f"and the package django-tasks ({how_to_install('django')})"
        ) from error

__all__ = [
    "TASK_MAX_PRIORITY",
    "TASK_MIN_PRIORITY",
    "BaseTaskBackend",
    "InvalidTask",
    "InvalidTaskBackend",
    "Task",
    "TaskContext",
    "TaskError",
    "TaskResult",
    "TaskResultDoesNotExist",
    "TaskResultStatus",
    "backend_of",
    "normalize_json",
    "task_enqueued",
    "task_finished",
    "task_started",
]


def backend_of(alias: str) -> Any:
    """Return the backend that ``TASKS`` has under a name.

    Raises:
        InvalidTaskBackend: there is none, or it cannot be made.
    """
    return task_backends[alias]
