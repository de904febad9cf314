"""Brokers whose RocketMQ front is behind a link, and clients of raw calls."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests import rocketmq_place
from tests.gateway.places import GatewayPlace
from tests.rocketmq.rpc import Rpc


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[..., GatewayPlace]]:
    """Brokers with settings of their own."""
    with rocketmq_place.serving(GatewayPlace, tmp_path) as start:
        yield start


@pytest.fixture
def place(serve: Callable[..., GatewayPlace]) -> GatewayPlace:
    """A broker with the defaults."""
    return serve()


@pytest.fixture
def rpc(place: GatewayPlace) -> Rpc:
    """A client of it."""
    return place.client()
