"""A broker with the RocketMQ front, in this process, and clients of raw calls."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tarry.base.config import Config
from tarry.broker import Broker
from tarry.fronts.rocketmq import RocketMQFront
from tests.faults import FaultyFiles
from tests.rocketmq.rpc import Rpc

WAIT_S = 15


def until(what: Callable[[], bool]) -> None:
    """Wait for what happens by itself, and soon."""
    end = time.monotonic() + WAIT_S
    while not what():
        assert time.monotonic() < end, "in vain"
        time.sleep(0.02)


class Disk(FaultyFiles):
    """One that can be full, too."""

    free: int | None = None

    def free_bytes(self, path: Path) -> int:
        return super().free_bytes(path) if self.free is None else self.free


class Place:
    """A data directory, and the broker and front that serve it now."""

    def __init__(self, directory: Path, **settings: Any) -> None:
        self.config = Config(data=directory, pipeline="off", **{"disk_free_bytes_min": 0, **settings})
        self.disk = Disk()
        self.clients: list[Rpc] = []
        self.open()

    def open(self) -> None:
        self.broker = Broker.open(self.config, files=self.disk)
        self.front = RocketMQFront.start(self.broker, "127.0.0.1:0")

    def close(self) -> None:
        for client in self.clients:
            client.close()
        self.clients.clear()
        self.front.stop(0.2)
        self.broker.close()

    def restart(self) -> None:
        """As after a stop; the port is another one."""
        self.close()
        self.open()

    def wait_for_receives(self, count: int, topic: str = "orders", group: str = "g") -> None:
        """Until so many receives wait for messages of a group."""
        until(lambda: self.front.waiting_receives(topic, group) == count)

    def client(self, id: str | None = None, **more: Any) -> Rpc:
        client = Rpc(self.front.port, id, **more)
        self.clients.append(client)
        return client


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[..., Place]]:
    """Brokers with settings of their own."""
    with ExitStack() as stack:

        def start(**settings: Any) -> Place:
            place = Place(tmp_path / f"data-{len(list(tmp_path.iterdir()))}", **settings)
            stack.callback(place.close)
            return place

        yield start


@pytest.fixture
def place(serve: Callable[..., Place]) -> Place:
    """A broker with the defaults."""
    return serve()


@pytest.fixture
def rpc(place: Place) -> Rpc:
    """A client of it."""
    return place.client()
