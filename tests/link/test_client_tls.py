"""Tarry's own clients in TLS: whom they trust, what they show, and what they say when it fails."""

from __future__ import annotations

import asyncio
import contextlib
import re
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tarry.base.errors import UnavailableError
from tarry.broker import Broker
from tarry.cli.exits import ExitCode
from tarry.cli.main import run
from tarry.client import AsyncClient, Client, ClientTls
from tarry.fronts.flight.front import FlightFront
from tarry.fronts.link.front import LinkFront
from tarry.fronts.registry import ServerConfig
from tarry.link.tls import VARIABLES
from tarry.spark.broker_client import BrokerClient
from tests.loopgrpc.certificates import Certificate, make_certificate
from tests.waiting import wait_until

Serving = Callable[..., AbstractContextManager[str]]
NewCertificate = Callable[..., Certificate]


@pytest.fixture(autouse=True)
def _no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in VARIABLES.values():
        monkeypatch.delenv(variable, raising=False)


@pytest.fixture
def new_certificate(tmp_path: Path) -> NewCertificate:
    def new(name: str, **how: Any) -> Certificate:
        (tmp_path / name).mkdir()
        return make_certificate(tmp_path / name, **how)

    return new


@pytest.fixture
def certificate(new_certificate: NewCertificate) -> Certificate:
    return new_certificate("broker")


@pytest.fixture
def own(new_certificate: NewCertificate) -> Certificate:
    """A client's."""
    return new_certificate("client")


@pytest.fixture
def serving(tmp_path: Path) -> Serving:
    """A broker's port; its address."""

    @contextmanager
    def serve(
        shown: Certificate | None,
        client_ca: Certificate | None = None,
        front: Any = LinkFront,
        address: str = "127.0.0.1:0",
    ) -> Iterator[str]:
        files = {} if shown is None else {"tls_certificate": str(shown.certificate), "tls_key": str(shown.key)}
        asked = {} if client_ca is None else {"tls_client_ca": str(client_ca.certificate)}
        flight = {"flight_tls": "on"} if files else {}
        config = ServerConfig(data=tmp_path / "data", pipeline="off", **files, **asked, **flight)
        with Broker.open(config) as broker:
            started = front.start(broker, address)
            try:
                yield f"localhost:{started.address.rpartition(':')[2]}"
            finally:
                started.stop(0.2)

    return serve


def trusting(certificate: Certificate, own: Certificate | None = None) -> ClientTls:
    shown = () if own is None else (str(own.certificate), str(own.key))
    return ClientTls(str(certificate.certificate), *shown)


def goes_through(client: Client) -> None:
    with client:
        client.schedule("orders", b"x", delay=0)
        for message in client.consume("orders", group="g", timeout=20):
            assert message.body == b"x"
            message.ack()
            break
        assert client.has_topic("orders")


def spoken(address: str, tls: ClientTls | None) -> set[str]:
    """What each kind of client says of a broker that it does not reach, without its address."""
    files = "" if tls is None else "?" + "&".join(f"{n}={v}" for n in VARIABLES if (v := getattr(tls, n)))
    whole = address if tls is None else f"tls://{address}{files}"

    async def asked() -> None:
        async with AsyncClient(address, tls=tls) as client:
            await client.schedule("t", b"x", delay=0)

    def calls() -> None:
        with Client(whole) as client:
            client.groups()

    def tasks() -> None:
        with BrokerClient(whole) as client:
            client.state()

    said = set()
    for ask in (lambda: asyncio.run(asked()), calls, tasks):
        with pytest.raises(UnavailableError) as refused:
            ask()
        text = str(refused.value)
        assert not re.search(r"_ssl\.c|\[SSL|Errno|Error", text), text
        said.add(re.sub(r"^.*?localhost:\d+( cannot be reached)?: |; nothing was sent$", "", text))
    return said


# -- what works --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("front", [LinkFront, FlightFront])
def test_clients_come_in_tls(serving: Serving, certificate: Certificate, front: Any) -> None:
    async def over_asyncio(address: str, tls: ClientTls) -> None:
        async with AsyncClient(address, tls=tls) as client:
            await client.schedule("t", b"x", delay=0)
            async for message in client.consume("t", group="g", timeout=20):
                message.ack()
                break
            assert not await client.receive("t", group="g")

    with serving(certificate, front=front) as address:
        tls = trusting(certificate)
        goes_through(Client(address, tls=tls))
        goes_through(Client(f"tls://{address}?ca={certificate.certificate}"))
        goes_through(Client(f"tls://127.0.0.1:{address.rpartition(':')[2]}", tls=tls))
        asyncio.run(over_asyncio(f"tls://{address}", tls))


