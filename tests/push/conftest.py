"""A broker in this process that pushes, to receivers on this machine."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tarry.broker import Broker
from tarry.fronts.push.front import PushFront
from tarry.fronts.registry import ServerConfig

MakeBroker = Callable[..., Broker]


@contextmanager
def opened(directory: Path, **settings: Any) -> Iterator[Broker]:
    """A broker on a directory, which pushes."""
    settings = {"push_private_addresses": "127.0.0.0/8", **settings}
    config = ServerConfig(data=directory, pipeline="off", disk_free_bytes_min=0, **settings)
    with Broker.open(config) as broker, PushFront.start(broker):
        yield broker


@pytest.fixture
def make_broker(tmp_path: Path) -> Iterator[MakeBroker]:
    """Opens a broker on one directory, which pushes; the one before is closed."""
    with ExitStack() as last:

        def make(**settings: Any) -> Broker:
            last.close()
            return last.enter_context(opened(tmp_path / "data", **settings))

        yield make


@pytest.fixture
def broker(make_broker: MakeBroker) -> Broker:
    return make_broker()


@pytest.fixture(scope="module")
def common(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """One that pushes for all that a module has refused, since nothing of it is kept."""
    with opened(tmp_path_factory.mktemp("common")) as broker:
        yield broker
