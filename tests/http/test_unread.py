"""Clients that ask and do not read: what waits for them has a bound, others are served, and they are cut."""

from __future__ import annotations

import json
import socket
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pytest

from loopgrpc import ANSWER_BYTES, UnreadBytes
from tarry.api.operation import Operation
from tarry.api.operations import Peek
from tarry.broker import Broker
from tarry.fronts.http.front import HttpFront
from tarry.fronts.http.server.limits import HttpLimits
from tarry.fronts.kit.loop_thread import THREADS
from tarry.fronts.registry import ServerConfig
from tests.waiting import wait_until

BODY_BYTES = 1 << 20
UNREAD_BYTES = 48 << 20
"""One address has half, and no answer is begun with less than the size of one left: 8 MiB of them may be unread."""
MESSAGES = 60


class Place:
    """A broker that has messages in one topic, its front, and a client that reads."""

    def __init__(self, directory: Path, stack: ExitStack, write_s: float) -> None:
        config = ServerConfig(data=directory, pipeline="off", flight=None, disk_free_bytes_min=0)
        self.broker = stack.enter_context(Broker.open(config))
        self.unread = UnreadBytes(UNREAD_BYTES)
        self.front = stack.enter_context(
            HttpFront(self.broker, "127.0.0.1:0", limits=HttpLimits(write_s=write_s), unread=self.unread)
        )
        self.http = stack.enter_context(httpx.Client(base_url=f"http://{self.front.address}", timeout=60))
        self._stack = stack
        for number in range(MESSAGES):
            answer = self.http.post("/v1/topics/t/messages", content=b"%06d" % number + b"x" * BODY_BYTES)
            assert answer.status_code == 201

    def send(self, request: bytes) -> socket.socket:
        """On a connection that does not read."""
        sock = self._stack.enter_context(socket.socket())
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sock.settimeout(60)
        sock.connect(("127.0.0.1", self.front.port))
        sock.sendall(request)
        return sock

    def receive(self, count: int, wait_ms: int = 0) -> httpx.Response:
        return self.http.post(
            "/v1/topics/t/groups/g/receive", json={"max_messages": count, "wait_ms": wait_ms, "lease_ms": 60_000}
        )


@contextmanager
def place(directory: Path, write_s: float = 60.0) -> Iterator[Place]:
    with ExitStack() as stack:
        yield Place(directory, stack, write_s)


def receiving(count: int, wait_ms: int = 0) -> bytes:
    body = json.dumps({"max_messages": count, "wait_ms": wait_ms, "lease_ms": 60_000}).encode()
    return (
        b"POST /v1/topics/t/groups/g/receive HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
        b"content-length: %d\r\n\r\n%b" % (len(body), body)
    )


EVENTS = b"GET /v1/topics/t/groups/g/events?prefetch=12 HTTP/1.1\r\nhost: localhost\r\n\r\n"


def leased(at: Place) -> int:
    return at.broker.group_info("t", "g").leased


@pytest.mark.parametrize("request_bytes", [receiving(10), receiving(10, 50_000), EVENTS], ids=["now", "wait", "events"])
def test_what_nobody_reads_has_a_bound_by_address(request_bytes: bytes, tmp_path: Path) -> None:
    with place(tmp_path) as at:
        silent = [at.send(request_bytes) for _ in range(6)]
        wait_until(lambda: at.unread.refusal("127.0.0.1") is not None)
        # Leased, but for the one that is written: no more than there is room for.
        refused = at.receive(1)
        assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
        assert refused.json()["error"] == "overloaded"
        assert f"{(UNREAD_BYTES // 2) - ANSWER_BYTES} of one address" in refused.json()["message"]
        assert at.unread.held < UNREAD_BYTES // 2 + ANSWER_BYTES
        assert leased(at) <= 30
        # What is large is refused, whatever asks for it; what is sent and settled is not.
        assert at.http.get("/").status_code == 503
        assert at.http.get("/v1/topics").status_code == 503
        assert at.http.post("/v1/topics/other/messages", content=b"x").status_code == 201
        for sock in silent:
            sock.close()
        # What goes back may be handed to a stream whose end was not seen yet.
        wait_until(lambda: at.http.get("/v1/topics").status_code == 200)
        wait_until(lambda: at.receive(1, 1_000).status_code == 200)
        wait_until(lambda: at.unread.held == 0)


