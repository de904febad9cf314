"""A link by TCP: a gateway shows the broker's secret, and sees its certificate; who cannot is refused."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import tarry.fronts
from tarry.base.errors import InvalidArgumentError, TarryError, UnavailableError
from tarry.fronts.gateway.authentication import Trust, read_secret
from tarry.fronts.gateway.front import GatewayFront
from tarry.fronts.gateway.remote.broker import RemoteBroker
from tarry.fronts.gateway.remote.link import greeting
from tarry.fronts.gateway.served.worker import told_settings
from tarry.fronts.registry import ServerConfig
from tarry.link.blocking import BlockingLink
from tarry.link.frames import ASKED_BYTES_MAX, CONTROL, HEAD, LINK, FrameKind, frame
from tests.gateway.places import GatewayPlace, Worker
from tests.gateway.raw_link import RawLink, hello
from tests.loopgrpc.certificates import Certificate, make_certificate
from tests.rocketmq.rpc import Code, Rpc

WAIT_S = 15

Serve = Callable[..., GatewayPlace]


@pytest.fixture
def secret(tmp_path: Path) -> str:
    path = tmp_path / "secret"
    path.write_text("0123456789abcdef0123456789abcdef\n")
    return str(path)


@pytest.fixture
def certificate(tmp_path: Path) -> Certificate:
    (tmp_path / "tls").mkdir()
    return make_certificate(tmp_path / "tls")


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def far(place: GatewayPlace, stack: ExitStack, host: str = "127.0.0.1") -> str:
    """A TCP address of a broker for gateways."""
    front = GatewayFront.start(place.broker, f"{host}:0")
    stack.callback(front.stop)
    return front.address


def asked(address: str, own: dict[str, Any]) -> dict[str, Any]:
    """What a broker says to who has these settings."""
    remote = RemoteBroker(address, "w", "rocketmq", LINK, own)
    try:
        return remote.config.model_dump()
    finally:
        remote.close()


def passes(address: str, own: dict[str, Any], stack: ExitStack) -> None:
    """A worker with these settings serves clients."""
    worker = Worker(address, "far", own=own)
    stack.callback(worker.stop)
    client = Rpc(worker.front.port, shared=False)
    stack.callback(client.close)
    assert client.send("orders").status.code == Code.OK
    [got] = client.receive("orders", "g", wait_s=WAIT_S)
    assert client.ack("orders", "g", got).status.code == Code.OK


def test_with_a_secret_and_tls(serve: Serve, secret: str, certificate: Certificate, stack: ExitStack) -> None:
    place = serve(
        gateway_secret=secret,
        gateway_tls_certificate=str(certificate.certificate),
        gateway_tls_key=str(certificate.key),
    )
    own = {"gateway_secret": secret, "gateway_tls_ca": str(certificate.certificate)}
    passes(far(place, stack, "localhost"), own, stack)
    assert place.client().send("orders").status.code == Code.OK, "a socket of this machine asks for neither"


def test_who_has_no_secret_or_another_is_refused(serve: Serve, secret: str, tmp_path: Path, stack: ExitStack) -> None:
    address = far(serve(gateway_secret=secret), stack)
    assert asked(address, {"gateway_secret": secret})
    with pytest.raises(InvalidArgumentError, match="needed: --set gateway_secret=FILE"):
        asked(address, {})
    other = tmp_path / "other"
    other.write_text("x" * 32)
    with pytest.raises(InvalidArgumentError, match="has another secret"):
        asked(address, {"gateway_secret": str(other)})


@pytest.mark.parametrize("kind", [LINK, CONTROL])
def test_nothing_is_taken_before_the_secret_is_shown(serve: Serve, secret: str, stack: ExitStack, kind: str) -> None:
    place = serve(gateway_secret=secret)
    address, trust = far(place, stack), Trust(read_secret(secret))
    call = frame(FrameKind.CALL, 1, b'{"op": "set-topic", "topic": "made"}')
    greeting = hello(kind, "w", "rocketmq", "raw")
    with RawLink(address, hello=False) as link:
        link.send(greeting)
        nonce = link.read_until(FrameKind.CHALLENGE)
        link.send(*call)
        assert b"a challenge" in link.read_until(FrameKind.REFUSED)
        link.wait_closed()
    with RawLink(address, hello=False) as link:  # what was shown on one connection is worth nothing on another
        link.send(greeting)
        assert link.read_until(FrameKind.CHALLENGE) != nonce
        link.send(*frame(FrameKind.PROOF, 0, trust.proof(nonce)), *call)
        assert b"another secret" in link.read_until(FrameKind.REFUSED)
        link.wait_closed()
    with RawLink(address, hello=False) as link:
        link.send(*frame(FrameKind.PROOF, 0, trust.proof(nonce)))
        link.wait_closed()
    assert not place.broker.has_topic("made")
    with RawLink(address, hello=False) as link:
        link.send(greeting)
        link.send(*frame(FrameKind.PROOF, 0, trust.proof(link.read_until(FrameKind.CHALLENGE))), *call)
        link.read_until(FrameKind.RESULT)
    assert place.broker.has_topic("made")


def test_a_broker_in_tls_is_believed_by_its_certificate_alone(
    serve: Serve, secret: str, certificate: Certificate, tmp_path: Path, stack: ExitStack
) -> None:
    tls = {"gateway_tls_certificate": str(certificate.certificate), "gateway_tls_key": str(certificate.key)}
    place = serve(gateway_secret=secret, **tls)
    address, authority = far(place, stack), str(certificate.certificate)
    assert asked(address, {"gateway_secret": secret, "gateway_tls_ca": authority})
    with pytest.raises(UnavailableError, match="cannot be reached"):
        asked(address, {"gateway_secret": secret})
    (tmp_path / "elsewhere").mkdir()
    other = make_certificate(tmp_path / "elsewhere")
    with pytest.raises(UnavailableError, match="CERTIFICATE_VERIFY_FAILED"):
        asked(address, {"gateway_secret": secret, "gateway_tls_ca": str(other.certificate)})
    plain = far(serve(gateway_secret=secret), stack)
    with pytest.raises(UnavailableError, match="cannot be reached"):
        asked(plain, {"gateway_secret": secret, "gateway_tls_ca": authority})


def test_a_broker_that_asks_for_certificates_gets_the_gateways(
    serve: Serve, secret: str, certificate: Certificate, tmp_path: Path, stack: ExitStack
) -> None:
    """By the setting of all ports, which a worker beside the broker has from it, too."""
    (tmp_path / "gateway").mkdir()
    mine = make_certificate(tmp_path / "gateway")
    shared = {
        "tls_certificate": str(certificate.certificate),
        "tls_key": str(certificate.key),
        "tls_client_ca": str(mine.certificate),
    }
    place = serve(gateway_secret=secret, rocketmq_tls="on", **shared)
    address, known = far(place, stack), {"gateway_secret": secret, "gateway_tls_ca": str(certificate.certificate)}
    own = {"tls_certificate": str(mine.certificate), "tls_key": str(mine.key)}
    assert asked(address, {**known, **own})["tls_certificate"] == str(mine.certificate)
    with pytest.raises(UnavailableError):
        asked(address, known)
    near = asked(place.gateway.address, {})
    assert {name: near[name] for name in shared} == shared


def test_an_address_by_tcp_needs_a_secret(serve: Serve, certificate: Certificate) -> None:
    tls = {"gateway_tls_certificate": str(certificate.certificate), "gateway_tls_key": str(certificate.key)}
    for place in (serve(), serve(**tls)):
        with pytest.raises(InvalidArgumentError, match="gateway_secret is not given"):
            GatewayFront.start(place.broker, "127.0.0.1:0")


def test_a_gateway_learns_only_what_a_front_needs(serve: Serve, secret: str, stack: ExitStack) -> None:
    place = serve(gateway_secret=secret, spark_conf="spark.a.secret=SECRET", body_bytes_max=1 << 20)
    for address in (far(place, stack), place.gateway.address):
        with RawLink(address, hello=False) as link:
            link.send(hello(CONTROL, "w", "rocketmq", "raw"))
            if address is not place.gateway.address:
                nonce = link.read_until(FrameKind.CHALLENGE)
                link.send(*frame(FrameKind.PROOF, 0, Trust(read_secret(secret)).proof(nonce)))
            told = link.read_until(FrameKind.WELCOME)
        assert json.loads(told)["config"].keys() == told_settings("rocketmq")
        assert b"SECRET" not in told
    config = asked(place.gateway.address, {})
    assert (config["body_bytes_max"], config["spark_conf"]) == (1 << 20, "")


@pytest.mark.parametrize(
    ("name", "globs"),
    [
        ("rocketmq", ["rocketmq/*.py", "rocketmq/v5/*.py", "rocketmq/common/*.py"]),
        (
            "remoting",
            ["rocketmq/classic/[!a]*.py", "rocketmq/common/*.py"],
        ),  # its admin requests are carried out at home
        ("http", ["http/*.py", "http/rest/*.py", "http/lmstfy/*.py", "http/server/*.py"]),
    ],
)
def test_what_a_front_reads_of_the_settings_is_told(name: str, globs: list[str]) -> None:
    fronts = Path(tarry.fronts.__file__).parent
    parts = [part for glob in (*globs, "kit/*.py") for part in fronts.glob(glob)]
    read = {setting for part in parts for setting in re.findall(r"config\.([a-z_]+)", part.read_text())}
    assert len(read) > 2
    assert read & ServerConfig.model_fields.keys() <= told_settings(name)
    assert told_settings("no such front") == told_settings("flight"), "it runs in no worker"


def test_halves_of_frames_are_bounded(serve: Serve) -> None:
    place = serve()
    with RawLink(place.gateway.address) as link:
        link.send(HEAD.pack(ASKED_BYTES_MAX + 1, FrameKind.SUBMIT, 1))
        assert b"allowed" in link.read_until(FrameKind.REFUSED)
        link.wait_closed()
    assert place.client().send("orders").status.code == Code.OK


def test_who_says_nothing_makes_room_for_others(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tarry.fronts.gateway.front.GREETING_MAX", 3)
    place = serve()
    with ExitStack() as stack:
        first, *_ = [stack.enter_context(RawLink(place.gateway.address, hello=False)) for _ in range(4)]
        first.wait_closed()
        stack.enter_context(RawLink(place.gateway.address))


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"gateway_secret": "{tmp}/absent"}, "No such file"),
        ({"gateway_secret": "{tmp}/short"}, "has 5 bytes; allowed: 16 or more"),
        ({"gateway_tls_certificate": "{tmp}/short"}, "allowed: both or neither"),
        ({"gateway_tls_certificate": "{tmp}/short", "gateway_tls_key": "{tmp}/short"}, "no certificate"),
    ],
)
def test_files_that_are_none_are_refused(serve: Serve, tmp_path: Path, settings: dict[str, str], text: str) -> None:
    (tmp_path / "short").write_text(" 12345\n")
    place = serve(**{name: value.format(tmp=tmp_path) for name, value in settings.items()})
    with pytest.raises(InvalidArgumentError, match=text):
        GatewayFront.start(place.broker, "127.0.0.1:0")


def test_authorities_that_are_none_are_refused(tmp_path: Path) -> None:
    (tmp_path / "none.pem").write_text("none")
    with pytest.raises(TarryError, match="has no certificates"):
        Trust.of_gateway({"gateway_tls_ca": str(tmp_path / "none.pem")})


def test_a_gateway_reads_its_authorities_again(
    serve: Serve,
    secret: str,
    certificate: Certificate,
    stack: ExitStack,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """So a broker's certificate can be exchanged without another start of its gateways."""
    monkeypatch.setattr("tarry.base.file_changes.LOOK_S", 0.0)
    files = {"gateway_tls_certificate": str(certificate.certificate), "gateway_tls_key": str(certificate.key)}
    address = far(serve(gateway_secret=secret, **files), stack, "localhost")
    (tmp_path / "ca.pem").write_bytes(certificate.certificate.read_bytes())
    trust = Trust.of_gateway({"gateway_secret": secret, "gateway_tls_ca": str(tmp_path / "ca.pem")})
    link = BlockingLink(address, greeting(CONTROL, "w", "rocketmq", ""), trust)
    stack.callback(link.close)
    assert link.greet()
    (tmp_path / "new").mkdir()
    new = make_certificate(tmp_path / "new")
    both = certificate.certificate.read_bytes() + new.certificate.read_bytes()
    (tmp_path / "ca.pem.new").write_bytes(both)
    (tmp_path / "ca.pem.new").replace(tmp_path / "ca.pem")
    new.certificate.replace(certificate.certificate)
    new.key.replace(certificate.key)
    assert link.greet()
    (tmp_path / "ca.pem").unlink()
    with pytest.raises(UnavailableError, match=r"ca\.pem.*has no certificates"):
        link.greet()
