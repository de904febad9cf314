"""``db_worker --batch`` of django-tasks-db, by Tarry's worker."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand
from suite.working import work


class Command(BaseCommand):  # type: ignore[misc]
    """See the module."""

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Declare the options that the tests set."""
        parser.add_argument("--queue-name", default="default")
        parser.add_argument("--backend", dest="backend_name", default="default")
        parser.add_argument("--worker-id")
        parser.add_argument("--interval", type=float)
        parser.add_argument("--batch", action="store_true")
        parser.add_argument("--no-startup-delay", action="store_false", dest="startup_delay")

    def handle(self, *args: Any, **options: Any) -> None:
        """Run what is due."""
        queues = ["default", "queue-1"] if options["queue_name"] == "*" else [options["queue_name"]]
        work(options["backend_name"], queues)
