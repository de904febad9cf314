"""``tarry relay`` as a process of its own, that is killed and started again."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import psutil

from tarry.spark.runtime.process import kill_session

from .conftest import World


class Process:
    """A relay in a process and session of its own."""

    def __init__(self, world: World, *more: str, label: str = "relay") -> None:
        self._world = world
        settings = world.settings
        self._command = [sys.executable, "-m", "tarry", "relay", "--kafka", settings.kafka, "--topics", settings.topics]
        self._command += ["--store", settings.store, "--checkpoint", str(world.running.checkpoint)]
        self._command += ["--name", settings.name, "--memory", "512m", "--set", "status_interval_ms=500", *more]
        self._directory = world.directory / f"{label}-cwd"
        self._directory.mkdir()
        self._process: subprocess.Popen[bytes] | None = None
        self._out, self._log = world.directory / f"{label}.jsonl", world.directory / f"{label}.err"

    def start(self) -> None:
        self._out.write_bytes(b"")
        with self._out.open("ab") as out, self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command, stdout=out, stderr=log, start_new_session=True, cwd=self._directory
            )

    def status(self) -> dict[str, Any]:
        lines = self._out.read_bytes().splitlines()
        return dict(json.loads(lines[-1])) if lines else {}

    def wait(self, done: Any, timeout_s: float = 300) -> dict[str, Any]:
        deadline = time.monotonic() + timeout_s
        while not (now := self.status()) or not done(now):
            assert self._process is not None
            assert self._process.poll() is None, self.errors()[-3000:]
            assert time.monotonic() < deadline, now
            time.sleep(0.1)
        return now

    def end(self) -> None:
        """Kill it if it runs."""
        if self._process is not None and self._process.poll() is None:
            self.kill()

    def kill(self) -> None:
        """The driver, its JVM and its workers, as a machine that goes down."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()
        kill_session(self._process.pid)

    def kill_alone(self) -> None:
        """The driver, and nothing else: its JVM and tasks find out by themselves."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def workers(self) -> list[psutil.Process]:
        """The processes of the tasks, without the daemon that they are forked from."""
        assert self._process is not None
        found = []
        for process in psutil.Process(self._process.pid).children(recursive=True):
            with suppress(psutil.Error):
                daemon = "tarry_relay.daemon"
                if daemon in process.cmdline() and daemon in (process.parent() or process).cmdline():
                    found.append(process)
        return found

    def returncode(self, timeout_s: float = 120) -> int:
        """What it ended with, by itself."""
        assert self._process is not None
        return self._process.wait(timeout_s)

    def errors(self) -> str:
        """Its log."""
        return self._log.read_text()

    def stop(self) -> int:
        assert self._process is not None
        self._process.terminate()
        return self._process.wait(60)


@contextmanager
def process(world: World, *more: str, label: str = "relay") -> Iterator[Process]:
    relay = Process(world, *more, label=label)
    relay.start()
    try:
        yield relay
    finally:
        relay.end()


def reads(status: dict[str, Any]) -> bool:
    return bool(status["schedule"]["batches"])


def runs(status: dict[str, Any]) -> bool:
    return bool(status["schedule"]["state"] == "running")
