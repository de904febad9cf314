"""A worker behind a link knows the identities, hears of their changes, and has the broker check what it cannot."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.gateway.raw_link import WAIT_S, RawLink, hello
from tests.identity.conftest import Known

from tarry.api import operations as ops
from tarry.api.operation import Operation
from tarry.api.outcome import Outcome
from tarry.base.config import Config
from tarry.base.errors import (
    ForbiddenError,
    InvalidArgumentError,
    QuotaExceededError,
    TarryError,
    UnauthenticatedError,
    UnavailableError,
)
from tarry.broker import Broker
from tarry.fronts.gateway.front import GatewayFront, socket_of
from tarry.fronts.gateway.remote import identities as remote_identities
from tarry.fronts.gateway.remote.broker import RemoteBroker
from tarry.fronts.gateway.served import worker as served_worker
from tarry.fronts.kit.callers import Callers
from tarry.fronts.link.front import LinkFront
from tarry.fronts.registry import ServerConfig, front_of
from tarry.identity.authenticator import Authenticator
from tarry.identity.grants import Grant
from tarry.identity.principal import LOCAL, Principal
from tarry.identity.rights import Rights
from tarry.identity.seen import SeenBroker, seen_by
from tarry.link.blocking import BlockingLink
from tarry.link.frames import CLIENT, CONTROL, LINK, FrameKind, frame

FRONT = "rocketmq"


@pytest.fixture(autouse=True)
def asking(monkeypatch: pytest.MonkeyPatch) -> None:
    """The front of these workers asks its callers, whichever it is."""
    declared = replace(front_of(FRONT), asks_callers=True)
    monkeypatch.setattr(served_worker, "FRONTS", (declared,))


def with_worker(broker: Broker, use: Callable[[RemoteBroker], Awaitable[None]]) -> None:
    """Run ``use`` on the loop of a worker that has connected."""
    gateway = GatewayFront.start(broker, socket_of(broker.config.data))
    remote = RemoteBroker(gateway.address, "w", FRONT, "w-1")

    async def run() -> None:
        await remote.connect(lambda: None)
        await use(remote)

    try:
        asyncio.run(asyncio.wait_for(run(), 4 * WAIT_S))
    finally:
        remote.close()
        gateway.stop()


async def until(remote: RemoteBroker, condition: Callable[[], bool]) -> None:
    """Wait until the worker has been told of what makes a condition true."""
    told = asyncio.Event()
    stop = remote.listen_to_identities(told.set)
    while not condition():
        await asyncio.wait_for(told.wait(), WAIT_S)
        told.clear()
    stop()


def test_a_worker_is_told_before_it_serves_and_of_each_change(known: Known) -> None:
    async def use(remote: RemoteBroker) -> None:
        assert remote.identities == known.broker.identities
        authenticator = Authenticator(remote)
        assert authenticator.by_token(known.billing).name == "billing"
        with pytest.raises(UnauthenticatedError, match="no token was shown"):
            authenticator.by_token(None)
        before = remote.identities
        known.broker.delete_identity("billing")
        await until(remote, lambda: remote.identities is not before)
        with pytest.raises(UnauthenticatedError, match="is not known"):
            authenticator.by_token(known.billing)

    with_worker(known.broker, use)


def test_by_tcp_the_secret_still_shows_a_gateway(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("0123456789abcdef")
    config = ServerConfig(data=tmp_path / "data", pipeline="off", gateway_secret=str(secret))
    with Broker.open(config) as broker:
        broker.set_identity("admin", ["admin"])
        admin = broker.add_credential("admin").secret
        gateway = GatewayFront.start(broker, "127.0.0.1:0")
        try:
            with pytest.raises(InvalidArgumentError, match="gateway_secret"):
                RemoteBroker(gateway.address, "w", FRONT, "w-1")
            remote = RemoteBroker(gateway.address, "w", FRONT, "w-1", {"gateway_secret": str(secret)})
            asyncio.run(remote.connect(lambda: None))
            assert Authenticator(remote).by_token(admin).name == "admin"
            remote.close()
        finally:
            gateway.stop()


def test_what_is_told_are_digests(known: Known) -> None:
    gateway = GatewayFront.start(known.broker, socket_of(known.broker.config.data))
    try:
        with RawLink(gateway.address) as link:
            told = link.read_until(FrameKind.IDENTITIES)
    finally:
        gateway.stop()
    assert {each["name"] for each in json.loads(told)} >= {"admin", "billing", "local-admin"}
    own = (known.broker.config.data / "admin.token").read_text().strip()
    for secret in (known.admin, known.billing, own):
        assert secret.encode() not in told


def test_the_first_identity_ends_the_local_caller(tmp_path: Path) -> None:
    with Broker.open(Config(data=tmp_path, pipeline="off")) as broker:

        async def use(remote: RemoteBroker) -> None:
            assert remote.identities == ()
            authenticator = Authenticator(remote)
            assert authenticator.by_token(None) is LOCAL
            assert seen_by(remote, LOCAL) is remote, "nothing is asked twice without identities"
            cut: list[TarryError] = []
            callers = Callers(remote, asyncio.get_running_loop(), "test")
            gone = asyncio.Event()
            callers.add(object(), LOCAL, lambda error: (cut.append(error), gone.set()))
            broker.set_identity("admin", ["admin"])
            broker.add_credential("admin")
            await asyncio.wait_for(gone.wait(), WAIT_S)
            assert {type(each) for each in cut} == {UnavailableError}
            with pytest.raises(UnauthenticatedError):
                authenticator.by_token(None)
            callers.close()

        with_worker(broker, use)


def test_nobody_is_known_before_the_broker_has_told(known: Known, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(served_worker, "News", Silent)
    monkeypatch.setattr(remote_identities, "TOLD_S", 0.1)
    gateway = GatewayFront.start(known.broker, socket_of(known.broker.config.data))
    remote = RemoteBroker(gateway.address, "w", FRONT, "w-1")
    try:
        with pytest.raises(UnavailableError, match="has not told yet"):
            Authenticator(remote).by_token(None)
        with pytest.raises(UnavailableError, match="who its callers may be; allowed: one of this release"):
            asyncio.run(remote.connect(lambda: None))
    finally:
        remote.close()
        gateway.stop()


class Silent:
    """A broker of a release that tells nothing."""

    def __init__(self, *_: Any) -> None:
        self.stop = lambda: None


def test_the_broker_asks_for_the_right_on_what_only_it_can_find(known: Known) -> None:
    mine = known.broker.schedule("orders.a", b"x", delay=60)
    other = known.broker.schedule("secret", b"x", delay=60)

    async def use(remote: RemoteBroker) -> None:
        seen = SeenBroker(remote, Authenticator(remote).by_token(known.billing))

        async def call(operation: Operation[Any]) -> Any:
            return await asyncio.to_thread(seen.call, operation)

        assert await call(ops.Cancel([other.handle])) == [Outcome.UNKNOWN]
        assert (await call(ops.Reschedule.of(other.handle, delay=1))).outcome is Outcome.UNKNOWN
        assert (await call(ops.GetMessage(other.seq, other.due_ms))).num_rows == 0
        assert not (await call(ops.GetHistory(other.handle))).events
        assert (await call(ops.GetHistory(mine.handle))).events
        assert await call(ops.Cancel([mine.handle])) == [Outcome.DONE]
        with pytest.raises(ForbiddenError):
            await call(ops.GetTopic("secret"))
        with pytest.raises(ForbiddenError, match="look on all topics"):  # a front's own check is asked here, before
            await asyncio.to_thread(seen.call_found, ops.GetHistory(other.handle), refuse)

        namesake = Principal("admin", Rights([Grant.parse("produce orders.*")]), "a token of the front's own")
        with pytest.raises(ForbiddenError, match="produce on all topics"):
            await asyncio.to_thread(SeenBroker(remote, namesake).call, ops.Cancel([other.handle]))

    with_worker(known.broker, use)


def refuse(topic: str | None, group: str | None = None) -> None:
    raise ForbiddenError("not here")


def test_a_worker_asks_for_somebody_who_is_known(known: Known) -> None:
    data = known.broker.config.data
    gateway = GatewayFront.start(known.broker, socket_of(data))
    try:
        with RawLink(gateway.address, hello=False) as link:
            link.send(hello(CONTROL, "w", FRONT, ""))
            link.read_until(FrameKind.WELCOME)
            for name, kind, said in (
                ("nobody", FrameKind.REFUSED, b"there is no identity 'nobody'"),
                ("billing", FrameKind.REFUSED, b"billing has not the right"),
                ("admin", FrameKind.RESULT, b"drop"),
            ):
                asked = {"op": "set-topic", "topic": "secret", "late": "drop", "as": name}
                link.send(*frame(FrameKind.CALL, 1, json.dumps(asked).encode()))
                assert said in link.read_until(kind)
    finally:
        gateway.stop()


def test_a_client_asks_for_itself_alone(known: Known) -> None:
    front = LinkFront.start(known.broker, "127.0.0.1:0")
    link = BlockingLink(front.address, {"as": CLIENT, "token": known.billing})
    try:
        with pytest.raises(InvalidArgumentError, match="as"):
            link.ask(FrameKind.CALL, b'{"op": "set-topic", "topic": "secret", "late": "drop", "as": "admin"}')
    finally:
        link.close()
        front.stop()


def test_a_front_that_cannot_ask_is_no_way_around(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A gateway elsewhere is started without the check of tarry serve."""
    monkeypatch.setattr(served_worker, "FRONTS", (replace(front_of(FRONT), asks_callers=False),))
    with Broker.open(Config(data=tmp_path, pipeline="off")) as broker:
        gateway = GatewayFront.start(broker, socket_of(tmp_path))
        try:
            with RawLink(gateway.address) as link:
                broker.set_identity("admin", ["admin"])
                broker.add_credential("admin")
                assert b"cannot ask who its callers are" in link.read_until(FrameKind.REFUSED)
                link.wait_closed()
            with RawLink(gateway.address, hello=False) as link:
                link.send(hello(LINK, "w", FRONT, "w-1"))
                assert b"cannot ask who its callers are" in link.read_until(FrameKind.REFUSED)
                link.wait_closed()
        finally:
            gateway.stop()


def test_the_gateways_port_asks() -> None:
    assert front_of("gateway").asks_callers


def test_what_a_worker_lets_pass_is_owed_in_the_broker(known: Known) -> None:
    known.broker.set_identity("billing", quotas={"messages_per_second": 100, "topics": 1})
    known.broker.schedule("orders.a", b"x", delay=3600)

    async def use(remote: RemoteBroker) -> None:
        principal = Authenticator(remote).by_token(known.billing)
        assert principal.is_bounded
        with pytest.raises(QuotaExceededError, match="topics"):
            principal.charge(1, 0, ("orders.b",))
        account = known.broker.accounts.of("billing")
        account.charge(100, 0, ())
        principal.charge(100, 0, ())
        assert principal.wait_s() == 0  # the worker does not know of others' yet
        deadline_s = asyncio.get_running_loop().time() + WAIT_S
        while account.wait_s() == 0 or principal.wait_s() == 0:
            assert asyncio.get_running_loop().time() < deadline_s
            await asyncio.sleep(0.01)
        with_quotas = remote.identities
        known.broker.set_identity("billing", quotas={})
        await until(remote, lambda: remote.identities is not with_quotas)
        assert not principal.is_bounded

    with_worker(known.broker, use)
