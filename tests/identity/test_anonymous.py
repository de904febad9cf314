"""Whoever shows no credential: refused, or the identity "anonymous" if there is one, by one rule at each port."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pyarrow.flight as fl
import pytest
from tests.gateway.places import Worker
from tests.gateway.worker_places import workers_of
from tests.identity.conftest import Known
from tests.identity.http_place import serving
from tests.link.raw_client import RawClient, RefusedError
from tests.mqtt.place import PUBACK, SUBACK, Raw, publish, subscribe
from tests.rocketmq.rpc import Code, Rpc
from tests.rocketmq_classic.remoting import Remoting
from tests.waiting import wait_until

from tarry.api.identities import ANONYMOUS
from tarry.api.operations import ReadAuditLog
from tarry.base.config import Config
from tarry.base.errors import (
    ForbiddenError,
    InvalidArgumentError,
    NotFoundError,
    TarryError,
    UnauthenticatedError,
)
from tarry.broker import Broker
from tarry.cli.exits import ExitCode
from tarry.cli.main import run
from tarry.client import Client
from tarry.fronts.flight.front import FlightFront
from tarry.fronts.gateway.front import GatewayFront, socket_of
from tarry.fronts.http.front import HttpFront
from tarry.fronts.kit.exposure import AnonymousWarning
from tarry.fronts.link.front import LinkFront
from tarry.fronts.metrics.front import MetricsFront
from tarry.fronts.mqtt.front import MqttFront
from tarry.fronts.mqtt.packets import V5
from tarry.fronts.mqtt.wire import text_bytes
from tarry.fronts.rocketmq.classic.front import RemotingFront
from tarry.fronts.rocketmq.front import RocketMQFront
from tarry.identity.file import FILE
from tarry.log.files import OsFiles
from tarry.log.json_file import read_json, write_json

pytestmark = pytest.mark.usefixtures("own_home")

GRANTS = ["produce orders-*", "produce orders/*", "consume orders-* group:open"]
DONE, FORBIDDEN, UNKNOWN = "done", "forbidden", "unauthenticated"
ANY_PORT = "127.0.0.1:0"


def _link(address: str, topic: str, credential: str | None) -> str:
    try:
        with Client(address, token=credential) as client:
            client.schedule(topic, b"x", delay=60)
    except TarryError as error:
        return error.code
    return DONE


def _flight(address: str, topic: str, credential: str | None) -> str:
    headers = [] if credential is None else [(b"authorization", f"Bearer {credential}".encode())]
    action = fl.Action("cancel-keys", b'{"topic": "%b", "keys": ["k"]}' % topic.encode())
    with fl.FlightClient(f"grpc://{address}") as client:
        try:
            list(client.do_action(action, fl.FlightCallOptions(headers=headers)))
        except fl.FlightUnauthenticatedError:
            return UNKNOWN
        except fl.FlightUnauthorizedError:
            return FORBIDDEN
    return DONE


def _http(address: str, topic: str, credential: str | None) -> str:
    asked = {"json": {"keys": ["k"]}, "headers": {} if credential is None else {"x-token": credential}}
    return _of_status(httpx.post(f"http://{address}/v1/topics/{topic}/keys/cancel", timeout=30, **asked).status_code)  # type: ignore[arg-type]


def _lmstfy(address: str, topic: str, credential: str | None) -> str:
    headers = {} if credential is None else {"x-token": credential}
    path = topic.replace("-", "/")
    return _of_status(httpx.put(f"http://{address}/api/{path}", content=b"x", headers=headers, timeout=30).status_code)


def _of_status(status: int) -> str:
    return {200: DONE, 201: DONE, 401: UNKNOWN, 403: FORBIDDEN}[status]


def _mqtt(address: str, topic: str, credential: str | None) -> str:
    shown = {} if credential is None else {"flags": 0x40, "rest": text_bytes(credential)}
    with Raw(int(address.rpartition(":")[2])) as raw:
        if raw.connect(V5, client_id="c", **shown)[1]:
            return UNKNOWN
        raw.send(publish(topic))
        answer = raw.expect(PUBACK)
        return FORBIDDEN if len(answer) > 2 and answer[2] == 0x87 else DONE


def _rocketmq(address: str, topic: str, credential: str | None) -> str:
    headers = {} if credential is None else {"authorization": f"Bearer {credential}"}
    rpc = Rpc(int(address.rpartition(":")[2]), headers=headers, shared=False)
    try:
        code = rpc.send(topic).status.code
    finally:
        rpc.close()
    return {Code.OK: DONE, Code.FORBIDDEN: FORBIDDEN, Code.UNAUTHORIZED: UNKNOWN}[code]


def _remoting(address: str, topic: str, credential: str | None) -> str:
    more = {} if credential is None else {"AccessKey": credential, "Signature": credential}
    client = Remoting(int(address.rpartition(":")[2]))
    try:
        fields = {"b": topic, "a": "g", "e": 0, "i": "", "c": "TBW102", "d": 4, **more}
        answer = client.ask(310, fields, b"x")
    finally:
        client.close()
    if answer.code == 16:
        return FORBIDDEN if "has not the right" in answer.remark else UNKNOWN
    return DONE if answer.code == 0 else str(answer)


PORTS: dict[str, tuple[Any, Callable[[str, str, str | None], str]]] = {
    "link": (LinkFront, _link),
    "flight": (FlightFront, _flight),
    "http": (HttpFront, _http),
    "lmstfy": (HttpFront, _lmstfy),
    "mqtt": (MqttFront, _mqtt),
    "rocketmq": (RocketMQFront, _rocketmq),
    "remoting": (RemotingFront, _remoting),
}


@pytest.mark.parametrize("port", PORTS)
def test_each_port_takes_who_shows_nothing_for_that_identity(known: Known, port: str) -> None:
    front_class, produce = PORTS[port]
    front = front_class.start(known.broker, ANY_PORT)
    try:
        assert produce(front.address, "orders-new", None) == UNKNOWN
        known.broker.set_identity(ANONYMOUS, GRANTS)
        assert produce(front.address, "orders-new", None) == DONE
        assert produce(front.address, "secret-new", None) == FORBIDDEN
        for wrong in (known.billing[:-1], "tarry_wrong"):
            assert produce(front.address, "orders-new", wrong) == UNKNOWN
        known.broker.delete_identity(ANONYMOUS)
        assert produce(front.address, "orders-new", None) == UNKNOWN
    finally:
        front.stop()


@contextmanager
def worker_of(front_class: Any, broker: Broker) -> Iterator[str]:
    """The address of a worker of this front."""
    if front_class is not RocketMQFront:
        with workers_of(front_class, broker, 1) as workers:
            yield workers.fronts[0].address
        return
    gateway = GatewayFront.start(broker, socket_of(broker.config.data))
    worker = Worker(gateway.address)
    yield worker.front.address
    worker.stop()
    gateway.stop()


@pytest.mark.parametrize("port", ["http", "lmstfy", "rocketmq", "remoting"])
def test_the_same_in_a_worker(known: Known, port: str) -> None:
    front_class, produce = PORTS[port]
    known.broker.set_identity(ANONYMOUS, GRANTS)
    with worker_of(front_class, known.broker) as address:
        assert produce(address, "orders-new", None) == DONE
        assert produce(address, "secret-new", None) == FORBIDDEN
        assert produce(address, "orders-new", "tarry_wrong") == UNKNOWN
        known.broker.delete_identity(ANONYMOUS)
        wait_until(lambda: produce(address, "orders-new", None) == UNKNOWN)


def test_a_credential_that_is_not_taken_any_more_is_refused_as_before(known: Known) -> None:
    known.broker.set_identity(ANONYMOUS, GRANTS)
    front = LinkFront.start(known.broker, ANY_PORT)
    try:
        assert _link(front.address, "orders-new", known.billing) == FORBIDDEN, "its own rights are others"
        known.broker.delete_identity("billing")
        assert _link(front.address, "orders-new", known.billing) == UNKNOWN
    finally:
        front.stop()


def test_who_it_is_and_what_it_may(known: Known) -> None:
    known.broker.set_identity(ANONYMOUS, GRANTS)
    front = LinkFront.start(known.broker, ANY_PORT)
    try:
        with Client(front.address) as client:
            found = client.whoami()
            assert (found.identity, found.grants) == (ANONYMOUS, GRANTS)
            with pytest.raises(ForbiddenError, match=r"anonymous, as whom.* has not the right produce"):
                client.schedule("secret", b"x", delay=1)
            with pytest.raises(ForbiddenError):
                client.list_identities()
        with Client(front.address, token=known.admin) as client:
            assert client.check_access("produce", "orders-1", identity=ANONYMOUS).allowed
    finally:
        front.stop()


def test_its_connections_end_with_it_and_with_its_rights(known: Known) -> None:
    front = LinkFront.start(known.broker, ANY_PORT)
    try:
        known.broker.set_identity(ANONYMOUS, GRANTS)
        client = RawClient(front.address)
        assert client.welcome["identity"] == ANONYMOUS
        known.broker.set_identity(ANONYMOUS, GRANTS[:1])
        ended = client.ended()
        assert ended is not None and ended["code"] == "unavailable"
        client = RawClient(front.address)
        known.broker.delete_identity(ANONYMOUS)
        ended = client.ended()
        assert ended is not None and ended["code"] == "unauthenticated"
        with pytest.raises(RefusedError, match="no token was shown"):
            RawClient(front.address)
    finally:
        front.stop()


def test_from_an_open_broker_to_identities_without_a_refusal(tmp_path: Path) -> None:
    """Whoever is on the way meets a link that ends, and never a refusal."""
    with Broker.open(Config(data=tmp_path / "data", pipeline="off"), audited=True) as broker:
        front = LinkFront.start(broker, ANY_PORT)
        try:
            with Client(front.address) as old:
                assert old.whoami().identity == "local"
                broker.set_identity(ANONYMOUS, GRANTS)
                assert old.whoami().identity == "local", "an identity without a credential changes nothing yet"
                consumed = iter(old.consume("orders-2", group="open"))
                broker.schedule("orders-2", b"before")
                assert next(consumed).body == b"before"
                broker.set_identity("admin", ["admin"])
                broker.add_credential("admin")

                def name() -> str:
                    try:
                        return old.whoami().identity
                    except UnauthenticatedError:
                        raise
                    except TarryError:
                        return ""  # the connection that stood has just ended

                wait_until(lambda: name() == ANONYMOUS)
                old.schedule("orders-2", b"after")
                assert b"after" in {next(consumed).body, next(consumed).body}  # that it had came again
                [line] = broker.components.audit.read(ReadAuditLog(operation="login"))
                assert (line.who, line.outcome, line.front, line.peer) == (ANONYMOUS, "done", "link", "127.0.0.1")
                [shown] = next(each for each in broker.list_identities() if each.name == ANONYMOUS).credentials
                assert (shown.id, shown.kind) == (ANONYMOUS, ANONYMOUS) and shown.last_used
        finally:
            front.stop()


def test_what_it_may_not_have(known: Known) -> None:
    broker = known.broker
    for grant in ("admin", "pipeline", "front"):
        with pytest.raises(InvalidArgumentError, match=f"anonymous.*{grant}"):
            broker.set_identity(ANONYMOUS, ["produce a", grant])
    assert ANONYMOUS not in [each.name for each in broker.list_identities()]
    broker.set_identity(ANONYMOUS, ["produce a", "deny admin"])
    for more in ({}, {"kind": "access_key"}, {"kind": "certificate", "san": "billing.example"}):
        with pytest.raises(InvalidArgumentError, match="shows no credential"):
            broker.add_credential(ANONYMOUS, **more)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgumentError, match="tarry identity delete anonymous"):
        broker.remove_credential(ANONYMOUS)
    broker.delete_identity(ANONYMOUS)
    with pytest.raises(NotFoundError):
        broker.remove_credential(ANONYMOUS)


@pytest.mark.parametrize("is_known", [True, False])
def test_an_identity_of_that_name_of_old_is_nobody_elses(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, is_known: bool
) -> None:
    """Before, the name was one like others: with a credential, or with any rights."""
    config = Config(data=tmp_path / "data", pipeline="off")
    with Broker.open(config) as broker:
        for name in ("admin", "other"):
            broker.set_identity(name, ["admin"])
        for name in ("admin", "other") if is_known else ("admin",):
            broker.add_credential(name)
    fields = read_json(config.data / FILE, [1])
    assert fields is not None
    fields["identities"][1]["name"] = ANONYMOUS
    write_json(OsFiles(), config.data / FILE, 1, {name: fields[name] for name in ("identities", "sealed")})
    with Broker.open(config) as broker:
        assert "is not for whoever shows none" in caplog.text
        front = LinkFront.start(broker, ANY_PORT)
        try:
            assert _link(front.address, "orders-new", None) == UNKNOWN
        finally:
            front.stop()


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "https://evil.example"},
        {"sec-fetch-site": "cross-site"},
        {"host": "evil.example"},
        {"x-forwarded-for": "10.0.0.9"},
    ],
)
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_pages_of_other_sites_and_proxies_are_not_anonymous(known: Known, headers: dict[str, str], method: str) -> None:
    known.broker.set_identity(ANONYMOUS, [*GRANTS, "look *"])
    path = "/v1/groups" if method == "GET" else "/v1/topics/orders-1/keys/cancel"
    asked: dict[str, Any] = {} if method == "GET" else {"json": {"keys": ["k"]}}
    with serving(known.broker) as place:
        assert place.status(method, path, **asked) == 200
        assert place.status(method, path, headers=headers, **asked) == 403
        queue = place.http.put("/api/orders/new", content=b"x", headers=headers)
        assert queue.status_code == 403
        assert place.status(method, path, known.admin, headers=headers, **asked) == 200


BROWSER = {"user-agent": "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36", "accept": "image/avif,image/*,*/*;q=0.8"}
OTHERS = ["Go-http-client/1.1", "GuzzleHttp/7", "curl/8.5.0", "node", "python-requests/2.32"]


def test_a_browser_that_does_not_say_from_where_is_not_anonymous(known: Known) -> None:
    """By http, to an address that is no loopback one, a browser sends neither Sec-Fetch-Site nor a GET's Origin."""
    known.broker.set_identity(ANONYMOUS, ["consume *", "look *", "produce *"])
    host = {"host": "10.1.2.3:7777"}
    with serving(known.broker) as place:
        for path in ("/api/open/q", "/v1/whoami", "/v1/topics/orders-1/groups/open/events"):
            refused = place.ask("GET", path, headers={**host, **BROWSER})
            assert (refused.status_code, "Mozilla" in refused.text) == (403, True), path
            assert place.status("GET", path, headers={**host, "user-agent": "mozilla/4.0"}) == 403
        for site in ("same-origin", "none"):
            assert place.status("GET", "/v1/whoami", headers={**host, **BROWSER, "sec-fetch-site": site}) == 200
        origin = {**host, **BROWSER, "origin": "http://10.1.2.3:7777"}
        assert place.status("POST", "/v1/topics/orders-1/keys/cancel", headers=origin, json={"keys": ["k"]}) == 200
        assert place.status("GET", "/v1/whoami", known.admin, headers={**host, **BROWSER}) == 200
        for agent in OTHERS:
            sent = {**host, "user-agent": agent, "accept-language": "*"}
            assert place.http.put("/api/open/q", content=b"x", headers=sent).status_code == 201
            assert place.status("GET", "/api/open/q?timeout=5", headers=sent) == 200


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_foreign_referer_is_not_anonymous(known: Known, method: str) -> None:
    known.broker.set_identity(ANONYMOUS, [*GRANTS, "look *"])
    path = "/v1/groups" if method == "GET" else "/v1/topics/orders-1/keys/cancel"
    asked: dict[str, Any] = {} if method == "GET" else {"json": {"keys": ["k"]}}
    with serving(known.broker) as place:
        own = f"http://{place.front.address}/somewhere"
        for referer, status in ((own, 200), ("http://evil.example/", 403), ("x", 403), ("http://[", 403)):
            assert place.status(method, path, headers={"referer": referer}, **asked) == status, referer
        assert place.status(method, path, known.admin, headers={"referer": "http://evil.example/"}, **asked) == 200


