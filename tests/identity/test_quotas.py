"""Quotas of identities: what delays, what is refused and how each port says it, what is counted, and for whom."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Mapping
from pathlib import Path

import pyarrow.flight as fl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.identity.conftest import Known
from tests.identity.http_place import serving as serving_http
from tests.identity.test_flight import SCHEDULE, SCHEMA, batch, shown
from tests.identity.test_mqtt import Known as KnownMqtt
from tests.identity.test_rocketmq_classic import Shop as ClassicShop
from tests.identity.test_rocketmq_v5 import Shop as V5Shop
from tests.mqtt.place import PUBACK, publish
from tests.mqtt.place import serving as serving_mqtt
from tests.rocketmq.rpc import Code
from tests.rocketmq_place import serving as serving_rocketmq

from tarry.api.identities import Identity
from tarry.api.quotas import DELAY_S_MAX, QUOTAS, Quotas
from tarry.api.wire import decode_answer
from tarry.base.errors import from_wire
from tarry.cli.main import run
from tarry.client import Client
from tarry.errors import InvalidArgumentError, QuotaExceededError
from tarry.fronts.flight.front import FlightFront
from tarry.fronts.link.front import LinkFront
from tarry.fronts.mqtt.reasons import Reason
from tarry.fronts.rocketmq.classic.codes import ResponseCode
from tarry.identity.accounts import AccountBook, CountedAccount, Existing
from tarry.identity.principal import Principal
from tarry.identity.rights import Rights
from tarry.identity.seen import SeenBroker
from tarry.testing import TestClock

TOPIC = "orders.a"


class Counted:
    """An account, a clock that stands, and what is there."""

    def __init__(self, grants: list[str] | None = None, **limits: int) -> None:
        self.now_s = 0.0
        self.pending: dict[str, int] = {}
        self.groups: set[tuple[str, str]] = set()
        self.account = CountedAccount("billing", lambda: self.now_s, self._existing, None)
        self.account.set(Quotas.of(limits), Rights.of(grants or ["produce orders.*", "consume orders.*"]))

    def _existing(self) -> Existing:
        return Existing(self.pending, frozenset(self.groups))

    def send(self, messages: int = 1, size: int = 0, topic: str = TOPIC) -> float:
        """Send as a front does; the seconds that it waited."""
        wait_s = self.account.wait_s()
        self.now_s += wait_s
        self.account.charge(messages, size, (topic,))
        return wait_s


# -- rates -------------------------------------------------------------------------------------------------------------


def test_one_after_the_other_is_slowed_down_and_never_refused() -> None:
    counted = Counted(messages_per_second=10)
    waits = [counted.send() for _ in range(200)]
    assert not any(waits[:10])
    assert counted.now_s == pytest.approx((200 - 10 - 1) / 10, abs=0.2)


def test_more_than_a_second_ahead_is_refused_with_the_time_to_come_again() -> None:
    counted = Counted(messages_per_second=100)
    counted.send(100)
    counted.account.charge(100, 0, ())
    counted.account.charge(1, 0, ())
    with pytest.raises(
        QuotaExceededError, match=r"billing: the quota messages_per_second=100 is used up; try again in 1\.0 s"
    ) as e:
        counted.account.charge(1, 0, ())
    assert e.value.retry_after_s == 1.0
    assert from_wire("quota_exceeded", str(e.value)).retryable
    counted.now_s += 3
    counted.send(100)


def test_of_many_at_once_none_is_refused_before_it_has_waited_for_a_second() -> None:
    """They all see the same little debt, and then take more than a second's worth from each other."""

    async def use() -> list[float]:
        loop = asyncio.get_running_loop()
        account = CountedAccount("billing", loop.time, lambda: Existing({}, frozenset()), None)
        account.set(Quotas.of({"messages_per_second": 5}), Rights(()))
        principal = Principal("billing", Rights(()), "id", account)
        refused_s: list[float] = []

        async def send() -> None:
            began_s = loop.time()
            await principal.in_turn()
            try:
                principal.charge(1, 0, ())
            except QuotaExceededError:
                refused_s.append(loop.time() - began_s)

        await asyncio.gather(*(send() for _ in range(40)))
        return refused_s

    refused_s = asyncio.run(use())
    assert 20 < len(refused_s) < 30
    assert min(refused_s) >= DELAY_S_MAX - 0.01


