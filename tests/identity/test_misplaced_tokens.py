"""A token that is shown in the wrong place, or to the wrong port, is in no log and in no answer."""

from __future__ import annotations

import json
import logging
import socket
import sys
from contextlib import suppress
from io import StringIO

import pyarrow as pa
import pyarrow.flight as fl
import pytest
from tests.identity.conftest import Known
from tests.mqtt.place import connect, framed
from tests.rocketmq.rpc import Rpc, message, signed

from tarry.base.logs import log_to_stderr
from tarry.base.redaction import without_tokens
from tarry.fronts.flight.front import FlightFront
from tarry.fronts.gateway.front import GatewayFront, socket_of
from tarry.fronts.http.front import HttpFront
from tarry.fronts.link.front import LinkFront
from tarry.fronts.mqtt.front import MqttFront
from tarry.fronts.mqtt.wire import text_bytes
from tarry.fronts.rocketmq.classic.front import RemotingFront
from tarry.fronts.rocketmq.common.stubs import service as s
from tarry.fronts.rocketmq.front import RocketMQFront
from tarry.link.blocking import connect as connected
from tarry.link.frames import CLIENT, VERSION, FrameKind, frame

USER = 0x80


@pytest.fixture
def log(levels_as_before: None, monkeypatch: pytest.MonkeyPatch) -> StringIO:
    """What a process of Tarry has logged, as it writes it."""
    written = StringIO()
    monkeypatch.setattr(sys, "stderr", written)
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    log_to_stderr()
    return written


def stranger(address: str, said: bytes) -> bytes:
    """What a port answers to bytes, after which nothing more comes."""
    answered = b""
    with connected(address, 20) as connection:
        connection.sendall(said)
        with suppress(OSError):  # it has hung up already
            connection.shutdown(socket.SHUT_WR)
        with suppress(ConnectionError):
            while got := connection.recv(1 << 16):
                answered += got
    return answered


def sent(kind: FrameKind, payload: bytes) -> bytes:
    return b"".join(bytes(part) for part in frame(kind, 1, payload))


def of_links(token: str) -> list[bytes]:
    def said(**more: object) -> bytes:
        return json.dumps({"version": VERSION, "as": CLIENT, "token": token, **more}).encode()

    return [
        sent(FrameKind.HELLO, said()),
        sent(FrameKind.HELLO, said(version=VERSION + 1)),
        sent(FrameKind.HELLO, said(version=token)),
        sent(FrameKind.HELLO, said(**{"as": token})),
        sent(FrameKind.HELLO, said()[:-1]),
        sent(FrameKind.HELLO, json.dumps(["token", token]).encode()),
        sent(FrameKind.HELLO, json.dumps(token).encode()),
        sent(FrameKind.HELLO, token.encode()),
        sent(FrameKind.CALL, said(op="whoami")),
        token.encode(),
    ]


def of_clients(token: str) -> list[bytes]:
    greeting = sent(FrameKind.HELLO, json.dumps({"version": VERSION, "as": CLIENT, "token": token}).encode())
    wrong = [
        sent(FrameKind.GROUP, json.dumps([token]).encode()),
        sent(FrameKind.CALL, b'{"secret": "' + token.encode()),
        sent(FrameKind.CALL, json.dumps(["op", token]).encode()),
        sent(FrameKind.SUBMIT, token.encode()),
        sent(FrameKind.SETTLE, token.encode()),
    ]
    return [greeting + each for each in wrong]


def of_http(token: str) -> list[bytes]:
    heads = [
        f"GET /v1/topics HTTP/1.1\r\nHost: x\r\nAuthorization: {token}x\r\n",
        f"GET /v1/topics HTTP/1.1\r\nHost: x\r\nAuthorization: Basic {token}\r\n",
        f"GET /v1/topics?token={token}x HTTP/1.1\r\nHost: x\r\n",
        f"GET /api/orders/q/size?token={token}x HTTP/1.1\r\nHost: x\r\n",
        f"GET /v1/topics HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}x\r\n",
        f"GET /v1/topics HTTP/1.1\r\nHost: x\r\nX-Token: {token}x\r\nAuthorization {token}\r\n",
        f"{token} /v1/topics HTTP/1.1\r\nHost: x\r\n",
        f"GET /v1/topics HTTP/{token}\r\nHost: x\r\n",
    ]
    told = f"Authorization: Bearer {token}\r\n"
    body = f'{{"secret": "{token}'
    broken = f"POST /v1/operations/add-credential HTTP/1.1\r\nHost: x\r\n{told}Content-Length: {len(body)}\r\n"
    head = "Content-Type: application/json\r\nConnection: close\r\n\r\n"
    return [*(f"{each}Connection: close\r\n\r\n".encode() for each in heads), (broken + head + body).encode()]