def test_other_kinds_of_authorization_are_a_credential(known: Known) -> None:
    known.broker.set_identity(ANONYMOUS, ["look *"])
    with serving(known.broker) as place:
        assert place.status("GET", "/v1/groups", headers={"authorization": "Negotiate abc"}) == 401
        assert place.status("GET", "/v1/groups?token=x") == 401


QUERIES = ["token=default:", "token=default%3A", "token=&token=bad", "%74oken=bad", "token=bad&token=", "token=%20"]


@pytest.mark.parametrize("query", QUERIES)
def test_a_query_that_names_a_token_shows_something(known: Known, query: str) -> None:
    known.broker.set_identity(ANONYMOUS, ["look *"])
    with serving(known.broker) as place:
        for path in ("/api/open/q/size", "/v1/whoami"):
            assert place.status("GET", path) == 200
            assert place.status("GET", f"{path}?token=") == 200, "an empty one is nothing"
            assert place.status("GET", f"{path}?{query}") == 401
        assert place.status("GET", "/v1/whoami?" + query, headers={"accept": "text/event-stream"}) == 401


@pytest.mark.parametrize("headers", [{"x-token": "default:"}, {"authorization": "Bearer bad"}, {"authorization": "x"}])
def test_headers_of_lmstfy_that_name_a_token_show_something(known: Known, headers: dict[str, str]) -> None:
    known.broker.set_identity(ANONYMOUS, ["look *"])
    with serving(known.broker) as place:
        assert place.status("GET", "/api/open/q/size", headers=headers) == 401


