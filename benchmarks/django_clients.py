"""Programs of ``benchmarks.django_rate``: ``python -m benchmarks.django_clients enqueue COUNT TOGETHER`` or ``wait``.

``enqueue`` enqueues tasks, so many in a transaction. ``wait`` waits until none is left, and says what came of them.
Both print JSON.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import django

django.setup()

from django.db import transaction  # noqa: E402 - after the setup
from django.db.models import Count, Max, Min  # noqa: E402

from benchmarks.django_project.tasks import say  # noqa: E402
from tarry.django.models import TaskRecord  # noqa: E402

STALL_S = 60.0
"""So long nothing may happen; what is left then is lost."""
LOOK_S = 1.0


def enqueue(count: int, together: int) -> dict[str, Any]:
    began_s, cpu_s = time.perf_counter(), time.process_time()
    for start in range(0, count, together):
        with transaction.atomic():
            for number in range(start, min(start + together, count)):
                say.enqueue(number)
    return {"s": time.perf_counter() - began_s, "cpu_s": time.process_time() - cpu_s}


def wait() -> dict[str, Any]:
    left, changed_s = -1, time.monotonic()
    while now_left := TaskRecord.objects.filter(finished_at=None).count():
        if now_left != left:
            left, changed_s = now_left, time.monotonic()
        if time.monotonic() - changed_s > STALL_S:
            break
        time.sleep(LOOK_S)
    statuses = dict(TaskRecord.objects.order_by().values_list("status").annotate(Count("id")))
    span = TaskRecord.objects.aggregate(first=Min("started_at"), last=Max("finished_at"))
    again = TaskRecord.objects.filter(attempts__gt=1).count()
    return {"statuses": statuses, "s": (span["last"] - span["first"]).total_seconds(), "again": again}


if __name__ == "__main__":
    words = sys.argv[1:]
    print(json.dumps(enqueue(int(words[1]), int(words[2])) if words[0] == "enqueue" else wait()))