def of_mqtt(token: str) -> list[bytes]:
    login = text_bytes(token)
    return [
        framed(0x10, text_bytes(token) + b"\x05\x02\0\0\0"),
        connect(client_id=token),
        connect(flags=USER, rest=login),
        connect(flags=USER | 0x40, rest=login + text_bytes("x")),
        connect(flags=USER | 0x40, rest=text_bytes("x" + token) + login),
        connect(properties={"authentication_method": token}),
        token.encode(),
    ]


def of_classic(token: str) -> list[bytes]:
    fields = {"AccessKey": token, "Signature": token, "topic": "orders.a"}
    headers: list[object] = [
        {"code": 105, "opaque": 1, "flag": 0, "version": 1, "extFields": fields},
        {"code": 105, "opaque": 1, "flag": 0, "version": token, "extFields": fields},
        {"code": 105, "opaque": 1, "flag": 0, "version": 1, "extFields": token},
        token,
    ]
    encoded = [json.dumps(each).encode() for each in headers]
    encoded.append(encoded[0][:-1])
    return [(4 + len(e)).to_bytes(4, "big") + len(e).to_bytes(4, "big") + e for e in encoded] + [token.encode()]


@pytest.mark.rest
def test_no_port_repeats_a_token(known: Known, log: StringIO, monkeypatch: pytest.MonkeyPatch) -> None:
    # Other tests of this process may have had a port's lines.
    monkeypatch.setattr("tarry.base.log_limiter.LINES_MAX", 1_000_000)
    token, broker = known.billing, known.broker
    gateway = GatewayFront.start(broker, socket_of(broker.config.data))
    fronts = (LinkFront, HttpFront, MqttFront, RemotingFront, FlightFront, RocketMQFront)
    link, http, mqtt, classic, flight, v5 = started = [each.start(broker, "127.0.0.1:0") for each in fronts]
    tries = [
        (gateway.address, of_links(token)),
        (link.address, [*of_links(token)[1:], *of_clients(token)]),
        (http.address, of_http(token)),
        (mqtt.address, of_mqtt(token)),
        (classic.address, of_classic(token)),
    ]
    everything = [each for _, several in tries for each in several]
    addresses = [address for address, _ in tries]
    # What belongs to one port may come to any other.
    every = tries + [(a, [each for each in everything[::3] if each not in own]) for a, own in tries]
    try:
        for address, several in every:
            for said in several:
                answered = stranger(address, said)
                assert token[:16].encode() not in answered, f"{addresses.index(address)} got {said!r}"
        errors = [*flight_errors(str(flight.address), token), *v5_errors(v5.port, token)]
        assert not [each for each in errors if token[:16] in each]
        assert len(errors) == 8
    finally:
        for front in (*started, gateway):
            front.stop()
    written = log.getvalue()
    assert "cut off" in written
    assert token[:16] not in written


def flight_errors(address: str, token: str) -> list[str]:
    """What Flight answers to a token that is not a credential in its words."""
    errors = []
    with fl.FlightClient(f"grpc://{address}") as client:
        for value in (token, f"Basic {token}", f"Bearer {token}x"):
            try:
                list(client.do_action("ping", fl.FlightCallOptions(headers=[(b"authorization", value.encode())])))
            except pa.ArrowException as error:
                errors.append(str(error))
        shown = fl.FlightCallOptions(headers=[(b"authorization", b"Bearer " + token.encode())])
        try:
            list(client.do_action(fl.Action("add-credential", b'{"secret": "' + token.encode()), shown))
        except pa.ArrowException as error:
            errors.append(str(error))
    return errors


def v5_errors(port: int, token: str) -> list[str]:
    """What v5 answers to a token in the place of a signature."""
    errors = []
    for headers in (
        {"authorization": token},
        {"authorization": f"Bearer {token}x"},
        signed(token, "x"),
        {**signed("x", "x"), "x-mq-date-time": token},
    ):
        rpc = Rpc(port, headers=headers)
        errors.append(str(rpc.ask("SendMessage", s.SendMessageRequest(messages=[message("orders.a")])).status))
        rpc.close()
    return errors


def test_a_log_hides_what_looks_like_a_token(known: Known, log: StringIO) -> None:
    logging.getLogger("tarry.test").warning("a client sent %r", {"t": known.billing})
    assert without_tokens(f"a {known.admin[:20]}, tarry_token.txt") == "a tarry_..., tarry_token.txt"
    assert "{'t': 'tarry_...'}" in log.getvalue()