SIGNED = "SignedHeaders=x-mq-date-time, Signature=00"


@pytest.mark.parametrize(
    ("headers", "is_nothing"),
    [
        ({"authorization": f"MQv2-HMAC-SHA1 Credential=, {SIGNED}"}, True),
        ({"authorization": f"MQv2-HMAC-SHA1 Credential=//Rocketmq, {SIGNED}"}, True),
        ({"authorization": f"MQv2-HMAC-SHA1 Credential=nobody//Rocketmq, {SIGNED}"}, False),
        ({"authorization": f"MQv2-HMAC-SHA1 Credential=/, Credential=nobody, {SIGNED}"}, False),
        ({"authorization": "Bearer tarry_wrong Credential=, x"}, False),
        ({"authorization": f"MQv2-HMAC-SHA1 Credential=nobody, {SIGNED} Credential=, x"}, False),
        ({"authorization": f"MQv2-HMAC-SHA1 Credential=, Credential=nobody, {SIGNED}"}, False),
        ({"x-mq-session-token": "x"}, False),
    ],
)
def test_only_an_empty_key_of_v5_is_nothing(known: Known, headers: dict[str, str], is_nothing: bool) -> None:
    known.broker.set_identity(ANONYMOUS, GRANTS)
    with RocketMQFront.start(known.broker, ANY_PORT) as front:
        rpc = Rpc(front.port, headers=headers, shared=False)
        assert rpc.send("orders-new").status.code == (Code.OK if is_nothing else Code.UNAUTHORIZED)
        rpc.close()


