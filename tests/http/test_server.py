"""The HTTP server: what a client may take of it, and requests in odd forms."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from tarry.base.descriptors import ConnectionLimits
from tarry.broker import Broker
from tarry.fronts.http.front import HttpFront
from tarry.fronts.http.server.limits import HttpLimits
from tarry.fronts.registry import ServerConfig
from tests.waiting import wait_until

QUICK = HttpLimits(header_s=0.2, idle_s=0.2, body_s=0.2, body_bytes_per_s=1 << 20, linger_s=0.2)


@contextmanager
def serving(
    directory: Path, limits: HttpLimits | None = None, connections: ConnectionLimits | None = None
) -> Iterator[tuple[HttpFront, str]]:
    """A front, and a token."""
    config = ServerConfig(data=directory, pipeline="off", flight=None, disk_free_bytes_min=0)
    with (
        Broker.open(config) as broker,
        HttpFront(broker, "127.0.0.1:0", connections=connections, limits=limits) as front,
    ):
        yield front, broker.create_token("ns").secret


@pytest.fixture
def place(tmp_path: Path) -> Iterator[tuple[HttpFront, str]]:
    with serving(tmp_path) as place:
        yield place


def connect(front: HttpFront) -> socket.socket:
    return socket.create_connection(("127.0.0.1", front.port), timeout=60)


def all_of(sock: socket.socket) -> bytes:
    """What comes until the other side ends."""
    found = b""
    try:
        while data := sock.recv(65536):
            found += data
    except ConnectionResetError:
        pass
    return found


def request(secret: str, line: str, *headers: str) -> bytes:
    return "\r\n".join([f"{line} HTTP/1.1", "Host: localhost", f"X-Token: {secret}", *headers, "", ""]).encode()


@pytest.mark.parametrize(
    ("sent", "answered"),
    [(b"", b""), (b"GET /api/ns/q HTT", b"408"), (b"PUT /api/ns/q HTTP/1.1\r\nHost: x\r\nA: ", b"408")],
)
@pytest.mark.rest
def test_slow_headers(sent: bytes, answered: bytes, tmp_path: Path) -> None:
    with serving(tmp_path, QUICK) as (front, _), connect(front) as sock:
        sock.sendall(sent)
        found = all_of(sock)
        assert answered in found


@pytest.mark.rest
def test_a_slow_body_and_an_idle_connection(tmp_path: Path) -> None:
    with serving(tmp_path, QUICK) as (front, secret):
        with connect(front) as sock:
            sock.sendall(request(secret, "PUT /api/ns/q", "Content-Length: 100") + b"x")
            assert all_of(sock) == b""
        with connect(front) as sock:
            sock.sendall(request(secret, "GET /api/ns/q"))
            assert b"no job available" in all_of(sock)


@pytest.mark.rest
def test_a_long_poll_is_not_idle(tmp_path: Path) -> None:
    with serving(tmp_path, QUICK) as (front, secret), connect(front) as sock:
        sock.sendall(request(secret, "GET /api/ns/q?timeout=3"))
        assert b"no job available" in all_of(sock)


def test_an_oversize_body_is_refused_before_it_has_come(place: tuple[HttpFront, str]) -> None:
    front, secret = place
    with connect(front) as sock:
        sock.sendall(request(secret, "PUT /api/ns/q", "Content-Length: 1000000000") + b"x" * 100)
        answer = all_of(sock)
        assert answer.startswith(b"HTTP/1.1 413 ")
        assert answer.endswith(b'{"error":"body too large"}')
    with connect(front) as sock:
        sock.sendall(request(secret, "PUT /api/ns/q", "Transfer-Encoding: chunked"))
        chunk = b"10000\r\n" + b"x" * 65536 + b"\r\n"
        for _ in range(17):
            sock.sendall(chunk)
        assert b"413" in all_of(sock)


def test_a_body_in_chunks_and_100_continue(place: tuple[HttpFront, str]) -> None:
    front, secret = place
    with connect(front) as sock:
        sock.sendall(request(secret, "PUT /api/ns/q", "Transfer-Encoding: chunked", "Expect: 100-continue"))
        assert sock.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
        sock.sendall(b"3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n")
        assert b" 201 " in sock.recv(65536)
        sock.sendall(request(secret, "GET /api/ns/q?timeout=10", "Connection: close"))
        assert b'"data":"YWJjZGU="' in all_of(sock)


@pytest.mark.parametrize("piece", [1, 7, 1 << 20])
@pytest.mark.parametrize(
    "body", ["Content-Length: 3\r\n\r\nabc", "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"]
)
def test_an_offer_of_another_protocol_is_passed_over(body: str, piece: int, place: tuple[HttpFront, str]) -> None:
    """Java's HttpClient makes one with the first request of each connection; the body is none of HTTP/2's."""
    front, secret = place
    offer = ["Upgrade: h2c", "HTTP2-Settings: AAEA", "Connection: Upgrade, HTTP2-Settings", body]
    put = request(secret, "PUT /api/ns/u", *offer)[:-4]
    sent = put + put + request(secret, "GET /api/ns/u?timeout=10", "Connection: Upgrade, close", "Upgrade: websocket")
    with connect(front) as sock:
        for at in range(0, len(sent), piece):
            sock.sendall(sent[at : at + piece])
        answer = all_of(sock)
        assert answer.count(b"HTTP/1.1 201 Created") == 2
        assert b'"data":"YWJj"' in answer


def test_requests_one_behind_the_other(place: tuple[HttpFront, str]) -> None:
    front, secret = place
    with connect(front) as sock:
        put = request(secret, "PUT /api/ns/p", "Content-Length: 1") + b"x"
        sock.sendall(put * 40 + request(secret, "GET /api/ns/p/nothing", "Connection: close"))
        answer = all_of(sock)
        assert answer.count(b"HTTP/1.1 201 Created") == 40
        assert answer.count(b"HTTP/1.1 404 Not Found") == 1


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"nonsense\r\n\r\n", b"400"),
        (b"GET / HTTP/1.1\r\nA b: c\r\n\r\n", b"400"),
        (b"GET / HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", b"400"),
        (b"GET / HTTP/1.1\r\nContent-Length: -1\r\n\r\n", b"400"),
        (b"GET /" + b"x" * 70_000 + b" HTTP/1.1\r\n\r\n", b"431"),
        (b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 300 + b"\r\n", b"431"),
    ],
)
def test_what_is_no_request(sent: bytes, status: bytes, place: tuple[HttpFront, str]) -> None:
    with connect(place[0]) as sock:
        sock.sendall(sent)
        assert all_of(sock).startswith(b"HTTP/1.1 " + status)


def test_connections_of_a_peer_are_bounded(tmp_path: Path) -> None:
    with serving(tmp_path, None, ConnectionLimits(20, 3)) as (front, secret):
        kept = [connect(front) for _ in range(3)]
        for sock in kept:
            sock.sendall(request(secret, "GET /api/ns/q"))
            assert b"404" in sock.recv(65536)
        with connect(front) as sock:
            assert all_of(sock) == b""
        for sock in kept:
            sock.close()

        def again() -> bool:
            with connect(front) as sock:
                sock.sendall(request(secret, "GET /api/ns/q", "Connection: close"))
                return b"404" in all_of(sock)

        wait_until(again)


def connections_of(front: HttpFront) -> int:
    """How many the server has accepted, and not closed."""
    found = psutil.Process().net_connections("tcp")
    return sum(at.laddr.port == front.port and at.status != psutil.CONN_LISTEN for at in found)


def test_many_wait_without_a_thread_and_who_has_left_gets_nothing(place: tuple[HttpFront, str]) -> None:
    front, secret = place
    before = threading.active_count()
    waiting = [connect(front) for _ in range(300)]
    for sock in waiting:
        sock.sendall(request(secret, "GET /api/ns/many?timeout=600", "Connection: close"))
    last = waiting.pop()
    for sock in waiting:
        sock.close()
    assert threading.active_count() <= before + 8
    # Who left an instant ago may still be handed a job, which comes again after its time: until the server has seen it.
    wait_until(lambda: connections_of(front) == 1)
    with connect(front) as sock:
        sock.sendall(request(secret, "PUT /api/ns/many?tries=1000", "Content-Length: 1") + b"x")
        assert b" 201 " in sock.recv(65536)
    assert b'"data":"eA=="' in all_of(last)
    last.close()


@pytest.mark.parametrize("blocks_max", [256, 0], ids=["known", "parsed"])
def test_requests_whose_headers_came_before(blocks_max: int, tmp_path: Path) -> None:
    """They go past the parser: each is answered as by it, and what is only nearly the same is parsed."""
    with serving(tmp_path, HttpLimits(header_blocks_max=blocks_max)) as (front, secret):
        check_requests_whose_headers_came_before(front, secret)


def check_requests_whose_headers_came_before(front: HttpFront, secret: str) -> None:
    line, own = "PUT /api/ns/q?delay=60", "Content-Length: 4"
    with connect(front) as sock, connect(front) as other:

        def answer_of(data: bytes, at: socket.socket = sock) -> bytes:
            at.sendall(data)
            found = b""
            while b"\r\n\r\n" not in found or not found.endswith((b"}", b"\r\n\r\n")):
                part = at.recv(65536)
                assert part, found
                found += part
            return found

        first = [answer_of(request(secret, line, own) + b"abcd") for _ in range(3)]
        assert all(b" 201 " in each for each in first)
        # Of another connection, and of another target and method.
        assert b" 201 " in answer_of(request(secret, line, own) + b"efgh", other)
        assert b" 201 " in answer_of(request(secret, line, own) + b"ijkl", other)
        job = first[0].partition(b'"job_id":"')[2][:26].decode()
        assert b'"data":"YWJjZA=="' in answer_of(request(secret, f"GET /api/ns/q/job/{job}", own) + b"none")
        assert b" 204 " in answer_of(request(secret, f"DELETE /api/ns/q/job/{job}", own) + b"none")
        assert b" 404 " in answer_of(request(secret, f"GET /api/ns/q/job/{job}", own) + b"none")
        # The rest of a body that comes later, and two requests in one piece.
        sock.sendall(request(secret, line, own) + b"mn")
        assert b" 201 " in answer_of(b"op")
        both = request(secret, line, own) + b"qrst" + request(secret, line, own) + b"uvwx"
        sock.sendall(both)
        found = b""
        while found.count(b'"job_id"') < 2:
            found += sock.recv(65536)
        assert found.count(b" 201 ") == 2
        # Others' headers are not taken for these.
        assert b" 401 " in answer_of(request("x" * len(secret), line, own) + b"abcd")
        assert b" 413 " in answer_of(request(secret, line, "Content-Length: 2000000"), other)
    with connect(front) as sock:
        sock.sendall(request(secret, line, own, "Connection: close") + b"abcd")
        assert b" 201 " in all_of(sock)
    with connect(front) as sock:
        for _ in range(2):
            sock.sendall(request(secret, line, own) + b"abcd")
            assert b" 201 " in sock.recv(65536)
        sock.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\nA: \x00b\r\n\r\n")
        assert b" 400 " in all_of(sock)


@pytest.mark.parametrize(
    ("target", "hosts", "status"),
    [
        ("/api/ns/q", ["localhost", "localhost"], b"400"),
        ("/api/ns/q", ["evil.example", "localhost"], b"400"),
        ("http://evil.example/api/ns/q", ["localhost"], b"400"),
        ("http://localhost:1/api/ns/q", ["localhost"], b"400"),
        ("http://localhost@evil.example/api/ns/q", ["localhost"], b"400"),
        ("http://evil.example/api/ns/q", [], b"400"),
        ("http://localhost/api/ns/q", ["LocalHost"], b"201"),
        ("http://LOCALHOST:7/api/ns/q", ["localhost:7"], b"201"),
    ],
)
def test_a_request_is_for_one_host(target: str, hosts: list[str], status: bytes, tmp_path: Path) -> None:
    with serving(tmp_path) as (front, secret), connect(front) as sock:
        head = [f"PUT {target} HTTP/1.1", *(f"Host: {host}" for host in hosts), f"X-Token: {secret}"]
        sock.sendall("\r\n".join([*head, "Content-Length: 1", "Connection: close", "", "x"]).encode())
        assert all_of(sock).split(b" ", 2)[1] == status
