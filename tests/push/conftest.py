"""A broker in this process that pushes, to receivers on this machine."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tarry.broker import Broker
from tarry.fronts.push.front import PushFront
from tarry.fronts.registry import ServerConfig

MakeBroker = Callable[..., Broker]


@pytest.fixture
def make_broker(tmp_path: Path) -> Iterator[MakeBroker]:
    """Opens a broker on one directory, which pushes; the one before is closed."""
    with ExitStack() as last:

        def make(**settings: Any) -> Broker:
            last.close()
            settings = {"push_private_addresses": "127.0.0.0/8", **settings}
            config = ServerConfig(data=tmp_path / "data", pipeline="off", disk_free_bytes_min=0, **settings)
            broker = last.enter_context(Broker.open(config))
            last.enter_context(PushFront.start(broker))
            return broker

        yield make


@pytest.fixture
def broker(make_broker: MakeBroker) -> Broker:
    return make_broker()
