"""One answer to each question, however it comes: whole or in pieces, the first time or again, counted or not."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from tarry.api.access import AccessToken
from tarry.fronts.http.front import HttpFront
from tarry.fronts.http.lmstfy.access_log import AccessLog
from tarry.fronts.http.lmstfy.limits import TokenLimits
from tarry.fronts.http.server.connection import HttpConnection
from tests.http.lmstfy_place import Lmstfy, serving
from tests.waiting import wait_until

ID = re.compile(b"1?[0-9A-HJKMNP-TV-Z]{26}")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lmstfy]:
    with serving(tmp_path_factory.mktemp("broker"), body_bytes_max=1000) as place:
        yield place


def connect(front: HttpFront) -> socket.socket:
    return socket.create_connection(("127.0.0.1", front.port), timeout=60)


def pieces(place: Lmstfy, line: str, body: bytes, form: str, headers: str = "", secret: str = "") -> list[bytes]:
    """A request in one piece, with its body in another one, or with a body whose length is not told."""
    head = f"{line} HTTP/1.1\r\nHost: localhost\r\nX-Token: {secret or place.secret}\r\n{headers}"
    if form == "chunks":
        chunk = b"%x\r\n%b\r\n" % (len(body), body) if body else b""
        return [f"{head}Transfer-Encoding: chunked\r\n\r\n".encode() + chunk + b"0\r\n\r\n"]
    said = f"{head}Content-Length: {len(body)}\r\n\r\n".encode()
    return [said, body] if form == "two" else [said + body]


def exchange(sock: socket.socket, parts: list[bytes]) -> tuple[int, set[bytes], bytes]:
    """The answer's status, headers, and body, without what is another one each time."""
    for part in parts:
        sock.sendall(part)
    found = b""
    while b"\r\n\r\n" not in found:
        found += sock.recv(65536)
    head, _, body = found.partition(b"\r\n\r\n")
    length = re.search(rb"content-length: (\d+)", head)
    while length is not None and len(body) < int(length[1]):
        body += sock.recv(65536)
    lines = {line.partition(b":")[0] if line[:4] in (b"date", b"x-re") else line for line in head.split(b"\r\n")[1:]}
    return int(head[9:12]), lines, ID.sub(b"ID", body)


QUESTIONS = [
    ("PUT /api/ns/ways", b"hello", "", 201),
    ("PUT /api/ns/ways", b"", "", 201),
    ("PUT /api/ns/ways?delay=60&ttl=120&tries=3", b"x", "", 201),
    ("PUT /api/ns/ways", b"x", "Enable-Job-Version: yes\r\nJob-Attr-A: b\r\n", 201),
    ("PUT /api/ns/ways", b"x", "Enable-Job-Version: no\r\n", 201),
    ("PUT /api/ns/ways", b"x", "Enable-Job-Version: YES\r\nJob-Attr-tarry.x: y\r\n", 400),
    ("PUT /api/ns/ways?tries=0", b"x", "", 400),
    ("PUT /api/ns/ways?delay=2&ttl=1", b"x", "", 400),
    ("PUT /api/ns/ways?delay=4000000000&ttl=0", b"x", "", 400),
    ("PUT /api/ns/ways", b"x" * 1001, "", 413),
    ("PUT /api/ns/ways/bulk", b"[1,2]", "", 201),
    ("PUT /api/ns/ways/bulk", b"[1,2]", "Enable-Job-Version: yes\r\n", 201),
    ("PUT /api/ns/ways/bulk", b"[]", "", 400),
    ("PUT /api/ns/ways/bulk", b"[1", "", 400),
    ("PUT /api/ns/ways/bulk", b'["' + b"x" * 1001 + b'"]', "", 413),
    ("GET /api/ns/ways?ttr=x", b"", "", 400),
    ("GET /api/ns/ways?count=0", b"none", "", 400),
    ("GET /api/ns/ways-without", b"", "", 404),
    ("GET /api/ns/ways-without,ways-neither", b"", "", 404),
    ("DELETE /api/ns/ways/job/none", b"", "", 204),
    ("PUT /api/ns/_ways", b"x", "", 400),
    ("PUT /api/ns/ways/none", b"x", "", 404),
]


@pytest.mark.parametrize(("line", "body", "headers", "status"), QUESTIONS)
def test_one_answer(line: str, body: bytes, headers: str, status: int, place: Lmstfy) -> None:
    answers = []
    with connect(place.front) as sock:
        for form in ("one", "two", "chunks", "one", "one"):
            answers.append(exchange(sock, pieces(place, line, body, form, headers)))
    assert answers[0][0] == status
    # Nothing may have closed the connection, a refusal of what came in chunks neither: all of it was there.
    assert all(answer == answers[0] for answer in answers), answers


