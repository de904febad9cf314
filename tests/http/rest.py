"""A broker with the HTTP front, in this process, and a client of it: what the tests of Tarry's own API begin with."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from tarry.broker import Broker
from tarry.fronts.http.front import HttpFront
from tarry.fronts.registry import ServerConfig


class Rest:
    """The front's address, the broker behind it, and a client."""

    def __init__(self, broker: Broker, front: HttpFront, http: httpx.Client) -> None:
        self.broker = broker
        self.front = front
        self.http = http

    def get(self, path: str, **more: Any) -> httpx.Response:
        return self.http.get(path, **more)

    def post(self, path: str, json: Any = None, **more: Any) -> httpx.Response:
        return self.http.post(path, json=json, **more)

    def schedule(self, body: bytes = b"x", topic: str = "orders", **fields: Any) -> dict[str, Any]:
        """A receipt."""
        answer = self.http.post(f"/v1/topics/{topic}/messages", content=body, params=fields)
        assert answer.status_code == 201, answer.text
        receipt: dict[str, Any] = answer.json()
        return receipt

    def receive(self, topic: str = "orders", group: str = "g", **fields: Any) -> list[dict[str, Any]]:
        fields = {"wait_ms": 10_000, **fields}
        answer = self.http.post(f"/v1/topics/{topic}/groups/{group}/receive", json=fields)
        assert answer.status_code == 200, answer.text
        messages: list[dict[str, Any]] = answer.json()["messages"]
        return messages


@contextmanager
def serving(directory: Path, **settings: Any) -> Iterator[Rest]:
    """A broker on ``directory``."""
    config = ServerConfig(data=directory, pipeline="off", flight=None, **{"disk_free_bytes_min": 0, **settings})
    with (
        Broker.open(config) as broker,
        HttpFront.start(broker, "127.0.0.1:0") as front,
        httpx.Client(base_url=f"http://{front.address}", timeout=60) as http,
    ):
        yield Rest(broker, front, http)