@pytest.mark.parametrize("name", ["AccessKey", "Signature", "SecurityToken"])
def test_each_field_of_classic_that_names_a_credential_shows_something(known: Known, name: str) -> None:
    known.broker.set_identity(ANONYMOUS, ["look *"])
    with RemotingFront.start(known.broker, ANY_PORT) as front:
        client = Remoting(front.port)
        assert client.ask(105, {"topic": "orders-new"}).code != 16
        assert client.ask(105, {"topic": "orders-new", name: "x"}).code == 16
        client.close()


def test_nobody_logs_in_to_the_console_as_anonymous(known: Known) -> None:
    known.broker.set_identity(ANONYMOUS, ["look *", "browse *", "manage *"])
    with HttpFront(known.broker, ANY_PORT, admin=ANY_PORT) as front:
        with httpx.Client(base_url=f"http://{front.address}") as http:
            page = http.get("/")
            assert (page.status_code, page.headers["location"]) == (303, "/console/login")
        admin = httpx.get(f"http://{front.admin_address}/version")
        assert (admin.status_code, "www-authenticate" in admin.headers) == (401, True)


def test_figures(known: Known) -> None:
    with MetricsFront.start(known.broker, ANY_PORT) as front:
        known.broker.set_identity(ANONYMOUS, GRANTS)
        assert httpx.get(f"http://{front.address}/metrics").status_code == 403
        known.broker.set_identity(ANONYMOUS, ["look *"])
        assert httpx.get(f"http://{front.address}/metrics").status_code == 200
        assert httpx.get(f"http://{front.address}/metrics", headers={"authorization": "Bearer x"}).status_code == 401


