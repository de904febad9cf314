"""The sample project in ``shop`` on a broker of its own, with its programs in processes of their own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.waiting import wait_until

PROJECT = Path(__file__).parent
PYTHON = os.environ.get("DJANGO_PYTHON", sys.executable)
"""That of the project: `make django` names one with Django 6."""


class Shop:
    """The project; :attr:`env` is what its programs are started with."""

    def __init__(self, directory: Path, address: str) -> None:
        self._said = directory / "said"
        self.env = {
            **os.environ,
            "DJANGO_SETTINGS_MODULE": "shop.settings",
            "DATABASE": str(directory / "db.sqlite3"),
            "ENDPOINT": address,
            "SAID": str(self._said),
            "PYTHONPATH": str(PROJECT),
        }
        self.manage("migrate", "--verbosity", "0")

    def said(self, word: str) -> list[list[str]]:
        """What tasks said that begins with a word, in order."""
        lines = self._said.read_text().splitlines() if self._said.exists() else []
        return [line.split()[1:] for line in lines if line.split()[0] == word]

    def wait_for(self, word: str, times: int) -> list[list[str]]:
        """Wait until tasks have said it so often."""
        wait_until(lambda: len(self.said(word)) >= times)
        return self.said(word)

    def manage(self, *words: str, code: int = 0) -> str:
        """Run a command of ``manage.py``; what it printed, or said of an error."""
        done = self._run([PYTHON, "-m", "django", *words], code)
        return done.stdout if code == 0 else done.stderr

    def run(self, program: str, code: int = 0) -> str:
        """Run a program of the project; what it printed."""
        begin = "import django; django.setup()\nfrom shop import tasks\nimport tarry.django\n"
        return self._run([PYTHON, "-c", begin + program], code).stdout

    def _run(self, command: list[str], code: int) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(command, env=self.env, capture_output=True, text=True, timeout=120, cwd=PROJECT)
        assert done.returncode == code, done.stdout + done.stderr
        return done

    @contextmanager
    def worker(self, *words: str) -> Iterator[Running]:
        """A worker, until the block ends."""
        command = [PYTHON, "-m", "django", "tarry_worker", *words]
        process = subprocess.Popen(
            command, env=self.env, cwd=PROJECT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            start_new_session=True,
        )  # fmt: skip
        running = Running(process)
        try:
            yield running
        finally:
            running.kill()


class Running:
    """A worker that runs: a supervisor with its processes."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.lines: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line)

    def workers(self) -> list[int]:
        """The ids of the processes that run tasks."""
        children = Path(f"/proc/{self.process.pid}/task").glob("*/children")
        return [int(each) for path in children for each in path.read_text().split()]

    def stop(self) -> int:
        """End it as an operator does, and wait; its exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(60)

    def kill(self) -> None:
        """kill -9 of all that is left of it."""
        for process_id in (*self.workers(), self.process.pid) if self.process.poll() is None else ():
            try:
                os.kill(process_id, signal.SIGKILL)
            except ProcessLookupError:
                pass
        self.process.wait()
        self._reader.join()
