"""Suites of others for task backends: where Tarry's differs from what they test, and why.

Whatever is not listed here passes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class Suite(NamedTuple):
    """A distribution's tests."""

    distribution: str
    """With its version, which may be ``{django}``: that of the Django that is there."""
    needs: str
    """A module that the project's Python must have."""
    copied: Mapping[str, tuple[str, str]]
    """Files of the distribution, with the folders and names that they get."""
    labels: tuple[str, ...]
    """Of the tests that are run."""
    replaced: Mapping[str, tuple[str, str]]
    """Texts in the files, with what is put in their place, and why."""
    differences: Mapping[str, str]
    """Tests that fail, and why."""
    left_out: Mapping[str, str]
    """Tests, or classes of tests, that are not run, and why."""


_FILES_OF_DJANGO = ("tasks", "test_tasks", "test_dummy_backend", "test_immediate_backend", "test_custom_backend")
_REPLACED_OF_DJANGO: Mapping[str, tuple[str, str]] = {
    "django.tasks.backends.dummy": ("suite.backends", "Tarry's backend is tested"),
    "django.tasks.backends.immediate": ("suite.backends", "Tarry's backend is tested"),
    "SimpleTestCase": ("TransactionTestCase", "a task is a row of the database"),
    "available_apps = []": ("available_apps = None", "the row's app is needed"),
    'object.__setattr__(enqueued_result, "status", TaskResultStatus.SUCCESSFUL)': (
        "default_task_backend.set_status(TaskResultStatus.SUCCESSFUL)",
        "the dummy's results are objects in memory, of which a test changes one",
    ),
}

_IMMEDIATE = "ImmediateBackendTestCase"
_RESULTS = "Results cannot be asked for: ImmediateBackend keeps none, Tarry's has each."
_DIFFERENCES_OF_DJANGO: Mapping[str, str] = {
    f"{_IMMEDIATE}.test_cannot_get_result": _RESULTS,
    f"{_IMMEDIATE}.test_cannot_refresh_result": _RESULTS,
    f"{_IMMEDIATE}.test_cannot_pass_run_after": "`run_after` is refused: ImmediateBackend has none, Tarry's has.",
    f"{_IMMEDIATE}.test_throws_keyboard_interrupt": (
        "KeyboardInterrupt ends who enqueues, at whose terminal the task runs. In a worker, the task has failed."
    ),
}
_LEFT_OUT_OF_DJANGO: Mapping[str, str] = {
    "ImmediateBackendTransactionTestCase": (
        "A task runs within the transaction that enqueues it. With Tarry, a worker has it after the commit."
    ),
}

_SENT = "The row is written, and then that it was sent."
_REPLACED_OF_TASKS_DB: Mapping[str, tuple[str, str]] = {
    "from tests import tasks as": ("from suite import tasks as", "its tasks are not in the distribution"),
    '"tests.tasks.': ('"suite.tasks.', "its tasks are not in the distribution"),
    "self.assertNumQueries(1):\n                with self._capture_task_enqueued_signal()": (
        "self.assertNumQueries(2):\n                with self._capture_task_enqueued_signal()",
        _SENT,
    ),
    "self.assertNumQueries(1):\n            result = default_task_backend.enqueue(": (
        "self.assertNumQueries(2):\n            result = default_task_backend.enqueue(",
        _SENT,
    ),
    'self.assertIn("django_tasks_db", errors[0].hint)': (
        'self.assertIn("tarry.django", errors[0].hint)',
        "The app that is to be installed.",
    ),
    'f"Task {db_task_result.id} does not point to a Task ({db_task_result.task_path})"': (
        'f"{db_task_result.task_path} is no task of Django\'s, as task {db_task_result.id} says"',
        "The words of the error, which is of the same class.",
    ),
    'assertIn("is not JSON serializable", ': (
        'assertIn("Unsupported type: ", ',
        "The words of Django's `normalize_json`, which refuses the value; theirs is refused by the column.",
    ),
    **{
        f'self.assertNumQueries({mysql} if connection.vendor == "mysql" else {others})': (
            "self.subTest()",
            "Queries of its worker, in the test's connection. Tarry's worker has connections of its own.",
        )
        for mysql, others in ((10, 8), (28, 23), (4, 3))
    },
}
_DIFFERENCES_OF_TASKS_DB: Mapping[str, str] = {}
_COMMAND = "Tarry's worker has a command of its own, with other options and texts."
_LEFT_OUT_OF_TASKS_DB: Mapping[str, str] = {
    "DatabaseTaskResultTestCase": "Locks of rows, by which its workers share a table. Tarry has leases of the broker.",
    "ConnectionExclusiveTranscationTestCase": "A helper of those locks.",
    "DatabaseBackendPruneTaskResultsTestCase": "Options of its command; `tarry_prune` has others.",
    "DatabaseWorkerProcessTestCase": "Options of its command; `tarry_worker` has others, and tests of its own.",
    "CompatTestCase": "Names within that package.",
    "DBTaskResultOrderingTestCase": "The order of its table, in which its workers look for tasks.",
    "AdminTestCase": "Its page in the admin.",
    "DatabaseBackendTestCase.test_priority_range_check": "A constraint of its table.",
    "DatabaseBackendTestCase.test_index_scan_for_ready": "An index of its table.",
    "DatabaseBackendTestCase.test_run_after_null_0016_migration": "A migration of its table.",
    "DatabaseBackendTestCase.test_task_name": "A property of its table's rows.",
    "DatabaseBackendTestCase.test_custom_id_function": "An option of its own.",
    "DatabaseBackendTestCase.test_unknown_id_function": "The same option.",
    "DatabaseBackendTestCase.test_postgres_db_id_function": "The same option.",
    "DatabaseBackendTestCase.test_postgres_id_function_expression": "The same option.",
    "DatabaseBackendWorkerTestCase.test_run_after_priority": "The order of its table.",
    "DatabaseBackendWorkerTestCase.test_run_after": "Makes a task due by changing its row, which no worker looks at.",
    "DatabaseBackendWorkerTestCase.test_worker_with_locked_rows": "Locks of rows.",
    **{
        f"DatabaseBackendWorkerTestCase.test_{name}": _COMMAND
        for name in (
            "process_all_queues_excluding_one_queue",
            "exclude_queues_requires_processing_all_queues",
            "excluding_unknown_queue_processes_selected_queues",
            "doesnt_process_different_backend",
            "unknown_backend",
            "incorrect_backend",
            "negative_interval",
            "infinite_interval",
            "fractional_interval",
            "zero_interval",
            "negative_max_tasks",
            "zero_max_tasks",
            "too_long_worker_id",
            "empty_worker_id",
            "verbose_logging",
            "max_tasks",
        )
    },
}

SUITES: Mapping[str, Suite] = {
    "django": Suite(
        distribution="django=={django}",
        needs="django.tasks",
        copied={f"tests/tasks/{name}.py": ("tasks", f"{name}.py") for name in _FILES_OF_DJANGO},
        labels=("tasks",),
        replaced=_REPLACED_OF_DJANGO,
        differences=_DIFFERENCES_OF_DJANGO,
        left_out=_LEFT_OUT_OF_DJANGO,
    ),
    "tasks-db": Suite(
        distribution="django-tasks-db==0.13.0",
        needs="django",
        copied={"tests/tests.py": ("db", "test_db.py")},
        labels=("db",),
        replaced=_REPLACED_OF_TASKS_DB,
        differences=_DIFFERENCES_OF_TASKS_DB,
        left_out=_LEFT_OUT_OF_TASKS_DB,
    ),
}