def test_files_by_the_environment(
    serving: Serving, certificate: Certificate, own: Certificate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TARRY_CA", str(certificate.certificate))
    monkeypatch.setenv("TARRY_CERTIFICATE", str(own.certificate))
    monkeypatch.setenv("TARRY_KEY", str(own.key))
    with serving(certificate, own) as address:
        goes_through(Client(f"tls://{address}"))


def test_a_client_shows_its_certificate(serving: Serving, certificate: Certificate, own: Certificate) -> None:
    with serving(certificate, own) as address:
        goes_through(Client(address, tls=trusting(certificate, own)))
        with BrokerClient(
            f"tls://{address}?ca={certificate.certificate}&certificate={own.certificate}&key={own.key}"
        ) as c:
            assert c.state().shard == 0


def test_a_broker_of_another_name(serving: Serving, new_certificate: NewCertificate) -> None:
    certificate = new_certificate("other", host="broker.example")
    with serving(certificate) as address:
        goes_through(Client(address, tls=ClientTls(str(certificate.certificate), server_name="broker.example")))


def test_tasks_of_spark_come_in_tls(serving: Serving, certificate: Certificate) -> None:
    with serving(certificate) as address:
        whole = f"tls://{address}?ca={certificate.certificate}"
        with Client(whole) as client:
            client.schedule_many([{"topic": "t", "body": b"x" * 10_000, "delay": 0} for _ in range(2_000)])
        with BrokerClient(whole) as tasks:
            assert tasks.state().durable_seq == 2_000
            assert sum(batch.num_rows for batch in tasks.read(0, 2_000)) == 2_000


def test_commands_come_in_tls(
    serving: Serving,
    certificate: Certificate,
    own: Certificate,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with serving(certificate, own) as address:
        files = ["--tls-ca", certificate.certificate, "--tls-certificate", own.certificate, "--tls-key", own.key]
        by_options = ["--endpoint", f"tls://{address}", *map(str, files)]
        assert run(["send", "orders", "unpaid?", "--delay", "1h", "--key", "order-7", *by_options]) == ExitCode.OK
        assert run(["group", "set", "orders", "billing", *by_options]) == ExitCode.OK
        capsys.readouterr()
        monkeypatch.setenv("TARRY_ENDPOINT", f"tls://{address}?ca={certificate.certificate}")
        monkeypatch.setenv("TARRY_CERTIFICATE", str(own.certificate))
        monkeypatch.setenv("TARRY_KEY", str(own.key))
        assert run(["list", "orders"]) == ExitCode.OK
        assert "order-7" in capsys.readouterr().out
        assert run(["pending", "--endpoint", f"tls://{address}"]) == ExitCode.UNAVAILABLE
        assert "is not signed by the system's authorities; allowed: " in capsys.readouterr().err
        assert run(["pending", "--endpoint", address]) == ExitCode.UNAVAILABLE
        assert "the port speaks TLS; allowed: the address as tls://HOST:PORT" in capsys.readouterr().err
        assert run(["pending", "--endpoint", address, "--tls-ca", "x"]) == ExitCode.USAGE


# -- what fails --------------------------------------------------------------------------------------------------------


def test_a_client_without_tls_at_a_port_with_it(serving: Serving, certificate: Certificate) -> None:
    for front in (LinkFront, FlightFront):
        with serving(certificate, front=front) as address:
            assert spoken(address, None) == {
                "the port speaks TLS; allowed: the address as tls://HOST:PORT, or a port without TLS"
            }


def test_a_client_in_tls_at_a_port_without_it(serving: Serving, certificate: Certificate) -> None:
    for front in (LinkFront, FlightFront):
        with serving(None, front=front) as address:
            assert spoken(address, trusting(certificate)) == {
                f"the port does not speak TLS; allowed: {address}, or a port that has TLS"
            }


def test_an_authority_that_is_not_known(
    serving: Serving, certificate: Certificate, new_certificate: NewCertificate
) -> None:
    other = new_certificate("stranger")
    how = (
        "allowed: the file of who signed it, or of itself if it is self-signed, as TARRY_CA, tls_ca or "
        "ClientTls(ca=...)"
    )
    with serving(certificate) as address:
        assert spoken(address, ClientTls()) == {
            f"the broker's certificate is not signed by the system's authorities; {how}"
        }
        assert spoken(address, trusting(other)) == {
            f"the broker's certificate is not signed by an authority of {str(other.certificate)!r}; {how}"
        }


def test_a_certificate_for_another_host(serving: Serving, new_certificate: NewCertificate) -> None:
    certificate = new_certificate("other", host="broker.example")
    with serving(certificate) as address:
        assert spoken(address, trusting(certificate)) == {
            "the broker's certificate is not for 'localhost'; allowed: an address by a name that it has, or that name "
            "as ClientTls(server_name=...)"
        }


def test_a_certificate_that_has_expired(serving: Serving, new_certificate: NewCertificate) -> None:
    certificate = new_certificate("old", days=-1)
    with serving(certificate) as address:
        assert spoken(address, trusting(certificate)) == {
            "the broker's certificate has expired; allowed: one that has not (setting tls_certificate)"
        }


ENDED = (
    "the connection ended before the broker's greeting, as with a broker that asks for certificates (tls_client_ca): "
)
SHOWS_NONE = (
    "the client shows no certificate; allowed: one that an authority of the broker has signed, with its key, as "
    "TARRY_CERTIFICATE and TARRY_KEY, tls_certificate and tls_key, or ClientTls(certificate=..., key=...)"
)


@pytest.mark.parametrize("version", ["TLSv1_2", "TLSv1_3"])
def test_a_broker_that_asks_for_a_certificate(
    serving: Serving,
    certificate: Certificate,
    own: Certificate,
    new_certificate: NewCertificate,
    version: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    other = new_certificate("stranger")
    for tls in (trusting(certificate), trusting(certificate, other)):
        tls.context().maximum_version = ssl.TLSVersion[version]
    with serving(certificate, own) as address:
        assert spoken(address, trusting(certificate)) == {ENDED + SHOWS_NONE}
        assert spoken(address, trusting(certificate, other)) == {
            f"{ENDED}the broker does not take {str(other.certificate)!r}; allowed: a valid one that its authorities "
            "have signed"
        }


@contextmanager
def in_front_of(context: ssl.SSLContext) -> Iterator[str]:
    """A server as it may stand in front of a broker: it tells a client by an alert what is wrong."""

    def serve() -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = listening.accept()
                with connection:
                    with contextlib.suppress(OSError):
                        context.wrap_socket(connection.dup(), server_side=True).close()
                    connection.settimeout(5)
                    with contextlib.suppress(OSError):  # to close with bytes unread would take the alert back
                        connection.recv(4096)

    with socket.create_server(("127.0.0.1", 0)) as listening:
        threading.Thread(target=serve, daemon=True).start()
        yield f"localhost:{listening.getsockname()[1]}"
        listening.shutdown(socket.SHUT_RDWR)


@pytest.mark.parametrize("version", ["TLSv1_2", "TLSv1_3"])
def test_an_alert_says_that_a_certificate_is_needed(certificate: Certificate, own: Certificate, version: str) -> None:
    context = certificate.server_context()
    context.maximum_version = ssl.TLSVersion[version]
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(own.certificate)
    with in_front_of(context) as address:
        assert spoken(address, trusting(certificate)) == {SHOWS_NONE}


def test_no_greeting(certificate: Certificate) -> None:
    context = certificate.server_context()
    with in_front_of(context) as address:
        assert spoken(address, trusting(certificate)) == {ENDED + SHOWS_NONE}
    assert spoken(address, trusting(certificate)) == {"Connection refused"}


# -- what changes while clients are there ------------------------------------------------------------------------------


@pytest.mark.rest
def test_certificates_are_exchanged_under_load_without_a_failed_call(
    serving: Serving,
    certificate: Certificate,
    new_certificate: NewCertificate,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tarry.base.file_changes.LOOK_S", 0.0)
    new = [new_certificate(f"new-{number}") for number in range(4)]
    known = tmp_path / "known.pem"
    known.write_bytes(b"".join(each.certificate.read_bytes() for each in (certificate, *new)))
    tls, stop, failed, counts = ClientTls(str(known)), threading.Event(), [], [0, 0, 0]

    def load(number: int, address: str) -> None:
        lasting = Client(address, tls=tls)
        try:
            while not stop.is_set():
                with Client(address, tls=tls) as passing:  # each makes its connections anew
                    passing.schedule("t", b"x", delay=0)
                    passing.groups()
                lasting.schedule("t", b"x", delay=0)
                counts[number] += 1
        except Exception as error:  # noqa: BLE001  whatever it is, the test tells it
            failed.append(error)
        finally:
            lasting.close()

    with serving(certificate) as address:
        threads = [threading.Thread(target=load, args=(number, address)) for number in range(len(counts))]
        for thread in threads:
            thread.start()
        for each in new:
            before = sum(counts)
            wait_until(lambda before=before: failed or sum(counts) > before + 10)  # type: ignore[misc]
            shown = each.certificate.read_bytes()
            each.certificate.replace(certificate.certificate)
            each.key.replace(certificate.key)
        before = sum(counts)
        wait_until(lambda: failed or sum(counts) > before + 10)
        (tmp_path / "last").write_bytes(shown)
        (tmp_path / "last").replace(known)  # the others are not trusted any more
        before = sum(counts)
        wait_until(lambda: failed or sum(counts) > before + 10)
        stop.set()
        for thread in threads:
            thread.join()
    assert not failed


def test_a_consumer_connects_again_in_tls(
    serving: Serving, certificate: Certificate, new_certificate: NewCertificate, tmp_path: Path
) -> None:
    known = tmp_path / "known.pem"
    known.write_bytes(certificate.certificate.read_bytes())
    with contextlib.ExitStack() as stack:
        with serving(certificate) as address:
            client = stack.enter_context(Client(address, tls=ClientTls(str(known))))
            messages = iter(client.consume("t", group="g"))
            client.schedule("t", b"1", delay=0)
            first = next(messages)
            assert first.body == b"1"
            first.ack()
        new = new_certificate("new")
        known.write_bytes(new.certificate.read_bytes())
        port = address.rpartition(":")[2]
        with serving(new, address=f"127.0.0.1:{port}"):
            client.schedule("t", b"2", delay=0)
            assert next(messages).body == b"2"
            client.close()
