"""``tarry serve --workers`` with HTTP and the classic front: a worker that is killed under load loses no message."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from tarry.base.errors import TarryError
from tarry.client import Client
from tarry.fronts.rocketmq.classic.codes import ResponseCode
from tests.gateway.test_processes import port_of
from tests.rocketmq_classic.remoting import Remoting, messages_of
from tests.waiting import wait_until

pytestmark = [pytest.mark.rest, pytest.mark.timeout(300)]

WAIT_S = 60.0
LEASE_MS = 3_000
GROUP = "/v1/topics/orders/groups/g"


class Serving:
    """The process, and its ports."""

    def __init__(self, directory: Path) -> None:
        arguments = ["--data", str(directory / "data"), "--pipeline", "off", "--set", "disk_free_bytes_min=0"]
        ports = [word for name in ("flight", "http", "remoting") for word in (f"--{name}", "127.0.0.1:0")]
        command = [sys.executable, "-m", "tarry", "serve", *arguments, *ports, "--workers", "2"]
        self._log = (directory / "log").open("w")
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=self._log, text=True)
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, (directory / "log").read_text()
        self.flight, self.http, self.remoting = (port_of(line, f"{n} on ") for n in ("flight", "http", "remoting"))
        wait_until(lambda: len(self.workers()) == 4)

    def workers(self) -> list[dict[str, Any]]:
        try:
            with Client(f"127.0.0.1:{self.flight}") as client:
                listed: list[dict[str, Any]] = client.status()["gateways"]
                return listed
        except TarryError:
            return []

    def kill_worker(self, front: str) -> None:
        """Kill the worker of a front that has most connections, and wait for the next one in its place."""
        victim = max((w for w in self.workers() if w["front"] == front), key=lambda worker: worker["connections"])
        os.kill(victim["pid"], signal.SIGKILL)
        wait_until(lambda: any(w["name"] == victim["name"] and w["pid"] != victim["pid"] for w in self.workers()))

    def close(self) -> None:
        self._process.terminate()
        assert self._process.wait(30) == 0
        self._log.close()


@pytest.fixture
def serving(tmp_path: Path) -> Iterator[Serving]:
    serving = Serving(tmp_path)
    yield serving
    serving.close()


class Load:
    """Threads that send and receive, whatever happens; each message has a number of its own as its body."""

    def __init__(self, send: Callable[[Callable[[], bool], Load, int], None], receive: Any) -> None:
        self.accepted: set[str] = set()
        self.received: Counter[str] = Counter()
        self._sending, self._receiving = threading.Event(), threading.Event()
        self._threads = [
            *(threading.Thread(target=send, args=[lambda: not self._sending.is_set(), self, n]) for n in range(3)),
            *(threading.Thread(target=receive, args=[lambda: not self._receiving.is_set(), self]) for _ in range(2)),
        ]
        for thread in self._threads:
            thread.start()

    def accept_more(self, count: int) -> None:
        until_count = len(self.accepted) + count
        wait_until(lambda: len(self.accepted) >= until_count)

    def finish(self, is_settled: Callable[[], bool] = lambda: True) -> None:
        """Stop sending, and wait until all that was accepted has come and is settled.

        Meanwhile, receiving goes on: of what came, an acknowledgement may have died with a worker, and who sent may not
        know what was accepted.
        """
        self._sending.set()
        try:
            wait_until(lambda: not self.accepted - self.received.keys() and is_settled(), WAIT_S)
        finally:
            self._receiving.set()
            for thread in self._threads:
                thread.join()


def test_a_killed_worker_of_http_costs_nothing(serving: Serving) -> None:
    base = f"http://127.0.0.1:{serving.http}"

    def send(goes_on: Callable[[], bool], load: Load, sender: int) -> None:
        number = 0
        with httpx.Client(base_url=base, timeout=30) as client:
            while goes_on():
                number += 1
                with suppress(httpx.HTTPError):
                    body = f"{sender}-{number}"
                    if client.post("/v1/topics/orders/messages", content=body).status_code == 201:
                        load.accepted.add(body)

    def receive(goes_on: Callable[[], bool], load: Load) -> None:
        asked = {"wait_ms": 500, "max_messages": 16, "lease_ms": LEASE_MS}
        with httpx.Client(base_url=base, timeout=30) as client:
            while goes_on():
                with suppress(httpx.HTTPError, ValueError, KeyError):
                    messages = client.post(f"{GROUP}/receive", json=asked).json()["messages"]
                    load.received.update(message["body"] for message in messages)
                    if messages:
                        deliveries = [message["delivery"] for message in messages]
                        client.post(f"{GROUP}/ack", json={"deliveries": deliveries})

    load = Load(send, receive)
    load.accept_more(200)
    for _ in range(2):
        serving.kill_worker("http")
        load.accept_more(100)
    with Client(f"127.0.0.1:{serving.flight}") as client:
        load.finish(lambda: client.group_info("orders", "g").lag == 0)


def test_a_killed_worker_of_the_classic_front_costs_nothing(serving: Serving) -> None:
    def connected(goes_on: Callable[[], bool], work: Callable[[Remoting], None]) -> None:
        while goes_on():
            with suppress(OSError):
                client = Remoting(serving.remoting)
                try:
                    while goes_on():
                        work(client)
                finally:
                    client.close()

    def send(goes_on: Callable[[], bool], load: Load, sender: int) -> None:
        number = 0

        def one(client: Remoting) -> None:
            nonlocal number
            number += 1
            body = f"{sender}-{number}"
            if client.send("orders", body.encode(), UNIQ_KEY=body).code == ResponseCode.SUCCESS:
                load.accepted.add(body)

        connected(goes_on, one)

    offset = [0, 0, 0, 0]

    def receive(goes_on: Callable[[], bool], load: Load) -> None:
        def one(client: Remoting) -> None:
            for queue in range(4):
                answer = client.pull("orders", "g", offset[queue], wait_s=0.1, queueId=queue)
                load.received.update(message["body"].decode() for message in messages_of(answer.body))
                offset[queue] = int(answer.fields.get("nextBeginOffset", offset[queue]))

        connected(goes_on, one)

    load = Load(send, receive)
    load.accept_more(200)
    for _ in range(2):
        serving.kill_worker("remoting")
        load.accept_more(100)
    load.finish()
