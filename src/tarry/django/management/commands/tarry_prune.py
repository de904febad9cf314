"""``manage.py tarry_prune``: deletes the rows of tasks that were finished long ago."""

from __future__ import annotations

from argparse import ArgumentParser
from datetime import timedelta
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.utils import timezone

from tarry.base.errors import InvalidArgumentError
from tarry.client.delivery import duration_ms
from tarry.django import records
from tarry.django.compat import TaskResultStatus

ROWS_MAX = 1000
"""So many are deleted at a time, so that no table is locked for long."""


class Command(BaseCommand):  # type: ignore[misc]
    """See the module."""

    help = "Deletes tasks that have finished: their results cannot be asked for afterwards."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Declare the options."""
        parser.add_argument("--older-than", default="7d", metavar="DURATION", help="Finished so long ago; 7d without.")
        parser.add_argument("--keep-failed", action="store_true", help="Leave those that failed.")

    def handle(self, *args: Any, **options: Any) -> None:
        """Delete them."""
        try:
            age = timedelta(milliseconds=duration_ms("--older-than", options["older_than"], 0))
        except InvalidArgumentError as error:
            raise CommandError(str(error)) from error
        statuses = [TaskResultStatus.SUCCESSFUL]
        if not options["keep_failed"]:
            statuses.append(TaskResultStatus.FAILED)
        old = records.rows().filter(finished_at__lte=timezone.now() - age, status__in=statuses).order_by()
        deleted = 0
        while ids := list(old.values_list("pk", flat=True)[:ROWS_MAX]):
            records.rows().filter(pk__in=ids).delete()
            deleted += len(ids)
        self.stdout.write(f"{deleted} tasks deleted")
