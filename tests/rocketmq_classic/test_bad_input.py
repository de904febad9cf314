"""What no client should send or do: answered with the protocol's code, or the connection is closed; others go on."""

from __future__ import annotations

import socket
import ssl
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tarry.fronts.rocketmq.classic import components
from tarry.fronts.rocketmq.classic import connection as connections
from tarry.fronts.rocketmq.classic.authentication import signature_of
from tarry.fronts.rocketmq.classic.codes import RequestCode, ResponseCode
from tarry.fronts.rocketmq.classic.frames import RemotingCommand, encode
from tests.rocketmq_classic.conftest import Place
from tests.rocketmq_classic.remoting import Remoting, send_fields

BROKEN = {
    "a length below 4": struct.pack(">i", 3) + b"abc",
    "a negative length": struct.pack(">i", -1),
    "a length above the limit": struct.pack(">i", 1 << 30),
    "a header longer than its frame": struct.pack(">ii", 8, 100) + b"{}{}",
    "another serialisation type": struct.pack(">ii", 6, 9 << 24 | 2) + b"{}",
    "JSON that is none": struct.pack(">ii", 6, 2) + b"{{",
    "a binary header that is cut": struct.pack(">ii", 8, 1 << 24 | 4) + b"\0\x0a\0\0",
    "HTTP": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
}


def is_served(place: Place) -> bool:
    return place.client().send("orders").code == ResponseCode.SUCCESS


@pytest.mark.parametrize("what", BROKEN)
def test_bytes_that_are_no_frame_close_the_connection(place: Place, what: str) -> None:
    client = place.client()
    client.socket.sendall(BROKEN[what])
    assert client.is_closed()
    assert is_served(place)


def test_a_frame_that_never_ends_is_forgotten_with_its_connection(place: Place) -> None:
    client = place.client()
    client.socket.sendall(struct.pack(">ii", 1000, 10) + b"{")
    client.close()
    assert is_served(place)


def test_codes_that_are_not_served_are_answered(client: Remoting) -> None:
    for code in (0, -1, 103, 9999, RequestCode.GET_ROUTEINFO_BY_TOPIC + 9):
        answer = client.ask(code)
        assert (answer.code, str(code) in answer.remark) == (ResponseCode.REQUEST_CODE_NOT_SUPPORTED, True)


def test_requests_without_their_fields_are_answered(client: Remoting) -> None:
    for code in RequestCode:
        for body in (b"", b"[]", b"{", b'{"clientID": 5, "mqSet": 3, "consumerDataSet": [1]}'):
            assert client.ask(code, {}, body).code >= 0
        for fields in ({"topic": "orders", "queueId": "x"}, {"topic": "a b", "consumerGroup": "\0"}):
            assert client.ask(code, fields).code >= 0
    assert client.send("orders").code == ResponseCode.SUCCESS


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    code=st.sampled_from(list(RequestCode)),
    names=st.lists(
        st.sampled_from([*"abcdefghijklm", "topic", "queueId", "consumerGroup", "offset", "group", "commitOffset"]),
        max_size=6,
    ),
    data=st.data(),
)
def test_any_fields_are_answered(client: Remoting, code: RequestCode, names: list[str], data: st.DataObject) -> None:
    value = st.one_of(st.text(max_size=8), st.integers(-(1 << 65), 1 << 65).map(str), st.just("orders"))
    fields = {name: data.draw(value) for name in names}
    fields = {n: v for n, v in fields.items() if v.isprintable()} | {"suspendTimeoutMillis": "0"}
    assert client.ask(code, fields, data.draw(st.binary(max_size=20))).code >= 0


def test_oneway_requests_are_not_answered(client: Remoting) -> None:
    client.begin(RequestCode.SEND_MESSAGE_V2, send_fields("orders"), b"one", flag=2)
    client.begin(9999, flag=2)
    assert len(client.pull_until(1, "orders", "g")) == 1


def test_requests_in_pieces_and_many_at_once(place: Place) -> None:
    client = place.client()
    frames = b"".join(
        encode(
            RemotingCommand(RequestCode.SEND_MESSAGE_V2, {n: str(v) for n, v in send_fields("orders").items()}, b"x", i)
        )
        for i in range(1000, 1020)
    )
    for begin in range(0, len(frames), 777):
        client.socket.sendall(frames[begin : begin + 777])
    assert all(client.finish(i).code == ResponseCode.SUCCESS for i in range(1000, 1020))


