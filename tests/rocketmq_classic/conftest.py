"""A broker with the front for classic clients, in this process, and clients of raw commands."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tarry.fronts.rocketmq.classic.front import RemotingFront
from tests import rocketmq_place
from tests.rocketmq_classic.remoting import Remoting


class Place(rocketmq_place.Place[RemotingFront, Remoting]):
    def __init__(self, directory: Path, **settings: Any) -> None:
        super().__init__(RemotingFront, Remoting, directory, **settings)


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
def client(place: Place) -> Remoting:
    """A client of it."""
    return place.client()
