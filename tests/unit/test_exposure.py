"""A port that asks nobody who they are is opened to other machines only where a setting says so."""

from __future__ import annotations

import socket
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from tests.loopgrpc.certificates import make_certificate
from tests.unit.test_doors import PORTS

from loopgrpc import UnreadBytes
from tarry.api.clear_ports import ClearPort
from tarry.base.descriptors import ConnectionLimits
from tarry.base.errors import InvalidArgumentError
from tarry.base.exposure import check_exposure, is_exposed, is_loopback, parse_listeners
from tarry.base.placement import ANY_CORE
from tarry.broker import Broker
from tarry.cli.exits import ExitCode
from tarry.cli.main import run
from tarry.fronts.flight import front as flight
from tarry.fronts.flight.front import FlightFront
from tarry.fronts.http.console.overview import health
from tarry.fronts.kit.exposure import ExposureSettings
from tarry.fronts.kit.front import FrontServices
from tarry.fronts.link import front as link
from tarry.fronts.registry import ServerConfig

NAMES = {
    "here": ["127.0.0.1", "::1"],
    "half": ["127.0.0.1", "192.0.2.7"],
    "there": ["192.0.2.7"],
}


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> None:
    def getaddrinfo(host: str, port: int, **_: Any) -> list[Any]:
        if host not in NAMES:
            raise socket.gaierror(f"no {host}")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in NAMES[host]]

    monkeypatch.setattr("tarry.base.exposure.socket.getaddrinfo", getaddrinfo)


@pytest.mark.parametrize(
    ("address", "exposed"),
    [
        *((f"{host}:7", False) for host in ("127.0.0.1", "127.8.9.1", "[::1]", "[::ffff:127.0.0.1]", "here")),
        *((f"{host}:7", True) for host in ("0.0.0.0", "[::]", "10.0.0.1", "[fe80::1%lo]", "[::ffff:10.0.0.1]")),
        *((f"{host}:7", True) for host in ("half", "there", "nowhere")),
        ("localhost:7", False),
    ],
)
@pytest.mark.usefixtures("names")
def test_what_other_machines_reach(address: str, exposed: bool) -> None:
    assert is_exposed(address) == exposed
    if not exposed:
        assert not check_exposure("flight", address, "")
        return
    with pytest.raises(InvalidArgumentError, match="insecure_open=flight"):
        check_exposure("flight", address, "")
    assert check_exposure("flight", address, "flight")


def test_loopback_as_it_is_written() -> None:
    assert is_loopback("a.localhost")
    assert not is_loopback("localhost.example")


def test_only_ports_without_authentication_are_named() -> None:
    assert parse_listeners("") == frozenset()
    with pytest.raises(InvalidArgumentError, match="listener 'http'; allowed: flight"):
        parse_listeners("flight, http")
    with pytest.raises(InvalidArgumentError, match="insecure_open is 'on'"):
        ServerConfig(insecure_open="on")


def test_serve_refuses_before_anything_is_made(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = run(["serve", "--data", str(tmp_path / "data"), "--flight", "0.0.0.0:0", "--pipeline", "off"])
    assert code == ExitCode.USAGE
    assert "insecure_open=flight" in capsys.readouterr().err
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize("port", [flight, link])
def test_with_logs_in_a_bucket_it_is_asked_when_the_port_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, port: ModuleType
) -> None:
    """A new cache has no identities yet, and the logs may have some."""
    monkeypatch.setattr("tarry.base.exposure.is_loopback", lambda _: False)  # no test listens elsewhere
    given = {"data": tmp_path / "data", "pipeline": "off", "flight": "127.0.0.1:0", "link": "127.0.0.1:0"}
    with pytest.raises(InvalidArgumentError, match="asks nobody"):
        port.check(ServerConfig(**given))
    port.check(ServerConfig(**given, log="s3://bucket/log"))
    with Broker.open(ServerConfig(**given)) as broker:
        services = FrontServices(broker, "127.0.0.1:0", ANY_CORE, ConnectionLimits(), UnreadBytes(), local=broker)
        with pytest.raises(InvalidArgumentError, match="asks nobody"):
            port.start(services)
        broker.set_identity("admin", ["admin"])
        broker.add_credential("admin")
        port.start(services).stop()


def test_an_open_port_is_said_in_log_and_status(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tarry.base.exposure.is_loopback", lambda _: False)  # no test listens elsewhere
    config = ServerConfig(data=tmp_path / "data", flight="127.0.0.1:0", insecure_open="flight")
    with Broker.open(config) as broker:
        assert broker.status()["insecure_open"] == {"flight": "127.0.0.1:0"}
        assert [found["level"] for found in health(broker.overview())] == ["warn"]
        with FlightFront.start(broker, "127.0.0.1:0"):
            assert [r.levelname for r in caplog.records if "insecure_open" in r.getMessage()] == ["WARNING"]
        monkeypatch.setattr(ExposureSettings, "of", lambda _: ExposureSettings())
        with pytest.raises(InvalidArgumentError, match="asks nobody"):
            FlightFront.start(broker, "127.0.0.1:0")


def test_a_port_of_this_machine_is_no_matter(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with (
        Broker.open(ServerConfig(data=tmp_path / "data", insecure_open="flight")) as broker,
        FlightFront.start(broker, "127.0.0.1:0"),
    ):
        assert broker.status()["insecure_open"] == {}
    assert not [r for r in caplog.records if "insecure_open" in r.getMessage()]


@pytest.mark.parametrize(
    ("port", "tls"), [("flight", ""), ("mqtt", ""), ("mqtt", "both"), ("http", ""), ("rocketmq", ""), ("link", "on")]
)
def test_a_port_in_the_clear_that_other_machines_reach_is_said_in_log_status_and_console(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, port: str, tls: str
) -> None:
    monkeypatch.setattr("tarry.base.exposure.is_loopback", lambda _: False)  # no test listens elsewhere
    files = make_certificate(tmp_path)
    given = {"tls": tls, "tls_certificate": str(files.certificate), "tls_key": str(files.key)} if tls else {}
    opened = {"insecure_open": "flight link", "http_access": "open"}
    with Broker.open(ServerConfig(data=tmp_path / "data", pipeline="off", **opened, **given)) as broker:
        front = PORTS[port](broker, ConnectionLimits())
        try:
            found = broker.status()["clear_ports"]
            if tls == "on":
                assert found == []
                return
            [told] = found
            assert (told["listener"], told["address"]) == (port, front.address)
            assert "tls_certificate" in told["text"]
            assert any(each["text"].lower() == told["text"].lower() for each in health(broker.overview()))
            assert any("without TLS" in record.getMessage() for record in caplog.records)
        finally:
            front.stop()


def test_ports_of_workers_are_told_once(tmp_path: Path) -> None:
    with Broker.open(ServerConfig(data=tmp_path / "data", pipeline="off")) as broker:
        port = ClearPort("http", "0.0.0.0:7777").fields()
        for name in ("1", "2"):
            broker.board.join("http", name, lambda *_: None).post("status", {"clear_ports": [port]})
        assert broker.status()["clear_ports"] == [port]
