"""The table of tasks."""

from __future__ import annotations

from typing import ClassVar

from django.db import migrations, models


class Migration(migrations.Migration):  # type: ignore[misc]
    """See the module."""

    initial = True

    dependencies: ClassVar[list[tuple[str, str]]] = []

    operations: ClassVar = [
        migrations.CreateModel(
            name="TaskRecord",
            fields=[
                ("id", models.CharField(editable=False, max_length=64, primary_key=True, serialize=False)),
                ("backend", models.CharField(max_length=100)),
                ("task_path", models.TextField()),
                ("queue_name", models.CharField(max_length=200)),
                ("priority", models.SmallIntegerField(default=0)),
                ("run_after", models.DateTimeField(null=True)),
                ("args", models.JSONField(default=list)),
                ("kwargs", models.JSONField(default=dict)),
                ("status", models.CharField(max_length=10)),
                ("enqueued_at", models.DateTimeField()),
                ("sent_at", models.DateTimeField(null=True)),
                ("message_seq", models.BigIntegerField(null=True)),
                ("attempts", models.PositiveIntegerField(default=0)),
                ("worker_ids", models.JSONField(default=list)),
                ("started_at", models.DateTimeField(null=True)),
                ("last_attempted_at", models.DateTimeField(null=True)),
                ("finished_at", models.DateTimeField(null=True)),
                ("return_value", models.JSONField(null=True)),
                ("errors", models.JSONField(default=list)),
            ],
            options={
                "verbose_name": "task",
                "ordering": ["-enqueued_at"],
                "indexes": [
                    models.Index(fields=["sent_at", "enqueued_at"], name="tarry_task_sent"),
                    models.Index(fields=["status", "enqueued_at"], name="tarry_task_status"),
                    models.Index(fields=["finished_at"], name="tarry_task_finished"),
                ],
            },
        ),
    ]
