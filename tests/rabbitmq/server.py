"""Debian's rabbitmq-server, on free ports and in a directory of its own."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

from tests.ports import free_port
from tests.waiting import wait_until

SERVER = "/usr/lib/rabbitmq/bin/rabbitmq-server"
"""Not the one in the path, which runs as another user."""
CONTROL = "/usr/lib/rabbitmq/bin/rabbitmqctl"
EPMD = "/usr/bin/epmd"
FOUND = Path(SERVER).exists()
WHY_NOT = "rabbitmq-server is not installed: apt-get install rabbitmq-server"


class RabbitServer:
    """A node that can be killed, and started again on the same port and directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        self.port, self._dist = free_port(), free_port()
        (directory / "rabbitmq.conf").write_text(
            f"listeners.tcp.1 = 127.0.0.1:{self.port}\ndisk_free_limit.absolute = 1MB\nlog.console.level = warning\n"
        )
        (directory / "enabled_plugins").write_text("[].\n")
        (directory / ".erlang.cookie").write_text("COOKIE")
        (directory / ".erlang.cookie").chmod(0o600)
        self._env = {
            **os.environ,
            "HOME": str(directory),
            "RABBITMQ_NODENAME": f"t{self.port}@localhost",
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODE_PORT": str(self.port),
            "RABBITMQ_DIST_PORT": str(self._dist),
            "RABBITMQ_CONFIG_FILE": str(directory / "rabbitmq.conf"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(directory / "enabled_plugins"),
            "RABBITMQ_MNESIA_BASE": str(directory / "mnesia"),
            "RABBITMQ_LOG_BASE": str(directory / "log"),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "ERL_EPMD_PORT": str(free_port()),
        }
        self._processes: list[subprocess.Popen[bytes]] = []
        self.start()

    @property
    def url(self) -> str:
        return f"amqp://guest:guest@127.0.0.1:{self.port}/"

    @property
    def process(self) -> psutil.Process:
        """The node, with the programs that it has started."""
        return psutil.Process(self._processes[-1].pid)

    def start(self) -> None:
        """Start it, and wait until it takes connections."""
        # Erlang's table of nodes, too: a node that finds none at its port leaves behind a daemon of its own.
        with (self.directory / "out.log").open("ab") as log:
            for command in ([EPMD], [SERVER]):
                self._processes.append(
                    subprocess.Popen(
                        command, env=self._env, stdout=log, stderr=log, cwd=self.directory, start_new_session=True
                    )
                )
                if command == [EPMD]:
                    wait_until(lambda: _is_open(int(self._env["ERL_EPMD_PORT"])))
        wait_until(self._answers, 120, lambda: (self.directory / "out.log").read_text()[-2000:])

    def _answers(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=5) as connection:
                connection.settimeout(5)
                connection.sendall(b"AMQP\x00\x00\x09\x01")
                return connection.recv(1) == b"\x01"
        except OSError:
            return False

    def control(self, *words: str) -> None:
        """Run a command of its administrator's."""
        subprocess.run([CONTROL, *words], env=self._env, check=True, capture_output=True, timeout=60)

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """It stands still meanwhile: connections last, and nobody answers."""
        groups = [process.pid for process in self._processes]
        for group in groups:
            os.killpg(group, signal.SIGSTOP)
        try:
            yield
        finally:
            for group in groups:
                os.killpg(group, signal.SIGCONT)

    def kill(self) -> None:
        """kill -9 of all of it."""
        for process in reversed(self._processes):
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        self._processes.clear()


def _is_open(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=5):
            return True
    except OSError:
        return False
