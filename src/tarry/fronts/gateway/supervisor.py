"""Keeps the workers of a gateway running: one that ends is started again, after a pause.

The pause grows while they fail. The listening socket is this process's, and each worker has it, too: so the port stays
the same, and a connection that comes while a worker is missing waits for another one. Each worker also has the end of a
pipe, whose other end is here: when this process is gone, however it ended, its workers end.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from tarry.base.back_off import BackOff
from tarry.base.endpoint import parse_address
from tarry.base.errors import UnavailableError
from tarry.base.supervision import end_of_process, keep_running
from tarry.fronts.kit.listening import listen_on

log = logging.getLogger(__name__)

BACKLOG = 1024
PAUSE_S_MIN, PAUSE_S_MAX = 0.1, 5.0
"""Seconds before a worker is started again: the first pause, doubled up to the second."""
STEADY_S = 10.0
"""A worker that has served for this many seconds started without trouble."""
READY = "serving"
"""First word of the line of JSON that a worker writes to its stdout.

It does so each time that it begins to serve; what it has found follows.
"""


@dataclass(frozen=True, slots=True)
class Start:
    """Arguments of a worker.

    They are its name, the descriptors that it inherits (the listening socket, and the end of the pipe), how often it
    has begun before, and what the worker that served last has found.
    """

    name: str
    listening: int
    alive: int
    restarts: int
    found: list[Any] | None = None


Command = Callable[[Start], Sequence[str]]
"""The command line of a worker."""


@dataclass(slots=True)
class _Worker:
    name: str
    process: subprocess.Popen[bytes] | None = None
    is_serving: bool = False
    restarts: int = 0
    ended: str | None = None
    """The end of its last process."""
    thread: threading.Thread | None = field(default=None, repr=False)


class WorkerSupervisor:
    """Starts and watches the workers, from :meth:`start` on. Any thread."""

    def __init__(self, command: Command, address: str, front: str, workers: int) -> None:
        """Listen on ``address``.

        Raises:
            UnavailableError: ``address`` cannot be listened on.
        """
        self._command = command
        self._host, port = parse_address(address)
        try:
            self._listening = listen_on(self._host, port, backlog=BACKLOG)
        except OSError as error:
            raise UnavailableError(f"cannot listen on {address}: {error.strerror or error}") from error
        self._alive, self._ours = os.pipe()
        self._stopping = threading.Event()
        self._changed = threading.Condition()
        self._found: list[Any] | None = None
        self._workers = [_Worker(f"{front}-{number}") for number in range(1, workers + 1)]

    @property
    def address(self) -> str:
        """The ``HOST:PORT`` it listens on."""
        return f"{self._host}:{self._listening.getsockname()[1]}"

    def start(self) -> None:
        """Start the workers."""
        for worker in self._workers:
            worker.thread = threading.Thread(target=self._keep, args=[worker], name=f"tarry-{worker.name}", daemon=True)
            worker.thread.start()

    def wait_serving(self, timeout_s: float) -> bool:
        """Wait until all workers serve, or one has ended.

        Returns whether all serve.
        """
        with self._changed:
            self._changed.wait_for(
                lambda: all(w.is_serving for w in self._workers) or any(w.ended for w in self._workers), timeout_s
            )
            return all(w.is_serving for w in self._workers)

    def status(self) -> list[dict[str, Any]]:
        """Return each worker's process, how often it began again, and the end of its last process."""
        with self._changed:
            return [
                {
                    "name": worker.name,
                    "pid": None if worker.process is None else worker.process.pid,
                    "state": "serving" if worker.is_serving else "starting",
                    "restarts": worker.restarts,
                    "ended": worker.ended,
                }
                for worker in self._workers
            ]

    def stop(self, grace_s: float = 4.0) -> None:
        """Stop the workers, which have up to ``grace_s`` seconds to finish their work."""
        with self._changed:
            self._stopping.set()
        self._signal(signal.SIGTERM)
        end_s = time.monotonic() + grace_s
        for worker in self._workers:
            if worker.thread is not None:
                worker.thread.join(max(0.0, end_s - time.monotonic()))
        self._signal(signal.SIGKILL)
        for worker in self._workers:
            if worker.thread is not None:
                worker.thread.join()
        self._listening.close()
        os.close(self._alive)
        os.close(self._ours)

    def _signal(self, number: int) -> None:
        with self._changed:
            for worker in self._workers:
                if worker.process is not None:
                    worker.process.send_signal(number)

    def _keep(self, worker: _Worker) -> None:
        back_off = BackOff(PAUSE_S_MIN, PAUSE_S_MAX, STEADY_S)

        def run() -> str | None:
            back_off.begin()
            try:
                return self._watch(worker) if self._begin(worker) else None
            except OSError as error:  # no process, no memory
                return str(error)

        def on_end(ended: str) -> float:
            pause_s = back_off.fail()
            log.warning("worker %s has ended (%s); it begins again in %.1f s", worker.name, ended, pause_s)
            return pause_s

        keep_running(run, on_end, self._stopping)

    def _begin(self, worker: _Worker) -> bool:
        """Start a worker, unless all are to stop; return whether it was started."""
        fds = (self._listening.fileno(), self._alive)
        command = self._command(Start(worker.name, *fds, worker.restarts, self._found))
        with self._changed:
            if self._stopping.is_set():
                return False
            # In a session of its own: a terminal's Ctrl-C is for this process, which stops its workers.
            worker.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, pass_fds=fds, start_new_session=True
            )
        return True

    def _watch(self, worker: _Worker) -> str:
        """Wait for a worker's end, and return a text on it."""
        process = worker.process
        assert process is not None
        assert process.stdout is not None
        with process.stdout as output:
            for line in output:
                if (found := _found_in(line)) is not None:
                    with self._changed:
                        worker.restarts += worker.is_serving  # the process has stayed, and serves for another broker
                        self._found, worker.is_serving = found, True
                        self._changed.notify_all()
        code = process.wait()
        ended = end_of_process(code)
        with self._changed:
            worker.process, worker.is_serving, worker.ended = None, False, ended
            worker.restarts += 1
            self._changed.notify_all()
        return ended


def ready_line(found: Sequence[Any]) -> str:
    """Return the line by which a worker says that it serves."""
    return json.dumps([READY, *found]) + "\n"


def _found_in(line: bytes) -> list[Any] | None:
    """Return what a worker has found, of the line that says that it serves; None of any other."""
    try:
        said = json.loads(line)
    except ValueError:  # a library's
        return None
    return said[1:] if isinstance(said, list) and said[:1] == [READY] else None
