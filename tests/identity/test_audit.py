"""Who is refused at a port, and who changes something by it, is in the audit log with the front and the address."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.identity.conftest import BILLING, Known
from tests.identity.http_place import serving
from tests.identity.test_console import visiting
from tests.identity.test_gateway import with_worker
from tests.waiting import wait_until

from tarry.api.audit import AuditRecord
from tarry.api.operations import PauseGroup, ReadAuditLog
from tarry.base.config import Config
from tarry.base.errors import ForbiddenError, NotFoundError, UnauthenticatedError
from tarry.broker import Broker
from tarry.broker.audit_reading import read_lines
from tarry.cli.main import run
from tarry.client import Client
from tarry.fronts.flight.front import FlightFront
from tarry.fronts.gateway.remote.broker import RemoteBroker
from tarry.fronts.link.front import LinkFront
from tarry.identity.authenticator import Authenticator
from tarry.identity.seen import seen_by

pytestmark = pytest.mark.usefixtures("own_home")

HOST = "127.0.0.1"


@pytest.fixture
def audited(tmp_path: Path) -> Iterator[Known]:
    with Broker.open(Config(data=tmp_path / "data", pipeline="off"), audited=True) as broker:
        broker.set_identity("admin", ["admin"])
        admin = broker.add_credential("admin").secret
        broker.set_identity("billing", BILLING)
        yield Known(broker, admin, broker.add_credential("billing").secret)


def read(known: Known, **asked: Any) -> list[AuditRecord]:
    return known.broker.components.audit.read(ReadAuditLog(**asked))


def until_read(known: Known, number: int, **asked: Any) -> list[AuditRecord]:
    wait_until(lambda: len(read(known, **asked)) >= number)
    return read(known, **asked)


def test_the_link(audited: Known) -> None:
    front = LinkFront.start(audited.broker, f"{HOST}:0")
    try:
        with Client(front.address, token="tarry_wrong", timeout=5) as client, pytest.raises(UnauthenticatedError):
            client.ping()
        with Client(front.address, token=audited.billing) as client:
            with pytest.raises(ForbiddenError):
                client.set_topic("orders.a", ordered=True)
            with pytest.raises(ForbiddenError):
                client.audit_log()
        with Client(front.address, token=audited.admin) as client:
            client.set_topic("orders.a", ordered=True)
            [changed] = client.audit_log(operation="set-topic", outcome="done")
    finally:
        front.stop(0.2)
    assert (changed.who, changed.front, changed.peer) == ("admin", "link", HOST)
    assert changed.details == {"topic": "orders.a", "settings": {"ordered": True}}
    [login, *_] = until_read(audited, 1, operation="login")
    assert (login.front, login.peer, login.code) == ("link", HOST, "not_known")
    refused = until_read(audited, 2, outcome="refused", who="billing")
    assert [(each.operation, each.peer, each.code) for each in refused] == [
        ("set-topic", HOST, "forbidden"),
        ("audit-log", HOST, "forbidden"),
    ]


def test_the_push_subscriptions_of_a_deleted_identity_stay_and_are_named(
    audited: Known, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    audited.broker.set_identity("billing", ["manage orders.*"])
    front = LinkFront.start(audited.broker, f"{HOST}:0")
    try:
        with Client(front.address, token=audited.billing) as client:
            for name in ("kept", "gone"):
                client.set_push(name, topic="orders.a", url="https://example.com/")
            client.delete_push("gone")
            with pytest.raises(NotFoundError):
                client.pause_push("none")
        with Client(front.address, token=audited.admin) as client:
            client.set_push("other", topic="orders.b", url="https://example.com/")
        [failed] = read(audited, operation="pause-push")
        assert (failed.who, failed.front, failed.outcome, failed.code) == ("billing", "link", "failed", "not_found")
        monkeypatch.setenv("TARRY_TOKEN", audited.admin)
        assert run(["identity", "delete", "billing", "--endpoint", front.address]) == 0
    finally:
        front.stop(0.2)
    assert "push subscriptions that billing has set stay: kept (" in capsys.readouterr().err
    assert [each.name for each in audited.broker.push_subscriptions()] == ["kept", "other"]


def test_flight(audited: Known) -> None:
    import pyarrow.flight as flight

    with FlightFront.start(audited.broker, f"{HOST}:0") as front, flight.connect(f"grpc://{front.address}") as client:
        options = flight.FlightCallOptions(headers=[(b"authorization", b"Bearer " + audited.admin.encode())])
        list(client.do_action(flight.Action("set-topic", b'{"topic": "t", "ordered": true}'), options))
        with pytest.raises(flight.FlightUnauthenticatedError):
            list(client.do_action(flight.Action("ping", b"{}")))
    [changed] = read(audited, operation="set-topic")
    assert (changed.who, changed.front, changed.peer) == ("admin", "flight", HOST)
    [login] = until_read(audited, 1, operation="login")
    assert (login.front, login.peer, login.code) == ("flight", HOST, "none_shown")


def test_http(audited: Known) -> None:
    with serving(audited.broker) as place:
        assert place.status("GET", "/v1/status") == 401
        assert place.status("GET", "/v1/status", "tarry_wrong") == 401
        assert place.status("GET", "/v1/audit-log", audited.billing) == 403
        made = place.ask(
            "PATCH", "/v1/topics/t", audited.admin, json={"ordered": True}, headers={"x-request-id": "req-7"}
        )
        assert made.status_code == 200, made.text
        [changed] = place.ask("GET", "/v1/audit-log?operation=set-topic", audited.admin).json()
    assert (changed["who"], changed["front"], changed["peer"], changed["request"]) == ("admin", "http", HOST, "req-7")
    logins = until_read(audited, 2, operation="login")
    assert [(each.front, each.peer, each.code) for each in logins] == [
        ("http", HOST, "none_shown"),
        ("http", HOST, "not_known"),
    ]


def test_a_missing_right_is_noted_with_the_address(audited: Known) -> None:
    front = LinkFront.start(audited.broker, f"{HOST}:0")
    try:
        with Client(front.address, token=audited.billing) as client:
            for call in (
                lambda: client.schedule("secret.a", b"x"),
                lambda: next(iter(client.consume("secret.b", group="g"))),
                lambda: client.receive("secret.c", group="g"),
            ):
                with pytest.raises(ForbiddenError):
                    call()
    finally:
        front.stop(0.2)
    with serving(audited.broker) as place:
        assert place.status("POST", "/v1/topics/secret.d/messages", audited.billing, json={"body": "x"}) == 403
        assert place.status("GET", "/v1/topics/secret.e/groups/g/events", audited.billing) == 403
    refused = until_read(audited, 5, outcome="refused", who="billing")
    assert {each.peer for each in refused} == {HOST}
    assert {each.front for each in refused} == {"link", "http"}


def test_a_worker_s_callers_and_refusals_reach_the_broker(audited: Known) -> None:
    audited.broker.set_group("orders.a", "g")

    async def use(remote: RemoteBroker) -> None:
        authenticator = Authenticator(remote, "rocketmq")
        with pytest.raises(UnauthenticatedError):
            authenticator.by_token("tarry_wrong", peer="10.0.0.9")
        billing, admin = (authenticator.by_token(token) for token in (audited.billing, audited.admin))
        with pytest.raises(ForbiddenError):
            seen_by(remote, billing).call(PauseGroup("orders.a", "g"))
        seen_by(remote, admin, admin.asks("10.0.0.8")).call(PauseGroup("orders.a", "g"))
        [changed] = read(audited, operation="pause", outcome="done")
        assert (changed.who, changed.front, changed.peer) == ("admin", "rocketmq", "10.0.0.8")

    with_worker(audited.broker, use)
    [login] = until_read(audited, 1, operation="login")
    assert (login.front, login.peer, login.code) == ("rocketmq", "10.0.0.9", "not_known")
    [refused] = until_read(audited, 1, operation="pause", outcome="refused")
    assert (refused.who, refused.front) == ("billing", "rocketmq")
    counts = audited.broker.status()["audit"]["refused"]
    assert (counts["not_known"], counts["right"]) == (1, 1)


def test_pages_of_the_console_ask_for_nothing_that_the_viewer_may_not_see(audited: Known) -> None:
    audited.broker.schedule("orders.a", b"x", delay=3600)
    audited.broker.group("orders.a", "billing")
    with serving(audited.broker) as place, visiting(place, audited.billing) as visitor:
        for path in ("pending", "series", "topics", "push", "dead", "schedule", "history", "past"):
            visitor.page(f"/console/{path}")
        visitor.page("/console/topic", topic="orders.a")
        visitor.page("/console/group", topic="orders.a", group="billing")
        audited.broker.components.audit.tick()
        assert read(audited, outcome="refused", who="billing") == []
        visitor.page("/console/pending", 403, topic="orders.a")  # it was asked for by its name
        [line] = until_read(audited, 1, outcome="refused", who="billing")
        assert (line.operation, line.details["topic"]) == ("list-pending", "orders.a")


def test_a_command_in_the_directory_of_a_stopped_broker_is_no_start_of_it(tmp_path: Path) -> None:
    data = tmp_path / "stopped"
    assert run(["identity", "create", "admin", "--all", "--no-keep", "--data", str(data)]) == 0
    lines = read_lines(data, ReadAuditLog())
    assert [(line.operation, line.outcome) for line in lines] == [
        ("start", "done"), ("set-identity", "begun"), ("set-identity", "done"), ("add-credential", "begun"),
        ("add-credential", "done"), ("stop", "done"),
    ]  # fmt: skip
    assert {(line.who, line.front) for line in lines} == {("local", "command")}
    with Broker.open(Config(data=data, pipeline="off"), audited=True):
        pass
    started = read_lines(data, ReadAuditLog(operation="start"))
    assert [(line.who, line.front) for line in started] == [("local", "command"), (None, None)]
