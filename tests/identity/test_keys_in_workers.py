"""Access keys in workers: signatures are checked there, by secrets that the broker tells its own workers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.gateway.places import GatewayPlace
from tests.gateway.raw_link import RawLink, hello
from tests.gateway.worker_places import ClassicPlace
from tests.identity.conftest import Known, add_access_keys
from tests.identity.test_rocketmq_classic import FORBIDDEN, OK, Signing, _be_producer, _begin_reply
from tests.rocketmq.rpc import Code, Rpc, signed
from tests.rocketmq_place import serving
from tests.waiting import wait_until

from tarry.base.errors import LoginRefusal, UnauthenticatedError
from tarry.broker import Broker
from tarry.fronts.gateway.front import GatewayFront, socket_of
from tarry.fronts.gateway.remote.broker import RemoteBroker
from tarry.fronts.registry import ServerConfig
from tarry.fronts.rocketmq.classic.frames import encode
from tarry.fronts.rocketmq.classic.passage import HomePassage
from tarry.identity.authenticator import Authenticator
from tarry.link.frames import LINK, FrameKind

GRANTS = {"shop": ["produce orders.*", "consume orders.* group:billing"], "other": ["produce stock.*"]}
SECRETS = {name: f"s3cret-of-{name}" for name in (*GRANTS, "root")}


@pytest.fixture
def v5(tmp_path: Path) -> Iterator[GatewayPlace]:
    with serving(GatewayPlace, tmp_path) as start:
        yield start()


@pytest.fixture
def classic(tmp_path: Path) -> Iterator[ClassicPlace]:
    with serving(ClassicPlace, tmp_path) as start:
        place = start(remoting_queues=1)
        add_access_keys(place.broker, GRANTS, SECRETS)
        wait_until(lambda: all(front._broker.identities for front in place.workers.fronts))  # noqa: SLF001
        yield place


def test_v5(v5: GatewayPlace) -> None:
    ids = add_access_keys(v5.broker, GRANTS, SECRETS)

    def as_(name: str, secret: str) -> Rpc:
        return v5.client(headers=signed(name, secret))

    mine = as_("shop", SECRETS["shop"])
    wait_until(lambda: mine.send("orders.new").status.code == Code.OK)
    assert mine.send("stock.new").status.code == Code.FORBIDDEN
    assert as_("other", SECRETS["other"]).send("stock.new").status.code == Code.OK
    assert as_("shop", "wrong").send("orders.new").status.code == Code.UNAUTHORIZED
    v5.broker.remove_credential(ids["shop"])
    wait_until(lambda: mine.send("orders.new").status.code == Code.UNAUTHORIZED)


def _signing(place: ClassicPlace, name: str, worker: int = 0, secret: str | None = None) -> Signing:
    client = Signing(place.workers.fronts[worker].port, name, SECRETS[name] if secret is None else secret)
    place.clients.append(client)
    return client


def test_classic_sends_are_carried_out_in_the_worker(classic: ClassicPlace, monkeypatch: pytest.MonkeyPatch) -> None:
    passed: list[int] = []
    takes = HomePassage.takes

    def noted(passage: HomePassage, command: object, frame: bytes) -> bool:
        is_taken = takes(passage, command, frame)  # type: ignore[arg-type]
        passed.append(is_taken)
        return is_taken

    monkeypatch.setattr(HomePassage, "takes", noted)
    mine = _signing(classic, "shop")
    assert mine.send("orders.new", b"x").code == OK
    assert mine.send("stock.new", b"x").code == FORBIDDEN
    assert _signing(classic, "shop", secret="wrong").send("orders.new").code == FORBIDDEN
    assert passed == [False] * 3
    [message] = _signing(classic, "shop", 1).pull_until(1, "orders.new", "billing")
    assert message["body"] == b"x"


def test_a_reply_finds_who_asked_through_another_worker(classic: ClassicPlace) -> None:
    asker, replier = _signing(classic, "shop"), _signing(classic, "shop", 1)
    _be_producer(asker, "asker")
    assert asker.send("orders.new", b"?", REPLY_TO_CLIENT="asker", CORRELATION_ID="c-1", TTL="3000").code == OK
    number = _begin_reply(replier, "orders.new", "asker", "c-1")
    question = asker.next_question()
    asker.socket.sendall(encode(question.answer(OK)))
    assert (question.body, replier.finish(number).code) == (b"answer", OK)


def test_a_gateway_by_tcp_is_told_no_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    secret = tmp_path / "secret"
    secret.write_text("0123456789abcdef")
    config = ServerConfig(data=tmp_path / "data", pipeline="off", gateway_secret=str(secret))
    with Broker.open(config) as broker:
        ids = add_access_keys(broker, GRANTS, SECRETS)
        gateway = GatewayFront.start(broker, "127.0.0.1:0")
        remote = RemoteBroker(gateway.address, "w", "rocketmq", "w-1", {"gateway_secret": str(secret)})

        async def run() -> None:
            await remote.connect(lambda: None)
            assert {each.name for each in remote.identities} >= {"shop", "other"}
            assert [remote.access_secret(id) for id in ids.values()] == [None] * len(ids)
            refused: list[tuple[str, str, LoginRefusal]] = []
            monkeypatch.setattr(remote.refusals, "login", lambda *said: refused.append(said))
            with pytest.raises(UnauthenticatedError, match="not known to this gateway"):
                Authenticator(remote, "mqtt").by_access_key("shop", "10.0.0.9")
            assert refused == [("mqtt", "10.0.0.9", LoginRefusal("other", ids["shop"]))]

        try:
            asyncio.run(run())
        finally:
            remote.close()
            gateway.stop()


def test_secrets_are_told_to_fronts_that_check_signatures_alone(known: Known) -> None:
    known.broker.add_credential("billing", kind="access_key", access_key="shop", secret=SECRETS["shop"])
    gateway = GatewayFront.start(known.broker, socket_of(known.broker.config.data))
    try:
        for front, knows in (("rocketmq", True), ("remoting", True), ("http", False)):
            with RawLink(gateway.address, hello=False) as link:
                link.send(hello(LINK, "w", front, "w-1"))
                identities = json.loads(link.read_until(FrameKind.IDENTITIES))
            told = {one["access_key"]: one.get("secret") for each in identities for one in each["credentials"]}
            assert (told["shop"] is not None) == knows, front
    finally:
        gateway.stop()