def test_a_client_that_never_reads_is_not_served_without_end(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tarry.fronts.kit.writing.STALLED_S", 0.5)
    place.client().send("orders", b"x" * 200_000)
    place.client().pull_until(1, "orders", "g")
    greedy = place.client()
    greedy.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    greedy.socket.settimeout(15)
    with pytest.raises(OSError):
        while True:
            greedy.begin_pull("orders", "g", 0)
    assert is_served(place)


def test_many_idle_connections_harm_nobody(place: Place) -> None:
    idle = [socket.create_connection(("127.0.0.1", place.front.port)) for _ in range(300)]
    assert is_served(place)
    for connection in idle:
        connection.close()


def test_with_access_keys_requests_must_be_signed(serve: Callable[..., Place], tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text("ak secret\n")
    client = serve(rocketmq_keys=str(keys)).client()
    fields = {n: str(v) for n, v in send_fields("orders").items()}
    assert client.ask(RequestCode.SEND_MESSAGE_V2, fields, b"x").code == ResponseCode.NO_PERMISSION
    fields["AccessKey"] = "ak"
    signature = signature_of(RemotingCommand(0, fields, b"x"), b"secret")
    for signed, code in (("x", ResponseCode.NO_PERMISSION), (signature, ResponseCode.SUCCESS)):
        answer = client.ask(RequestCode.SEND_MESSAGE_V2, fields | {"Signature": signed}, b"x")
        assert answer.code == code


def test_where_the_broker_is_is_told_to_anybody_so_that_its_refusal_is_heard(
    serve: Callable[..., Place], tmp_path: Path
) -> None:
    keys = tmp_path / "keys"
    keys.write_text("ak secret\n")
    client = serve(rocketmq_keys=str(keys)).client()
    wrong = {"AccessKey": "ak", "Signature": "x"}
    for signed in ({}, wrong):
        route = client.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "orders", **signed})
        assert route.code == ResponseCode.SUCCESS
    refused = client.ask(RequestCode.SEND_MESSAGE_V2, send_fields("orders") | wrong, b"x")
    assert (refused.code, "'ak'" in refused.remark) == (ResponseCode.NO_PERMISSION, True)
    assert client.ask(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER).code == ResponseCode.NO_PERMISSION


def test_a_query_by_id_may_be_signed_without_the_field_that_says_so(
    serve: Callable[..., Place], tmp_path: Path
) -> None:
    keys = tmp_path / "keys"
    keys.write_text("ak secret\n")
    client = serve(rocketmq_keys=str(keys)).client()
    fields = {"topic": "orders", "key": "id", "AccessKey": "ak", "maxNum": "1"}
    signed = fields | {"Signature": signature_of(RemotingCommand(0, fields), b"secret")}
    for more, code in (
        ({"_UNIQUE_KEY_QUERY": "true"}, ResponseCode.QUERY_NOT_FOUND),
        ({"another": "true"}, ResponseCode.NO_PERMISSION),
        ({"maxNum": "2"}, ResponseCode.NO_PERMISSION),
    ):
        assert client.ask(RequestCode.QUERY_MESSAGE, signed | more).code == code


def test_one_port_for_clients_with_and_without_tls(serve: Callable[..., Place]) -> None:
    place = serve()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    plain = socket.create_connection(("127.0.0.1", place.front.port), timeout=15)
    client = place.client(sock=context.wrap_socket(plain))
    assert client.send("orders").code == ResponseCode.SUCCESS
    assert is_served(place)


def test_a_request_that_is_never_whole_is_cut(
    place: Place, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    monkeypatch.setattr(connections, "HALF_S", 0.2)
    client = place.client()
    client.socket.sendall(struct.pack(">ii", 1000, 10) + b"{")
    assert client.is_closed()
    assert "has not come whole" in caplog.text
    assert is_served(place)


def test_half_requests_share_one_budget(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(components, "RECEIVED_BYTES_MAX", 4 << 20)
    place.restart()
    half = struct.pack(">ii", 4 << 20, 10) + bytes(1_100_000)
    held = [place.client() for _ in range(3)]
    for client in held:
        client.socket.sendall(half)
    assert held[1].is_closed() or held[2].is_closed()
    for client in held:
        client.close()
    place.restart()
    assert place.client().send("orders", b"x" * 1_000_000).code == ResponseCode.SUCCESS


def test_with_keys_half_a_request_of_a_stranger_is_short(tmp_path: Path, serve: Callable[..., Place]) -> None:
    keys = tmp_path / "keys"
    keys.write_text("alice S3CRETSECRET\n")
    place = serve(rocketmq_keys=str(keys))
    stranger = place.client()
    with pytest.raises(ConnectionError):
        stranger.socket.sendall(struct.pack(">ii", 5 << 20, 10) + b'{"code":1}')
        while True:
            stranger.socket.sendall(bytes(16_384))
    fields = {name: str(value) for name, value in send_fields("orders").items()} | {"AccessKey": "alice"}
    command = RemotingCommand(RequestCode.SEND_MESSAGE_V2, fields, b"x" * 3_000_000, 1)
    fields["Signature"] = signature_of(command, b"S3CRETSECRET")
    friend = place.client()
    friend.socket.sendall(encode(command))
    assert friend.read().code == ResponseCode.SUCCESS, "its first request may be a large one"
