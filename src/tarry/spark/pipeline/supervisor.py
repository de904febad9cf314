"""Keeps the schedule job running beside a broker.

It starts the job, restarts it with back-off, and ends it and everything it started. The broker serves even if the
pipeline does not work; without it only the intake is not emptied. So nothing here raises because a child fails:
:meth:`PipelineSupervisor.status` shows its state.
"""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any
from urllib.parse import urlsplit

from tarry.base.back_off import BackOff
from tarry.base.clock import SystemClock
from tarry.base.config import Config
from tarry.base.spark_conf import lines_of, parse_lines
from tarry.base.supervision import end_of_process, keep_running
from tarry.spark.pipeline.job import EXIT_NOT_INSTALLED, EXIT_OWNERSHIP_LOST
from tarry.spark.runtime.conf import user_conf, write_private
from tarry.spark.runtime.process import kill_session

log = logging.getLogger(__name__)

BACKOFF_S_MIN = 1.0
BACKOFF_S_MAX = 60.0
HEALTHY_S = 60.0
"""A run that lasted this long ends the series of failures: the next back-off starts small again."""

EXIT_NOT_STARTED = -1000
"""In place of the exit code of a child that could not be started; no child ends with it."""
CONF_FILE = "spark.conf"

STOP_WAIT_S = 20.0
LOG_BYTES_MAX = 8 << 20


class PipelineSupervisor:
    """Runs one child process.

    ``start`` and ``stop`` from any thread; :meth:`status` at any time. ``before`` is called before each start, and may
    raise OSError: then the start is tried again.

    The child leads its own session and is given ``--parent-pid``: when this process is killed, the child ends by
    itself. ``token``, what it shows to the broker, comes by a pipe, whose end ``--token-fd`` names.
    """

    def __init__(
        self,
        command: Sequence[str],
        log_path: Path,
        *,
        token: str | None = None,
        before: Callable[[], None] = lambda: None,
        backoff_s_min: float = BACKOFF_S_MIN,
        backoff_s_max: float = BACKOFF_S_MAX,
        healthy_s: float = HEALTHY_S,
    ) -> None:
        self._command = [*command, "--parent-pid", str(os.getpid())]
        self._log_path = log_path
        self._token = token
        self._before = before
        self._back_off = BackOff(backoff_s_min, backoff_s_max, healthy_s)
        self._clock = SystemClock()
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        self._child: subprocess.Popen[bytes] | None = None
        self._thread: threading.Thread | None = None
        self._restarts = 0
        self._last_error: str | None = None
        self._next_try_ms: int | None = None

    @classmethod
    def of_schedule(
        cls, config: Config, flight: str, token: str | None = None, near: str | None = None
    ) -> PipelineSupervisor:
        """Return the supervisor of the schedule job for a broker with its native port at ``flight``.

        It is not started yet. ``token`` shows the job to the broker. ``near``: as of :func:`schedule_command`.

        Raises:
            InvalidArgumentError: the file of settings for Spark cannot be read, or names what is not allowed.
        """
        user_conf(None, config.spark_conf_file)  # here, where the error is seen, and not in the job again and again
        if (warning := unreachable_for_executors(config, flight)) is not None:
            log.warning("%s", warning)
        directory = config.data.absolute() / "pipeline"
        command = schedule_command(config, flight, directory / "checkpoint", near)
        return cls(command, directory / "pipeline.log", token=token, before=lambda: write_conf(config, directory))

    def start(self) -> None:
        """Start the child in the background. Returns at once."""
        with self._lock:
            if self._thread is None:
                # The child's death signal is tied to the thread that starts it: this one, which lives as long as the
                # child.
                self._thread = threading.Thread(target=self._run, name="tarry-pipeline", daemon=True)
                self._thread.start()

    def stop(self, timeout_s: float = STOP_WAIT_S) -> None:
        """End the child and all it started: by SIGTERM, and by SIGKILL after ``timeout_s``.

        It stays stopped.
        """
        self._stopping.set()
        with self._lock:
            child, thread = self._child, self._thread
            if child is not None and child.returncode is None:
                os.kill(child.pid, signal.SIGTERM)  # not send_signal(), which would reap a child that has just ended
        if thread is None:
            return
        thread.join(timeout_s)
        if thread.is_alive():
            with self._lock:
                child = self._child
                if child is not None and child.returncode is None:
                    kill_session(child.pid)
            thread.join()

    def status(self) -> dict[str, Any]:
        """Return the child's state as plain data.

        Keys: ``state`` (stopped, running, waiting), ``pid``, ``restarts``, ``last_error``, ``next_try_ms`` (UTC) and
        ``log``.
        """
        with self._lock:
            child, thread = self._child, self._thread
            running = child is not None and child.returncode is None
            state = "running" if running else "waiting" if thread is not None and thread.is_alive() else "stopped"
            return {
                "state": state,
                "pid": child.pid if child is not None and running else None,
                "restarts": self._restarts,
                "last_error": self._last_error,
                "next_try_ms": self._next_try_ms if state == "waiting" else None,
                "log": str(self._log_path),
            }

    # -- the thread --------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        keep_running(self._run_child, self._on_end, self._stopping)

    def _on_end(self, code: int) -> float:
        # After a takeover this broker ends, too, as soon as it sees that by itself.
        hopeless = code in (EXIT_NOT_INSTALLED, EXIT_OWNERSHIP_LOST)
        pause_s = self._back_off.lengthen() if hopeless else self._back_off.fail()
        with self._lock:
            self._next_try_ms = self._clock.now_ms() + int(pause_s * 1000)
            self._restarts += 1
        log.warning("the pipeline ended (%s); next try in %g s; see %s", self._last_error, pause_s, self._log_path)
        return pause_s

    def _run_child(self) -> int:
        """Run the child to its end and end its session.

        Returns its exit code, or :data:`EXIT_NOT_STARTED`.
        """
        self._back_off.begin()
        try:
            self._before()
            logged_from = self._rotate_log()
            with self._lock, self._log_path.open("ab") as output:
                if self._stopping.is_set():  # otherwise stop() would have missed the child
                    return EXIT_NOT_STARTED
                self._child = child = self._start_child(output)
        except OSError as error:
            self._last_error = f"cannot start: {error}"
            return EXIT_NOT_STARTED
        # Not reaped before its session is cleared: until then its id, which is the session's, can be nobody else's.
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        kill_session(child.pid)
        with self._lock:  # every thread that signals the child holds it too, and looks at returncode first
            code = child.wait()
            if code != 0 and not self._stopping.is_set():
                # A killed child had no time to log the reason: its last line is about something else.
                said = self._last_line(logged_from) if code > 0 else None
                self._last_error = said or end_of_process(code)
        return code

    def _start_child(self, output: IO[bytes]) -> subprocess.Popen[bytes]:
        with ExitStack() as stack:
            command, inherited = self._command, []
            if self._token is not None:
                reading, writing = os.pipe()
                stack.callback(os.close, reading)
                with os.fdopen(writing, "wb") as pipe:
                    pipe.write(self._token.encode())  # a pipe holds it, so nobody has to read yet
                command, inherited = [*command, "--token-fd", str(reading)], [reading]
            return subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                pass_fds=inherited,
            )

    def _rotate_log(self) -> int:
        """Start a new log file if the old one is large; return the offset at which the child's lines begin."""
        self._log_path.parent.mkdir(parents=True, exist_ok=True)
        if not self._log_path.exists():
            return 0
        if self._log_path.stat().st_size > LOG_BYTES_MAX:
            self._log_path.replace(self._log_path.with_suffix(".log.1"))
            return 0
        return self._log_path.stat().st_size

    def _last_line(self, logged_from: int) -> str | None:
        try:
            with self._log_path.open("rb") as file:
                file.seek(max(logged_from, file.seek(0, os.SEEK_END) - 8192))
                lines = file.read().decode(errors="replace").split("\n")
        except OSError:
            return None
        return next((line.strip() for line in reversed(lines) if line.strip()), None)