def test_a_large_batch_is_taken_whole_and_paid_for_afterwards() -> None:
    counted = Counted(bytes_per_second=1_000)
    counted.send(1, 1_000)
    counted.send(1, 10_000)
    with pytest.raises(QuotaExceededError, match="bytes_per_second"):
        counted.send()
    counted.now_s += 10
    counted.send()


@given(st.lists(st.tuples(st.integers(1, 50), st.integers(0, 500), st.floats(0, 2)), max_size=40))
def test_in_the_long_run_no_more_is_let_pass_than_the_quota(sent: list[tuple[int, int, float]]) -> None:
    counted = Counted(messages_per_second=20, bytes_per_second=100)
    messages = size = 0
    for count, bytes_, pause_s in sent:
        try:
            counted.send(count, bytes_)
        except QuotaExceededError:
            continue
        else:
            messages, size = messages + count, size + bytes_
        finally:
            counted.now_s += pause_s
    # What is saved up for a second, what may be owed, and one batch.
    assert messages <= 20 * (counted.now_s + 1 + DELAY_S_MAX) + 50
    assert size <= 100 * (counted.now_s + 1 + DELAY_S_MAX) + 500


def test_a_clock_that_is_set_back_gives_nothing_and_takes_nothing() -> None:
    counted = Counted(messages_per_second=10)
    counted.send(10)
    counted.now_s -= 3600
    assert counted.account.wait_s() == 0
    counted.send(10)
    assert counted.account.wait_s() == pytest.approx(1.0)


# -- what is there -----------------------------------------------------------------------------------------------------


def test_pending_is_counted_in_the_topics_to_which_it_may_produce() -> None:
    counted = Counted(pending=10)
    counted.pending = {TOPIC: 6, "stock": 100}
    counted.send(4)
    with pytest.raises(QuotaExceededError, match=r"1 more beside 10 pending messages; the quota is 10 \(pending\)"):
        counted.send()
    counted.pending, counted.now_s = {TOPIC: 9}, counted.now_s + 1
    counted.send()


def test_topics_groups_and_how_many_are_made_in_a_minute() -> None:
    counted = Counted(topics=2, groups=1, creations_per_minute=2)
    counted.pending = {"orders.old": 0, "stock": 0}
    counted.send(topic="orders.old")
    counted.send(topic="orders.new")
    counted.send(topic="orders.new")
    with pytest.raises(QuotaExceededError, match=r"the quota is 2 \(topics"):
        counted.send(topic="orders.newer")
    counted.account.check_group(TOPIC, "g")
    counted.account.check_group(TOPIC, "g")
    with pytest.raises(QuotaExceededError, match=r"the quota is 1 \(groups"):
        counted.account.check_group(TOPIC, "h")
    counted.account.set(Quotas.of({"creations_per_minute": 2}), Rights.of(["consume orders.*"]))
    for name in ("h", "i"):
        counted.account.check_group(TOPIC, name)
    with pytest.raises(QuotaExceededError, match=r"creations_per_minute=2, 0 are left.*again in 30\.0 s"):
        counted.account.check_group(TOPIC, "j")
    counted.now_s += 30
    counted.account.check_group(TOPIC, "j")


def test_connections_and_bytes_on_their_way() -> None:
    account = Counted(connections=1).account
    account.begin_connection()
    with pytest.raises(QuotaExceededError, match="connections"):
        account.begin_connection()
    account.end_connection()
    account.begin_connection()
    account.begin_batch(1_000, 100)  # one alone may be larger
    with pytest.raises(QuotaExceededError, match="allowed: 100"):
        account.begin_batch(1, 100)
    account.end_batch(1_000)
    account.begin_batch(1, 100)
    used = account.use()
    assert used.used == {"connections": 1, "inflight_bytes": 1, "pending": 0, "topics": 0, "groups": 0}
    assert used.refused == {"connections": 1, "inflight_bytes": 1}


def test_a_change_of_quotas_holds_at_once_and_another_leaves_no_trace() -> None:
    counted = Counted(messages_per_second=1)
    counted.account.set(Quotas(), Rights.of(["produce orders.*"]))
    assert not counted.account.is_bounded
    counted.send(1_000)
    assert counted.account.use().quotas == {}


