"""A broker with a port of the link, in this process."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from loopgrpc import UnreadBytes
from tarry.base.config import Config
from tarry.broker import Broker
from tarry.fronts.link.front import LinkFront
from tests.link.raw_client import RawClient

UNREAD_BYTES = 64 << 20
Connect = Callable[..., RawClient]
"""Makes a client of the port."""


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    with Broker.open(Config(data=tmp_path / "data", pipeline="off", lease_ms=20_000)) as broker:
        yield broker


@pytest.fixture
def unread() -> UnreadBytes:
    return UnreadBytes(UNREAD_BYTES)


@pytest.fixture
def front(broker: Broker, unread: UnreadBytes) -> Iterator[LinkFront]:
    front = LinkFront.start(broker, "127.0.0.1:0", unread=unread)
    yield front
    front.stop(0.2)


@pytest.fixture
def connect(front: LinkFront) -> Iterator[Connect]:
    clients: list[RawClient] = []

    def new(**how: object) -> RawClient:
        clients.append(RawClient(front.address, **how))  # type: ignore[arg-type]
        return clients[-1]

    yield new
    for client in clients:
        client.close()