def test_what_is_usual_takes_no_task(place: Lmstfy, monkeypatch: pytest.MonkeyPatch) -> None:
    limited = place.broker.create_token("ns")
    place.broker.limit_token(limited.id, reads_max=100, writes_max=100, interval_ms=86_400_000)
    place.publish("ns/usual?delay=3600")
    tasks: list[object] = []
    carry_out = HttpConnection.carry_out
    monkeypatch.setattr(HttpConnection, "carry_out", lambda *args: (tasks.append(args[1]), carry_out(*args))[1])
    for secret in (place.secret, limited.secret):
        for form in ("one", "two"):
            with connect(place.front) as sock, connect(place.front) as waiting:
                for part in pieces(place, "GET /api/ns/usual?timeout=60", b"", "one", secret=secret):
                    waiting.sendall(part)
                assert exchange(sock, pieces(place, "PUT /api/ns/usual", b"x", form, secret=secret))[0] == 201
                job = re.search(b'"job_id":"([^"]+)"', waiting.recv(65536))
                assert job is not None
                line = f"DELETE /api/ns/usual/job/{job[1].decode()}"
                assert exchange(sock, pieces(place, line, b"", form, secret=secret))[0] == 204
                assert exchange(sock, pieces(place, "GET /api/ns/usual?count=x", b"", form, secret=secret))[0] == 400
                assert exchange(sock, pieces(place, "GET /api/ns/usual", b"", "one", secret="none"))[0] == 401
    assert not tasks
    assert place.ask("DELETE", "ns/usual/job/none").status_code == 204
    assert tasks, "what may have to look for the job"


@pytest.mark.parametrize("queues", ["ns/hung-up", "ns/hung-up,hung-up-too"])
def test_a_limited_reader_that_hangs_up_has_asked_for_nothing(
    queues: str, place: Lmstfy, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = place.broker.create_token("ns")
    place.broker.limit_token(made.id, reads_max=1, interval_ms=86_400_000)
    place.publish("ns/hung-up?delay=3600")
    taken: list[bool] = []
    take = TokenLimits.take

    def note(self: TokenLimits, token: AccessToken, *, reads: bool) -> bool:
        taken.append(take(self, token, reads=reads))
        return taken[-1]

    monkeypatch.setattr(TokenLimits, "take", note)
    given: list[str] = []
    give_back = TokenLimits.give_back

    def note_back(self: TokenLimits, token: AccessToken, *, reads: bool) -> None:
        give_back(self, token, reads=reads)
        given.append(token.id)

    monkeypatch.setattr(TokenLimits, "give_back", note_back)
    for count in (1, 2, 3):
        with connect(place.front) as sock:
            for part in pieces(place, f"GET /api/{queues}?timeout=600", b"", "one", secret=made.secret):
                sock.sendall(part)
            wait_until(lambda count=count: len(taken) == count)
        wait_until(lambda count=count: len(given) == count)
    assert taken == [True] * 3


def test_the_log_has_each_request_once(place: Lmstfy, monkeypatch: pytest.MonkeyPatch) -> None:
    noted: list[tuple[str, str, int]] = []
    enable = AccessLog.__init__

    def on(self: AccessLog, *given: Any) -> None:
        enable(self, *given)
        self.enabled = True

    monkeypatch.setattr(AccessLog, "__init__", on)
    monkeypatch.setattr(
        AccessLog, "note", lambda _, http, sent, __: noted.append((http.method, http.path, sent.status))
    )
    with HttpFront.start(place.broker, "127.0.0.1:0") as front:
        with connect(front) as sock:
            for status in (201, 201):
                assert exchange(sock, pieces(place, "PUT /api/ns/logged", b"x", "one"))[0] == status
            exchange(sock, pieces(place, "PUT /api/ns/logged?tries=0", b"x", "one"))
            exchange(sock, pieces(place, "GET /api/ns/none/at/all", b"", "one"))
        with connect(front) as sock:
            for part in pieces(place, "GET /api/ns/logged-empty?timeout=600", b"", "one"):
                sock.sendall(part)
        with connect(front) as sock:
            exchange(sock, pieces(place, "GET /api/ns/logged?timeout=600", b"", "one"))
        wait_until(lambda: len(noted) == 6)
    path = "/api/ns/logged"
    assert sorted(noted) == sorted(
        [
            *[("PUT", path, 201)] * 2,
            ("PUT", path, 400),
            ("GET", "/api/ns/none/at/all", 404),
            ("GET", f"{path}-empty", 404),
            ("GET", path, 200),
        ]
    )


def test_a_refusal_before_the_body_has_come_ends_the_connection(
    place: Lmstfy, caplog: pytest.LogCaptureFixture
) -> None:
    with connect(place.front) as sock:
        head, body = pieces(place, "PUT /api/ns/early?tries=0", b"x" * 100_000, "two")
        sock.sendall(head + body[:10])
        found = b""
        while b"}" not in found:
            found += sock.recv(65536)
        assert found.startswith(b"HTTP/1.1 400 ") and b"connection: close\r\n" in found
        sock.sendall(body[10:])
        sock.sendall(b"nonsense\r\n\r\n")
        assert sock.recv(65536) == b""
    assert place.size("ns/early/size") == 0
    assert "Fatal" not in caplog.text
