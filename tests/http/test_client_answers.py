"""The Python client by HTTP, where answers are lost, cut, or somebody else's; nothing counts as done that is not."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx
import pytest

from tarry import Client
from tarry.base import errors
from tarry.client.http import way
from tests.http.rest import Rest
from tests.waiting import wait_until

Answer = tuple[int, bytes]
DEEP = b"[" * 200_000
FOREIGN: dict[str, Answer] = {
    "a page": (200, b"<html>be back soon"),
    "a redirect": (302, b""),
    "nothing": (204, b""),
    "null": (200, b"null"),
    "a number": (200, b"1"),
    "deep": (200, DEEP),
    "a deep error": (500, DEEP),
    "cut": (200, b'{"id": "7", "se'),
    "another error": (418, b'{"error": "teapot"}'),
}
"""Answers that are no broker's, as proxies give them."""


class Between:
    """A proxy of a broker, that answers itself where :attr:`instead` has something to say of a path."""

    def __init__(self, rest: Rest) -> None:
        self.instead: Callable[[str], Answer | None] = lambda _: None
        self.bodies: list[int] = []
        http = rest.http
        between = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"] or 0))
                between.bodies.append(len(body))
                if (answer := between.instead(self.path)) is None:
                    url = f"{http.base_url}{self.path}"
                    found = httpx.request(self.command, url, content=body, headers=dict(self.headers))
                    answer = found.status_code, found.content
                self.send_response(answer[0])
                self.end_headers()
                self.wfile.write(answer[1])  # its end is that of the connection: a cut one looks whole

            do_GET = do_POST  # noqa: N815 - the library calls it so

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture
def between(rest: Rest) -> Iterator[Between]:
    made = Between(rest)
    yield made
    made.close()


@pytest.fixture
def client(between: Between) -> Iterator[Client]:
    with Client(between.address) as made:
        yield made


@pytest.mark.parametrize("name", FOREIGN)
def test_an_answer_that_is_no_brokers_is_an_error_of_ours(between: Between, client: Client, name: str) -> None:
    between.instead = lambda _: FOREIGN[name]
    calls: list[Callable[[], Any]] = [
        lambda: client.schedule("orders", b"x"),
        lambda: client.schedule_many([{"topic": "orders", "body": b"x"}] * 2),
        lambda: client.receive("orders", group="g"),
        lambda: client.cancel_key("orders", "k"),
    ]
    for call in calls:
        with pytest.raises(errors.TarryError):
            call()


@pytest.mark.parametrize("name", FOREIGN)
def test_what_nobody_settled_is_told_by_flush(between: Between, client: Client, name: str) -> None:
    client.schedule("orders", b"x")
    [message] = client.receive("orders", group="g", wait=20)
    between.instead = lambda path: FOREIGN[name] if path.endswith("/ack") else None
    message.ack()
    with pytest.raises(errors.TarryError):
        client.flush()
    between.instead = lambda _: None
    assert client.group_info("orders", "g").leased == 1


def test_a_name_that_is_empty_is_told(client: Client) -> None:
    calls: list[tuple[str, Callable[[], Any]]] = [
        ("group", lambda: client.group_info("orders", "")),
        ("topic", lambda: client.topic_info("")),
    ]
    for name, call in calls:
        with pytest.raises(errors.InvalidArgumentError, match=f"^{name} is empty; allowed: 1 or more characters"):
            call()


def test_a_flush_waits_no_longer_than_it_is_told(between: Between) -> None:
    goes_on = threading.Event()

    def hold(path: str) -> Answer | None:
        if path.endswith("/ack"):
            goes_on.wait(60)
        return None

    with Client(between.address, timeout=120) as client:
        client.schedule("orders", b"x")
        consumer = client.consume("orders", group="g", timeout=20)
        message = next(iter(consumer))
        between.instead = hold
        message.ack()
        for timeout in (0.1, 0, -1):
            with pytest.raises(errors.UnavailableError, match=f"no answer within {timeout:g} s to what was settled"):
                consumer.flush(timeout)
        goes_on.set()
        consumer.flush()  # the request was not given up: it is waited for, and was carried out
        assert client.group_info("orders", "g").leased == 0


def test_receipts_that_do_not_come_are_told(between: Between, client: Client) -> None:
    receipt = b'{"row": 0, "id": "7", "seq": 0, "due_ms": 7, "handle": "", "outcome": "not_pending"}\n'
    for answer in (receipt, b"", receipt + receipt[:20], receipt * 3):
        between.instead = lambda _, answer=answer: (200, answer)  # type: ignore[misc]
        with pytest.raises(errors.UnavailableError, match="may or may not have been accepted"):
            client.schedule_many([{"topic": "orders", "body": b"x"}] * 2)
    between.instead = lambda _: (200, b"<html>")
    with pytest.raises(errors.TarryError, match="may or may not have been accepted"):
        client.schedule("orders", b"x")


def test_a_request_of_many_messages_is_bounded_in_bytes(between: Between, client: Client) -> None:
    size = way.MANY_BYTES // 4
    receipts = client.schedule_many({"topic": "large", "body": bytes(size)} for _ in range(7))
    assert len({receipt.id for receipt in receipts}) == 7
    assert max(between.bodies) < 2 * way.MANY_BYTES
    with pytest.raises(errors.InvalidMessageError) as refused:
        client.schedule_many({"topic": "large" if n < 5 else "", "body": bytes(size)} for n in range(7))
    assert refused.value.row == 5


def test_a_lease_that_nobody_extends_is_over_here_too(between: Between, client: Client) -> None:
    """It was taken for extended as soon as that was asked for."""
    client.schedule_many([{"topic": "orders", "body": b"x"}] * 2)
    wait_until(lambda: any(each.ready == 2 for each in client.pending()))
    consumer = client.consume("orders", group="g", lease="1s", timeout=20)
    messages = iter(consumer)
    first = next(messages)
    between.instead = lambda path: (503, b"no") if path.endswith("/extend") else None
    over_s = time.monotonic() + 1.0
    wait_until(lambda: time.monotonic() > over_s)
    with pytest.raises(errors.StaleLeaseError), first:
        pass
    between.instead = lambda _: None
    again = next(messages)
    assert again.attempt == 2, "what waited here is not handed out: its lease is over"
    consumer.close()


@pytest.mark.parametrize("token", ["a\nb", "\ud800", "\u20ac"])
def test_a_token_that_no_header_can_have_is_refused(token: str) -> None:
    with pytest.raises(errors.InvalidArgumentError, match=r"token has .* at .*; allowed: "):
        Client("http://127.0.0.1:1", token=token)


def test_half_a_surrogate_pair_is_refused(client: Client) -> None:
    calls: list[Callable[[], Any]] = [
        lambda: client.group_info("orders", "\ud800"),
        lambda: client.receive("orders", group="\ud800"),
        lambda: client.history("\ud800"),
        lambda: client.purge("orders", "\ud800"),
    ]
    for call in calls:
        with pytest.raises(errors.InvalidArgumentError, match=r"allowed|surrogates"):
            call()


def test_no_time_to_wait_is_no_answer(between: Between) -> None:
    with Client(between.address, timeout=0) as client, pytest.raises(errors.UnavailableError):
        client.ping()
