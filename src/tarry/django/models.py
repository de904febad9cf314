"""The row of a task: what was asked for, and what came of it."""

from __future__ import annotations

from typing import ClassVar

from django.db import models

ID_CHARS_MAX = 64


class TaskRecord(models.Model):  # type: ignore[misc]
    """A task that was enqueued. Its status is one of Django's ``TaskResultStatus``."""

    id = models.CharField(max_length=ID_CHARS_MAX, primary_key=True, editable=False)
    backend = models.CharField(max_length=100)
    task_path = models.TextField()
    queue_name = models.CharField(max_length=200)
    priority = models.SmallIntegerField(default=0)
    run_after = models.DateTimeField(null=True)
    args = models.JSONField(default=list)
    kwargs = models.JSONField(default=dict)
    status = models.CharField(max_length=10)
    enqueued_at = models.DateTimeField()
    sent_at = models.DateTimeField(null=True)
    """The time at which the broker had it. None: not yet, and a worker sends it."""
    message_seq = models.BigIntegerField(null=True)
    """The message by which it was begun: another one of the same task is a double."""
    attempts = models.PositiveIntegerField(default=0)
    worker_ids = models.JSONField(default=list)
    started_at = models.DateTimeField(null=True)
    last_attempted_at = models.DateTimeField(null=True)
    finished_at = models.DateTimeField(null=True)
    return_value = models.JSONField(null=True)
    errors = models.JSONField(default=list)
    """Of each failed attempt ``{"exception_class_path", "traceback"}``."""

    class Meta:
        verbose_name = "task"
        ordering: ClassVar = ["-enqueued_at"]
        indexes: ClassVar = [
            # Workers look for what was not sent, and people for what failed, among very many that are neither.
            models.Index(fields=["sent_at", "enqueued_at"], name="tarry_task_sent"),
            models.Index(fields=["status", "enqueued_at"], name="tarry_task_status"),
            models.Index(fields=["finished_at"], name="tarry_task_finished"),
        ]

    def __str__(self) -> str:
        return f"{self.task_path} {self.id}"
