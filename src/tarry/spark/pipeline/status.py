"""The status of a job of the pipeline, sent to the broker, which shows it. A failure to send it is no failure."""

from __future__ import annotations

import logging
import os
import threading
from typing import Any

from tarry.base.clock import SystemClock
from tarry.base.errors import TarryError
from tarry.spark.broker_client import BrokerClient

log = logging.getLogger(__name__)


class Reporter:
    """Keeps a status and sends it. Thread-safe.

    Keys: ``state`` (starting, idle, running, failed, stopping), ``pid``, ``started_ms``, ``reported_ms``, ``error``
    (None or a text), and ``more``. The status of a ``part`` is shown beside that of the job, under the part's name.
    """

    def __init__(self, client: BrokerClient, part: str | None = None, **more: Any) -> None:
        self._client, self._part = client, part
        self._clock = SystemClock()
        self._lock = threading.Lock()
        started_ms = self._clock.now_ms()
        self._status = {"state": "starting", "pid": os.getpid(), "started_ms": started_ms, "error": None, **more}

    @classmethod
    def of_job(cls, client: BrokerClient, job: str) -> Reporter:
        """For a job that moves batches: with ``job``, ``committed_seq``, ``batches`` (how many) and ``last_batch``
        (None, or what ``schedule.py`` tells of it).
        """
        return cls(client, job=job, committed_seq=None, batches=0, last_batch=None)

    def update(self, **changes: Any) -> None:
        """Change some keys and send all."""
        with self._lock:
            self._status.update(changes)
        self.send()

    def send(self) -> None:
        """Send all: also now and then without a change, for a broker that has restarted."""
        with self._lock:
            status = self._status | {"reported_ms": self._clock.now_ms()}
        try:
            self._client.report(status if self._part is None else {self._part: status})
        except TarryError as error:
            log.debug("the status could not be sent: %s", error)
