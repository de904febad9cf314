"""How a job is, told to the broker, which shows it. Telling is never worth failing for."""

from __future__ import annotations

import logging
import os
import threading
from typing import Any

from tarry.base.clock import SystemClock
from tarry.base.errors import TarryError
from tarry.spark.pipeline.intake_client import IntakeClient

log = logging.getLogger(__name__)


class PartReporter:
    """Keeps the status of a part of the pipeline, shown beside the job's own under the part's name. Thread-safe.

    Keys: ``state``, ``pid``, ``started_ms``, ``reported_ms``, ``error`` (None or a text), and what the part adds.
    """

    def __init__(self, client: IntakeClient, part: str) -> None:
        self._client, self._part = client, part
        self._clock = SystemClock()
        self._lock = threading.Lock()
        self._status: dict[str, Any] = {
            "state": "starting",
            "pid": os.getpid(),
            "started_ms": self._clock.now_ms(),
            "error": None,
        }

    def update(self, **changes: Any) -> None:
        """Change some keys and send all."""
        with self._lock:
            self._status.update(changes)
            status = self._status | {"reported_ms": self._clock.now_ms()}
        try:
            self._client.report({self._part: status})
        except TarryError as error:
            log.debug("the status could not be sent: %s", error)


class Reporter:
    """Keeps the status of one job and sends it. Thread-safe.

    Keys: ``job``, ``state`` (starting, idle, running, failed, stopping), ``pid``, ``started_ms``, ``reported_ms``,
    ``committed_seq``, ``batches``, ``last_batch`` (None, or what ``schedule.py`` says of a batch) and ``error`` (None
    or a text).
    """

    def __init__(self, client: IntakeClient, job: str) -> None:
        self._client = client
        self._clock = SystemClock()
        self._lock = threading.Lock()
        self._status: dict[str, Any] = {
            "job": job,
            "state": "starting",
            "pid": os.getpid(),
            "started_ms": self._clock.now_ms(),
            "committed_seq": None,
            "batches": 0,
            "last_batch": None,
            "error": None,
        }

    def update(self, **changes: Any) -> None:
        """Change some keys and send all."""
        with self._lock:
            self._status.update(changes)
        self.send()

    def batch_done(self, batch: dict[str, Any]) -> None:
        """Another batch is in the store."""
        with self._lock:
            batches = self._status["batches"] + 1
        self.update(state="idle", batches=batches, last_batch=batch, committed_seq=batch["end_seq"], error=None)

    def send(self) -> None:
        """Send what there is: also now and then, for a broker that has restarted."""
        with self._lock:
            status = self._status | {"reported_ms": self._clock.now_ms()}
        try:
            self._client.report(status)
        except TarryError as error:
            log.debug("the status could not be sent: %s", error)
