"""Connections of nobody who is known make room for others, at ports that find out by each request who calls."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest
from tests.identity.conftest import Known

from tarry.base.descriptors import ConnectionLimits
from tarry.client import Client
from tarry.fronts.flight.front import FlightFront
from tarry.fronts.http.front import HttpFront
from tarry.fronts.kit import admission
from tarry.fronts.kit.admission import Admissions
from tarry.fronts.rocketmq.front import RocketMQFront

HTTP2 = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0"
STRANGERS: dict[str, tuple[Any, bytes]] = {
    "flight": (FlightFront, HTTP2),
    "rocketmq": (RocketMQFront, HTTP2),
    "http": (HttpFront, b"GET /v1/ping HTTP/1.1\r\nhost: localhost\r\n\r\n"),
}


def test_the_oldest_that_has_shown_nothing_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> None:
        admissions = Admissions(ConnectionLimits(2, 2), 2, asks=True)
        cut: list[str] = []
        first, second = (admissions.admit("h", lambda name=name: cut.append(name)) for name in ("first", "second"))
        for each in (first, second):
            each.begun()
        first.trusted()
        assert admissions.admit("h", lambda: None).refusal is not None  # they have had no time yet
        monkeypatch.setattr(admission, "BEGIN_S", 0.0)
        third = admissions.admit("h", lambda: None)
        assert (third.refusal, cut) == (None, ["second"])
        third.begun()
        third.trusted()
        assert admissions.admit("h", lambda: None).refusal is not None
        assert not Admissions(ConnectionLimits(1, 1))._untrusted  # noqa: SLF001 - a port that does not ask keeps none

    asyncio.run(run())


@contextmanager
def full(known: Known, port: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Any, list[socket.socket]]]:
    """A port with room for three, which strangers have taken."""
    front_class, bytes_ = STRANGERS[port]
    front = front_class.start(known.broker, "127.0.0.1:0", connections=ConnectionLimits(3, 3))
    strangers = []
    try:
        for _ in range(3):
            stranger = socket.create_connection(("127.0.0.1", int(front.address.rpartition(":")[2])), timeout=30)
            stranger.sendall(bytes_)
            assert stranger.recv(1)
            strangers.append(stranger)
        monkeypatch.setattr(admission, "BEGIN_S", 0.0)
        yield front, strangers
    finally:
        for stranger in strangers:
            stranger.close()
        front.stop()


def _by_http(address: str, known: Known) -> None:
    headers = {"authorization": f"Bearer {known.billing}"}
    assert httpx.get(f"http://{address}/v1/ping", headers=headers).status_code == 200


def _by_link(address: str, known: Known) -> None:
    with Client(address, token=known.billing, timeout=10) as client:
        assert client.whoami().identity == "billing"


def _begins(address: str, known: Known) -> None:
    host, port = address.split(":")
    with socket.create_connection((host, int(port)), timeout=30) as connection:
        connection.sendall(HTTP2)
        assert connection.recv(1)


CALLERS: dict[str, Callable[[str, Known], None]] = {"http": _by_http, "flight": _by_link, "rocketmq": _begins}


@pytest.mark.parametrize("port", CALLERS)
def test_a_port_that_strangers_fill_lets_others_in(known: Known, port: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with full(known, port, monkeypatch) as (front, _):
        CALLERS[port](front.address, known)


def test_who_has_shown_who_it_is_keeps_its_place(known: Known, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admission, "BEGIN_S", 0.0)
    front = HttpFront.start(known.broker, "127.0.0.1:0", connections=ConnectionLimits(2, 2))
    headers = {"authorization": f"Bearer {known.billing}"}
    with httpx.Client(base_url=f"http://{front.address}", headers=headers) as mine:
        assert mine.get("/v1/ping").status_code == 200
        port = int(front.address.rpartition(":")[2])
        for _ in range(5):
            with socket.create_connection(("127.0.0.1", port), timeout=30) as stranger:
                stranger.sendall(STRANGERS["http"][1])
                assert stranger.recv(1)
                assert mine.get("/v1/ping").status_code == 200
    front.stop()
