"""Tasks in Django's admin: to look at, and to cancel."""

from __future__ import annotations

from typing import Any, ClassVar

from django.contrib import admin, messages

from tarry.django.cancelling import cancel
from tarry.django.models import TaskRecord


@admin.register(TaskRecord)
class TaskRecordAdmin(admin.ModelAdmin):  # type: ignore[misc]
    """Rows are what happened, so nobody edits them."""

    list_display: ClassVar = ["id", "task_path", "queue_name", "priority", "status", "run_after", "enqueued_at"]
    list_filter: ClassVar = ["status", "queue_name", "priority"]
    search_fields: ClassVar = ["id", "task_path"]
    actions: ClassVar = ["cancel_tasks"]
    show_full_result_count = False  # of millions of rows, to count them takes longer than the page

    def has_add_permission(self, request: Any) -> bool:
        return False

    def has_change_permission(self, request: Any, obj: Any = None) -> bool:
        return False

    @admin.action(description="Cancel tasks that have not begun", permissions=["delete"])  # type: ignore[untyped-decorator]
    def cancel_tasks(self, request: Any, queryset: Any) -> None:
        cancelled = sum(cancel(record.pk) for record in queryset)
        self.message_user(request, f"{cancelled} tasks were cancelled", messages.SUCCESS)
