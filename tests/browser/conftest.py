"""A console that is being served, and Chromium. Where Chromium is not installed, these tests are skipped."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tarry.broker import Broker
from tarry.fronts.http.front import HttpFront
from tarry.fronts.registry import ServerConfig
from tests.browser.visit import Visit, visiting


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    directory: Path = tmp_path_factory.mktemp("console") / "data"
    with Broker.open(ServerConfig(data=directory, pipeline="off", flight=None, disk_free_bytes_min=0)) as broker:
        yield broker


@pytest.fixture(scope="session")
def address(broker: Broker) -> Iterator[str]:
    with HttpFront.start(broker, "127.0.0.1:0") as front:
        yield f"http://{front.address}"


@pytest.fixture
def visit(address: str) -> Iterator[Visit]:
    with visiting(address) as visit:
        yield visit
    assert visit.complaints == [], "the browser's console is not empty"
