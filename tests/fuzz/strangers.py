"""Callers whom no port may let in: their credentials are missing, wrong, cut, in the wrong place, or changed on the
way. Each asks for something that needs a right which it has not, by raw bytes.
"""

from __future__ import annotations

import base64
import json
import random
import socket
from collections import deque

from loopgrpc.frames import PREFACE, settings
from tarry.fronts.mqtt.packets import V3, V5
from tarry.fronts.mqtt.wire import text_bytes
from tarry.fronts.rocketmq.classic.authentication import signature_of
from tarry.fronts.rocketmq.classic.codes import RequestCode
from tarry.fronts.rocketmq.classic.frames import RemotingCommand, encode
from tarry.fronts.rocketmq.v5.service import NAME
from tarry.link.frames import CLIENT, VERSION, FrameKind, frame
from tests.fuzz.calls import FLIGHT
from tests.fuzz.credentials import DATES, LONG, draw_token
from tests.fuzz.door_target import ADMIN_KEY, CANARY, SECRET_TOPIC, WEAK_KEY, DoorTarget
from tests.fuzz.mutation import protobuf
from tests.fuzz.sockets import CONNECT_S, READ_S
from tests.loopgrpc.wire import call
from tests.mqtt import place as mqtt
from tests.rocketmq import rpc
from tests.rocketmq_classic.remoting import send_fields

HELD_MAX = 24
"""Connections that are left half open at a time."""
TLS_HELLO = bytes.fromhex("16030100c8010000c40303") + bytes(range(32)) + b"\x00\x00\x02\x13\x01\x01\x00"
HTTP_ASKS = (
    ("POST", f"/v1/topics/{SECRET_TOPIC}/messages", b'{"body":"x","delay":"1h"}'),
    ("POST", f"/v1/topics/{SECRET_TOPIC}/groups/g/receive", b"{}"),
    ("GET", "/v1/messages", b""),
    ("DELETE", f"/v1/topics/{SECRET_TOPIC}/groups/g", b""),
    ("POST", "/v1/tokens", b"{}"),
    ("GET", "/v1/identities", b""),
    ("GET", "/api/secret/pay?timeout=0", b""),
    ("GET", "/api/secret/pay/peek", b""),
    ("PUT", "/api/secret/pay", b"x"),
)
CALLS = (
    {"op": "list-pending", "topic": SECRET_TOPIC, "bodies": True},
    {"op": "list-identities"},
    {"op": "create-token", "namespace": "*"},
    {"op": "set-identity", "name": "stranger", "grants": ["admin"]},
    {"op": "delete-identity", "name": "weak"},
    {"op": "cancel-key", "topic": SECRET_TOPIC, "key": "pay"},
    {"op": "delete-group", "topic": SECRET_TOPIC, "group": "g"},
)


