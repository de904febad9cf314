"""``manage.py tarry_worker``: runs the tasks that are due, until SIGTERM or SIGINT."""

from __future__ import annotations

import os
import sys
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import Error as DbError

from tarry.base.errors import TarryError
from tarry.base.logs import log_to_stderr
from tarry.cli.work import RELOAD_DRAIN_S, watch
from tarry.cli.work_process import WorkSettings
from tarry.django import records
from tarry.django.program import CONCURRENCY, WorkerSettings, make_worker
from tarry.worker.worker import DRAIN_S

PROGRAM = "tarry.django.process:worker"


class Command(BaseCommand):  # type: ignore[misc]
    """See the module."""

    help = "Runs the tasks that are due, until SIGTERM or SIGINT; then what runs has --drain-s seconds to end."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Declare the options."""
        parser.add_argument(
            "--queue", action="append", default=[], metavar="NAME", help="Of this queue; repeat for more. All without."
        )
        parser.add_argument("--backend", default="default", metavar="NAME", help="Of TASKS; 'default' without.")
        parser.add_argument(
            "--concurrency", type=int, default=CONCURRENCY, help=f"Tasks at a time in a process; {CONCURRENCY} without."
        )
        parser.add_argument("--processes", type=int, default=1, help="Processes; 1 without.")
        parser.add_argument("--drain-s", type=float, help=f"Seconds for tasks that run at a stop; {DRAIN_S:g} without.")
        parser.add_argument(
            "--health-port", metavar="[HOST:]PORT", help="Serve /healthz, /readyz and /metrics; this machine's alone."
        )
        parser.add_argument("--reload", action="store_true", help="Begin again when a Python file here changes.")

    def handle(self, *args: Any, **options: Any) -> None:
        """Run the processes."""
        settings = WorkerSettings(options["backend"], tuple(options["queue"]), options["concurrency"])
        drain_s, reload = options["drain_s"], options["reload"]
        for name, given, least in (("processes", options["processes"], 1), ("drain-s", drain_s, 0)):
            if given is not None and given < least:
                raise CommandError(f"--{name} is {given}; allowed: {least} or more")
        try:
            make_worker(settings)  # to see what is wrong once, and not in each process
            records.rows().order_by().exists()
        except TarryError as error:
            raise CommandError(str(error)) from error
        except DbError as error:
            raise CommandError(
                f"the table of tasks cannot be read: {str(error).strip()}; is the database there, and has "
                "`manage.py migrate` made the tables?"
            ) from error
        settings.to_environment()
        # Processes begin elsewhere than manage.py, and are to find the same modules.
        os.environ["PYTHONPATH"] = os.pathsep.join(each for each in sys.path if each)
        verbose = options["verbosity"] > 1
        log_to_stderr(verbose=verbose)
        if reload and drain_s is None:
            drain_s = RELOAD_DRAIN_S
        work = WorkSettings(PROGRAM, None, drain_s, verbose)
        if code := watch(work, options["processes"], options["health_port"], reload=reload):
            sys.exit(code)
