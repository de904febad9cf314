"""A broker with the front for classic clients, in this process, and clients of raw commands."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tarry.base.config import Config
from tarry.broker import Broker
from tarry.fronts.rocketmq.classic.front import RemotingFront
from tests.rocketmq_classic.remoting import Remoting


class Place:
    """A data directory, and the broker and front that serve it now."""

    def __init__(self, directory: Path, **settings: Any) -> None:
        self.config = Config(data=directory, pipeline="off", **{"disk_free_bytes_min": 0, **settings})
        self.clients: list[Remoting] = []
        self.open()

    def open(self) -> None:
        self.broker = Broker.open(self.config)
        self.front = RemotingFront.start(self.broker, "127.0.0.1:0")

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

    def client(self, **more: Any) -> Remoting:
        client = Remoting(self.front.port, **more)
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
def client(place: Place) -> Remoting:
    """A client of it."""
    return place.client()
