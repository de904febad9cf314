"""The tests of Tarry's own API, in a worker and its home: what a client sees is the same."""

# ruff: noqa: F403
from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.gateway.worker_places import http_workers
from tests.http.rest import Rest
from tests.http.test_rest_batches import *
from tests.http.test_rest_events import *
from tests.http.test_rest_messages import *

pytestmark = pytest.mark.rest


@pytest.fixture
def rest(tmp_path: Path) -> Iterator[Rest]:
    """A worker's client."""
    with http_workers(tmp_path / "data", 1) as workers:
        [front] = workers.fronts
        with httpx.Client(base_url=f"http://{front.address}", timeout=60) as http:
            yield Rest(workers.broker, front, http)