@pytest.fixture
def commanded(known: Known, monkeypatch: pytest.MonkeyPatch) -> Iterator[Known]:
    front = LinkFront.start(known.broker, ANY_PORT)
    monkeypatch.setenv("TARRY_ENDPOINT", front.address)
    monkeypatch.setenv("TARRY_TOKEN", known.admin)
    yield known
    front.stop()


def test_the_command_makes_it_without_a_token(
    commanded: Known, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["identity", "create", "anonymous", "-g", "produce orders.*", "-q", "messages_per_second=5"]
    assert run(command) == 0
    assert capsys.readouterr().out == "anonymous: produce orders.*; quotas: messages_per_second=5\n"
    for more in (["--all"], ["--expires", "1d"]):
        assert run(["identity", "create", "anonymous", *more]) == ExitCode.USAGE
    capsys.readouterr()
    monkeypatch.delenv("TARRY_TOKEN")
    assert run(["whoami"]) == 0
    assert capsys.readouterr().out == "anonymous: produce orders.*; quotas: messages_per_second=5\n"


def test_the_command_makes_it_in_the_directory_of_a_stopped_broker(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / "stopped"
    assert run(["identity", "create", "anonymous", "-g", "produce a", "--data", str(data)]) == 0
    assert capsys.readouterr().out == "anonymous: produce a\n"
    with Broker.open(Config(data=data, pipeline="off")) as broker:
        assert [each.name for each in broker.list_identities()] == [ANONYMOUS]
        assert not broker.identities, "nobody is asked yet"


def test_a_kept_session_goes_on_when_its_client_shows_a_token(known: Known) -> None:
    kept: dict[str, Any] = {"client_id": "c", "clean": False, "properties": {"session_expiry_s": 600}}
    known.broker.set_identity(ANONYMOUS, ["consume orders-*", "produce orders-*"])
    known.broker.set_identity("shop", ["consume orders-*"])
    token = known.broker.add_credential("shop").secret
    front = MqttFront.start(known.broker, ANY_PORT)
    try:
        with Raw(front.port) as raw:
            assert raw.connect(V5, **kept)[:2] == b"\0\0"
            raw.send(subscribe("orders-1"))
            assert raw.expect(SUBACK)[-1] == 1
        shows = {"flags": 0x40, "rest": text_bytes(token)}
        with Raw(front.port) as raw:
            assert raw.connect(V5, **kept, **shows)[:2] == b"\1\0"
        with Raw(front.port) as raw:
            assert raw.connect(V5, **kept)[:2] == b"\0\0", "it is the identity's now"
    finally:
        front.stop()


def test_the_log_warns_where_other_machines_reach_it(known: Known, caplog: pytest.LogCaptureFixture) -> None:
    ports = {"http": "0.0.0.0:7777 (2 workers)", "mqtt": "127.0.0.1:1883", "gateways": "0.0.0.0:7612"}
    warning = AnonymousWarning(ports, known.broker)
    stop = known.broker.listen_to_identities(warning.look)
    warning.look()
    for grants, words in (
        ([], None),
        (["deny produce a"], None),
        (GRANTS, "http on 0.0.0.0:7777 and shows"),
        (GRANTS, None),
        (GRANTS[:1], "may: produce orders-*;"),
    ):
        caplog.clear()
        known.broker.set_identity(ANONYMOUS, grants)
        said = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
        assert len(said) == bool(words) and all(words in each for each in said if words)
        assert "mqtt" not in caplog.text
    known.broker.delete_identity(ANONYMOUS)
    caplog.clear()
    AnonymousWarning(ports, known.broker).look()
    assert not caplog.records
    stop()
