"""Keeps the processes of a worker running: one that ends is started again, after a pause.

The pause grows while they fail. Each process has the end of a pipe whose other end is here: when this process is gone,
however it ended, they stop as if told to. By another pipe each reports, a line of JSON at a time.
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
from tarry.base.supervision import end_of_process, keep_running

log = logging.getLogger("tarry.work")

PAUSE_S_MIN, PAUSE_S_MAX = 0.1, 30.0
"""Seconds before a process is started again: the first pause, doubled up to the second."""
STEADY_S = 10.0
"""A process that has run for this many seconds started without trouble."""


@dataclass(frozen=True, slots=True)
class ProcessStart:
    """Arguments of a process: its name, and the descriptors that it inherits."""

    name: str
    alive: int
    """Ends when the supervisor does."""
    report: int
    """Takes its lines."""


Command = Callable[[ProcessStart], Sequence[str]]
"""The command line of a process."""


@dataclass(slots=True)
class ProcessState:
    """One of the processes, as far as it is known."""

    name: str
    process: subprocess.Popen[bytes] | None = None
    report: dict[str, Any] | None = None
    """Its last line; None: it has not begun."""
    reported_s: float = 0.0
    """Time of that, or of the start, monotonic."""
    restarts: int = 0
    code: int | None = None
    """Exit code of the process that ended last."""
    is_replaced: bool = False
    """It was told to end, so that another one begins with newer code."""
    changed: threading.Event = field(default_factory=threading.Event, repr=False)
    """There is newer code than its last process had, or nothing to wait for."""
    thread: threading.Thread | None = field(default=None, repr=False)


class ProcessSupervisor:
    """Starts and watches processes, from :meth:`start` on. Any thread."""

    def __init__(self, command: Command, count: int, on_ended: Callable[[dict[str, Any]], None]) -> None:
        """Watch ``count`` processes.

        Args:
            command: makes a command line.
            count: the number of processes.
            on_ended: takes the last report of a process that has ended.
        """
        self._command, self._on_ended = command, on_ended
        self._alive, self._ours = os.pipe()
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        self._states = [ProcessState(f"worker-{number}") for number in range(1, count + 1)]
        self.failed: int | None = None
        """Exit code of a process that has never begun: what it is to run cannot be run."""
        self.waits_for_change = False
        """Processes that fail wait for :meth:`replace`: somebody is at the code."""

    def start(self) -> None:
        """Start the processes."""
        for state in self._states:
            state.thread = threading.Thread(target=self._keep, args=[state], name=f"tarry-{state.name}", daemon=True)
            state.thread.start()

    def states(self) -> list[ProcessState]:
        """Return what is known of each process."""
        return self._states

    def replace(self) -> None:
        """Have each process end, and begin again at once."""
        with self._lock:
            for state in self._states:
                state.is_replaced = state.process is not None
                state.changed.set()
        self._signal(signal.SIGTERM)

    def stop(self, grace_s: float) -> bool:
        """Stop the processes, which have ``grace_s`` seconds to finish.

        Return whether all ended by themselves.
        """
        self._stopping.set()
        for state in self._states:
            state.changed.set()
        self._signal(signal.SIGTERM)
        end_s = time.monotonic() + grace_s
        for state in self._states:
            if state.thread is not None:
                state.thread.join(max(0.0, end_s - time.monotonic()))
        self._signal(signal.SIGKILL)
        for state in self._states:
            if state.thread is not None:
                state.thread.join()
        os.close(self._alive)
        os.close(self._ours)
        # One that is told to stop before it listens for that is killed by the signal.
        return all(state.code in (None, 0, -signal.SIGTERM) for state in self._states)

    def _signal(self, number: int) -> None:
        with self._lock:
            for state in self._states:
                if state.process is not None:
                    state.process.send_signal(number)

    def _keep(self, state: ProcessState) -> None:
        back_off = BackOff(PAUSE_S_MIN, PAUSE_S_MAX, STEADY_S)

        def run() -> str | None:
            back_off.begin()
            try:
                has_begun = self._run(state)
            except OSError as error:  # no process, no memory
                return str(error)
            if self._stopping.is_set() or state.is_replaced:
                state.is_replaced = False
                return None
            assert state.code is not None
            if self.waits_for_change:
                log.warning("%s has ended (%s); it begins again after a change", state.name, end_of_process(state.code))
                state.changed.wait()
                return None
            if not has_begun and not state.restarts:
                self.failed = self.failed or state.code
                self._stopping.set()
            return end_of_process(state.code)

        def on_end(ended: str) -> float:
            state.restarts += 1
            pause_s = back_off.fail()
            log.warning("%s has ended (%s); it begins again in %.1f s", state.name, ended, pause_s)
            return pause_s

        keep_running(run, on_end, self._stopping)

    def _run(self, state: ProcessState) -> bool:
        """Run a process to its end; return whether it had begun."""
        ours, report = os.pipe()
        try:
            with self._lock:
                if self._stopping.is_set():
                    os.close(ours)
                    return True
                state.report, state.reported_s, state.is_replaced = None, time.monotonic(), False
                state.changed.clear()
                # In a session of its own: a terminal's Ctrl-C is for this process, which stops the others.
                state.process = subprocess.Popen(
                    self._command(ProcessStart(state.name, self._alive, report)),
                    stdin=subprocess.DEVNULL,
                    pass_fds=(self._alive, report),
                    start_new_session=True,
                )
        except OSError:
            os.close(ours)
            raise
        finally:
            os.close(report)
        with os.fdopen(ours, "rb") as lines:
            for line in lines:
                state.report, state.reported_s = json.loads(line), time.monotonic()
        code = state.process.wait()
        with self._lock:
            state.process, state.code = None, code
            last, state.report = state.report, None
            if last is not None:
                self._on_ended(last)
        return last is not None
