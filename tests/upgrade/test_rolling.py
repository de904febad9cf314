"""Client, gateway and broker of the last release and of this one, in each mixture, and a broker that is upgraded under
clients of the last release and a gateway of it."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import grpc
import pytest

from tests.rocketmq.rpc import Code, Rpc, now_ms
from tests.upgrade.releases import ROOT, Program, export, has_history, port_of
from tests.waiting import wait_until

pytestmark = [
    pytest.mark.rest,
    pytest.mark.timeout(300),
    pytest.mark.skipif(not has_history(), reason="the history of the repository is not here"),
]
CLIENT = str(Path(__file__).with_name("client_program.py"))
OLD, NEW = "old", "new"
MIXED = [(NEW, OLD), (OLD, NEW)]
SAID = {
    "scheduled": ["scheduled"] * 4,
    "duplicate": "duplicate",
    "cancelled": "done",
    "rescheduled": "done",
    "by key": True,
    "came": [*([f"now {n}", 1, str(n)] for n in range(4)), ["now 3", 2, "3"]],
    "pending": 2,
    "listed": 2,
    "dead": 1,
    "state": "serving",
    "paused": True,
    "history": True,
}


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return {OLD: export(tmp_path_factory.mktemp("last-release")), NEW: ROOT}


class Place:
    """Starts programs of either release in one directory."""

    def __init__(self, sources: dict[str, Path], directory: Path, stack: ExitStack) -> None:
        self._sources, self._directory, self._stack = sources, directory, stack

    def start(self, release: str, name: str, *arguments: str) -> Program:
        log = self._directory / f"{name}.log"
        return self._stack.enter_context(Program(self._sources[release], log, *arguments))

    def broker(self, release: str, port: int = 0) -> tuple[Program, int]:
        data = ["--data", str(self._directory / "data"), "--pipeline", "off", "--set", "disk_free_bytes_min=0"]
        ports = ["--flight", f"127.0.0.1:{port}", "--set", f"gateway={self.gateway_address}"]
        program = self.start(release, "broker", "-m", "tarry", "serve", *data, *ports)
        return program, port_of(program.line(), "flight on ")

    @property
    def gateway_address(self) -> str:
        return f"unix:{os.path.relpath(self._directory / 'g.sock')}"

    def gateway(self, release: str) -> tuple[Program, int]:
        to = ["--broker", self.gateway_address, "--rocketmq", "127.0.0.1:0", "--workers", "1"]
        program = self.start(release, "gateway", "-m", "tarry", "gateway", *to)
        port = port_of(program.line(), "rocketmq on ")
        wait_until(lambda: is_reached(port))  # its port is there before its worker
        return program, port

    def client(self, release: str, port: int, does: str) -> Program:
        return self.start(release, "client", CLIENT, str(port), does)

    def source_of(self, release: str) -> str:
        return str(self._sources[release] / "src")


@pytest.fixture
def place(sources: dict[str, Path], tmp_path: Path) -> Iterator[Place]:
    with ExitStack() as stack:
        yield Place(sources, tmp_path, stack)


def through(port: int) -> list[tuple[bytes, int]]:
    """Send through a gateway, now and later, and receive it."""
    rpc = Rpc(port, shared=False)
    try:
        for body, delay_ms in ((b"at once", 0), (b"later", 300)):
            more = {"due_ms": now_ms() + delay_ms} if delay_ms else {}
            assert rpc.send("through", body, message_id=body.decode(), **more).status.code == Code.OK
        came: list[tuple[bytes, int]] = []
        while len(came) < 2:
            messages = rpc.receive("through", "g", wait_s=5)
            came += [(each.body, each.system_properties.delivery_attempt) for each in messages]
            if messages:
                rpc.ack("through", "g", *messages)
        return sorted(came)
    finally:
        rpc.close()


@pytest.mark.parametrize(("broker", "other"), MIXED)
def test_each_speaks_with_each(place: Place, broker: str, other: str) -> None:
    _, port = place.broker(broker)
    client = place.client(other, port, "calls")
    said: dict[str, Any] = json.loads(client.line())
    assert said.pop("from").startswith(place.source_of(other))
    assert said == SAID
    _, gateway_port = place.gateway(other)
    assert through(gateway_port) == [(b"at once", 1), (b"later", 1)]


def test_a_broker_is_upgraded_under_clients_and_a_gateway_of_the_last_release(place: Place) -> None:
    broker, port = place.broker(OLD)
    client = place.client(OLD, port, "goes-on")
    _, gateway_port = place.gateway(OLD)
    assert through(gateway_port) == [(b"at once", 1), (b"later", 1)]
    assert json.loads(client.line()) == {"accepted": 50}
    assert broker.stop() == 0
    _, _ = place.broker(NEW, port)
    assert json.loads(client.line()) == {"accepted": 200}
    assert client.process.stdin is not None
    client.process.stdin.write("\n")
    client.process.stdin.flush()
    said = json.loads(client.line())
    assert said["missing"] == []
    assert said["accepted"] >= 200
    wait_until(lambda: is_reached(gateway_port))


def is_reached(port: int) -> bool:
    """Whether a gateway reaches its broker."""
    rpc = Rpc(port, shared=False)
    try:
        return bool(rpc.send("reached", b"?").status.code == Code.OK)
    except grpc.RpcError:
        return False
    finally:
        rpc.close()
