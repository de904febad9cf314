"""A bound on connections, a setting of TLS and a client's identity are there once, and hold at every port."""

from __future__ import annotations

import asyncio
import http.client
import os
import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pyarrow.flight as fl
import pytest
import uvloop
from cryptography import x509
from cryptography.hazmat.primitives.hashes import SHA256
from tests.loopgrpc.certificates import Certificate, make_certificate
from tests.waiting import wait_until

from loopgrpc import UnreadBytes
from tarry.api.audit import Reloaded
from tarry.base.descriptors import ConnectionLimits
from tarry.base.errors import InvalidArgumentError
from tarry.base.placement import ANY_CORE
from tarry.broker import Broker
from tarry.fronts.flight.front import FlightFront
from tarry.fronts.gateway.front import GatewayFront, GatewayPorts
from tarry.fronts.http.exchange import HttpApplication, HttpRequest, HttpResponse
from tarry.fronts.http.front import HttpFront
from tarry.fronts.http.server.asgi import asgi
from tarry.fronts.http.server.server import HttpServer
from tarry.fronts.kit.admission import Admission, Admissions
from tarry.fronts.kit.front import FrontServices
from tarry.fronts.kit.listening import port_of
from tarry.fronts.kit.peer_proof import PeerProof
from tarry.fronts.kit.tls import TlsFiles
from tarry.fronts.kit.tls_settings import PortTls
from tarry.fronts.link.front import LinkFront
from tarry.fronts.metrics.front import MetricsFront
from tarry.fronts.mqtt.front import MqttFront
from tarry.fronts.registry import FRONTS, ServerConfig
from tarry.fronts.rocketmq.classic.front import RemotingFront
from tarry.fronts.rocketmq.front import RocketMQFront
from tarry.identity.refusals import Refusals
from tarry.testing import TestClock

ANY_PORT = "127.0.0.1:0"


PORTS: dict[str, Callable[[Broker, ConnectionLimits], Any]] = {
    "flight": lambda broker, limits: FlightFront.start(broker, ANY_PORT, connections=limits),
    "link": lambda broker, limits: LinkFront.start(broker, ANY_PORT, connections=limits),
    "gateway": lambda broker, limits: GatewayFront.start(broker, ANY_PORT, connections=limits),
    "rocketmq": lambda broker, limits: RocketMQFront.start(broker, ANY_PORT, connections=limits),
    "remoting": lambda broker, limits: RemotingFront.start(broker, ANY_PORT, connections=limits),
    "http": lambda broker, limits: HttpFront.start(broker, ANY_PORT, connections=limits),
    "http admin": lambda broker, limits: HttpFront(broker, ANY_PORT, connections=limits, admin=ANY_PORT),
    "mqtt": lambda broker, limits: MqttFront.start(broker, ANY_PORT, connections=limits),
    "metrics": lambda broker, limits: MetricsFront.start(broker, ANY_PORT, connections=limits),
}
Serving = Callable[..., AbstractContextManager[str]]
LOCALHOST = ("DNS:localhost", "IP Address:127.0.0.1")
PROOF = PeerProof("certificate", "commonName=localhost", LOCALHOST, ("DNS:localhost",))


@pytest.fixture
def certificate(tmp_path: Path) -> Certificate:
    return make_certificate(tmp_path)


@pytest.fixture
def client(tmp_path: Path) -> Certificate:
    (tmp_path / "client").mkdir()
    return make_certificate(tmp_path / "client")


@pytest.fixture
def serving(tmp_path: Path) -> Serving:
    """A front of a new broker; its address."""

    @contextmanager
    def serve(port: str, limits: ConnectionLimits | None = None, **settings: Any) -> Iterator[str]:
        secret = tmp_path / "secret"
        secret.write_text("x" * 32)
        fixed = {"pipeline": "off", "remoting_vip": "off", "http_access": "open", "gateway_secret": str(secret)}
        with Broker.open(ServerConfig(data=tmp_path / "data", **fixed, **settings)) as broker:
            front = PORTS[port](broker, limits or ConnectionLimits())
            try:
                yield front.addresses["http admin"] if port == "http admin" else front.address
            finally:
                front.stop()

    return serve


def tls_of(certificate: Certificate, client_ca: Certificate | None = None) -> dict[str, str]:
    """The one setting of TLS; Flight's and RocketMQ's ports do not refuse clients without it by themselves."""
    files = {"tls_certificate": str(certificate.certificate), "tls_key": str(certificate.key)}
    more = {} if client_ca is None else {"tls_client_ca": str(client_ca.certificate)}
    return {**files, **more, "rocketmq_tls": "on", "flight_tls": "on"}


def connect(address: str) -> socket.socket:
    host, port = address.split(":")
    return socket.create_connection((host, int(port)), timeout=30)


def handshake(address: str, context: ssl.SSLContext) -> None:
    with connect(address) as connection, context.wrap_socket(connection, server_hostname="localhost"):
        pass


