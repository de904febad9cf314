"""The process of a job: waits for its broker, reports to it, and ends with all that it has started.

It ends on a signal or with its parent.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tarry.base.clock import SystemClock
from tarry.base.errors import NotFoundError, OwnershipLostError, TarryError, UnavailableError
from tarry.base.logs import log_to_stderr
from tarry.base.stop_signals import StopSignals
from tarry.spark.broker_client import BrokerClient, IntakeState
from tarry.spark.runtime import conf
from tarry.spark.runtime.failures import one_line
from tarry.spark.runtime.process import follow_parent, kill_session
from tarry.spark.runtime.session import end_jvm

log = logging.getLogger(__name__)

EXIT_NOT_INSTALLED = 78
"""sysexits' EX_CONFIG: trying again soon will not help."""

EXIT_OWNERSHIP_LOST = 10
"""The job's owner was taken over, and so has ended; the same as a broker's own (``tarry.cli.exits``)."""

BROKER_WAIT_S = 30.0
STOP_WAIT_S = 15.0
SIGNAL_WAIT_S = 3600.0


class Reporter:
    """Keeps a job's status and sends it to the broker. Thread-safe.

    The broker shows it. A failure to send it is ignored.

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
        """Return the reporter of a job that moves batches.

        Its status has ``job``, ``committed_seq``, ``batches`` (a count) and ``last_batch`` (None, or a summary by
        ``schedule.py``), too.
        """
        return cls(client, job=job, committed_seq=None, batches=0, last_batch=None)

    def update(self, **changes: Any) -> None:
        """Change some keys and send all."""
        with self._lock:
            self._status.update(changes)
        self.send()

    def send(self) -> None:
        """Send all keys; called now and then without a change, too, for a broker that has restarted."""
        with self._lock:
            status = self._status | {"reported_ms": self._clock.now_ms()}
        try:
            self._client.report(status if self._part is None else {self._part: status})
        except TarryError as error:
            log.debug("the status could not be sent: %s", error)


def run_job(run: Callable[[threading.Event], None], parent_pid: int | None) -> int:
    """Run a job until it ends by itself, or SIGTERM, SIGINT or the parent's end set the event.

    Then end this process, with exit code 0, 1 after a failure, or :data:`EXIT_OWNERSHIP_LOST`.
    """
    log_to_stderr()
    logging.getLogger("py4j").setLevel(logging.WARNING)
    stop = threading.Event()

    def stop_soon() -> None:
        stop.set()
        # Spark may be starting, or a task may hang: waiting has a limit.
        time.sleep(STOP_WAIT_S)
        _end_now(1)

    # A supervisor's signal may follow that of the parent's end.
    with StopSignals(patient=True) as signals:

        def stop_on_signal() -> None:
            while not signals.wait(SIGNAL_WAIT_S):
                pass
            stop_soon()

        threading.Thread(target=stop_on_signal, name="tarry-stop", daemon=True).start()
        if parent_pid is not None:
            follow_parent(parent_pid, stop_soon)
        code = _run(run, stop)
        _end_now(code)
    return code


def _run(run: Callable[[threading.Event], None], stop: threading.Event) -> int:
    """Run the job and return the exit code."""
    try:
        run(stop)
    except NotFoundError as error:
        log.error("%s", error)
        return EXIT_NOT_INSTALLED
    except OwnershipLostError as error:
        log.error("%s", error)
        return EXIT_OWNERSHIP_LOST
    except Exception as error:  # noqa: BLE001 - the last handler: any error goes to the log and the exit code
        if not stop.is_set():  # a query that is being stopped may fail on the way
            log.error("%s", error)
            log.error("%s: %s", type(error).__name__, one_line(error))
        return 0 if stop.is_set() else 1
    return 0


def job_parser(module: str, description: str, *, masters: str = "") -> argparse.ArgumentParser:
    """Return a command-line parser with the options of every job.

    ``masters``: other values than Spark's masters that the job allows.
    """
    parser = argparse.ArgumentParser(prog=f"python -m {module}", description=description)
    parser.add_argument("--flight", required=True, metavar="HOST:PORT", help="native port of the broker")
    parser.add_argument("--store", metavar="URI", help="the store, where it is not what the broker says")
    parser.add_argument("--master", default="local[*]", help=f"Spark master{masters} (default: %(default)s)")
    parser.add_argument("--memory", default="1g", help="memory of the driver's JVM (default: %(default)s)")
    conf.add_options(parser)
    parser.add_argument("--token-fd", type=int, metavar="FD", help="read the token for the broker there; it is closed")
    parser.add_argument("--parent-pid", type=int, metavar="PID", help="stop when this process has ended")
    return parser


def given_token(descriptor: int | None) -> str | None:
    """Return the token in the pipe of a descriptor; None: this job has to find one by itself.

    It comes by a pipe since each user of the machine can read a command line, and a process's children its environment.
    """
    if descriptor is None:
        return None
    with os.fdopen(descriptor) as pipe:
        return pipe.read().strip() or None


def wait_for_broker(client: BrokerClient, stop: threading.Event) -> IntakeState | None:
    """Return the broker's first answer; None if ``stop`` is set before.

    The client works for that owner from now on.

    Raises:
        UnavailableError: it cannot be reached for :data:`BROKER_WAIT_S`.
    """
    deadline = time.monotonic() + BROKER_WAIT_S
    while not stop.is_set():
        try:
            return client.join()
        except UnavailableError:
            if time.monotonic() >= deadline:
                raise
            stop.wait(0.2)
    return None


def _end_now(code: int) -> None:
    """End this process and all that it started."""
    logging.shutdown()
    # The last line is the reason. Threads that lose their JVM now would add tracebacks behind it.
    with Path(os.devnull).open("w") as nowhere:
        os.dup2(nowhere.fileno(), sys.stderr.fileno())
    if os.getsid(0) == os.getpid():
        kill_session(os.getpid(), spare_self=True)
    else:
        end_jvm()  # started from somebody's shell: the session is not ours to end
    os._exit(code)
