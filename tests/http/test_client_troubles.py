"""The Python client by HTTP where something is wrong: what it says, and what it goes on with."""

from __future__ import annotations

import gc
import json
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from tarry import Client, ClientTls
from tarry.base import errors
from tarry.client import outages
from tarry.client.http import operations
from tests.http.rest import Rest
from tests.loopgrpc.certificates import make_certificate

MESSAGE = {"topic": "orders", "id": "7", "delivery": "1.0", "due_ms": 1, "body_base64": "eA==", "attempt": 1}


@pytest.fixture
def client(rest: Rest) -> Iterator[Client]:
    with Client(f"http://{rest.front.address}") as made:
        yield made


@contextmanager
def answering(*answers: tuple[int, Any], repeat: tuple[int, Any] = (200, {})) -> Iterator[tuple[str, list[str]]]:
    """A server that gives these answers, then ``repeat``; its address, and the tokens that it was shown."""
    left, shown = list(answers), []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"] or 0))
            shown.append(self.headers["authorization"])
            status, said = left.pop(0) if left else repeat
            body = json.dumps(said).encode()
            self.send_response(status)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_GET(self) -> None:
            self.do_POST()

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", shown
        finally:
            server.shutdown()
            thread.join()


@contextmanager
def saying(first: bytes) -> Iterator[int]:
    """A port that says this to whoever connects, and ends the connection."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            while True:
                try:
                    peer, _ = listener.accept()
                except OSError:
                    return
                with peer:
                    peer.settimeout(5)
                    peer.recv(65536)
                    peer.sendall(first)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


def refused(status: int, code: str, text: str = "no") -> tuple[int, Any]:
    return status, {"error": code, "message": text}


def test_a_group_that_is_deleted_ends_its_consumer_and_is_not_made_anew(client: Client) -> None:
    client.set_group("orders", "g")
    ended: list[BaseException] = []

    def consume() -> None:
        try:
            list(client.consume("orders", group="g", timeout=60))
        except errors.TarryError as error:
            ended.append(error)

    thread = threading.Thread(target=consume)
    thread.start()
    while not client.consumers("orders", "g"):
        time.sleep(0.01)
    client.delete_group("orders", "g")
    thread.join()
    assert [type(error) for error in ended] == [errors.NotFoundError]
    assert client.groups("orders") == []


def test_a_broker_that_is_stopping_does_not_end_a_loop(caplog: pytest.LogCaptureFixture) -> None:
    outages.outage_of.cache_clear()
    found = (200, {"messages": [MESSAGE]})
    with answering(refused(503, "closed"), refused(503, "unavailable"), found) as (address, _), Client(address) as made:
        consumer = made.consume("orders", group="g", timeout=20, lease=60)
        assert next(iter(consumer)).id == "7"
    said = [record.getMessage() for record in caplog.records]
    assert any("consuming orders as g" in each and "connecting again" in each for each in said)
    assert any("is back after" in each for each in said)


def test_a_stop_is_no_closed_client() -> None:
    with answering(refused(503, "closed", "it stops")) as (address, _), Client(address) as made:
        with pytest.raises(errors.UnavailableError, match="it stops; the message may or may not") as error:
            made.schedule("orders", "x")
        assert error.value.code == "unavailable"


def test_a_token_that_was_exchanged_is_taken_up_by_the_same_call(tmp_path: Path, monkeypatch: Any) -> None:
    file = tmp_path / "token"
    file.write_text("old\n")
    monkeypatch.setenv("TARRY_TOKEN_FILE", str(file))
    no = refused(401, "unauthenticated", "the token is not known")
    with answering((200, {}), no, (200, {}), no) as (address, shown), Client(address) as made:
        made.ping()
        file.write_text("new\n")
        made.ping()
        with pytest.raises(errors.UnauthenticatedError, match="is not known"):
            made.ping()
    assert shown == ["Bearer old", "Bearer old", "Bearer new", "Bearer new"]


def test_who_shows_no_token_is_told_how(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    no = refused(401, "unauthenticated", "allowed: Authorization: Bearer TOKEN")
    told = r"TARRY_TOKEN_FILE.*the argument token of Client"
    with answering(repeat=no) as (address, _), pytest.raises(errors.UnauthenticatedError, match=told):
        Client(address).ping()


def test_what_fits_into_no_header_is_no_token_and_not_shown(tmp_path: Path, monkeypatch: Any) -> None:
    (tmp_path / "token").write_text("secret\nx")
    monkeypatch.setenv("TARRY_TOKEN_FILE", str(tmp_path / "token"))
    with Client("http://127.0.0.1:1") as made, pytest.raises(errors.InvalidArgumentError) as error:
        made.ping()
    assert "secret" not in str(error.value)


@pytest.mark.parametrize(
    ("first", "said"),
    [
        (b"\x15\x03\x03\x00\x02\x02F", "the port speaks TLS; allowed: https://127.0.0.1:{port}"),
        (b"R\0\0\0B\r\n", "what answers does not speak HTTP"),
        (b"", "the connection ended before the answer"),
    ],
)
def test_what_answers_in_a_fronts_place_is_said(first: bytes, said: str) -> None:
    with saying(first) as port, pytest.raises(errors.UnavailableError) as error:
        Client(f"http://127.0.0.1:{port}").ping()
    assert said.format(port=port) in str(error.value)
    assert "Connection aborted" not in str(error.value)


def test_https_to_a_port_without_tls_names_the_address_without(rest: Rest) -> None:
    with pytest.raises(errors.UnavailableError, match=f"allowed: http://{rest.front.address}") as error:
        Client(f"https://{rest.front.address}").ping()
    assert error.value.nothing_sent


def test_a_certificate_that_is_not_trusted_is_said_as_by_the_native_link(tmp_path: Path) -> None:
    made = make_certificate(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(made.certificate, made.key)
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            peer, _ = listener.accept()
            with peer:
                try:
                    context.wrap_socket(peer, server_side=True)
                except OSError:
                    return

        thread = threading.Thread(target=serve)
        thread.start()
        with pytest.raises(errors.UnavailableError, match=r"not signed by the system's.*ClientTls\(ca=") as error:
            Client(f"https://localhost:{listener.getsockname()[1]}", tls=ClientTls()).ping()
        thread.join()
    assert error.value.nothing_sent


def test_what_a_forgotten_consumer_held_is_ready_again_at_once(client: Client) -> None:
    client.schedule("orders", b"x")
    for message in client.consume("orders", group="g", timeout=20, lease="1h"):
        assert message.attempt == 1
        break
    gc.collect()
    [again] = client.receive("orders", group="g", wait=20)
    assert again.attempt == 2


def test_the_scheme_of_an_address_may_be_in_capitals(rest: Rest) -> None:
    with Client(f"HTTP://{rest.front.address}") as made:
        assert made.ping()["version"]


def test_what_needs_pyarrow_alone_does_not_send_to_another_address(client: Client, monkeypatch: Any) -> None:
    monkeypatch.setattr(operations, "_has_arrow", lambda: False)
    with pytest.raises(errors.NativeOnlyError, match="pyarrow is not installed") as error:
        client.list_pending()
    assert "HOST:PORT" not in str(error.value)