@pytest.mark.rest
def test_answers_that_are_being_made_are_counted_before_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Requests that were let in while nothing was unread, and wait for a thread."""
    go, call, called = threading.Event(), Broker.call, Counter[str]()

    def held(broker: Broker, operation: Operation[Any]) -> Any:
        called[type(operation).__name__] += 1
        assert not isinstance(operation, Peek) or go.wait(60)
        return call(broker, operation)

    with place(tmp_path) as at:
        wait_until(lambda: at.broker.group("t", "g").queue_ends[1] == MESSAGES)
        monkeypatch.setattr(Broker, "call", held)
        try:
            request = b"GET /v1/topics/t/ready?limit=10 HTTP/1.1\r\nhost: localhost\r\n\r\n"
            silent = [at.send(request) for _ in range(THREADS + 6)]
            wait_until(lambda: called["Peek"] == THREADS)
            assert at.unread.held == 0
        finally:
            go.set()
        refused = 0
        for sock in silent:
            refused += sock.recv(12) == b"HTTP/1.1 503"
        assert refused == 6
        assert called["Peek"] == THREADS
        for sock in silent:
            sock.close()
        wait_until(lambda: at.unread.held == 0)


@pytest.mark.rest
def test_lmstfy_s_long_polls_share_the_bound(tmp_path: Path) -> None:
    jobs = 2000
    with place(tmp_path) as at:
        token = at.broker.create_token("ns").secret
        head = "GET /api/ns/%s?timeout=300&count=100 HTTP/1.1\r\nhost: localhost\r\nx-token: %s\r\n\r\n"
        silent = [at.send((head % (queues, token)).encode()) for queues in ("q", "q,r") for _ in range(jobs // 200)]
        rows = {"topic": ["ns/q"] * jobs, "body": [bytes(48_000)] * jobs, "delay_ms": [0] * jobs}
        at.broker.schedule_batch(pa.table(rows))
        wait_until(lambda: at.unread.refusal("127.0.0.1") is not None)
        assert at.unread.held < UNREAD_BYTES // 2 + ANSWER_BYTES
        # Others, who read, get what those who do not would have had.
        transport = httpx.HTTPTransport(local_address="127.0.0.2")
        with httpx.Client(base_url=at.http.base_url, transport=transport, timeout=60) as other:
            got = other.get("/api/ns/q?timeout=60&count=100", headers={"x-token": token})
            assert len(got.json()) == 100
        assert at.broker.group_info("ns/q", "lmstfy").leased <= jobs // 2
        for sock in silent:
            sock.close()
        wait_until(lambda: at.unread.held == 0)


def test_who_takes_nothing_is_cut(tmp_path: Path) -> None:
    with place(tmp_path, write_s=0.1) as at:
        sock = at.send(EVENTS)
        wait_until(lambda: at.unread.held > 0)
        wait_until(lambda: at.unread.held == 0)
        got = 0
        with suppress(ConnectionResetError):
            while data := sock.recv(1 << 20):
                got += len(data)
        assert got < 12 * BODY_BYTES, "not what was leased for it"
        assert at.receive(1, 10_000).json()["messages"]


@pytest.mark.rest
def test_pipelined_requests_wait_until_the_answer_before_is_taken(tmp_path: Path) -> None:
    ask = receiving(10)
    with place(tmp_path) as at:
        sock = at.send(6 * ask)
        wait_until(lambda: at.unread.held > 0)
        at.http.post("/v1/topics/other/messages", content=b"x")  # some turns of the loop
        assert leased(at) == 10, "of one answer"
        end, parts, found = b'x","', [b""], 0
        while found < MESSAGES:
            parts.append(sock.recv(1 << 20))
            found += (parts[-2][1 - len(end) :] + parts[-1]).count(end)  # also where it is in two pieces
        numbers = [int(part[1:7]) for part in b"".join(parts).split(b'"body":')[1:]]
        assert numbers == list(range(MESSAGES))
