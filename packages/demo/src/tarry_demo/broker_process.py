"""The broker as a child process, ``tarry serve``, with its Spark pipeline: start, kill, restart, stop.

It leads a session of its own, so that a Ctrl-C in the terminal reaches the demo alone, which then ends everything in
order. The pipeline leads another one; after a kill the processes of both are found by their session ids.
"""

from __future__ import annotations

import os
import re
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path

from tarry.base.errors import TarryError, UnavailableError
from tarry.spark.runtime.process import kill_session, session_members

READY_S = 60.0
STOP_S = 30.0
EXIT_S = 30.0
"""Seconds that a killed broker's processes may take to end by themselves."""

_READY = re.compile(r"tarry \S+ serving flight on (\S+),.* data .*\n")
_KIB = 1024


class BrokerProcess:
    """The broker of one data directory.

    The address stays the same over a restart; close it, or use a ``with`` block.
    """

    MODULE = "tarry"
    """The module that is run: tests have one that fails on purpose."""

    def __init__(
        self,
        data: Path,
        log: Path,
        settings: Mapping[str, str | int],
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """Make a broker. ``environment``: variables beside those of this process."""
        self.data = data
        self.log = log
        self.address = "127.0.0.1:0"
        self._environment = dict(environment or {})
        self._settings = dict(settings)
        self._process: subprocess.Popen[str] | None = None
        self._sessions: set[int] = set()
        self._former: set[int] = set()

    @property
    def pid(self) -> int | None:
        """The id of the running process."""
        return None if self._process is None else self._process.pid

    @property
    def sessions(self) -> set[int]:
        """The sessions of the running process, and of its pipelines so far; each by its leader."""
        return set(self._sessions)

    def start(self) -> None:
        """Start the broker, and wait until it serves.

        Raises:
            UnavailableError: it does not; with the last line of its log.
        """
        command = [sys.executable, "-m", self.MODULE, "serve", "--data", str(self.data), "--flight", self.address]
        for name, value in self._settings.items():
            command += ["--set", f"{name}={value}"]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("TARRY_")}
        environment |= self._environment
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                command,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
            )
        self._sessions.add(self._process.pid)
        self.address = self._wait_ready()

    def add_pipeline(self, pid: int) -> None:
        """Add the pipeline's process, which leads a session: it must end when this broker ends."""
        self._sessions.add(pid)

    def kill(self) -> None:
        """Kill the broker (SIGKILL).

        The processes of :attr:`sessions` before the call have to end by themselves now.
        """
        assert self._process is not None
        self._process.kill()
        self._process.communicate()
        self._process = None
        self._former |= self._sessions
        self._sessions = set()

    def end_former(self, sessions: set[int]) -> None:
        """Kill (SIGKILL) the rest of a killed broker's sessions.

        Then :meth:`close` need not look for them.
        """
        for session in sessions & self._former:
            kill_session(session)
        self._former -= sessions

    def stop(self) -> int:
        """Stop the broker (SIGTERM), and wait for a clean end; return its exit code."""
        assert self._process is not None
        self._process.terminate()
        try:
            self._process.communicate(timeout=STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.communicate()
        code, self._process = self._process.returncode, None
        return code

    def died(self) -> int | None:
        """Return the exit code if the broker ended without being asked to."""
        return None if self._process is None else self._process.poll()

    def close(self) -> None:
        """End all its processes, by SIGTERM if that works."""
        if self._process is not None:
            self.stop()
        for session in self._sessions | self._former:
            kill_session(session)
        self._sessions.clear()
        self._former.clear()

    def __enter__(self) -> BrokerProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _wait_ready(self) -> str:
        assert self._process is not None
        assert self._process.stdout is not None
        if not select.select([self._process.stdout], [], [], READY_S)[0]:
            raise UnavailableError(f"the broker did not serve within {READY_S:g} s; its log: {self.log}")
        line = self._process.stdout.readline()
        ready = _READY.fullmatch(line)
        if ready is None:
            code = self._process.wait(STOP_S) if not line else None
            raise TarryError(f"the broker did not start (exit code {code}): {line.strip() or last_line(self.log)}")
        return ready[1]


class ExitWatch:
    """A thread that measures how long the processes of a killed broker live on."""

    def __init__(self, broker: BrokerProcess, sessions: set[int]) -> None:
        self._broker = broker
        self._sessions = sessions
        self._result: tuple[float, list[int]] = (0.0, [])
        self._thread = threading.Thread(target=self._run, name="demo-exit-watch", daemon=True)
        self._thread.start()

    def result(self) -> tuple[float, list[int]]:
        """Return the seconds until they had ended, and the processes that had to be killed after all."""
        self._thread.join()
        return self._result

    def _run(self) -> None:
        self._result = wait_for_exit(self._sessions, EXIT_S)
        self._broker.end_former(self._sessions)


def living_processes(sessions: set[int]) -> list[int]:
    """Return the processes of these sessions that are still alive."""
    return [pid for session in sessions for pid in session_members(session)]


def wait_for_exit(sessions: set[int], timeout_s: float) -> tuple[float, list[int]]:
    """Wait until these sessions have ended.

    Returns the seconds that took, and the processes that still live.
    """
    started = time.monotonic()
    while True:
        left = living_processes(sessions)
        waited_s = time.monotonic() - started
        if not left or waited_s > timeout_s:
            return waited_s, left
        time.sleep(0.05)


def memory_bytes(pids: list[int]) -> int:
    """Return the resident memory of those of these processes that live."""
    total = 0
    for pid in pids:
        try:
            status = Path(f"/proc/{pid}/status").read_text()
        except OSError:
            continue
        resident = re.search(r"VmRSS:\s+(\d+) kB", status)
        total += int(resident[1]) * _KIB if resident else 0
    return total


def last_line(path: Path) -> str:
    """Return the last line of a log that is not blank."""
    try:
        lines = path.read_text(errors="replace").splitlines()
    except OSError as error:
        return str(error)
    return next((line.strip() for line in reversed(lines) if line.strip()), "nothing was logged")


def signal_name(code: int) -> str:
    """Return an exit code as text for people."""
    return signal.Signals(-code).name if code < 0 else f"exit code {code}"
