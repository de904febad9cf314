"""A Celery project on SQS: the broker is ``sqs://``, and where it is, AWS_ENDPOINT_URL_SQS says."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from celery import Celery

PLACE = Path(os.environ.get("COMPAT_CELERY_PLACE", "."))
VISIBILITY_S = 4
app = Celery("compat", broker="sqs://")
app.conf.update(
    broker_transport_options={
        "region": "us-east-1",
        "visibility_timeout": VISIBILITY_S,
        "wait_time_seconds": 1,
        "polling_interval": 0.1,
    },
    task_default_queue="celery-slow",
    task_routes={"fast": {"queue": "celery-fast"}},
    task_acks_late=True,
    worker_prefetch_multiplier=1,
    worker_enable_remote_control=False,
    worker_send_task_events=False,
    broker_connection_retry_on_startup=True,
)


def note(text: str) -> None:
    """Write a line that the program looks for."""
    with (PLACE / "done").open("a") as file:
        file.write(f"{text} {time.time()}\n")


@app.task(name="slow")
def slow(number: int) -> None:
    note(f"slow-{number}")


@app.task(name="fast")
def fast(number: int) -> None:
    note(f"fast-{number}")


@app.task(name="retried", bind=True, max_retries=3)
def retried(self: Any) -> None:
    note(f"retried-{self.request.retries}")
    if self.request.retries < 2:
        raise self.retry(countdown=1)


@app.task(name="killed", reject_on_worker_lost=False)
def killed() -> None:
    """The first time, it kills its worker; the message comes again after its visibility time-out."""
    first = not (PLACE / "killed").exists()
    (PLACE / "killed").touch()
    note("killed-first" if first else "killed-again")
    if first:
        os.killpg(os.getpgid(0), 9)
