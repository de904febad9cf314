"""A worker's process over several brokers: nothing of the one before stays, and what connects meanwhile waits."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tarry.cli.exits import ExitCode
from tarry.cli.gateway_worker import Settings
from tarry.fronts.gateway.front import GatewayFront
from tarry.fronts.gateway.supervisor import Start
from tests.gateway.places import GatewayPlace
from tests.gateway.test_places import Machines
from tests.rocketmq.rpc import Code, Rpc
from tests.waiting import wait_until

pytestmark = pytest.mark.timeout(120)

# The worker as it is, which also says how many brokers it knows when it begins to serve.
_WORKER = """
import json, weakref
from tarry.cli import gateway_worker
from tarry.base.arrow_memory import bound_default_pool
bound_default_pool(0)
from tarry.fronts.gateway.remote import broker

known = weakref.WeakSet()
settle_memory = gateway_worker.settle_memory

class Known(broker.RemoteBroker):
    def __init__(self, *arguments):
        super().__init__(*arguments)
        known.add(self)

def settled():
    settle_memory()
    print(json.dumps(["knows", len(known)]), flush=True)

broker.RemoteBroker, gateway_worker.settle_memory = Known, settled
gateway_worker.main()
"""


class WorkerProcess:
    """A worker, and what its supervisor has of it: the port, and the end of its pipe."""

    def __init__(self, brokers: str, *program: str, **own: str) -> None:
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = self._listening.getsockname()[1]
        alive, self._ours = os.pipe()
        start = Start("rocketmq-1", self._listening.fileno(), alive, 0)
        settings = Settings(brokers, "rocketmq", f"127.0.0.1:{self.port}", own=own)
        python, *module, given = settings.command(start)
        fds = (self._listening.fileno(), alive)
        command = [python, *(program or module), given]
        self.process = subprocess.Popen(command, pass_fds=fds, stdout=subprocess.PIPE, text=True)
        os.close(alive)

    def lines(self, count: int) -> list[list[Any]]:
        """The next lines that it writes."""
        assert self.process.stdout is not None
        return [json.loads(self.process.stdout.readline()) for _ in range(count)]

    def abandon(self) -> None:
        """End as its supervisor does when it is killed."""
        if self._ours >= 0:
            os.close(self._ours)
        self._ours = -1

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()
        self._listening.close()
        self.abandon()


@pytest.fixture
def work() -> Iterator[Callable[..., WorkerProcess]]:
    """Workers, ended at the end."""
    with ExitStack() as stack:

        def start(*arguments: str, **own: str) -> WorkerProcess:
            worker = WorkerProcess(*arguments, **own)
            stack.callback(worker.close)
            return worker

        yield start


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[Machines]:
    machines = Machines(tmp_path)
    yield machines
    machines.end()


@pytest.mark.rest
def test_the_next_front_begins_with_nothing(machines: Machines, work: Callable[..., WorkerProcess]) -> None:
    machines.begin(0)
    worker = work(machines.list, "-c", _WORKER)
    for at in (1, 0, 1):
        assert worker.lines(2) == [["knows", 1], ["serving", machines.addresses[1 - at], None]]
        rpc = Rpc(worker.port, shared=False)
        assert rpc.send("orders").status.code == Code.OK
        rpc.close()
        machines.end()
        machines.begin(at)
    assert worker.process.poll() is None


@pytest.mark.rest
def test_what_connects_while_nobody_serves_waits(machines: Machines, work: Callable[..., WorkerProcess]) -> None:
    machines.begin(0)
    worker = work(machines.list)
    assert worker.lines(1) == [["serving", machines.addresses[0], None]]
    machines.end()
    wait_until(lambda: not _is_answered(worker.port))
    rpc = Rpc(worker.port, shared=False)
    with ThreadPoolExecutor(1) as pool:
        sent = pool.submit(rpc.send, "orders")
        machines.begin(1)
        assert sent.result().status.code == Code.OK
    rpc.close()


def _is_answered(port: int) -> bool:
    """Whether a connection to a port is taken: HTTP/2 begins with a frame of the server's."""
    with socket.create_connection(("127.0.0.1", port), 10) as connection:
        connection.settimeout(1)
        connection.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0]))
        try:
            return bool(connection.recv(1))
        except TimeoutError:
            return False
        except ConnectionError:
            return True


@pytest.mark.rest
@pytest.mark.parametrize("is_told", [True, False])
def test_one_that_looks_for_its_broker_ends(
    is_told: bool, machines: Machines, work: Callable[..., WorkerProcess]
) -> None:
    """When it is told to, and when who started it is gone."""
    machines.begin(0)
    worker = work(machines.list)
    worker.lines(1)
    machines.end()
    wait_until(lambda: not _is_answered(worker.port))
    if is_told:
        worker.process.send_signal(signal.SIGTERM)
    else:
        worker.abandon()
    assert worker.process.wait(30) == 0


def test_one_that_is_not_taken_ends(
    serve: Callable[..., GatewayPlace], work: Callable[..., WorkerProcess], tmp_path: Path
) -> None:
    """Its supervisor starts another one, after a pause: a wrong secret would be as wrong in a moment."""
    for name, secret in (("right", "x"), ("wrong", "y")):
        (tmp_path / name).write_text(secret * 32)
    place = serve(gateway_secret=str(tmp_path / "right"))
    front = GatewayFront.start(place.broker, "127.0.0.1:0")
    try:
        worker = work(front.address, gateway_secret=str(tmp_path / "wrong"))
        assert worker.process.wait(30) == ExitCode.USAGE
    finally:
        front.stop()
