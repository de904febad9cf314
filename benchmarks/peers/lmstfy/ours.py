"""Tarry in the place of lmstfy, with the same methods as :class:`.server.LmstfyServer`."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

from benchmarks.harness import cpu_s_of, rss_bytes_of, workspace
from benchmarks.peers.lmstfy.client import Place
from benchmarks.peers.lmstfy.server import NAMESPACE

STOP_S_MAX = 20.0


class TarryServer:
    """``tarry serve`` with the HTTP front alone; :meth:`start` again after :meth:`kill` finds its data and its port."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._process: subprocess.Popen[str]
        self.place = Place("127.0.0.1", 0, NAMESPACE, "")

    def start(self) -> None:
        """Start it, and wait until it serves."""
        command = (
            *(sys.executable, "-m", "tarry", "serve", "--data", str(self._directory / "data"), "--flight", ""),
            *("--pipeline", "off", "--http", f"127.0.0.1:{self.place.port}", "--http-admin", "127.0.0.1:0"),
        )
        with (self._directory / "log").open("a") as log:
            self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        found = re.search(r"http on [^:]+:(\d+), http admin on ([^,\s]+)", line)
        if found is None:
            raise RuntimeError(f"the broker did not start: {line!r}; its log: {self._directory / 'log'}")
        self.place = self.place._replace(port=int(found[1]))
        if not self.place.token:
            url = f"http://{found[2]}/token/{NAMESPACE}"
            answer = httpx.post(url, params={"description": "bench"}).raise_for_status()
            self.place = self.place._replace(token=answer.json()["token"])

    def kill(self) -> None:
        """End it as a crash would."""
        self._process.kill()
        self._process.wait()

    def stop(self) -> None:
        """End it in good order."""
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(STOP_S_MAX)
        except subprocess.TimeoutExpired:
            self.kill()

    @property
    def pid(self) -> int:
        """The process."""
        return self._process.pid

    @property
    def rss_bytes(self) -> int:
        """Memory."""
        return rss_bytes_of(self.pid)

    def cpu_s(self) -> float:
        """Processor time."""
        return cpu_s_of(self.pid)


@contextmanager
def tarry_server() -> Iterator[TarryServer]:
    """One that runs, and is gone at the end with all its data."""
    with workspace() as directory:
        server = TarryServer(directory)
        server.start()
        try:
            yield server
        finally:
            server.stop()
