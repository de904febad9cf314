"""Every front's port is the same door: a bound or a TLS setting that is made once is seen at each."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest
from tests.loopgrpc.certificates import Certificate, make_certificate

from tarry.base.descriptors import ConnectionLimits
from tarry.broker import Broker
from tarry.fronts.gateway.front import GatewayFront
from tarry.fronts.http.front import HttpFront
from tarry.fronts.mqtt.front import MqttFront
from tarry.fronts.registry import ServerConfig
from tarry.fronts.rocketmq.classic.front import RemotingFront

ANY_PORT = "127.0.0.1:0"
FRONTS = {
    "remoting": lambda broker, limits: RemotingFront.start(broker, ANY_PORT, connections=limits),
    "http": lambda broker, limits: HttpFront.start(broker, ANY_PORT, connections=limits),
    "mqtt": lambda broker, limits: MqttFront.start(broker, ANY_PORT, connections=limits),
    "gateway": lambda broker, limits: GatewayFront.start(broker, ANY_PORT, connections=limits),
}
Serving = Callable[[str, ConnectionLimits], AbstractContextManager[str]]


@pytest.fixture
def certificate(tmp_path: Path) -> Certificate:
    return make_certificate(tmp_path)


@pytest.fixture
def serving(tmp_path: Path, certificate: Certificate) -> Serving:
    """A front of a new broker; its address."""

    @contextmanager
    def serve(port: str, limits: ConnectionLimits) -> Iterator[str]:
        (tmp_path / "secret").write_text("x" * 32)
        files = {"certificate": str(certificate.certificate), "key": str(certificate.key)}
        tls = {f"{front}_tls_{name}": path for front in ("rocketmq", "gateway", "mqtt") for name, path in files.items()}
        secret = str(tmp_path / "secret")
        config = ServerConfig(data=tmp_path / "data", pipeline="off", remoting_vip="off", gateway_secret=secret, **tls)
        with Broker.open(config) as broker:
            front = FRONTS[port](broker, limits)
            try:
                yield front.address
            finally:
                front.stop()

    return serve


def connect(address: str) -> socket.socket:
    host, port = address.split(":")
    return socket.create_connection((host, int(port)), timeout=30)


def is_closed(connection: socket.socket) -> bool:
    try:
        return connection.recv(1) == b""
    except ConnectionResetError:
        return True


@pytest.mark.parametrize("port", FRONTS)
def test_a_bound_by_peer_is_that_of_every_port(serving: Serving, port: str) -> None:
    with serving(port, ConnectionLimits(20, 2)) as address:
        connections = [connect(address) for _ in range(3)]
        # Of silent ones the oldest makes room.
        assert is_closed(connections[0])
        for connection in connections[1:]:
            connection.setblocking(False)
            with pytest.raises(BlockingIOError):
                connection.recv(1)
        for connection in connections:
            connection.close()


@pytest.mark.parametrize("port", ["remoting", "gateway", "mqtt"])
def test_a_new_certificate_is_shown_at_every_port_with_tls(
    serving: Serving, port: str, certificate: Certificate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tarry.fronts.kit.tls.LOOK_S", 0.0)
    (tmp_path / "new").mkdir()
    new = make_certificate(tmp_path / "new")
    before, after = certificate.client_context(), new.client_context()

    def handshake(address: str, context: ssl.SSLContext) -> None:
        with connect(address) as connection, context.wrap_socket(connection, server_hostname="localhost"):
            pass

    with serving(port, ConnectionLimits()) as address:
        handshake(address, before)
        new.certificate.replace(certificate.certificate)
        new.key.replace(certificate.key)
        handshake(address, after)
        with pytest.raises(ssl.SSLCertVerificationError):
            handshake(address, before)
