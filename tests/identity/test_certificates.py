"""Client certificates as credentials: each port, and what is shown beside them."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import grpc
import httpx
import pytest
from tests.gateway.raw_link import hello
from tests.identity.authority import Authority, dns, uri
from tests.identity.conftest import Known
from tests.identity.doors import CALLERS, LET_IN, Doors, RefusedError, open_doors
from tests.mqtt.place import Raw
from tests.rocketmq.rpc import Code, Rpc, consumer, signed
from tests.rocketmq_classic.remoting import Remoting
from tests.waiting import wait_until

from tarry.base.config import Config
from tarry.base.errors import ForbiddenError, InvalidArgumentError, UnauthenticatedError, UnavailableError
from tarry.broker import Broker
from tarry.cli.main import run
from tarry.client import Client, ClientTls
from tarry.fronts.link.front import LinkFront
from tarry.fronts.mqtt.packets import V5
from tarry.fronts.mqtt.reasons import Reason
from tarry.fronts.mqtt.wire import text_bytes
from tarry.identity.authenticator import Authenticator
from tarry.link.frames import LINK

SHOP = "spiffe://example/shop"
REFUSED = (RefusedError, UnauthenticatedError)
OF_CALLERS = [name for name in CALLERS if name != "gateway"]
"""Ports where a caller may show a token: a gateway shows the secret instead."""


@pytest.fixture(scope="module")
def doors(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Doors]:
    with open_doors(tmp_path_factory.mktemp("doors")) as doors:
        yield doors


@pytest.fixture
def _known(doors: Doors) -> Iterator[None]:
    """Shop has a certificate."""
    made = doors.broker.add_credential("shop", kind="certificate", san=SHOP)
    yield
    doors.broker.remove_credential(made.id)


@pytest.mark.usefixtures("_known")
@pytest.mark.parametrize("port", CALLERS)
def test_a_caller_is_whom_its_certificate_names(doors: Doors, port: str) -> None:
    assert doors.enter(port, doors.authority.sign(dns("x.example"), uri(SHOP))) in ("shop", LET_IN)


@pytest.mark.usefixtures("_known")
@pytest.mark.parametrize("port", CALLERS)
def test_a_certificate_that_names_nobody_is_refused_with_its_names(doors: Doors, port: str) -> None:
    with pytest.raises(REFUSED, match=r"URI:spiffe://example/other'?, 'DNS:other\.example'.*no identity has"):
        doors.enter(port, doors.authority.sign(uri("spiffe://example/other"), dns("Other.example"), common_name="shop"))


@pytest.mark.usefixtures("_known")
@pytest.mark.parametrize("port", CALLERS)
def test_a_certificate_that_names_nobody_is_something_that_is_shown(doors: Doors, port: str) -> None:
    doors.broker.set_identity("anonymous", ["produce *", "look *"])
    try:
        with pytest.raises(REFUSED, match="no identity has"):
            doors.enter(port, doors.authority.sign(dns("nobody.example")))
    finally:
        doors.broker.delete_identity("anonymous")


@pytest.mark.usefixtures("_known")
@pytest.mark.parametrize("port", OF_CALLERS)
def test_a_wrong_token_is_refused_whatever_the_certificate_names(doors: Doors, port: str) -> None:
    with pytest.raises(REFUSED) as refused:
        doors.enter(port, doors.authority.sign(uri(SHOP)), doors.tokens["shop"][:-1])
    assert "spiffe" not in str(refused.value)


@pytest.mark.usefixtures("_known")
@pytest.mark.parametrize("port", [name for name in OF_CALLERS if name != "remoting"])
def test_a_token_counts_before_the_certificate(doors: Doors, port: str) -> None:
    assert doors.enter(port, doors.authority.sign(uri(SHOP)), doors.tokens["root"]) in ("root", LET_IN)
    assert doors.enter(port, doors.authority.sign(uri("spiffe://example/other")), doors.tokens["root"]) in (
        "root",
        LET_IN,
    )


@pytest.mark.parametrize("port", CALLERS)
def test_an_expired_credential_is_refused(doors: Doors, port: str) -> None:
    clock = doors.broker.clock
    made = doors.broker.add_credential("shop", kind="certificate", san=SHOP, expires_ms=clock.now_ms() + 50)
    wait_until(lambda: clock.now_ms() >= (made.expires_ms or 0))
    try:
        with pytest.raises(REFUSED, match=f"the credential {made.id} expired"):
            doors.enter(port, doors.authority.sign(uri(SHOP)))
    finally:
        doors.broker.remove_credential(made.id)


@pytest.mark.parametrize("port", CALLERS)
def test_a_removed_credential_is_refused(doors: Doors, port: str) -> None:
    made = doors.broker.add_credential("shop", kind="certificate", san=SHOP)
    shown = doors.authority.sign(uri(SHOP))
    assert doors.enter(port, shown) in ("shop", LET_IN)
    doors.broker.remove_credential(made.id)
    with pytest.raises(REFUSED, match="no identity has"):
        doors.enter(port, shown)


# -- connections that stand --------------------------------------------------------------------------------------------


def _ends(connection: socket.socket) -> None:
    connection.settimeout(30)
    while connection.recv(1 << 16):
        pass


def _is_refused(client: Client) -> bool:
    try:
        client.whoami()
    except UnauthenticatedError:
        return True
    except UnavailableError:
        pass
    return False


def test_connections_end_with_the_credential(doors: Doors) -> None:
    made = doors.broker.add_credential("shop", kind="certificate", san=SHOP)
    shown = doors.authority.sign(uri(SHOP))
    tls = ClientTls(str(doors.ca), str(shown.certificate), str(shown.key))
    with (
        Client(f"localhost:{doors.port('link')}", tls=tls) as link,
        Raw(0, doors.socket("mqtt", shown)) as mqtt,
        doors.socket("http", shown) as http,
        ExitStack() as stack,
    ):
        assert link.whoami().identity == "shop"
        assert mqtt.connect(V5)[1] == 0
        classic = Remoting(0, sock=doors.socket("remoting", shown))
        stack.callback(classic.close)
        assert classic.send("orders.new").code == 0
        files = doors.ca.read_bytes(), shown.key.read_bytes(), shown.certificate.read_bytes()
        rpc = Rpc(doors.port("rocketmq"), shared=False, credentials=grpc.ssl_channel_credentials(*files))
        stack.callback(rpc.close)
        stream = rpc.telemetry(consumer("g", "orders.new"))
        assert stream.next().status.code == Code.OK
        http.sendall(b"GET /v1/topics/orders.idle/groups/g/events HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
        assert http.recv(4096).startswith(b"HTTP/1.1 200")
        doors.broker.remove_credential(made.id)
        _ends(mqtt.socket)
        _ends(http)
        assert classic.is_closed()
        assert rpc.send("orders.new").status.code == Code.UNAUTHORIZED
        wait_until(lambda: stream.commands.qsize() > 0)
        wait_until(lambda: _is_refused(link))


def test_a_gateway_ends_with_its_credential(doors: Doors) -> None:
    made = doors.broker.add_credential("shop", kind="certificate", san=SHOP)
    shown = doors.authority.sign(uri(SHOP))
    with doors.socket("gateway", shown) as link:
        link.sendall(hello(LINK, "w", "rocketmq", "w"))
        assert link.recv(4096)
        doors.broker.remove_credential(made.id)
        _ends(link)


def test_a_gateway_needs_the_right_to_serve_others(doors: Doors) -> None:
    doors.broker.set_identity("plain", ["produce *"])
    doors.broker.add_credential("plain", kind="certificate", san="plain.example")
    with pytest.raises(ForbiddenError, match="plain has not the right front"):
        doors.enter("gateway", doors.authority.sign(dns("plain.example")))
    doors.broker.set_identity("plain", ["front"])
    assert doors.enter("gateway", doors.authority.sign(dns("plain.example"))) == LET_IN


# -- names -------------------------------------------------------------------------------------------------------------


def test_a_common_name_counts_in_a_certificate_without_others(doors: Doors) -> None:
    made = doors.broker.add_credential("shop", kind="certificate", san="CN:till 7")
    assert doors.enter("link", doors.authority.sign(common_name="till 7")) == "shop"
    for other in (doors.authority.sign(dns("x.example"), common_name="till 7"), doors.authority.sign(dns("till"))):
        with pytest.raises(UnauthenticatedError):
            doors.enter("link", other)
    doors.broker.remove_credential(made.id)


def test_a_name_of_another_kind_is_another_name(doors: Doors) -> None:
    made = doors.broker.add_credential("shop", kind="certificate", san="shop.example")
    with pytest.raises(UnauthenticatedError):
        doors.enter("link", doors.authority.sign(common_name="shop.example"))
    with pytest.raises(UnauthenticatedError):
        doors.enter("link", doors.authority.sign(uri("DNS:shop.example")))
    with pytest.raises(UnauthenticatedError):
        doors.enter("link", doors.authority.sign(dns("a.shop.example"), dns("*.example")))
    assert doors.enter("link", doors.authority.sign(dns("SHOP.example"))) == "shop"
    doors.broker.remove_credential(made.id)


def test_a_subject_is_not_taken_apart_at_its_commas(doors: Doors) -> None:
    made = doors.broker.add_credential("shop", kind="certificate", san="CN:admin")
    with pytest.raises(UnauthenticatedError, match="CN:x,commonName=admin"):
        doors.enter("link", doors.authority.sign(common_name="x,commonName=admin"))
    doors.broker.remove_credential(made.id)


def test_a_certificate_of_two_identities_is_of_neither(doors: Doors) -> None:
    made = [
        doors.broker.add_credential(name, kind="certificate", san=f"{name}.example").id for name in ("shop", "root")
    ]
    with pytest.raises(UnauthenticatedError, match="which are of several identities"):
        doors.enter("link", doors.authority.sign(dns("shop.example"), dns("root.example")))
    for each in made:
        doors.broker.remove_credential(each)


def test_a_name_has_one_owner(doors: Doors) -> None:
    made = doors.broker.add_credential("shop", kind="certificate", san="Once.example")
    assert (made.san, made.secret) == ("DNS:once.example", "")
    with pytest.raises(InvalidArgumentError, match=r"shop has the certificate's name 'DNS:once.example' already"):
        doors.broker.add_credential("root", kind="certificate", san="DNS:once.EXAMPLE")
    doors.broker.remove_credential(made.id)


@pytest.mark.parametrize(
    "san", ["", "*.example", "a b", "CN:", "URI:x", "spiffe://a b", "DNS:-x", "x." * 200, "CN:a\nb", "DNS:a..b"]
)
def test_what_is_no_name_is_refused(doors: Doors, san: str) -> None:
    with pytest.raises(InvalidArgumentError, match=r"allowed: a URI, as spiffe"):
        doors.broker.add_credential("shop", kind="certificate", san=san)


@pytest.mark.parametrize(
    "more",
    [
        {"kind": "certificate"},
        {"kind": "token", "san": "x.example"},
        {"kind": "certificate", "san": "x.example", "secret": "long-enough"},
    ],
)
def test_what_does_not_belong_together_is_refused(doors: Doors, more: dict[str, str]) -> None:
    with pytest.raises(InvalidArgumentError, match="allowed"):
        doors.broker.add_credential("shop", **more)  # type: ignore[arg-type]  # strings, as they come by a wire


# -- handshakes, browsers, user names ----------------------------------------------------------------------------------


def test_a_certificate_that_does_not_verify_is_cut_off(doors: Doors, tmp_path: Path) -> None:
    stranger = Authority(tmp_path / "stranger", doors.ca).sign(uri(SHOP))
    for bad in (stranger, doors.authority.sign(uri(SHOP), days=-1), doors.authority.sign(uri(SHOP), for_servers=True)):
        with pytest.raises((OSError, httpx.TransportError)):
            doors.enter("http", bad)


@pytest.mark.usefixtures("_known")
@pytest.mark.parametrize("path", ["/v1/groups", "/api/orders/new"])
def test_pages_of_other_sites_may_not_use_a_browsers_certificate(doors: Doors, path: str) -> None:
    place = f"https://localhost:{doors.port('http')}"
    with httpx.Client(verify=doors.authority.sign(uri(SHOP)).context()) as client:
        for headers in ({"origin": "https://evil.example"}, {"sec-fetch-site": "cross-site"}):
            assert client.get(place + path, headers=headers).status_code == 403
        assert client.get(place + path, headers={"sec-fetch-site": "same-origin"}).status_code in (200, 404)


@pytest.mark.usefixtures("_known")
def test_another_kind_of_authorization_is_a_wrong_one(doors: Doors) -> None:
    with httpx.Client(verify=doors.authority.sign(uri(SHOP)).context()) as client:
        for port, path in (("http", "/v1/groups"), ("metrics", "/metrics"), ("http", "/api/orders/new")):
            url = f"https://localhost:{doors.port(port)}{path}"
            assert client.get(url, headers={"authorization": "Digest x"}).status_code == 401


@pytest.mark.usefixtures("_known")
def test_a_user_name_beside_a_certificate_is_the_identitys(doors: Doors) -> None:
    shown = doors.authority.sign(uri(SHOP))
    for user, reason in (("shop", 0), ("root", Reason.BAD_LOGIN)):
        with Raw(0, doors.socket("mqtt", shown)) as raw:
            assert raw.connect(V5, flags=0x80, rest=text_bytes(user))[1] == reason


def test_without_identities_nobody_is_asked_for_a_name(tmp_path: Path) -> None:
    with open_doors(tmp_path, identities=False) as doors:
        for port in CALLERS:
            if port not in ("gateway", "lmstfy"):  # lmstfy's clients show a token always
                assert doors.enter(port, doors.authority.sign(dns("nobody.example"))) in ("local", LET_IN)
        with pytest.raises(InvalidArgumentError, match="no gateway_secret, and no identities"):
            doors.enter("gateway", doors.authority.sign(dns("nobody.example")))


# -- what is kept and shown --------------------------------------------------------------------------------------------


def test_a_certificates_name_is_there_after_a_restart(tmp_path: Path) -> None:
    config = Config(data=tmp_path, pipeline="off")
    with Broker.open(config) as broker:
        broker.set_identity("admin", ["admin"])
        broker.add_credential("admin", kind="certificate", san=SHOP)
    with Broker.open(config) as broker:
        assert Authenticator(broker).by_certificate(["URI:" + SHOP]).name == "admin"
        [admin] = broker.list_identities()
        assert [(each.kind, each.san) for each in admin.credentials] == [("certificate", "URI:" + SHOP)]


def test_the_command(known: Known, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TARRY_TOKEN", known.admin)
    front = LinkFront.start(known.broker, "127.0.0.1:0")
    place = ["--endpoint", front.address]
    try:
        assert run(["identity", "add-certificate", "billing", "--san", SHOP, *place]) == 0
        assert capsys.readouterr().out.endswith(f": URI:{SHOP}\n")
        assert run(["identity", "show", "billing", *place]) == 0
        assert f"certificate  URI:{SHOP}" in capsys.readouterr().out
        assert run(["identity", "list", *place]) == 0
        assert f"(URI:{SHOP})" in capsys.readouterr().out
        assert run(["identity", "show", "nobody", *place]) != 0
    finally:
        front.stop()


@pytest.mark.usefixtures("_known")
def test_an_empty_access_key_is_none(doors: Doors) -> None:
    shown = doors.authority.sign(uri(SHOP))
    files = doors.ca.read_bytes(), shown.key.read_bytes(), shown.certificate.read_bytes()
    for name, code in (("", Code.OK), ("x", Code.UNAUTHORIZED)):
        credentials = grpc.ssl_channel_credentials(*files)
        rpc = Rpc(doors.port("rocketmq"), headers=signed(name, ""), shared=False, credentials=credentials)
        assert rpc.send("orders.new").status.code == code
        rpc.close()


# -- certificates of those who have one --------------------------------------------------------------------------------


def test_optional_takes_tokens_without_a_certificate(tmp_path: Path) -> None:
    with open_doors(tmp_path, tls_clients="optional", rocketmq_tls="both") as doors:
        doors.broker.add_credential("shop", kind="certificate", san=SHOP)
        url = f"https://localhost:{doors.port('http')}/v1/groups"
        bare = ssl.create_default_context(cafile=str(doors.ca))
        with httpx.Client(verify=bare) as client:
            assert client.get(url).status_code == 401
            assert client.get(url, headers={"x-token": doors.tokens["root"]}).status_code == 200
        assert doors.enter("http", doors.authority.sign(uri(SHOP))) == LET_IN
        (tmp_path / "more").mkdir()
        stranger = Authority(tmp_path / "more" / "stranger", doors.ca).sign(uri(SHOP))
        with pytest.raises((OSError, httpx.TransportError)):
            doors.enter("http", stranger)
        plain = Rpc(doors.port("rocketmq"), shared=False)
        assert plain.send("orders.new").status.code == Code.UNAUTHORIZED
        plain.close()
        with doors.bare_socket("gateway") as link:
            link.sendall(hello(LINK, "w", "rocketmq", "w"))
            assert b"neither a secret nor a certificate" in link.recv(4096)
