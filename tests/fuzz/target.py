"""A broker in a process of its own, a good client beside it, and what must hold whatever others send."""

from __future__ import annotations

import base64
from pathlib import Path

import httpx

from tarry.client import Client
from tests.fuzz.served import ServedBroker


class Target:
    """Use it in a ``with`` block."""

    def __init__(self, directory: Path) -> None:
        self._broker = ServedBroker(directory)
        self.address = self._broker.address
        self._client = Client(self.address("flight"))
        self.secret = self._client.create_token("ns").secret
        """Of a token of the HTTP front's for namespace ns."""

    def check(self) -> None:
        """The broker lives, its log has no bug, and a good client gets what it schedules."""
        body = self._broker.check(self._client)
        queue, headers = f"http://{self.address('http')}/api/ns/good", {"x-token": self.secret}
        assert httpx.put(queue, content=body, headers=headers).status_code == 201
        job = httpx.get(queue, params={"timeout": 10}, headers=headers, timeout=30).json()
        assert base64.b64decode(job["data"]) == body
        assert httpx.delete(f"{queue}/job/{job['job_id']}", headers=headers).status_code == 204

    def __enter__(self) -> Target:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()
        self._broker.end()
