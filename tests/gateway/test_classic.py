"""The tests of the classic front, in a worker and its home: what a client sees is the same."""

# ruff: noqa: F403
from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests import rocketmq_place
from tests.gateway.worker_places import ClassicPlace
from tests.rocketmq_classic.remoting import Remoting
from tests.rocketmq_classic.test_consuming import *
from tests.rocketmq_classic.test_dead_letters import *
from tests.rocketmq_classic.test_lost_answers import *
from tests.rocketmq_classic.test_popping import *
from tests.rocketmq_classic.test_replying import *
from tests.rocketmq_classic.test_sending import *
from tests.rocketmq_classic.test_transactions import *

pytestmark = pytest.mark.rest


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[..., ClassicPlace]]:
    """Brokers with settings of their own."""
    with rocketmq_place.serving(ClassicPlace, tmp_path) as start:
        yield start


@pytest.fixture
def place(serve: Callable[..., ClassicPlace]) -> ClassicPlace:
    """A broker with the defaults."""
    return serve()


@pytest.fixture
def client(place: ClassicPlace) -> Remoting:
    """A client of it."""
    return place.client()
