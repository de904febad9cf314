"""HTTP that is nearly right, on both ports: requests with mutated bytes, alone, pipelined, in chunks and in pieces."""

from __future__ import annotations

import random
import re
import socket

from tests.fuzz.mutation import mutated
from tests.fuzz.sockets import CONNECT_S, READ_S

INTERNAL = re.compile(rb"HTTP/1\.1 50[0-2] ")
"""A status that says that there is a bug; 503 and 507 say that the broker cannot, now."""
ROUTES = (
    b"PUT /api/ns/q?delay=1&ttl=60&tries=2",
    b"PUT /api/ns/q/bulk?delay=1",
    b"PUT /api/ns/q/job/01M841TBKR00000000000062DE",
    b"GET /api/ns/q?ttr=1&timeout=0&count=3",
    b"GET /api/ns/q,r?timeout=0",
    b"GET /api/ns/q/peek",
    b"DELETE /api/ns/q/job/01M841TBKR00000000000062DE",
    b"PUT /api/ns/q/deadletter?limit=2",
    b"GET /api/ns/q/deadletter/size",
    b"POST /v1/topics/t/messages",
    b"GET /v1/topics",
    b"POST /v1/topics/t/groups/g/receive",
    b"GET /openapi.json",
    b"GET /",
)
ADMIN_ROUTES = (
    b"POST /token/ns?description=d",
    b"GET /token/ns",
    b"POST /token/ns/x/limit",
    b"DELETE /token/none/x",
    b"POST /accesslog?status=disable",
    b"GET /metrics",
    b"GET /info",
)
BODIES = (
    b"",
    b"hello",
    b'["a",{"b":1}]',
    b'{"body":"x","delay_ms":1000}',
    b'{"read":1,"write":1,"interval":1}',
    b"\xff\x00",
)


class Http:
    """Requests with a token that lets do everything in ``ns``."""

    def __init__(self, address: str, admin: str, secret: str) -> None:
        self._ports = {False: int(address.rpartition(":")[2]), True: int(admin.rpartition(":")[2])}
        self._secret = secret.encode()

    def request(self, rng: random.Random) -> str:
        """One, or several at once on a connection that stays."""
        admin = rng.random() < 0.3
        sent = b"".join(self._request(rng, admin) for _ in range(rng.choice([1, 1, 2, 20])))
        if rng.random() < 0.6:
            sent = mutated(sent, rng)
        return f"request {sent!r}: {self._exchange(admin, _pieces(sent, rng))}"

    def _request(self, rng: random.Random, admin: bool) -> bytes:
        body = rng.choice(BODIES)
        head = [rng.choice(ADMIN_ROUTES if admin else ROUTES) + b" HTTP/1.1", b"Host: localhost"]
        head += [b"X-Token: " + self._secret, b"Content-Type: application/json"]
        if rng.random() < 0.2:
            head += [b"Enable-Job-Version: YES", b"Job-Attr-A: b"]
        if rng.random() < 0.1:
            head.append(b"Expect: 100-continue")
        if rng.random() < 0.3:
            chunks = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in (body[:3], body[3:]) if part)
            return b"\r\n".join([*head, b"Transfer-Encoding: chunked", b"", chunks + b"0\r\n\r\n"])
        return b"\r\n".join([*head, b"Content-Length: %d" % len(body), b"", body])

    def _exchange(self, admin: bool, pieces: list[bytes]) -> str:
        found = b""
        with socket.create_connection(("127.0.0.1", self._ports[admin]), CONNECT_S) as connection:
            connection.settimeout(READ_S)
            try:
                for piece in pieces:
                    connection.sendall(piece)
                while data := connection.recv(65_536):
                    found += data
                end = "closed"
            except TimeoutError:
                end = "open"
            except OSError:
                end = "cut"
        assert INTERNAL.search(found) is None, f"{pieces!r}\n{found!r}"
        return f"{'answered' if found else 'no answer'}, {end}"


def _pieces(sent: bytes, rng: random.Random) -> list[bytes]:
    if rng.random() < 0.7:
        return [sent]
    at = sorted(rng.randrange(len(sent) + 1) for _ in range(3))
    return [sent[a:b] for a, b in zip([0, *at], [*at, len(sent)], strict=True)]
