"""A gateway that knows several addresses of a broker: its workers find the owner, also after a takeover."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import grpc
import pyarrow as pa
import pytest

from tarry.api.operations import ListGroups
from tarry.base.errors import UnavailableError
from tarry.broker import Broker
from tarry.fronts.gateway.front import GatewayFront
from tarry.fronts.gateway.remote.broker import FoundOwner, RemoteBroker
from tarry.fronts.registry import ServerConfig
from tests.gateway.places import Worker
from tests.rocketmq.rpc import RefusedError, Rpc
from tests.waiting import wait_until

TOPIC, GROUP = "orders", "g"


class Machines:
    """Two places where gateways connect; the broker of one directory is at one of them at a time."""

    def __init__(self, directory: Path) -> None:
        self._config = ServerConfig(data=directory / "data", pipeline="off", disk_free_bytes_min=0)
        self.addresses = [f"unix:{directory}/{name}.sock" for name in "ab"]
        self.list = ",".join(self.addresses)
        self._stack = ExitStack()

    def begin(self, at: int) -> None:
        self.broker = self._stack.enter_context(Broker.open(self._config))
        self._stack.callback(GatewayFront.start(self.broker, self.addresses[at]).stop)

    def end(self) -> None:
        self._stack.close()

    def schedule(self, body: bytes) -> None:
        """Schedule a message that is due, by the broker itself."""
        self.broker.schedule_batch(
            pa.record_batch({"topic": [TOPIC], "body": [body], "delay_ms": pa.array([0], pa.int64())})
        )

    def workers(self) -> dict[int, int]:
        """Each worker that has said so: its process, and how often it began again."""
        return {each["pid"]: each["restarts"] for each in self.broker.status()["gateways"] if "pid" in each}

    def has_group(self) -> bool:
        """Whether somebody has asked for messages."""
        return any(each.group == GROUP for each in self.broker.call(ListGroups()))


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[Machines]:
    machines = Machines(tmp_path)
    yield machines
    machines.end()


def test_a_worker_finds_the_owner(machines: Machines) -> None:
    machines.begin(1)
    worker = Worker(machines.list)
    assert worker.remote.found == FoundOwner(machines.addresses[1], None)
    rpc = Rpc(worker.front.port, "C", shared=False)
    rpc.send(TOPIC)
    assert len(rpc.receive(TOPIC, GROUP)) == 1
    rpc.close()
    machines.end()
    wait_until(lambda: worker.lost)
    worker.stop()
    machines.begin(0)
    again = RemoteBroker(machines.list, "w", "rocketmq", "rocketmq-1", found=worker.remote.found)
    assert again.found.address == machines.addresses[0]
    again.close()


def test_a_worker_stays_with_the_owner_that_it_found(machines: Machines) -> None:
    """Its groups' numbers and what it was told are of that one; with another one it begins anew."""
    machines.begin(0)
    remote = RemoteBroker(machines.list, "w", "rocketmq", "rocketmq-1")
    machines.end()
    machines.begin(1)
    with pytest.raises(UnavailableError):
        remote.call(ListGroups())
    remote.close()


def test_nobody_is_there(machines: Machines) -> None:
    """One turn over the addresses is refused: the worker goes on, and looks whether it is to stop between two."""
    with pytest.raises(UnavailableError) as refused:
        RemoteBroker(machines.list, "w", "rocketmq", "rocketmq-1")
    one, other = machines.addresses
    assert str(refused.value) == (
        f"no answer from a broker at {one}: No such file or directory; {other}: No such file or directory; "
        "nothing was sent"
    )


@pytest.mark.rest
def test_a_gateway_over_a_change_of_broker(machines: Machines, tmp_path: Path) -> None:
    """A consumer that waits goes on waiting, as after a restart of its broker, and gets what the next owner has.

    The worker's process stays.
    """
    machines.begin(0)
    command = [sys.executable, "-m", "tarry", "gateway", "--broker", machines.list, "--rocketmq", "127.0.0.1:0"]
    with (tmp_path / "gateway.log").open("w") as log:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
    assert process.stdout is not None
    port = int(process.stdout.readline().partition("rocketmq on ")[2].split(",")[0].rpartition(":")[2])
    consumer = Consumer(port)
    wait_until(machines.has_group)
    wait_until(machines.workers)
    [pid] = machines.workers()
    for at in (1, 0):
        machines.end()
        machines.begin(at)
        machines.schedule(b"%d" % at)
        wait_until(lambda: len(consumer.received) == 2 - at)  # noqa: B023 - it is called here
        wait_until(lambda: machines.workers() == {pid: 2 - at})  # noqa: B023 - it is called here
    consumer.end()
    assert consumer.received == [b"1", b"0"]
    process.terminate()
    assert process.wait(30) == 0


class Consumer:
    """Receives by a gateway, and asks again where a worker ended: as a client does."""

    def __init__(self, port: int) -> None:
        self.received: list[bytes] = []
        self._ends = False
        self._rpc = Rpc(port, "C", shared=False)
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._ends:
            with suppress(grpc.RpcError, RefusedError):
                for message in self._rpc.receive(TOPIC, GROUP, wait_s=20):
                    self._rpc.ack(TOPIC, GROUP, message)
                    self.received.append(message.body)

    def end(self) -> None:
        self._ends = True
        self._rpc.close()
        self._thread.join()
