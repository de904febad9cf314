"""What the programs talk to: a Tarry of our own, one that runs already, or the original."""

from __future__ import annotations

import importlib
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tarry.client import Client

from .scenarios import Scenario

READY_S = 60.0
NOT_YET = "not in this version"
WORKERS = "TARRY_WORKERS"
"""The setting of Tarry that is passed on to it: the fronts are in so many processes."""


class NotInThisVersionError(Exception):
    """This Tarry has no RocketMQ front."""


class Server(ABC):
    """Something that speaks RocketMQ's gRPC at :attr:`endpoint`."""

    endpoint: str
    classic_endpoint: str | None = None
    """For clients of the classic protocol; None: there is none."""
    restarts = True
    """Whether :meth:`kill` and :meth:`start` are possible."""

    @abstractmethod
    def prepare(self, topic: str, group: str, scenario: Scenario) -> None:
        """Make what has to be there before a client comes."""

    @abstractmethod
    def kill(self) -> None:
        """End it, as a power failure would."""

    @abstractmethod
    def start(self) -> None:
        """Start it, again on the same data and port, and wait until it serves."""


class GivenServer(Server):
    """One that somebody else has started. Settings of groups are made through its Flight front, where that is given."""

    restarts = False

    def __init__(self, endpoint: str, flight: str | None, classic: str | None = None) -> None:
        self.endpoint = endpoint
        self.classic_endpoint = classic
        self.flight = flight

    def prepare(self, topic: str, group: str, scenario: Scenario) -> None:
        settings: dict[str, Any] = {}
        if scenario.ordered:
            settings["ordered"] = True
        if scenario.tries is not None:
            settings["tries"] = scenario.tries
        if scenario.retry_s is not None:
            settings["retry"] = f"fixed {scenario.retry_s}s"
        if not settings:
            return
        if self.flight is None:
            raise ValueError(f"scenario {scenario.name} needs settings of its group; name the Flight front, too")
        with Client(self.flight) as client:
            client.set_group(topic, group, **settings)

    def kill(self) -> None:
        raise NotImplementedError("not ours to end")

    def start(self) -> None:
        raise NotImplementedError("not ours to start")


class TarryServer(GivenServer):
    """``tarry serve`` of this Python, in a directory of its own."""

    restarts = True

    def __init__(self, directory: Path, *settings: str) -> None:
        super().__init__(*(f"127.0.0.1:{_free_port()}" for _ in range(3)))
        self._directory = directory
        self._settings = settings
        self._log = directory / "broker.log"
        self._process: subprocess.Popen[str] | None = None

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    def start(self) -> None:
        """Raises:
        NotInThisVersionError: this Tarry has no such front.
        RuntimeError: it does not start; with what its log says last.
        """
        command = [sys.executable, "-m", "tarry", "serve", "--data", str(self._directory / "data"), "--pipeline", "off"]
        command += ["--rocketmq", self.endpoint, "--flight", str(self.flight)]
        command += ["--remoting", str(self.classic_endpoint), *self._settings]
        environment = {
            name: value for name, value in os.environ.items() if not name.startswith("TARRY_") or name == WORKERS
        }
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, text=True,
                start_new_session=True,
            )  # fmt: skip
        assert self._process.stdout is not None
        readable = select.select([self._process.stdout], [], [], READY_S)[0]
        line = self._process.stdout.readline() if readable else ""
        if not line:
            self.kill()
            said = self._log.read_text(errors="replace")
            if NOT_YET in said:
                raise NotInThisVersionError(said.strip())
            raise RuntimeError(f"tarry serve does not start: {said[-2000:].strip()}")
        _wait_port(self.endpoint)

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """In good order."""
        self._end(signal.SIGTERM)

    def _end(self, number: int) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.send_signal(number)
            try:
                process.communicate(timeout=READY_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.communicate()


class OriginalServer(Server):
    """RocketMQ itself, from ``benchmarks.peers``: it wants its topics and groups made first."""

    def __init__(self, server: Any) -> None:
        self._server = server
        self.endpoint = server.endpoint

    def prepare(self, topic: str, group: str, scenario: Scenario) -> None:
        self._server.create_topic(topic, scenario.kind)
        self._server.create_group(group, ordered=scenario.ordered)
        if scenario.tries is not None and scenario.retry_s is not None:
            policy = f'{{"type":"CUSTOMIZED","customizedRetryPolicy":{{"next":[{scenario.retry_s * 1000}]}}}}'
            words = ["-g", group, "-m", "true", "-r", str(scenario.tries - 1), "-p", policy]
            self._server._admin("updateSubGroup", *words)  # noqa: SLF001 - the server has no public one

    def kill(self) -> None:
        self._server.kill()

    def start(self) -> None:
        self._server.start()


@contextmanager
def tarry_server(directory: Path, *settings: str) -> Iterator[TarryServer]:
    """A Tarry that runs, and is gone at the end with its data; its log stays. ``settings``: more words for ``serve``.

    Raises:
        NotInThisVersionError: this Tarry has no such front.
    """
    directory.mkdir(parents=True, exist_ok=True)
    server = TarryServer(directory, *settings)
    try:
        server.start()
        yield server
    finally:
        server.stop()
        shutil.rmtree(directory / "data", ignore_errors=True)


@contextmanager
def original_server() -> Iterator[OriginalServer]:
    """A RocketMQ that runs, and is gone at the end."""
    module = importlib.import_module("benchmarks.peers.rocketmq.server")
    settings = {"enablePropertyFilter": "true", "transactionCheckInterval": "10000"}
    with module.rocketmq_server(broker=settings) as server:
        yield OriginalServer(server)


def _wait_port(endpoint: str) -> None:
    host, _, port = endpoint.rpartition(":")
    deadline = time.monotonic() + READY_S
    while True:
        try:
            socket.create_connection((host, int(port)), timeout=1).close()
            return
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


def _free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])