def is_open(connection: socket.socket) -> bool:
    """Whether the server has not closed it; what it says is read."""
    connection.setblocking(False)
    try:
        while connection.recv(4096):
            pass
    except BlockingIOError:
        return True
    except ConnectionResetError:
        pass
    return False


@pytest.fixture
def admitted(monkeypatch: pytest.MonkeyPatch) -> list[Admission]:
    """The places that doors have given."""
    given: list[Admission] = []
    admit = Admissions.admit

    def spy(self: Admissions, peer_host: str, cut: Callable[[], object]) -> Admission:
        given.append(admit(self, peer_host, cut))
        return given[-1]

    monkeypatch.setattr(Admissions, "admit", spy)
    return given


def test_every_front_that_listens_is_here() -> None:
    assert {front.name for front in FRONTS} - {"push"} == {*PORTS} - {"http admin"}


@pytest.mark.parametrize("port", PORTS)
def test_a_bound_by_peer_is_that_of_every_port(serving: Serving, port: str) -> None:
    with serving(port, ConnectionLimits(20, 2)) as address:
        connections = [connect(address) for _ in range(3)]
        wait_until(lambda: sum(map(is_open, connections)) < 3)
        assert list(map(is_open, connections)) == [False, True, True], "of silent ones the oldest makes room"
        for connection in connections:
            connection.close()


@pytest.mark.parametrize("port", PORTS)
def test_a_bound_in_all_is_that_of_every_port(serving: Serving, port: str) -> None:
    with serving(port, ConnectionLimits(2, 20)) as address:
        connections = [connect(address) for _ in range(3)]
        wait_until(lambda: sum(map(is_open, connections)) < 3)
        assert not is_open(connections[0])
        for connection in connections:
            connection.close()


