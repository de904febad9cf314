"""A lock for one job at a time on a checkpoint, and on the directory of Spark's files beside it.

A job whose broker was killed comes to an end within ``STOP_WAIT_S`` (``pipeline/job.py``), and the one of the next
broker waits for that: otherwise it would remove the former one's files, and both would plan batches by one checkpoint.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tarry.base.errors import LockedError
from tarry.base.lock_file import LockFile

log = logging.getLogger(__name__)

FORMER_WAIT_S = 25.0
LOOK_S = 0.05


@contextmanager
def sole_user(checkpoint: Path, stop: threading.Event, *, wait_s: float = FORMER_WAIT_S) -> Iterator[None]:
    """Hold ``checkpoint`` for this process alone.

    Waits up to ``wait_s`` seconds for a former job to end.

    Raises:
        LockedError: it is still held, or was when ``stop`` was set.
    """
    lock = _taken(checkpoint, stop, time.monotonic() + wait_s)
    try:
        yield
    finally:
        lock.release()


def _taken(checkpoint: Path, stop: threading.Event, until_s: float) -> LockFile:
    checkpoint.parent.mkdir(parents=True, exist_ok=True)
    path = checkpoint.with_name(f".{checkpoint.name}.lock")
    waited = False
    while True:
        try:
            return LockFile(path, held=checkpoint, user="job")
        except LockedError as error:
            if time.monotonic() >= until_s or stop.wait(LOOK_S):
                raise
            if not waited:
                log.info("waiting: %s", error)
                waited = True
