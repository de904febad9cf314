"""Workers as processes: what is killed under load is started again, and costs nobody a message."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import grpc
import pytest

from tarry.base.errors import TarryError
from tarry.client import Client
from tests.loopgrpc.certificates import make_certificate
from tests.rocketmq.rpc import Code, RefusedError, Rpc, now_ms
from tests.waiting import wait_until

pytestmark = [pytest.mark.rest, pytest.mark.timeout(300)]

TOPIC, GROUP = "orders", "g"
INVISIBLE_MS = 10_000
READY_S = 60.0
QUIET_S = 60.0


class Serving:
    """``tarry serve`` with workers (inside), or a broker and ``tarry gateway`` (apart), which comes by TCP (far)."""

    def __init__(self, directory: Path, workers: int, kind: str) -> None:
        self._directory = directory
        self._workers = workers
        self._apart = kind != "inside"
        self._gateway = f"unix:{directory}/g.sock"
        self._shown: list[str] = []
        self._seen: list[str] = []
        if kind == "far":
            self._gateway = "127.0.0.1:0"
            (directory / "secret").write_text("0123456789abcdef\n")
            files = make_certificate(directory)
            self._seen = [f"gateway_secret={directory}/secret"]
            self._shown = [f"gateway_secret={directory}/secret", f"gateway_tls_ca={files.certificate}"]
            self._seen += [f"gateway_tls_certificate={files.certificate}", f"gateway_tls_key={files.key}"]
        self._processes: dict[str, subprocess.Popen[str]] = {}
        self.port = self.flight = 0
        self.start()

    def start(self) -> None:
        data = ["--data", str(self._directory / "data"), "--pipeline", "off", "--set", "disk_free_bytes_min=0"]
        port = ["--rocketmq", f"127.0.0.1:{self.port}"]
        own = ["--workers", str(self._workers)]
        flight = ["--flight", f"127.0.0.1:{self.flight}"]
        apart = setting(f"gateway={self._gateway}", *self._seen)
        line = self._run("serve", *data, *flight, *(apart if self._apart else [*port, *own]))
        self.flight = port_of(line, "flight on ")
        if self._apart and "gateway" not in self._processes:
            address = line.partition("gateways on ")[2].partition(",")[0]
            line = self._run("gateway", "--broker", address, *port, *own, *setting(*self._shown))
        if "rocketmq on" in line:
            self.port = port_of(line, "rocketmq on ")
        wait_until(lambda: len(self.workers()) == self._workers)

    def _run(self, *arguments: str) -> str:
        name = arguments[0]
        log = (self._directory / f"{name}.log").open("a")
        process = self._processes[name] = subprocess.Popen(
            [sys.executable, "-m", "tarry", *arguments], stdout=subprocess.PIPE, stderr=log, text=True
        )
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, (self._directory / f"{name}.log").read_text()
        return line

    def workers(self) -> list[dict[str, Any]]:
        """What each worker says of itself."""
        try:
            with Client(f"127.0.0.1:{self.flight}") as client:
                listed: list[dict[str, Any]] = client.status()["gateways"]
                return listed
        except TarryError:
            return []

    def kill(self, name: str) -> None:
        process = self._processes.pop(name)
        process.kill()
        process.wait()

    def close(self) -> None:
        for name in reversed(list(self._processes)):
            process = self._processes.pop(name)
            process.terminate()
            assert process.wait(30) == 0


def setting(*pairs: str) -> list[str]:
    return [word for pair in pairs for word in ("--set", pair)]


def port_of(line: str, before: str) -> int:
    return int(line.partition(before)[2].split()[0].strip(",").rpartition(":")[2])


class Load:
    """Producers and consumers that go on whatever happens."""

    def __init__(self, serving: Serving) -> None:
        self.accepted: dict[str, int] = {}
        """Due time by message id."""
        self.deliveries: Counter[str] = Counter()
        self.firsts: Counter[str] = Counter()
        """Deliveries as the first try."""
        self.early: list[str] = []
        self._serving = serving
        self._producing, self._consuming = threading.Event(), threading.Event()
        self._producing.set()
        self._consuming.set()
        self._threads = [threading.Thread(target=self._produce, args=[n]) for n in range(3)]
        self._threads += [threading.Thread(target=self._consume) for _ in range(3)]
        for thread in self._threads:
            thread.start()

    def _produce(self, producer: int) -> None:
        rpc, number = Rpc(self._serving.port, shared=False), 0
        while self._producing.is_set():
            number += 1
            id, due_ms = f"{producer}-{number}", now_ms() + 300
            with suppress(grpc.RpcError):
                if rpc.send(TOPIC, b"x" * 64, message_id=id, due_ms=due_ms).status.code == Code.OK:
                    self.accepted[id] = due_ms
        rpc.close()

    def _consume(self) -> None:
        rpc = Rpc(self._serving.port, shared=False)
        while self._consuming.is_set():
            try:
                messages = rpc.receive(TOPIC, GROUP, wait_s=1, invisible_ms=INVISIBLE_MS)
                received_ms = now_ms()
                for message in messages:
                    id = message.system_properties.message_id
                    self.deliveries[id] += 1
                    self.firsts[id] += message.system_properties.delivery_attempt == 1
                    if received_ms < message.system_properties.delivery_timestamp.ToMilliseconds():
                        self.early.append(id)
                if messages:
                    rpc.ack(TOPIC, GROUP, *messages)
            except (grpc.RpcError, RefusedError):
                time.sleep(0.05)  # a client that is refused waits a little
        rpc.close()

    def accepted_more(self, count: int) -> None:
        """Until so many more messages were accepted."""
        until_count = len(self.accepted) + count
        end_s = time.monotonic() + READY_S
        while len(self.accepted) < until_count:
            assert time.monotonic() < end_s, "nothing is accepted any more"
            time.sleep(0.02)

    def finish(self) -> None:
        """Stop producing, and wait until each message that was accepted has come."""
        self._producing.clear()
        end_s = time.monotonic() + QUIET_S
        while self.accepted.keys() - self.deliveries.keys() and time.monotonic() < end_s:
            time.sleep(0.1)
        self._consuming.clear()
        for thread in self._threads:
            thread.join()

    def abandon(self) -> None:
        self._producing.clear()
        self._consuming.clear()


@pytest.fixture
def serving(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Serving]:
    serving = Serving(tmp_path, 2, request.param)
    yield serving
    serving.close()


@pytest.fixture
def load(serving: Serving) -> Iterator[Load]:
    load = Load(serving)
    yield load
    load.abandon()


def kill_worker(serving: Serving, load: Load) -> int:
    """Kill the worker that has served the most, and wait until another one is in its place; how it is called."""
    before = serving.workers()
    victim = max(before, key=lambda worker: worker["connections"])
    os.kill(victim["pid"], signal.SIGKILL)
    wait_until(lambda: any(w["name"] == victim["name"] and w["pid"] != victim["pid"] for w in serving.workers()))
    load.accepted_more(100)
    return int(victim["pid"])


@pytest.mark.parametrize("serving", ["inside"], indirect=True)
def test_a_worker_that_is_killed_costs_nothing(serving: Serving, load: Load) -> None:
    load.accepted_more(200)
    for _ in range(2):
        kill_worker(serving, load)
    assert sum(worker["restarts"] for worker in serving.workers()) == 2
    load.finish()
    assert not load.accepted.keys() - load.deliveries.keys()
    assert load.early == []
    assert max(load.firsts.values()) == 1, "what comes again is another try of what was out"


@pytest.mark.parametrize("serving", ["apart"], indirect=True)
def test_a_broker_that_is_killed_costs_nothing(serving: Serving, load: Load) -> None:
    load.accepted_more(200)
    pids = {worker["pid"] for worker in serving.workers()}
    serving.kill("serve")
    serving.start()
    load.accepted_more(200)
    wait_until(lambda: {worker.get("pid") for worker in serving.workers()} == pids)  # what they knew ended, not they
    kill_worker(serving, load)
    serving.kill("serve")
    serving.start()
    load.accepted_more(100)
    load.finish()
    assert not load.accepted.keys() - load.deliveries.keys()
    assert load.early == []


@pytest.mark.parametrize("serving", ["far"], indirect=True)
def test_workers_end_with_who_started_them(serving: Serving) -> None:
    pids = [worker["pid"] for worker in serving.workers()]
    serving.kill("gateway")
    wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids))
    assert serving.workers() == []
