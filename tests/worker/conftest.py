"""A broker that is served, and workers that run beside the test, in its event loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

import tarry
from tarry.client import Client
from tests.contract.conftest import Served


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    found = Served(tmp_path / "data", retry_ms=1)
    yield found
    found.stop()


@pytest.fixture
def client(served: Served) -> Iterator[Client]:
    with Client(served.address) as found:
        yield found


@asynccontextmanager
async def running(worker: tarry.Worker) -> AsyncIterator[asyncio.Task[None]]:
    """Run a worker; at the end it is stopped, and must end well."""
    task = asyncio.create_task(worker.serve())
    try:
        yield task
    finally:
        worker.stop()
        await task
