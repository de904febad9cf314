"""Brokers as real processes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tarry_demo.broker_process import BrokerProcess

MakeBroker = Callable[..., BrokerProcess]


@pytest.fixture
def make_broker(tmp_path: Path) -> Iterator[MakeBroker]:
    """Starts brokers on ``tmp_path / "data"``; everything of theirs is ended with the test."""
    with ExitStack() as stack:

        def make(**settings: str | int) -> BrokerProcess:
            broker = BrokerProcess(tmp_path / "data", tmp_path / "broker.log", settings)
            stack.enter_context(broker)
            broker.start()
            return broker

        yield make