@pytest.mark.parametrize("port", PORTS)
def test_a_new_certificate_is_shown_at_every_port(
    serving: Serving, port: str, certificate: Certificate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tarry.base.file_changes.LOOK_S", 0.0)
    (tmp_path / "new").mkdir()
    new = make_certificate(tmp_path / "new")
    before, after = certificate.client_context(), new.client_context()
    read_again: list[tuple[str, Reloaded]] = []
    monkeypatch.setattr(Refusals, "reloaded", lambda _, listener, each: read_again.append((listener, each)))
    with serving(port, **tls_of(certificate)) as address:
        handshake(address, before)
        new.certificate.replace(certificate.certificate)
        new.key.replace(certificate.key)
        handshake(address, after)
        with pytest.raises(ssl.SSLCertVerificationError):
            handshake(address, before)
    [(listener, told)] = read_again
    assert (listener, told.file) == (port.removesuffix(" admin"), str(certificate.certificate))
    shown = x509.load_pem_x509_certificate(certificate.certificate.read_bytes())
    assert told.content["sha256"] == shown.fingerprint(SHA256()).hex()


@pytest.mark.parametrize("port", PORTS)
def test_without_a_certificate_of_theirs_clients_are_refused_at_every_port(
    serving: Serving, port: str, certificate: Certificate, client: Certificate
) -> None:
    with serving(port, **tls_of(certificate, client)) as address, connect(address) as connection:
        # In TLS 1.3, a client learns it after its handshake.
        with (
            pytest.raises((ssl.SSLError, ConnectionError)),
            certificate.client_context("h2").wrap_socket(connection, server_hostname="localhost") as stranger,
        ):
            if not stranger.recv(1):
                raise ConnectionError("closed")
        with connect(address) as plain:
            plain.sendall(b"GET / HTTP/1.1\r\n\r\n")
            wait_until(lambda: not is_open(plain))


@pytest.mark.parametrize("port", PORTS)
def test_a_clients_certificate_is_its_principal_at_every_port(
    serving: Serving, port: str, certificate: Certificate, client: Certificate, admitted: list[Admission]
) -> None:
    context = certificate.client_context("h2" if port in ("rocketmq", "flight") else "http/1.1")
    context.load_cert_chain(client.certificate, client.key)
    with (
        serving(port, **tls_of(certificate, client)) as address,
        connect(address) as connection,
        context.wrap_socket(connection, server_hostname="localhost"),
    ):
        wait_until(lambda: [place.principal for place in admitted] != [None])
        assert [place.principal for place in admitted] == [PROOF]


def test_a_request_of_http_carries_its_principal(certificate: Certificate, client: Certificate) -> None:
    seen: list[object] = []

    def handler(request: HttpRequest) -> None:
        seen.append(request.principal)
        request.answer(HttpResponse(204))

    async def application(scope: Any, receive: Any, send: Any) -> None:
        seen.append(scope["state"]["principal"])
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    async def ask() -> None:
        files = TlsFiles(str(certificate.certificate), str(certificate.key), str(client.certificate))
        more = {"/asgi": asgi(application)}
        limits, loop = ConnectionLimits(), asyncio.get_running_loop()
        server = HttpServer(
            loop, TestClock(), HttpApplication(handler), more, limits, UnreadBytes(), None, PortTls(files)
        )
        port = port_of(await server.listen(ANY_PORT))
        context = certificate.client_context()
        context.load_cert_chain(client.certificate, client.key)
        reader, writer = await asyncio.open_connection("localhost", port, ssl=context)
        for path in ("/", "/asgi"):
            writer.write(f"GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n".encode())
            assert await reader.readuntil(b"\r\n\r\n")
        writer.close()
        await server.stop(0)

    uvloop.run(ask())
    assert seen == [PROOF] * 2


def test_a_client_of_pyarrow_comes_over_tls_with_its_certificate(
    serving: Serving, certificate: Certificate, client: Certificate, admitted: list[Admission]
) -> None:
    with serving("flight", **tls_of(certificate, client)) as address:
        shown = {"cert_chain": client.certificate.read_bytes(), "private_key": client.key.read_bytes()}
        location = f"grpc+tls://localhost:{address.rpartition(':')[2]}"
        with fl.FlightClient(location, tls_root_certs=certificate.certificate.read_bytes(), **shown) as known:
            assert known.list_actions()
    assert admitted[-1].principal == PROOF


def test_the_user_of_a_unix_socket_is_the_principal(tmp_path: Path, admitted: list[Admission]) -> None:
    config = ServerConfig(data=tmp_path / "data", pipeline="off")
    with Broker.open(config) as broker:
        front = GatewayFront.start(broker, f"unix:{tmp_path}/gateway")
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(f"{tmp_path}/gateway")
            wait_until(lambda: [place.principal for place in admitted] != [None] and bool(admitted))
        front.stop()
    assert [place.principal for place in admitted] == [PeerProof("user", str(os.getuid()))]


def test_both_takes_clients_with_tls_and_without(serving: Serving, certificate: Certificate) -> None:
    with serving("metrics", **tls_of(certificate), tls="both") as address:
        host, port = address.split(":")
        context = certificate.client_context()
        for each in (
            http.client.HTTPConnection(host, int(port), timeout=30),
            http.client.HTTPSConnection("localhost", int(port), timeout=30, context=context),
        ):
            each.request("GET", "/metrics")
            assert each.getresponse().status == 200
            each.close()


def test_the_console_over_tls_keeps_its_cookie_to_tls(serving: Serving, certificate: Certificate) -> None:
    with serving("http", **tls_of(certificate)) as address:
        _, port = address.split(":")
        each = http.client.HTTPSConnection("localhost", int(port), timeout=30, context=certificate.client_context())
        each.request("GET", "/")
        assert "; Secure" in (each.getresponse().headers["Set-Cookie"] or "")
        each.close()


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"tls_key": None}, "tls_certificate is .*, tls_key None; allowed: both or neither"),
        ({"tls_certificate": None, "tls_key": None}, "tls_client_ca is .* there is no tls_certificate"),
        ({"tls": "both", "rocketmq_tls": "both"}, "is 'both' and tls_client_ca is .*allowed: on"),
        ({"tls_certificate": __file__, "tls_key": __file__}, "no certificate"),
    ],
)
@pytest.mark.parametrize("front", [front for front in FRONTS if front.name != "push"], ids=lambda front: front.name)
def test_what_contradicts_itself_is_refused_before_anything_is_opened(
    front: Any, settings: dict[str, Any], text: str, certificate: Certificate, client: Certificate, tmp_path: Path
) -> None:
    (tmp_path / "secret").write_text("x" * 32)
    fixed = {"pipeline": "off", "link": ANY_PORT, "gateway": ANY_PORT, "gateway_secret": str(tmp_path / "secret")}
    if front.name == "flight" and settings.get("tls") == "both":
        return  # it has no such mode
    config = ServerConfig(data=tmp_path / "data", **{**fixed, **tls_of(certificate, client), **settings})
    with pytest.raises(InvalidArgumentError, match=text):
        front.refuse(config)
    assert not (tmp_path / "data").exists()


def test_the_ports_of_gateways_share_the_places_of_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shares: list[ConnectionLimits] = []
    start = GatewayFront.start

    def spy(broker: Any, address: str, placement: Any, connections: ConnectionLimits) -> GatewayFront:
        shares.append(connections)
        return start(broker, address, placement, connections)

    monkeypatch.setattr(GatewayFront, "start", spy)
    (tmp_path / "secret").write_text("x" * 32)
    settings = {"gateway": ANY_PORT, "gateway_secret": str(tmp_path / "secret"), "workers": 1}
    with Broker.open(ServerConfig(data=tmp_path / "data", pipeline="off", **settings)) as broker:
        limits = ConnectionLimits(100, 50)
        GatewayPorts(FrontServices(broker, "", ANY_CORE, limits, None)).stop()  # type: ignore[arg-type]
    assert shares == [ConnectionLimits(50, 25)] * 2
    assert next(front for front in FRONTS if front.name == "gateway").takes_descriptors
