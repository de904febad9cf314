"""Addresses of brokers with TLS and without it, the files that they name, and the options of commands for them."""

from __future__ import annotations

import pickle
import ssl
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from tests.loopgrpc.certificates import Certificate, make_certificate

from tarry import Client, ClientTls
from tarry.base.errors import InvalidArgumentError, UnavailableError
from tarry.cli.main import COMMANDS
from tarry.cli.main import command as command_line
from tarry.link.address import BrokerAddress, with_files
from tarry.link.places import BrokerPlaces
from tarry.link.tls import VARIABLES
from tarry.spark.broker_client import BrokerClient
from tarry.spark.datasource.options import ReadOptions, StreamOptions, WriteOptions


@pytest.fixture
def certificate(tmp_path: Path) -> Certificate:
    return make_certificate(tmp_path)


@pytest.fixture(autouse=True)
def _no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in VARIABLES.values():
        monkeypatch.delenv(variable, raising=False)


def test_without_tls_nothing_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TARRY_CA", "ca.pem")
    assert BrokerAddress.of("[::1]:7611") == BrokerAddress("[::1]:7611", None, "::1", 7611)
    assert BrokerAddress.of("unix:/run/t.sock") == BrokerAddress("unix:/run/t.sock", "/run/t.sock")
    assert BrokerAddress.of("h:1").context() is None


def test_an_address_in_tls() -> None:
    where = BrokerAddress.of("tls://localhost:7611")
    assert (where.text, where.host, where.port) == ("tls://localhost:7611", "localhost", 7611)
    assert where.tls == ClientTls()
    assert where.server_name == "localhost"
    assert BrokerAddress.of("tls://[::1]:1").server_name == "::1"


def test_tls_as_an_argument_is_all_there_is_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TARRY_CA", "other.pem")
    tls = ClientTls(ca="ca.pem", server_name="broker")
    for address in ("h:1", "tls://h:1"):
        where = BrokerAddress.of(address, tls)
        assert (where.text, where.tls, where.server_name) == ("tls://h:1", tls, "broker")
    with pytest.raises(InvalidArgumentError, match="both name files; allowed: one of them"):
        BrokerAddress.of("tls://h:1?ca=x", tls)


def test_files_by_the_environment_and_by_the_address(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, variable in VARIABLES.items():
        monkeypatch.setenv(variable, f"/env/{name}")
    assert BrokerAddress.of("tls://h:1").tls == ClientTls("/env/ca", "/env/certificate", "/env/key")
    assert BrokerAddress.of("tls://h:1?ca=/my%20ca").tls == ClientTls("/my ca", "/env/certificate", "/env/key")
    own = BrokerAddress.of("tls://h:1?certificate=c&key=k&server_name=n").tls
    assert own == ClientTls("/env/ca", "c", "k", "n"), "a key of the environment is of another certificate"
    monkeypatch.setenv("TARRY_KEY", "")
    with pytest.raises(InvalidArgumentError, match="its key None; allowed: both or neither"):
        BrokerAddress.of("tls://h:1")


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("tls://", "allowed: tls://HOST:PORT"),
        ("tls://localhost", "allowed: tls://HOST:PORT"),
        ("tls://tls://h:1", "allowed: tls://HOST:PORT"),
        ("tls://unix:/run/t.sock", "a socket of this machine has no TLS"),
        ("tls://h:1?verify=off", "verify='off'; allowed behind the question mark: ca, certificate, key, server_name"),
        ("tls://h:1?ca=", "ca=''; allowed"),
        ("tls://h:1?key=k", "its key 'k'; allowed: both or neither"),
    ],
)
def test_bad_addresses(address: str, words: str) -> None:
    for refuse in (BrokerAddress.of, Client, BrokerClient):
        with pytest.raises(InvalidArgumentError) as refused:
            refuse(address)
        assert words in str(refused.value)


def test_a_socket_of_this_machine_takes_no_tls() -> None:
    with pytest.raises(InvalidArgumentError, match="has no TLS; allowed: unix:PATH without it"):
        Client("unix:/run/t.sock", tls=ClientTls())


def test_an_address_that_says_it_all_goes_to_other_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TARRY_CA", "/etc/my ca&.pem")
    given = {"certificate": "c?.pem", "key": "k.pem"}
    whole = with_files("tls://h:1?server_name=n", given, "--tls-{}")
    monkeypatch.delenv("TARRY_CA")
    where = BrokerAddress.of(whole)
    assert where.tls == ClientTls("/etc/my ca&.pem", "c?.pem", "k.pem", "n")
    assert where.text == "tls://h:1"
    assert pickle.loads(pickle.dumps(where)) == where
    assert with_files("tls://h:1", {}, "--tls-{}") == "tls://h:1"
    assert with_files("h:1", {}, "--tls-{}") == "h:1"
    with pytest.raises(InvalidArgumentError, match="--tls-key is given and the address 'h:1' is without TLS"):
        with_files("h:1", {"key": "k"}, "--tls-{}")
    every = with_files("tls://h:1, tls://i:1?ca=d", {"ca": "a,b.pem"}, "--tls-{}")
    assert every == "tls://h:1?ca=a%2Cb.pem,tls://i:1?ca=a%2Cb.pem", "each of a list says it"
    assert [each.tls for each in BrokerPlaces.of(every).every] == [ClientTls("a,b.pem")] * 2