class Strangers:
    """One of each kind; each returns what was sent, and how it was answered."""

    def __init__(self, target: DoorTarget) -> None:
        self._target = target
        self._held: deque[socket.socket] = deque()

    def close(self) -> None:
        """Give back what is held half open."""
        while self._held:
            self._held.popleft().close()

    def http(self, rng: random.Random) -> str:
        """A request whose token is wrong, alone, or behind a good one on the same connection."""
        port = rng.choice(["http", "http", "http admin", "metrics"])
        what, token = draw_token(self._target.admin, self._target.weak, rng)
        method, path, body = rng.choice(HTTP_ASKS)
        if port == "metrics":
            method, path, body = "GET", "/metrics", b""
        if port == "http admin":
            method, path, body = rng.choice([("POST", "/token/ns", b""), ("GET", "/token/ns", b"")])
        scheme = rng.choice(["Bearer", "bearer", "Basic", "Token", ""])
        line = b"" if token is None else f"{rng.choice(['authorization', 'x-token'])}: {scheme} {token}\r\n".encode()
        if rng.random() < 0.25:
            what, line = f"misplaced over {what}", self._misplaced(rng)
        sent = _request(method, path, line, body)
        if rng.random() < 0.3:  # who is known, and then somebody else on the same connection
            what = f"changed to {what}"
            good = f"authorization: Bearer {self._target.weak}\r\n".encode()
            sent = _request("GET", "/v1/ping", good, b"") + sent
        return f"http {port}, {what}, {sent[:300]!r}: {self._ask(port, [sent])}"

    def _misplaced(self, rng: random.Random) -> bytes:
        """The administrator's own secret, where no page says that it counts."""
        admin = self._target.admin
        # As the password it would count (docs/http.md); here it is the user's name.
        basic = base64.b64encode(f"{admin}:{rng.choice(['', 'x', admin[:-1]])}".encode()).decode()
        places = f"cookie: tarry_console={admin}", f"authorization: Basic {basic}", f"x-api-key: {admin}"
        return f"{rng.choice(places)}\r\n".encode()

    def http_half(self, rng: random.Random) -> str:
        """Half a request: in its headers, or in its body."""
        sent = _request("POST", HTTP_ASKS[0][1], f"authorization: Bearer {self._target.weak}\r\n".encode(), b"x" * 99)
        return self._half(rng.choice(["http", "http admin", "metrics"]), sent, rng)

    def tls_half(self, rng: random.Random) -> str:
        """A handshake that is cut, at any port."""
        return self._half(rng.choice(list(self._target.ports)), TLS_HELLO + bytes(150), rng)

    def link(self, rng: random.Random) -> str:
        """A greeting with a wrong token, calls behind it, and maybe another greeting."""
        what, token = draw_token(self._target.admin, self._target.weak, rng)
        said = {"version": VERSION, "as": CLIENT} | ({} if token is None else {"token": token})
        if rng.random() < 0.15:
            said["token"] = rng.choice([1, [], {"token": self._target.admin}, None, True])
            what = "no text"
        asked = [_frame(FrameKind.CALL, n, rng.choice(CALLS)) for n in range(1, rng.randint(2, 4))]
        group = {"topic": SECRET_TOPIC, "group": "g"}
        asked.append(_frame(FrameKind.GROUP, 7, group))
        if rng.random() < 0.3:  # a credential that changes on the way
            what += ", again"
            asked.insert(0, _frame(FrameKind.HELLO, 0, {**said, "token": self._target.admin[:-1]}))
        hello = _frame(FrameKind.HELLO, 0, said)
        if rng.random() < 0.2:
            return self._half("link", hello, rng)
        sent = [hello, *asked] if rng.random() < 0.7 else [b"".join([hello, *asked])]
        if rng.random() < 0.1:
            sent, what = asked, "no greeting"
        return f"link, {what}, {[part[:300] for part in sent]}: {self._ask('link', sent)}"

    def flight(self, rng: random.Random) -> str:
        """Raw calls of Flight with a wrong ``authorization``."""
        what, token = draw_token(self._target.admin, self._target.weak, rng)
        fields = dict(rng.choice(CALLS))
        ticket = rng.random() < 0.3
        op = fields["op"] if ticket else fields.pop("op")
        path, body = ("DoGet", {1: _json(fields)}) if ticket else ("DoAction", {1: str(op).encode(), 2: _json(fields)})
        head = () if token is None else ((b"authorization", f"{rng.choice(['Bearer', ''])} {token}".encode()),)
        sent = self._grpc(f"/{FLIGHT}/{path}", protobuf(body), head, rng)
        return f"flight, {what}, {path} {fields}: {self._ask('flight', sent)}"

    def rocketmq(self, rng: random.Random) -> str:
        """RocketMQ's gRPC with signatures that are wrong, out of date, cut or another's."""
        key, secret = rng.choice([ADMIN_KEY, WEAK_KEY, ("nobody", "x"), ("k" * rng.choice(LONG[:2]), "x")])
        moment, what = rng.choice([*DATES, ""]), "date"
        if key == ADMIN_KEY[0] and not moment:
            secret, what = secret[:-1], "secret"
        headers = rpc.signed(key, secret, moment)
        if not moment and rng.random() < 0.4:
            headers["authorization"], what = headers["authorization"][: rng.randrange(90)], "cut"
        if rng.random() < 0.2:
            what, token = draw_token(self._target.admin, self._target.weak, rng)
            headers = {} if token is None else {"authorization": f"Bearer {token}"}
        method, request = rng.choice(
            [
                ("SendMessage", rpc.s.SendMessageRequest(messages=[rpc.message(SECRET_TOPIC, b"x")])),
                ("ReceiveMessage", rpc.receive_request(SECRET_TOPIC, "g", wait_s=0.1)),
                ("Heartbeat", rpc.s.HeartbeatRequest(group=rpc.res("g"))),
                ("QueryRoute", rpc.s.QueryRouteRequest(topic=rpc.res(SECRET_TOPIC))),
            ]
        )
        more = [("x-mq-client-id", "stranger"), ("x-mq-language", "PYTHON"), *headers.items()]
        head = tuple((name.encode(), value.encode()) for name, value in more)
        sent = self._grpc(f"/{NAME}/{method}", request.SerializeToString(), head, rng)
        return f"rocketmq, {what}, {method} as {key[:20]}: {self._ask('rocketmq', sent)}"

    def _grpc(
        self, path: str, message: bytes, head: tuple[tuple[bytes, bytes], ...], rng: random.Random
    ) -> list[bytes]:
        whole = PREFACE + settings({}) + call(1, message, path=path, more=head)
        if rng.random() < 0.3:  # another one behind it, with no credential at all
            whole += call(3, message, path=path)
        return [whole[: rng.randrange(len(whole))] if rng.random() < 0.1 else whole]

    def remoting(self, rng: random.Random) -> str:
        """Classic commands, signed wrongly: alone, and behind one that was signed well."""
        code = rng.choice([RequestCode.SEND_MESSAGE, RequestCode.PULL_MESSAGE, RequestCode.DELETE_TOPIC_IN_BROKER])
        fields = {name: str(value) for name, value in send_fields(SECRET_TOPIC).items()}
        fields |= {"topic": SECRET_TOPIC, "consumerGroup": "g", "queueId": "0", "queueOffset": "0"}
        what = rng.choice(["unsigned", "wrong", "cut", "bad base64", "other's", "long", "too weak", "of another"])
        if what != "unsigned":
            key, secret = WEAK_KEY if what in ("too weak", "other's") else ADMIN_KEY
            fields["AccessKey"] = key if what != "long" else key * rng.choice(LONG[:2])
            signed = RemotingCommand(code, {**fields, "topic": "t"} if what == "of another" else fields, b"x")
            signature = signature_of(signed, secret.encode())
            fields["Signature"] = {
                "wrong": signature[::-1],
                "cut": signature[: rng.randrange(len(signature) - 1)],
                "bad base64": "%%%" + signature,
            }.get(what, signature)
            if what == "other's":
                fields["AccessKey"] = ADMIN_KEY[0]
        sent = [encode(RemotingCommand(int(code), fields, b"x", 2))]
        if rng.random() < 0.3:
            what = f"changed to {what}"
            good = {name: str(value) for name, value in send_fields("weak.t").items()} | {"AccessKey": WEAK_KEY[0]}
            good["Signature"] = signature_of(RemotingCommand(310, good, b"x"), WEAK_KEY[1].encode())
            sent.insert(0, encode(RemotingCommand(310, good, b"x", 1)))
        if rng.random() < 0.1:
            return self._half("remoting", b"".join(sent), rng)
        return f"remoting, {what}, {int(code)}: {self._ask('remoting', sent)}"

    def mqtt(self, rng: random.Random) -> str:
        """A CONNECT with a wrong password, or a good one as the user's name, and packets behind it."""
        what, token = draw_token(self._target.admin, self._target.weak, rng)
        token = (token or "")[:60_000]
        version, admin = rng.choice([V3, V5]), self._target.admin
        user, password = rng.choice([("u", token), (admin, token[:-1]), (ADMIN_KEY[0], WEAK_KEY[1]), ("", admin[:-1])])
        if what == "too weak":
            user = "weak"
        connect = mqtt.connect(version, flags=0xC0, rest=text_bytes(user) + text_bytes(password))
        if what == "missing":
            connect = mqtt.connect(version)
        sent = [
            connect,
            mqtt.subscribe("secret/pay", version=version),
            mqtt.publish(SECRET_TOPIC, version=version),
            mqtt.subscribe("#", version=version),
        ]
        if rng.random() < 0.3:
            sent.insert(1, mqtt.connect(version, flags=0xC0, rest=text_bytes("u") + text_bytes(admin)))
        if rng.random() < 0.15:
            return self._half("mqtt", connect, rng)
        return f"mqtt, {what}, as {user[:20]}: {self._ask('mqtt', sent)}"

    def _half(self, port: str, whole: bytes, rng: random.Random) -> str:
        """Send a part, and leave the connection open for a while."""
        sent = whole[: rng.randrange(1, len(whole))]
        connection = socket.create_connection(("127.0.0.1", self._target.ports[port]), CONNECT_S)
        connection.sendall(sent)
        self._held.append(connection)
        if len(self._held) > HELD_MAX:
            self._held.popleft().close()
        return f"half, {port}, {len(sent)} of {len(whole)} bytes: held"

    def _ask(self, port: str, sent: list[bytes]) -> str:
        """Say it, read all that is answered, and look for what nobody may read without a right."""
        answered, ended = b"", "no answer"
        with socket.create_connection(("127.0.0.1", self._target.ports[port]), CONNECT_S) as connection:
            connection.settimeout(READ_S)
            try:
                for part in sent:
                    connection.sendall(part)
                while data := connection.recv(65_536):
                    answered += data
                ended = "closed"
            except TimeoutError:
                ended = "answered" if answered else "no answer"
            except OSError:
                ended = "closed"
        text = answered.decode("latin-1")
        coded = base64.b64encode(CANARY.encode()).decode()
        assert CANARY not in text and coded not in text, f"a stranger has read a message: {answered!r}"
        assert not any(secret in text for secret in self._secrets()), f"an answer shows a secret: {answered!r}"
        assert "Traceback" not in text and "internal" not in text, f"a bug is in an answer: {answered!r}"
        return ended

    def _secrets(self) -> tuple[str, ...]:
        return self._target.admin, self._target.weak, ADMIN_KEY[1], WEAK_KEY[1]


def _request(method: str, path: str, line: bytes, body: bytes) -> bytes:
    head = f"{method} {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n".encode()
    return head + line + f"content-length: {len(body)}\r\n\r\n".encode() + body


def _frame(kind: FrameKind, number: int, fields: object) -> bytes:
    return b"".join(frame(kind, number, _json(fields)))


def _json(fields: object) -> bytes:
    return json.dumps(fields).encode()
