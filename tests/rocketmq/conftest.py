"""A broker with the RocketMQ front, in this process, and clients of raw calls."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tarry.fronts.rocketmq.front import RocketMQFront
from tests import rocketmq_place
from tests.faults import FaultyFiles
from tests.rocketmq.rpc import Rpc
from tests.waiting import wait_until

WAIT_S = 15


class Disk(FaultyFiles):
    """One that can be full, too."""

    free: int | None = None

    def free_bytes(self, path: Path) -> int:
        return super().free_bytes(path) if self.free is None else self.free


class Place(rocketmq_place.Place[RocketMQFront, Rpc]):
    """With a disk that can be full."""

    def __init__(self, directory: Path, **settings: Any) -> None:
        self.files = self.disk = Disk()
        super().__init__(RocketMQFront, Rpc, directory, **settings)

    def wait_for_receives(self, count: int, topic: str = "orders", group: str = "g") -> None:
        """Until so many receives wait for messages of a group."""
        wait_until(lambda: self.front.waiting_receives(topic, group) == count)


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[..., Place]]:
    """Brokers with settings of their own."""
    with rocketmq_place.serving(Place, tmp_path) as start:
        yield start


@pytest.fixture
def place(serve: Callable[..., Place]) -> Place:
    """A broker with the defaults."""
    return serve()


@pytest.fixture
def rpc(place: Place) -> Rpc:
    """A client of it."""
    return place.client()
