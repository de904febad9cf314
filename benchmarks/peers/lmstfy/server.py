"""A real lmstfy on a Redis of its own, both on free ports of this machine.

Redis keeps an append-only file that is fsynced each second: what lmstfy's documentation asks for.
"""

from __future__ import annotations

import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

from benchmarks.harness import cpu_s_of, rss_bytes_of, workspace
from benchmarks.peers.lmstfy.client import Place
from benchmarks.peers.lmstfy.source import built
from tarry.base.errors import NotFoundError

START_S_MAX = 60.0
NAMESPACE = "bench"


class LmstfyServer:
    """Both processes; :meth:`kill` ends lmstfy alone, and :meth:`start` begins what does not run."""

    def __init__(self, directory: Path, *, fsync: str = "everysec") -> None:
        """``fsync``: Redis' ``appendfsync``."""
        self._directory = directory
        self._programs = built()
        self._fsync = fsync
        self._redis_port, self._port, self._admin = free_port(), free_port(), free_port()
        self._redis: subprocess.Popen[bytes] | None = None
        self._lmstfy: subprocess.Popen[bytes] | None = None
        self.place = Place("127.0.0.1", self._port, NAMESPACE, "")
        redis = f'Addr = "127.0.0.1:{self._redis_port}"\n'
        (directory / "lmstfy.toml").write_text(
            f'Host = "127.0.0.1"\nPort = {self._port}\nAdminHost = "127.0.0.1"\nAdminPort = {self._admin}\n'
            f'LogLevel = "error"\nEnableAccessLog = false\n[AdminRedis]\n{redis}[Pool.default]\n{redis}'
        )

    def start(self) -> None:
        """Start what does not run, and wait until it answers."""
        if self._redis is None:
            self._redis = self._run(
                *("redis-server", "--port", str(self._redis_port), "--bind", "127.0.0.1", "--appendonly", "yes"),
                *("--appendfsync", self._fsync, "--save", "", "--dir", str(self._directory)),
            )
            wait_for_port(self._redis_port)
        self._lmstfy = self._run(str(self._programs / "server"), "-c", "lmstfy.toml")
        wait_for_port(self._admin)
        wait_for_port(self._port)
        if not self.place.token:
            url = f"http://127.0.0.1:{self._admin}/token/{NAMESPACE}"
            answer = httpx.post(url, params={"description": "bench"}).raise_for_status()
            self.place = self.place._replace(token=answer.json()["token"])

    def kill(self) -> None:
        """End lmstfy as a crash would; Redis goes on."""
        if self._lmstfy is not None:
            self._lmstfy.kill()
            self._lmstfy.wait()

    def stop(self) -> None:
        """End both."""
        self.kill()
        if self._redis is not None:
            self._redis.kill()
            self._redis.wait()

    @property
    def rss_bytes(self) -> int:
        """Memory of both."""
        return sum(rss_bytes_of(p.pid) for p in (self._redis, self._lmstfy) if p is not None)

    def cpu_s(self) -> float:
        """Processor time of both."""
        return sum(cpu_s_of(p.pid) for p in (self._redis, self._lmstfy) if p is not None)

    def _run(self, *command: str) -> subprocess.Popen[bytes]:
        with (self._directory / "out.log").open("ab") as out:
            try:
                return subprocess.Popen(command, cwd=self._directory, stdout=out, stderr=out)
            except FileNotFoundError as error:
                raise NotFoundError(f"no {command[0]}; install it (Debian: apt-get install redis-server)") from error


@contextmanager
def lmstfy_server(*, fsync: str = "everysec") -> Iterator[LmstfyServer]:
    """An lmstfy that runs, and is gone at the end with all its data; TARRY_BENCH_DIR chooses the disk."""
    with workspace() as directory:
        server = LmstfyServer(directory, fsync=fsync)
        try:
            server.start()
            yield server
        finally:
            server.stop()


def wait_for_port(port: int) -> None:
    """Wait until somebody listens on a port of this machine."""
    deadline = time.monotonic() + START_S_MAX
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            if time.monotonic() > deadline:
                raise RuntimeError(f"nobody listens on port {port} after {START_S_MAX} s") from None
            time.sleep(0.02)


def free_port() -> int:
    """A port of this machine that nobody has."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


if __name__ == "__main__":
    with lmstfy_server() as running:
        print(*(f"{name}={value}" for name, value in running.place.environment.items()), flush=True)
        signal.pause()