@pytest.mark.parametrize(
    ("limits", "why"),
    [({"messages": 1}, "allowed: messages_per_second, "), ({"pending": 0}, "1 to"), ({"pending": True}, "1 to")],
)
def test_what_is_no_quota_is_refused(known: Known, limits: dict[str, int], why: str) -> None:
    with pytest.raises(InvalidArgumentError, match=why):
        known.broker.set_identity("billing", quotas=limits)
    assert known.broker.list_identities()[1].quotas == {}


def test_quotas_outlive_a_restart_and_are_told(tmp_path: Path, known: Known) -> None:
    known.broker.set_identity("billing", quotas=dict.fromkeys(QUOTAS, 7))
    known.broker.set_identity("billing", description="the shop's")
    [_, billing] = known.broker.list_identities()
    assert billing.quotas == dict.fromkeys(QUOTAS, 7)
    [use] = known.broker.get_quota_use("billing")
    assert use.quotas == billing.quotas
    known.broker.set_identity("billing", quotas={})
    assert [each.quotas for each in known.broker.get_quota_use()] == [{}, {}]


# -- several processes -------------------------------------------------------------------------------------------------


def test_the_commands_show_quotas(
    known: Known, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TARRY_TOKEN", known.admin)
    front = LinkFront.start(known.broker, "127.0.0.1:0")
    place, said = ["--endpoint", front.address], "messages_per_second=5, pending=9"
    try:
        assert run(["identity", "set", "billing", "-q", "messages_per_second=5", "-q", "pending=9", *place]) == 0
        assert f"; quotas: {said}\n" in capsys.readouterr().out
        assert run(["identity", "show", "billing", *place]) == 0
        assert f"; quotas: {said}\n" in capsys.readouterr().err
        assert run(["identity", "list", *place]) == 0
        assert said in capsys.readouterr().out
        monkeypatch.setenv("TARRY_TOKEN", known.billing)
        assert run(["whoami", *place]) == 0
        assert f"; quotas: {said}\n" in capsys.readouterr().out
    finally:
        front.stop()


def test_what_a_worker_lets_pass_counts_for_all() -> None:
    spent: list[str] = []
    clock = TestClock(0)
    home, worker = AccountBook(clock), AccountBook(clock, spent.append)
    identities = [_identity({"messages_per_second": 100})]
    for book in (home, worker):
        book.update(identities)
    there, here = home.of("billing"), worker.of("billing")
    here.charge(60, 0, ())
    here.charge(40, 0, ())
    assert spent == ["billing"]
    there.charge(100, 0, ())
    left = there.charge_elsewhere(here.take_spent())
    here.charge(5, 0, ())  # while the broker is asked
    here.take_over(left)
    assert left == {"messages_per_second": -100}
    assert here.wait_s() == 1.0
    with pytest.raises(QuotaExceededError):
        here.charge(1, 0, ())
    assert here.take_spent() == {"messages_per_second": 5}
    clock.advance_ms(2_100)
    here.charge(1, 0, ())


def test_a_deleted_identity_is_forgotten() -> None:
    book = AccountBook(TestClock(0))
    book.update([_identity({"pending": 1})])
    account = book.of("billing")
    book.update([])
    assert book.of("billing") is not account


def _identity(quotas: Mapping[str, int]) -> Identity:
    return Identity("billing", ["produce orders.*"], "", 0, [], dict(quotas))


# -- each port says it in its own words --------------------------------------------------------------------------------


@pytest.fixture
def full(known: Known) -> Known:
    """``billing`` may have one pending message, and has it."""
    known.broker.set_identity("billing", quotas={"pending": 1})
    known.broker.schedule(TOPIC, b"x", delay=3600)
    return known


def test_in_the_broker(full: Known) -> None:
    account = full.broker.accounts.of("billing")
    seen = SeenBroker(full.broker, Principal("billing", Rights.of(["produce orders.*"]), "id", account))
    with pytest.raises(QuotaExceededError):
        seen.submit(batch(TOPIC), lambda _: None)
    assert account.use().used["inflight_bytes"] == 0


@pytest.mark.rest  # seconds of a client that connects again
def test_by_the_link(full: Known) -> None:
    front = LinkFront.start(full.broker, "127.0.0.1:0")
    with Client(front.address, token=full.billing, timeout=5) as client:
        with pytest.raises(QuotaExceededError, match="the quota is 1"):
            client.schedule(TOPIC, b"x", delay=1)
        with pytest.raises(QuotaExceededError, match="the quota is 1"):
            client.schedule_many([{"topic": TOPIC, "body": b"x", "delay": 1}])
        assert client.whoami().quotas == {"pending": 1}
        full.broker.set_identity("billing", quotas={"connections": 1})
        another = Client(front.address, token=full.billing, timeout=5)
        with another, pytest.raises(QuotaExceededError, match="connections"):
            another.ping()
        client.ping()
    front.stop(0.2)


def test_by_flight(full: Known) -> None:
    front = FlightFront.start(full.broker, "127.0.0.1:0")
    with fl.FlightClient(f"grpc://{front.address}") as client:
        writer, reader = client.do_put(SCHEDULE, SCHEMA, shown(full.billing))
        writer.write_batch(batch(TOPIC))
        answer = decode_answer(reader.read().to_pybytes())
        writer.close()
    front.stop()
    assert isinstance(answer, QuotaExceededError)


@pytest.mark.rest
def test_by_http(full: Known) -> None:
    with serving_http(full.broker) as place:
        answer = place.ask("POST", f"/v1/topics/{TOPIC}/messages", full.billing, params={"delay": "1h"}, content=b"x")
        assert answer.status_code == 429
        assert answer.json()["error"] == "quota_exceeded"
        assert answer.headers["retry-after"] == "1"
        lines = place.ask(
            "POST",
            f"/v1/topics/{TOPIC}/batch",
            full.billing,
            content=b'{"body":"x","delay":"1h"}\n',
            headers={"content-type": "application/x-ndjson"},
        )
        assert "quota" in lines.text
        full.broker.set_identity("billing", ["produce ns/*", "consume ns/*"])
        jobs = [
            place.ask("PUT", "/api/ns/q", headers={"x-token": full.billing}, content=b"x", params={"delay": "60"})
            for _ in range(2)
        ]
        assert [job.status_code for job in jobs] == [201, 429]
        assert "quota" in jobs[1].text


def test_by_rocketmq_v5(tmp_path: Path) -> None:
    with serving_rocketmq(V5Shop, tmp_path) as start:
        shop = start()
        shop.make_identities()
        shop.broker.set_identity("shop", quotas={"pending": 1})
        shop.broker.schedule("orders.new", b"x", delay=3600)
        assert shop.as_("shop").send("orders.new").status.code == Code.TOO_MANY_REQUESTS


def test_by_classic_rocketmq(tmp_path: Path) -> None:
    with serving_rocketmq(ClassicShop, tmp_path) as start:
        shop = start(remoting_queues=1)
        shop.make_identities()
        shop.broker.set_identity("shop", quotas={"pending": 1})
        shop.broker.schedule("orders.new", b"x", delay=3600)
        answer = shop.as_("shop").send("orders.new", b"x")
        assert answer.code == ResponseCode.SYSTEM_BUSY
        assert "quota" in answer.remark


def test_by_mqtt(tmp_path: Path) -> None:
    with serving_mqtt(tmp_path) as mqtt:
        known = KnownMqtt(mqtt)
        known.broker.set_identity("shop", quotas={"pending": 1})
        known.broker.schedule("orders/new", b"x", delay=3600)
        with known.raw("shop") as raw:
            raw.send(publish("orders/new", packet_id=1))
            assert raw.expect(PUBACK)[2] == Reason.QUOTA_EXCEEDED


# -- rates by real clients ---------------------------------------------------------------------------------------------


@pytest.mark.rest
def test_a_client_is_slowed_down_to_its_rate_and_another_is_not(known: Known) -> None:
    front = LinkFront.start(known.broker, "127.0.0.1:0")
    # So few that a slow machine's own pace, a send in half a second, is still above it.
    known.broker.set_identity("billing", quotas={"messages_per_second": 2})
    known.broker.set_identity("other", ["produce stock.*"])
    other = known.broker.add_credential("other").secret
    with Client(front.address, token=known.billing) as slow, Client(front.address, token=other) as quick:
        began_s = time.monotonic()
        beside = threading.Thread(target=lambda: [slow.schedule(TOPIC, b"x", delay=60) for _ in range(4)])
        beside.start()
        for _ in range(100):
            quick.schedule("stock.a", b"x", delay=60)
        for _ in range(6):
            slow.schedule(TOPIC, b"x", delay=60)
        beside.join()
        assert time.monotonic() - began_s >= (10 - 2 - 2) / 2
    front.stop(0.2)
    [use] = known.broker.get_quota_use("billing")
    assert use.refused == {}
    assert use.delayed_ms > 0
