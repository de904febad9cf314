"""A broker with the HTTP front, and a client of lmstfy's API that sends what it is told to, as it is."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from tarry.broker import Broker
from tarry.fronts.http.front import HttpFront
from tarry.fronts.registry import ServerConfig
from tests.waiting import wait_until


class Lmstfy:
    """The broker, its front, and who asks it with a token of namespace ``ns``."""

    def __init__(self, broker: Broker, front: HttpFront, http: httpx.Client) -> None:
        self.broker = broker
        self.front = front
        self.http = http
        self.secret = broker.create_token("ns").secret

    def ask(self, method: str, path: str, content: bytes = b"", **headers: str) -> httpx.Response:
        shown = {"x-token": self.secret, **{name.replace("_", "-"): text for name, text in headers.items()}}
        return self.http.request(method, f"/api/{path}", content=content, headers=shown)

    def publish(self, path: str = "ns/q", content: bytes = b"hello", **headers: str) -> str:
        answer = self.ask("PUT", path, content, **headers)
        assert answer.status_code == 201, answer.text
        return str(answer.json()["job_id"])

    def consume(self, path: str = "ns/q?timeout=10") -> Any:
        answer = self.ask("GET", path)
        assert answer.status_code in (200, 404), answer.text
        return answer.json() if answer.status_code == 200 else None

    def size(self, path: str = "ns/q/size") -> int:
        return int(self.ask("GET", path).json()["size"])

    def wait_told(self) -> None:
        """Wait until the front has been told of a change of the tokens: in the broker's process it knows at once."""

    def wait_for_size(self, count: int, path: str = "ns/q/size") -> None:
        wait_until(lambda: self.size(path) == count)


def data_of(job: dict[str, Any]) -> bytes:
    return base64.b64decode(job["data"])


@contextmanager
def serving(directory: Path, **settings: Any) -> Iterator[Lmstfy]:
    """A broker on ``directory``."""
    config = ServerConfig(data=directory, pipeline="off", flight=None, **{"disk_free_bytes_min": 0, **settings})
    with (
        Broker.open(config) as broker,
        HttpFront.start(broker, "127.0.0.1:0") as front,
        httpx.Client(base_url=f"http://{front.address}", timeout=60) as http,
    ):
        yield Lmstfy(broker, front, http)
