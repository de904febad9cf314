"""A broker in a process of its own with every port open, and what holds of it whatever is sent."""

from __future__ import annotations

import re
import select
import subprocess
import sys
from pathlib import Path

from tarry.client import Client

READY = re.compile(r"([a-z0-9][a-z0-9 ]*) on (127\.0\.0\.1:\d+)")
START_S = 60.0
ANY_PORT = "127.0.0.1:0"
PORTS = ("flight", "link", "rocketmq", "remoting", "http", "http_admin", "mqtt", "metrics")
UNWANTED = ("Traceback", "a call failed", "internal error", "Exception ignored", "Fatal Python error", "CRITICAL")
"""What is not to stand in its log."""


class ServedBroker:
    """Starts at once. Whoever uses it calls :meth:`end`, or :meth:`close` when something has failed."""

    def __init__(self, directory: Path) -> None:
        self._log = directory / "broker.log"
        command = [sys.executable, "-X", "faulthandler", "-m", "tarry", "serve", "--data", str(directory / "data")]
        command += ["--pipeline", "off"]
        # Messages that nobody takes are cached: memory must not grow by what good callers send.
        command += ["--set", "ready_cache_bytes_max=1MiB"]
        for port in PORTS:
            command += ["--set", f"{port}={ANY_PORT}"]
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
        try:
            self.ports = self._await_ready()
        except BaseException:
            self.close()
            raise
        self._calls = 0

    def _await_ready(self) -> dict[str, int]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline() if select.select([self.process.stdout], [], [], START_S)[0] else ""
        assert " serving " in line, f"the broker does not serve: {line!r} {self._log.read_text()}"
        found = READY.findall(line.partition(" serving ")[2])
        return {name.strip(): int(address.rpartition(":")[2]) for name, address in found}

    def address(self, port: str) -> str:
        return f"127.0.0.1:{self.ports[port]}"

    def check(self, client: Client) -> bytes:
        """It lives, a good client gets what it schedules, its log has no bug; the body of that message."""
        assert self.process.poll() is None, f"the broker has ended: {self.process.returncode}\n{self.tail()}"
        self._calls += 1
        body = f"good {self._calls}".encode()
        client.schedule("good", body, delay=0)
        [message] = client.receive("good", group="good", wait=10)
        assert message.body == body
        message.ack()
        unwanted = next((word for word in UNWANTED if word in self.log()), None)
        assert unwanted is None, f"{unwanted!r} is in the broker's log:\n{self.tail()}"
        return body

    def log(self) -> str:
        return self._log.read_text(errors="replace")

    def tail(self) -> str:
        return "\n".join(self.log().splitlines()[-60:])

    def close(self) -> None:
        """End it, well or not."""
        self.process.terminate()
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()

    def end(self) -> None:
        """End it, and see that it ends well."""
        self.close()
        assert self.process.returncode == 0, f"exit code {self.process.returncode}\n{self.tail()}"