def unreachable_for_executors(config: Config, flight: str) -> str | None:
    """Return advice if executors are told an address that is this machine's own, else None."""
    local = config.spark_master.startswith("local") or _of_this_machine(config.spark_master)
    if local or config.flight_advertised is not None or not _of_this_machine(f"grpc://{flight}"):
        return None
    return (
        f"executors of {config.spark_master} on other machines cannot reach the broker at {flight}; set flight to an "
        "address that they reach (with insecure_open=flight: that port asks nobody who they are), or to 0.0.0.0:PORT "
        "with flight_advertised=HOST:PORT"
    )


def _of_this_machine(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    return host in ("localhost", "::1") or host.startswith("127.")


def schedule_command(config: Config, flight: str, checkpoint: Path, near: str | None = None) -> list[str]:
    """Return the command line of the schedule job with this broker's settings.

    ``near``: where the port at ``flight`` takes TLS alone, the way to the broker on this machine; executors of other
    machines come by TLS then.

    Those for Spark are in a file beside the checkpoint (:func:`write_conf`): some are secrets, and each user of the
    machine can read a command line.
    """
    settings = ("schedule_interval_ms", "schedule_bytes", "schedule_rows_max", "compact_interval_ms", "compact_tasks")
    options = {
        "flight": near or flight,
        "flight-for-tasks": _for_tasks(config, flight, near),
        "checkpoint": checkpoint,
        "master": config.spark_master,
        "memory": config.spark_memory,
        **{name: getattr(config, name) for name in (*settings, "compact_file_bytes", "store_retention_ms")},
    }
    files = [checkpoint.with_name(CONF_FILE)] if config.spark_conf else []
    if config.spark_conf_file:
        files.append(Path(config.spark_conf_file).absolute())
    given = [(f"--{name.replace('_', '-')}", value) for name, value in options.items()]
    given += [("--spark-conf-file", file) for file in files]
    return [sys.executable, "-m", "tarry.spark.pipeline.schedule", *(str(text) for pair in given for text in pair)]


def _for_tasks(config: Config, flight: str, near: str | None) -> str:
    if near is None:
        return config.flight_advertised or flight
    is_near = config.spark_master.startswith("local") and config.flight_advertised is None
    return near if is_near else f"tls://{config.flight_advertised or flight}"


def write_conf(config: Config, directory: Path) -> None:
    """Write the settings for Spark to the file that the job reads, readable for this user alone.

    Raises:
        OSError: the file cannot be written now.
    """
    settings = parse_lines(config.spark_conf)
    if settings:
        write_private(directory / CONF_FILE, lines_of(settings))
    else:
        (directory / CONF_FILE).unlink(missing_ok=True)
