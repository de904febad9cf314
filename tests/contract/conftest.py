"""A broker with a Flight front on a free port, in this process, with threads and the real clock."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tarry.base.config import Config
from tarry.broker import Broker
from tarry.client import Client
from tarry.fronts.flight.front import FlightFront


class Served:
    """A broker and its front, which a test may stop and start again on the same port and directory."""

    def __init__(self, data: Path, **settings: object) -> None:
        self.config = Config(data=data, pipeline="off", disk_free_bytes_min=0, **settings)  # type: ignore[arg-type]
        self.address = "127.0.0.1:0"
        self.running = False
        self.start()

    def start(self) -> None:
        self.broker = Broker.open(self.config, audited=True)
        self.front = FlightFront.start(self.broker, self.address)
        self.address = self.front.address
        self.running = True

    def stop(self) -> None:
        if self.running:
            self.running = False
            self.front.stop()
            self.broker.close()


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    """A broker, served."""
    found = Served(tmp_path / "data", lease_ms=60_000)
    yield found
    found.stop()


@pytest.fixture(scope="module")
def common(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """One broker for all that a module has refused, since nothing of it is kept."""
    found = Served(tmp_path_factory.mktemp("common") / "data", lease_ms=60_000)
    yield found
    found.stop()


@pytest.fixture(scope="module")
def common_client(common: Served) -> Iterator[Client]:
    """A client of ``common``."""
    with Client(common.address) as found:
        yield found


@pytest.fixture
def client(served: Served) -> Iterator[Client]:
    """A client of ``served``."""
    with Client(served.address) as found:
        yield found
