"""The project's worker in this process, for as long as there are tasks that are due."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Sequence

from django.db.models import Q
from django.utils import timezone

from tarry.django import records
from tarry.django.program import WorkerSettings, make_worker

WORK_S_MAX = 60.0
LOOK_S = 0.02
IDLE_S = 0.3
"""So long a worker runs at least: it is to have the chance to take what it must not."""


def work(backend: str, queues: Sequence[str]) -> None:
    """Run a worker until no task of its queues is due."""
    worker = make_worker(WorkerSettings(backend, tuple(queues), concurrency=2))
    thread = threading.Thread(target=lambda: asyncio.run(worker.serve()))
    thread.start()
    begun_s = time.monotonic()
    try:
        while _is_work_left(queues) or time.monotonic() < begun_s + IDLE_S:
            assert time.monotonic() < begun_s + WORK_S_MAX, "tasks are left"
            time.sleep(LOOK_S)
    finally:
        worker.stop()
        thread.join()


def _is_work_left(queues: Sequence[str]) -> bool:
    is_due = Q(run_after=None) | Q(run_after__lte=timezone.now())
    return bool(records.rows().filter(is_due, status__in=records.UNFINISHED, queue_name__in=queues).exists())
