"""The tests of lmstfy's API, in a worker: what a client sees is the same."""

# ruff: noqa: F403
from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from tests.gateway.worker_places import http_workers
from tests.http.lmstfy_place import Lmstfy
from tests.http.test_lmstfy_routes import *
from tests.http.test_lmstfy_waiting import *
from tests.waiting import wait_until

pytestmark = pytest.mark.rest


class LmstfyInWorker(Lmstfy):
    def wait_told(self) -> None:
        told = self.front._broker  # noqa: SLF001 - what the worker was told
        wait_until(lambda: told.access_tokens == self.broker.access_tokens)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lmstfy]:
    """A worker's client."""
    with http_workers(tmp_path_factory.mktemp("lmstfy") / "data", 1) as workers:
        [front] = workers.fronts
        with httpx.Client(base_url=f"http://{front.address}", timeout=60) as http:
            place = LmstfyInWorker(workers.broker, front, http)
            place.ask("DELETE", f"ns/first/job/{place.publish('ns/first?delay=3600')}")
            yield place