def test_contexts_check_the_broker(certificate: Certificate) -> None:
    for tls in (ClientTls(), ClientTls(ca=str(certificate.certificate))):
        context = tls.context()
        assert context is tls.context(), "to read the system's authorities takes long"
        assert (context.verify_mode, context.check_hostname) == (ssl.CERT_REQUIRED, True)
        assert context.minimum_version == ssl.TLSVersion.TLSv1_2


def test_files_that_have_changed_are_read_again(certificate: Certificate, tmp_path: Path) -> None:
    where = BrokerAddress.of("h:1", ClientTls(ca=str(certificate.certificate)))
    before = where.context()
    good = certificate.certificate.read_bytes()
    certificate.certificate.write_bytes(b"half of")
    with pytest.raises(UnavailableError, match="has no certificates, in PEM"):  # what is tried again
        where.context()
    certificate.certificate.write_bytes(good)
    assert where.context() is not before


def test_files_that_are_none_are_refused_at_once(certificate: Certificate, tmp_path: Path) -> None:
    good, key = str(certificate.certificate), str(certificate.key)
    for tls, words in (
        (ClientTls(ca="nowhere.pem"), "ca 'nowhere.pem' has no certificates"),
        (ClientTls(ca=key), "has no certificates, in PEM"),
        (ClientTls(ca="a\0b"), "has no certificates, in PEM"),
        (ClientTls(ca=good, certificate=good, key=good), "are no certificate and its private key, in PEM"),
    ):
        with pytest.raises(InvalidArgumentError, match=words):
            Client("h:1", tls=tls)


def test_nobody_is_asked_for_the_password_of_a_key(certificate: Certificate) -> None:
    key = serialization.load_pem_private_key(certificate.key.read_bytes(), None)
    kind, pkcs8 = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    certificate.key.write_bytes(key.private_bytes(kind, pkcs8, serialization.BestAvailableEncryption(b"secret")))
    with pytest.raises(InvalidArgumentError, match="the key is encrypted; allowed: one that is not"):
        ClientTls(certificate=str(certificate.certificate), key=str(certificate.key)).context()


# -- Spark -------------------------------------------------------------------------------------------------------------


def test_options_of_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    given = {"endpoint": "tls://h:1", "TLS_ca": "/etc/ca.pem"}
    monkeypatch.setenv("TARRY_CERTIFICATE", "/etc/c.pem")
    monkeypatch.setenv("TARRY_KEY", "/etc/k.pem")
    whole = "tls://h:1?ca=/etc/ca.pem&certificate=/etc/c.pem&key=/etc/k.pem"
    assert WriteOptions.of(given).broker.endpoint == whole, "tasks have another environment than the driver"
    assert ReadOptions.of(given).broker.endpoint == whole
    assert StreamOptions.of({**given, "topic": "t", "group": "g"}).broker.endpoint == whole
    assert ReadOptions.of({"endpoint": whole}).broker.endpoint == whole
    several = WriteOptions.of({"endpoint": "tls://h:1,tls://i:1"}).broker.endpoint
    assert several == "tls://h:1?certificate=/etc/c.pem&key=/etc/k.pem,tls://i:1?certificate=/etc/c.pem&key=/etc/k.pem"
    assert ReadOptions.of({"endpoint": "h:1,i:1"}).broker.endpoint == "h:1,i:1"
    with pytest.raises(InvalidArgumentError, match="option 'endpoint' is 'i'; allowed: HOST:PORT or tls"):
        ReadOptions.of({"endpoint": "h:1,i"})
    with pytest.raises(InvalidArgumentError, match="option tls_ca is given and the address 'h:1' is without TLS"):
        WriteOptions.of({"endpoint": "h:1", "tls_ca": "x"})


# -- commands ----------------------------------------------------------------------------------------------------------


def commands_below(command: Any) -> list[Any]:
    parts = getattr(command, "commands", {}).values()
    return [each for part in parts for each in commands_below(part)] or [command]


def test_every_command_that_connects_has_the_options() -> None:
    for command in (each for name in COMMANDS for each in commands_below(command_line().get_command(None, name))):
        names = [parameter.name for parameter in command.params]
        expected = 1 if "endpoint" in names else 0
        assert [names.count(f"tls_{name}") for name in VARIABLES] == [expected] * 3, command.name
