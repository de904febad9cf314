"""What many clients, slow ones and large bodies may take of the HTTP front together."""

from __future__ import annotations

import json
import socket
import threading
from pathlib import Path

import httpx
import psutil
import pytest

from tarry.broker import Broker
from tarry.fronts.http.body_budget import BodyBudget
from tarry.fronts.http.front import HttpFront
from tarry.fronts.http.server.limits import HttpLimits
from tarry.fronts.registry import ServerConfig
from tests.http.lmstfy_place import serving
from tests.waiting import wait_until

POLLS = 2000
EVENTS, EVENT_BYTES = 500, 100_000


def connect(front: HttpFront) -> socket.socket:
    return socket.create_connection(("127.0.0.1", front.port), timeout=60)


def connections_to(front: HttpFront) -> int:
    """How many the front has: what was said last may be in the system's buffers for long."""
    found = psutil.Process().net_connections("tcp")
    return sum(each.status == psutil.CONN_ESTABLISHED and each.laddr.port == front.port for each in found)


def left_by_clients(front: HttpFront) -> int:
    """How many connections clients have closed, and the front has not."""
    found = psutil.Process().net_connections("tcp")
    return sum(each.status == psutil.CONN_CLOSE_WAIT and each.laddr.port == front.port for each in found)


@pytest.mark.rest
def test_two_thousand_long_polls(tmp_path: Path) -> None:
    with serving(tmp_path) as place:
        place.ask("DELETE", f"ns/q/job/{place.publish('ns/q?delay=3600')}")
        asked = f"GET /api/ns/q?timeout=300&ttr=300 HTTP/1.1\r\nHost: localhost\r\nX-Token: {place.secret}\r\n\r\n"
        waiting = [connect(place.front) for _ in range(POLLS)]
        try:
            for sock in waiting:
                sock.sendall(asked.encode())
            before = threading.active_count()
            # Who asks last is served, whoever waits elsewhere.
            place.publish("ns/other")
            assert place.consume("ns/other?timeout=10") is not None
            for _ in range(10):
                waiting.pop().close()  # those take nothing with them
            # Else one might be answered before the front has read that its client is gone: the job stays leased then.
            wait_until(lambda: left_by_clients(place.front) == 0, what="the front knows of it")
            jobs = json.dumps(list(range(64))).encode()
            for _ in range(len(waiting) // 64):
                assert place.ask("PUT", "ns/q/bulk", jobs).status_code == 201
            for _ in range(len(waiting) % 64):
                place.publish("ns/q")
            got = [sock.recv(65536) for sock in waiting]
            assert all(answer.startswith(b"HTTP/1.1 200") for answer in got)
            ids = {json.loads(answer.partition(b"\r\n\r\n")[2])["job_id"] for answer in got}
            assert len(ids) == len(waiting), "each has a job of its own"
            assert threading.active_count() <= before, "none of them took a thread"
        finally:
            for sock in waiting:
                sock.close()


@pytest.mark.rest
def test_who_reads_no_events_takes_little_and_is_cut(tmp_path: Path) -> None:
    config = ServerConfig(data=tmp_path, pipeline="off", flight=None, disk_free_bytes_min=0)
    limits = HttpLimits(write_s=0.5)
    with Broker.open(config) as broker, HttpFront(broker, "127.0.0.1:0", limits=limits) as front:
        for _ in range(EVENTS):
            broker.schedule("t", b"x" * EVENT_BYTES)
        with connect(front) as sock:
            sock.sendall(b"GET /v1/topics/t/groups/g/events?prefetch=1000 HTTP/1.1\r\nHost: localhost\r\n\r\n")
            wait_until(lambda: connections_to(front) == 1, what="the stream")
            wait_until(lambda: connections_to(front) == 0, what="its end")
            came = 0
            try:
                while data := sock.recv(1 << 20):
                    came += len(data)
            except ConnectionResetError:
                pass
        assert came < EVENTS * EVENT_BYTES / 2, "the rest was never written"
        rest = httpx.get(f"http://{front.address}/v1/ping", timeout=60)
        assert rest.status_code == 200


def test_bodies_of_jobs_have_a_bound_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BodyBudget.__init__, "__defaults__", (1 << 20,))
    with serving(tmp_path) as place:
        place.publish("ns/q?delay=3600")
        head = f"PUT /api/ns/q?delay=3600 HTTP/1.1\r\nHost: localhost\r\nX-Token: {place.secret}\r\n"
        with connect(place.front) as sock:
            sock.sendall(f"{head}Content-Length: 900000\r\nExpect: 100-continue\r\n\r\n".encode())
            assert sock.recv(65536).startswith(b"HTTP/1.1 100"), "it is being read"
            answer = place.ask("PUT", "ns/q?delay=3600", b"x" * 200_000)
            assert (answer.status_code, "try again later" in answer.json()["error"]) == (503, True)
            place.publish("ns/q?delay=3600", b"a small one")
            sock.sendall(b"x" * 900_000)
            assert sock.recv(65536).startswith(b"HTTP/1.1 201")
        assert place.ask("PUT", "ns/q?delay=3600", b"x" * 900_000).status_code == 201
