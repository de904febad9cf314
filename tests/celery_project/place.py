"""A project with Celery on a broker of its own: what its tasks did is in a file."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.contract.conftest import Served
from tests.waiting import wait_until

PROJECT = """
import os, time
import tarry.celery
from celery import Celery
from kombu import Queue

app = Celery("shop", broker=os.environ["BROKER"], backend="file://" + os.environ["RESULTS"])
app.conf.broker_connection_retry_on_startup = True
app.conf.task_queues = [Queue("celery"), Queue("urgent", max_priority=10)]

def say(*words):
    with open(os.environ["SAID"], "a") as file:
        file.write(" ".join(map(str, words)) + "\\n")

@app.task(bind=True)
def note(self, text):
    say("note", text, self.request.id)
    return text

@app.task(acks_late=True)
def slow(text, seconds):
    say("begun", text)
    time.sleep(seconds)
    say("ended", text)

@app.task(bind=True, acks_late=True)
def again(self, text):
    say("again", text)
    if not self.request.delivery_info["redelivered"]:
        from celery.exceptions import Reject
        raise Reject("later", requeue=True)
"""


class Shop:
    """The project in ``directory``; :attr:`env` is what its programs are started with."""

    def __init__(self, directory: Path, served: Served) -> None:
        self.directory, self.served = directory, served
        (directory / "shop.py").write_text(PROJECT)
        (directory / "results").mkdir()
        self._said = directory / "said"
        self.env = {
            **os.environ,
            "BROKER": f"tarry://{served.address}",
            "RESULTS": str(directory / "results"),
            "SAID": str(self._said),
            "PYTHONPATH": str(directory),
            "C_FORCE_ROOT": "1",
        }

    def said(self, word: str) -> list[list[str]]:
        """What tasks said that begins with a word, in order."""
        lines = self._said.read_text().splitlines() if self._said.exists() else []
        return [line.split()[1:] for line in lines if line.split()[0] == word]

    def wait_for(self, word: str, times: int) -> list[list[str]]:
        """Wait until tasks have said it so often."""
        wait_until(lambda: len(self.said(word)) >= times)
        return self.said(word)

    def run(self, code: str) -> str:
        """Run a program of the project; what it printed."""
        program = f"import shop\n{code}"
        done = subprocess.run(
            [sys.executable, "-c", program],
            env=self.env,
            cwd=self.directory,
            capture_output=True,
            text=True,
            timeout=90,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    @contextmanager
    def celery(self, *words: str) -> Iterator[Running]:
        """A command of Celery's, until the block ends."""
        command = [sys.executable, "-m", "celery", "-A", "shop", *words]
        process = subprocess.Popen(
            command, env=self.env, cwd=self.directory, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            start_new_session=True,
        )  # fmt: skip
        running = Running(process)
        try:
            yield running
        finally:
            running.kill()

    @contextmanager
    def worker(self, *words: str) -> Iterator[Running]:
        """A worker that is ready."""
        with self.celery("worker", "-l", "info", *words) as running:
            running.wait_for("ready.")
            yield running


class Running:
    """A command of Celery's that runs."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self._lines: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.append(line)

    def wait_for(self, text: str) -> None:
        """Wait until it has printed a text."""
        wait_until(lambda: any(text in line for line in self._lines) or self._process.poll() is not None)
        assert any(text in line for line in self._lines), "".join(self._lines)

    def stop(self) -> int:
        """End it as an operator does, and wait; its exit code."""
        self._process.send_signal(signal.SIGTERM)
        return self._process.wait(60)

    def kill(self) -> None:
        """kill -9 of it and of its processes."""
        try:
            os.killpg(self._process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self._process.wait()
        self._reader.join()


def as_celery_sends(**more: Any) -> dict[str, Any]:
    """A message of kombu as Celery makes it of a task."""
    headers = {"task": "shop.note", "id": "t-1", "root_id": "t-1", "eta": None, "expires": None, **more}
    properties = {"correlation_id": "t-1", "delivery_info": {"exchange": "", "routing_key": "celery"}}
    return {
        "body": '[["a"], {}, {}]',
        "content-type": "application/json",
        "content-encoding": "utf-8",
        "headers": headers,
        "properties": properties,
    }
