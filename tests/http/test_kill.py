"""kill -9 of the broker under load on the HTTP front: what was answered is there, and what was acknowledged is gone."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.compat.lmstfy.serving import Served, served
from tests.waiting import wait_until

pytestmark = pytest.mark.rest

KILLS, AT_ONCE, LEAST = 2, 3, 150
LONG_S = 300
"""Nothing that is taken in the end comes again."""


class Load:
    """Clients of one run of the broker, each with what it was answered; all of it ends with the broker."""

    def __init__(self, place: Served, secret: str) -> None:
        self.published: set[str] = set()
        self.asked: set[str] = set()
        """To be acknowledged: where the answer did not come, they may have been, or not."""
        self.settled: set[str] = set()
        self._base, self._headers = f"http://{place.host}:{place.port}", {"x-token": secret}
        work = (self._publish, self._publish_in_bulk, self._consume, self._schedule, self._receive)
        self._threads = [threading.Thread(target=self._go_on, args=(each,)) for each in work for _ in range(AT_ONCE)]
        for thread in self._threads:
            thread.start()

    def join(self) -> None:
        for thread in self._threads:
            thread.join(60)
            assert not thread.is_alive()

    def _go_on(self, work: Callable[[httpx.Client], None]) -> None:
        with httpx.Client(base_url=self._base, headers=self._headers, timeout=30) as http:
            try:
                while True:
                    work(http)
            except httpx.TransportError:
                return  # the broker was killed

    def _publish(self, http: httpx.Client) -> None:
        self.published.add(_json(http.put("/api/ns/q?tries=20", content=b"x"))["job_id"])

    def _publish_in_bulk(self, http: httpx.Client) -> None:
        self.published.update(_json(http.put("/api/ns/q/bulk?tries=20", content=b"[1,2,3]"))["job_ids"])

    def _consume(self, http: httpx.Client) -> None:
        for job in consumed(http):
            self.asked.add(job)
            assert http.delete(f"/api/ns/q/job/{job}").status_code == 204
            self.settled.add(job)

    def _schedule(self, http: httpx.Client) -> None:
        self.published.add(_json(http.post("/v1/topics/t/messages?tries=20", content=b"x"))["id"])

    def _receive(self, http: httpx.Client) -> None:
        for id, delivery in received(http):
            self.asked.add(id)
            answer = http.post("/v1/topics/t/groups/g/ack", json={"deliveries": [delivery]})
            if answer.status_code == 200:
                self.settled.add(id)


def _json(answer: httpx.Response) -> Any:
    assert answer.status_code in (200, 201), answer.text
    return answer.json()


def consumed(http: httpx.Client, count: int = 3, ttr_s: int = 5) -> list[str]:
    answer = http.get("/api/ns/q", params={"ttr": ttr_s, "timeout": 1, "count": count})
    return [] if answer.status_code == 404 else [job["job_id"] for job in _json(answer)]


def received(http: httpx.Client, count: int = 3, lease_ms: int = 5000) -> list[tuple[str, str]]:
    fields = {"wait_ms": 1000, "max_messages": count, "lease_ms": lease_ms}
    answer = http.post("/v1/topics/t/groups/g/receive", json=fields)
    return [(message["id"], message["delivery"]) for message in _json(answer)["messages"]]


def test_what_was_answered_holds(tmp_path: Path) -> None:
    published: set[str] = set()
    asked: set[str] = set()
    settled: set[str] = set()
    secret = ""
    for _ in range(KILLS):
        with served(tmp_path / "data") as place:
            secret = secret or place.token("ns")
            load = Load(place, secret)
            wait_until(lambda load=load: min(len(load.published), len(load.settled)) >= LEAST)  # type: ignore[misc]
            place.process.kill()
            place.process.wait()
            load.join()
        published |= load.published
        asked |= load.asked
        settled |= load.settled
    with served(tmp_path / "data") as place:
        base = f"http://{place.host}:{place.port}"
        with httpx.Client(base_url=base, headers={"x-token": secret}, timeout=30) as http:
            left: set[str] = set()

            def all_came() -> bool:
                left.update(consumed(http, 100, LONG_S), (id for id, _ in received(http, 100, LONG_S * 1000)))
                return published <= asked | left

            wait_until(all_came, what=lambda: f"{len(published - asked - left)} of {len(published)} are lost")
    assert not left & settled, "what was acknowledged came again"
