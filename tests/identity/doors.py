"""All ports of a broker, in TLS, and callers who show a certificate, a token, or both."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any, Protocol
from uuid import uuid4

import grpc
import httpx
import pyarrow.flight as fl
from tests.identity.authority import Authority, ClientCertificate
from tests.loopgrpc.certificates import make_certificate
from tests.mqtt.place import PUBACK, Raw, publish
from tests.rocketmq.rpc import Code, Rpc
from tests.rocketmq_classic.remoting import Remoting

from tarry.broker import Broker
from tarry.client import Client, ClientTls
from tarry.fronts.flight.front import FlightFront
from tarry.fronts.gateway.front import GatewayFront
from tarry.fronts.gateway.remote.broker import RemoteBroker
from tarry.fronts.http.front import HttpFront
from tarry.fronts.link.front import LinkFront
from tarry.fronts.metrics.front import MetricsFront
from tarry.fronts.mqtt.front import MqttFront
from tarry.fronts.mqtt.packets import V5
from tarry.fronts.mqtt.wire import text_bytes
from tarry.fronts.registry import ServerConfig
from tarry.fronts.rocketmq.classic.front import RemotingFront
from tarry.fronts.rocketmq.front import RocketMQFront
from tarry.link.frames import LINK

ANY_PORT = "127.0.0.1:0"
LET_IN = "let in"
"""Where a port does not say as whom."""
_FRONTS: dict[str, Any] = {
    "link": LinkFront,
    "flight": FlightFront,
    "metrics": MetricsFront,
    "mqtt": MqttFront,
    "rocketmq": RocketMQFront,
    "remoting": RemotingFront,
    "gateway": GatewayFront,
}


class RefusedError(Exception):
    """What a port says to whom it does not let in."""


Call = Callable[[], str]
"""A call to a port, by a connection that is there; as whom it let the caller in. Raises RefusedError: it did not."""


class Caller(Protocol):
    """Connects to a port, and shows a certificate and perhaps a token."""

    def __call__(self, doors: Ports, shown: ClientCertificate, token: str | None) -> AbstractContextManager[Call]: ...


class Ports:
    """Ports of a broker, by name."""

    def __init__(self, addresses: dict[str, str]) -> None:
        self._addresses = addresses

    def port(self, name: str) -> int:
        return int(self._addresses[name].rpartition(":")[2])

    def socket(self, name: str, shown: ClientCertificate) -> ssl.SSLSocket:
        plain = socket.create_connection(("127.0.0.1", self.port(name)), timeout=30)
        return shown.context().wrap_socket(plain, server_hostname="localhost")


class Doors(Ports):
    """The ports; the client authority; identities: "shop", which may do everything, and "root"."""

    def __init__(
        self, broker: Broker, addresses: dict[str, str], authority: Authority, ca: Path, *, identities: bool
    ) -> None:
        super().__init__(addresses)
        self.broker, self.authority, self.ca = broker, authority, ca
        self.tokens: dict[str, str] = {}
        for name in ("root", "shop") if identities else ():
            broker.set_identity(name, ["admin"])
            self.tokens[name] = broker.add_credential(name).secret

    def bare_socket(self, name: str) -> ssl.SSLSocket:
        """By TLS, without a certificate."""
        plain = socket.create_connection(("127.0.0.1", self.port(name)), timeout=30)
        return ssl.create_default_context(cafile=str(self.ca)).wrap_socket(plain, server_hostname="localhost")

    def enter(self, name: str, shown: ClientCertificate, token: str | None = None) -> str:
        """Call a port once, by a connection of its own; as whom it let the caller in.

        Raises:
            RefusedError: it did not.
        """
        with CALLERS[name](self, shown, token) as call:
            return call()


@contextmanager
def open_doors(directory: Path, *, identities: bool = True, **settings: Any) -> Iterator[Doors]:
    (directory / "broker").mkdir()
    own = make_certificate(directory / "broker")
    authority = Authority(directory / "authority", own.certificate)
    tls = {
        "tls_certificate": str(own.certificate),
        "tls_key": str(own.key),
        "tls_client_ca": str(authority.file),
        "rocketmq_tls": "on",
        "flight_tls": "on",
    }
    fixed = {"data": directory / "data", "pipeline": "off", "remoting_vip": "off"}
    config = ServerConfig.model_validate({**fixed, **tls, **settings})
    with ExitStack() as stack:
        broker = stack.enter_context(Broker.open(config))
        addresses = {}
        for name, kind in _FRONTS.items():
            front = kind.start(broker, ANY_PORT)
            stack.callback(front.stop, 0)
            addresses[name] = front.address
        http = HttpFront(broker, ANY_PORT, admin=ANY_PORT)
        stack.callback(http.stop, 0)
        addresses |= {"http": http.address, "lmstfy": http.address, "http admin": str(http.admin_address)}
        broker.schedule("orders.new", b"first", delay=0, key="k")  # opens what is opened at the first use
        yield Doors(broker, addresses, authority, own.certificate, identities=identities)


@contextmanager
def _link(doors: Ports, shown: ClientCertificate, token: str | None) -> Iterator[Call]:
    tls = ClientTls(str(shown.ca), str(shown.certificate), str(shown.key))
    with Client(f"localhost:{doors.port('link')}", tls=tls, token=token) as client:
        yield lambda: client.whoami().identity


@contextmanager
def _flight(doors: Ports, shown: ClientCertificate, token: str | None) -> Iterator[Call]:
    headers = [] if token is None else [(b"authorization", f"Bearer {token}".encode())]
    options = fl.FlightCallOptions(headers=headers)
    files = {"cert_chain": shown.certificate.read_bytes(), "private_key": shown.key.read_bytes()}
    location = f"grpc+tls://localhost:{doors.port('flight')}"

    def call() -> str:
        try:
            [answer] = client.do_action(fl.Action("whoami", b"{}"), options)
        except fl.FlightUnauthenticatedError as error:
            raise RefusedError(str(error)) from error
        return str(httpx.Response(200, content=answer.body.to_pybytes()).json()["identity"])

    with fl.FlightClient(location, tls_root_certs=shown.ca.read_bytes(), **files) as client:
        yield call


def _asks_http(name: str, method: str, path: str, status: int) -> Caller:
    @contextmanager
    def line(doors: Ports, shown: ClientCertificate, token: str | None) -> Iterator[Call]:
        headers = {} if token is None else {"authorization": f"Bearer {token}", "x-token": token}

        def call() -> str:
            answer = client.request(method, f"https://localhost:{doors.port(name)}{path}", headers=headers)
            if answer.status_code == 401:
                raise RefusedError(answer.text)
            assert answer.status_code == status, answer.text
            return LET_IN

        with httpx.Client(verify=shown.context(), timeout=60) as client:
            yield call

    return line


@contextmanager
def _mqtt(doors: Ports, shown: ClientCertificate, token: str | None) -> Iterator[Call]:
    password = {} if token is None else {"flags": 0x40, "rest": text_bytes(token)}
    with Raw(0, doors.socket("mqtt", shown)) as raw:
        answer = raw.connect(V5, client_id=uuid4().hex, **password)
        if answer[1] != 0:
            raise RefusedError(answer[2:].decode(errors="replace"))

        def call() -> str:
            raw.send(publish("orders/new"))
            answer = raw.expect(PUBACK)
            assert len(answer) == 2 or answer[2] < 0x80, answer
            return LET_IN

        yield call


@contextmanager
def _rocketmq(doors: Ports, shown: ClientCertificate, token: str | None) -> Iterator[Call]:
    files = shown.ca.read_bytes(), shown.key.read_bytes(), shown.certificate.read_bytes()
    headers = {} if token is None else {"authorization": f"Bearer {token}"}
    rpc = Rpc(doors.port("rocketmq"), headers=headers, shared=False, credentials=grpc.ssl_channel_credentials(*files))

    def call() -> str:
        status = rpc.send("orders.new").status
        if status.code == Code.UNAUTHORIZED:
            raise RefusedError(status.message)
        assert status.code == Code.OK, status
        return LET_IN

    try:
        yield call
    finally:
        rpc.close()


@contextmanager
def _remoting(doors: Ports, shown: ClientCertificate, token: str | None) -> Iterator[Call]:
    client = Remoting(0, sock=doors.socket("remoting", shown))
    more = {} if token is None else {"AccessKey": token, "Signature": token}

    def call() -> str:
        answer = client.ask(310, {"b": "orders.new", "a": "g", "e": 0, "i": "", "c": "TBW102", "d": 4, **more}, b"x")
        if answer.code == 16:
            raise RefusedError(answer.remark)
        assert answer.code == 0, answer
        return LET_IN

    try:
        yield call
    finally:
        client.close()


@contextmanager
def _gateway(doors: Ports, shown: ClientCertificate, token: str | None) -> Iterator[Call]:
    files = {"gateway_tls_ca": str(shown.ca), "tls_certificate": str(shown.certificate), "tls_key": str(shown.key)}
    remote = RemoteBroker(f"localhost:{doors.port('gateway')}", "w", "rocketmq", LINK, files)

    def call() -> str:
        remote.measure_clock()
        return LET_IN

    try:
        yield call
    finally:
        remote.close()


CALLERS: dict[str, Caller] = {
    "link": _link,
    "flight": _flight,
    "http": _asks_http("http", "GET", "/v1/groups", 200),
    "lmstfy": _asks_http("lmstfy", "PUT", "/api/orders/new", 201),
    "http admin": _asks_http("http admin", "GET", "/version", 200),
    "metrics": _asks_http("metrics", "GET", "/metrics", 200),
    "mqtt": _mqtt,
    "rocketmq": _rocketmq,
    "remoting": _remoting,
    "gateway": _gateway,
}
