"""A broker in a process of its own, a good client beside it, and what must hold whatever others send."""

from __future__ import annotations

import base64
import re
import select
import subprocess
import sys
from pathlib import Path

import httpx

from tarry.client import Client

_FRONTS = ", ".join(
    rf"{front} on (\S+)" for front in ("flight", "link", "rocketmq", "remoting", "http", "http admin", "mqtt")
)
READY = re.compile(rf"tarry \S+ serving {_FRONTS}, data .*\n")
START_S = 60.0
ANY_PORT = "127.0.0.1:0"
UNWANTED = ("Traceback", "a call failed", "internal error", "Exception ignored", "Fatal Python error", "CRITICAL")
"""What is not to stand in its log."""


class Target:
    """Use it in a ``with`` block."""

    def __init__(self, directory: Path) -> None:
        self._log = directory / "broker.log"
        command = [sys.executable, "-X", "faulthandler", "-m", "tarry", "serve", "--data", str(directory / "data")]
        command += ["--flight", ANY_PORT, "--rocketmq", ANY_PORT, "--remoting", ANY_PORT, "--pipeline", "off"]
        command += ["--http", ANY_PORT, "--http-admin", ANY_PORT, "--set", f"mqtt={ANY_PORT}"]
        command += ["--set", f"link={ANY_PORT}"]
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
        try:
            self._await_ready()
        except BaseException:
            self.close()
            raise
        self._client = Client(self.flight)
        self.secret = self._client.create_token("ns").secret
        """Of a token of the HTTP front's for namespace ns."""
        self._calls = 0

    def _await_ready(self) -> None:
        assert self.process.stdout is not None
        line = self.process.stdout.readline() if select.select([self.process.stdout], [], [], START_S)[0] else ""
        ready = READY.fullmatch(line)
        assert ready is not None, f"the broker does not serve: {line!r} {self._log.read_text()}"
        self.flight, self.link, self.rocketmq, *others = ready.groups()
        self.remoting, self.http, self.http_admin, self.mqtt = others

    def check(self) -> None:
        """The broker lives, its log has no bug, and a good client gets what it schedules."""
        assert self.process.poll() is None, f"the broker has ended: {self.process.returncode}\n{self._tail()}"
        self._calls += 1
        body = f"good {self._calls}".encode()
        self._client.schedule("good", body, delay=0)
        [message] = self._client.receive("good", group="good", wait=10)
        assert message.body == body
        message.ack()
        self._check_http(body)
        text = self._log.read_text(errors="replace")
        unwanted = next((word for word in UNWANTED if word in text), None)
        assert unwanted is None, f"{unwanted!r} is in the broker's log:\n{self._tail()}"

    def _check_http(self, body: bytes) -> None:
        queue, headers = f"http://{self.http}/api/ns/good", {"x-token": self.secret}
        assert httpx.put(queue, content=body, headers=headers).status_code == 201
        job = httpx.get(queue, params={"timeout": 10}, headers=headers, timeout=30).json()
        assert base64.b64decode(job["data"]) == body
        assert httpx.delete(f"{queue}/job/{job['job_id']}", headers=headers).status_code == 204

    def _tail(self) -> str:
        return "\n".join(self._log.read_text(errors="replace").splitlines()[-60:])

    def close(self) -> None:
        """End it, and see that it ends well."""
        self.process.terminate()
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()

    def __enter__(self) -> Target:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()
        self.close()
        assert self.process.returncode == 0, f"exit code {self.process.returncode}\n{self._tail()}"
