"""Quotas on what an identity receives and filters: its account, and each port's words for it."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow.flight as fl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.identity.conftest import Known
from tests.identity.http_place import serving as serving_http
from tests.identity.test_flight import shown, ticket
from tests.identity.test_gateway import with_worker
from tests.identity.test_mqtt import Known as KnownMqtt
from tests.identity.test_rocketmq_classic import Shop as ClassicShop
from tests.identity.test_rocketmq_v5 import Shop as V5Shop
from tests.mqtt.place import PUBLISH, SUBACK, subscribe
from tests.mqtt.place import serving as serving_mqtt
from tests.rocketmq.rpc import Code, RefusedError, res
from tests.rocketmq_place import serving as serving_rocketmq
from tests.waiting import wait_until

from tarry.api.quotas import DELAY_S_MAX, FILTERING, RECEIVING, Quotas
from tarry.base.errors import from_wire
from tarry.broker import Broker
from tarry.client import Client
from tarry.errors import QuotaExceededError
from tarry.fronts.flight.front import FlightFront
from tarry.fronts.gateway.remote.broker import RemoteBroker
from tarry.fronts.kit.receiving import ReceiveQueue, poll_now
from tarry.fronts.link.front import LinkFront
from tarry.fronts.rocketmq.classic.codes import RequestCode, ResponseCode
from tarry.fronts.rocketmq.common.stubs import definition as d
from tarry.fronts.rocketmq.common.stubs import service as s
from tarry.identity.accounts import AccountBook, CountedAccount, Existing
from tarry.identity.authenticator import Authenticator
from tarry.identity.rights import Rights
from tarry.testing import TestClock

TOPIC, GROUP = "orders.a", "billing"
SQL = "sql:p IS NULL"
MESSAGES = {"received_messages_per_second": 1}
FILTERS = {"filter_ms_per_second": 1}
HOUR = 3600.0


# -- the account -------------------------------------------------------------------------------------------------------


class Limited:
    """An account, and a clock that stands."""

    def __init__(self, **limits: int) -> None:
        self.now_s = 0.0
        self.account = CountedAccount("billing", lambda: self.now_s, lambda: Existing({}, frozenset()), None)
        self.account.set(Quotas.of(limits), Rights(()))

    def left_s(self, *, filters: bool = False) -> float:
        held = self.account.held_back(filters=filters)
        return 0.0 if held is None else held.wait_s


def test_what_was_too_much_is_waited_for() -> None:
    limited = Limited(received_messages_per_second=10, received_bytes_per_second=100)
    assert limited.account.receivable(1000) == 10
    limited.account.charge_received(5, 1_000)
    held = limited.account.held_back(filters=False)
    assert held is not None
    assert held.quota == "received_bytes_per_second"
    assert held.wait_s == pytest.approx(9.01)
    limited.now_s += 9.02
    assert limited.left_s() == 0
    assert limited.account.use().delayed_ms == 1000
    assert limited.account.use().used["received_bytes_per_second"] == 98


def test_what_is_owed_is_told() -> None:
    limited = Limited(filter_ms_per_second=50, received_messages_per_second=10)
    limited.account.charge_filter(0.3)
    used = limited.account.use().used
    assert (used["filter_ms_per_second"], used["received_messages_per_second"]) == (300, 0)


def test_the_refusal_names_identity_quota_and_limit() -> None:
    limited = Limited(filter_ms_per_second=50)
    limited.account.charge_filter(0.3)
    assert limited.left_s() == 0
    held = limited.account.held_back(filters=True)
    assert held is not None
    error = limited.account.refusal(held)
    assert str(error).startswith("billing: the quota filter_ms_per_second=50 is used up")
    assert error.retry_after_s == pytest.approx(5.0, abs=0.1)
    assert from_wire("quota_exceeded", str(error)).retryable
    assert limited.account.use().refused == {FILTERING: 1}


def test_a_limit_on_consuming_delays_nothing_that_is_sent_and_the_other_way_round() -> None:
    limited = Limited(received_messages_per_second=1, messages_per_second=1000)
    limited.account.charge_received(100, 0)
    assert limited.account.wait_s() == 0
    limited.account.charge(1, 0, ())
    sender = Limited(messages_per_second=1)
    sender.account.charge(100, 0, ())
    assert not sender.account.limits_consuming
    assert sender.left_s(filters=True) == 0


@given(st.lists(st.tuples(st.integers(1, 100), st.floats(0, 2)), max_size=60))
def test_in_the_long_run_no_more_is_received_than_the_quota(asked: list[tuple[int, float]]) -> None:
    limited = Limited(received_messages_per_second=20)
    received = 0
    for rows_max, pause_s in asked:
        if not limited.left_s():
            count = limited.account.receivable(rows_max)
            limited.account.charge_received(count, 0)
            received += count
        limited.now_s += pause_s
    assert received <= 20 * (limited.now_s + 1)


def test_consumers_that_wait_at_once_are_delayed_once() -> None:
    limited = Limited(received_messages_per_second=10)
    limited.account.charge_received(20, 0)
    for _ in range(5):
        assert limited.left_s() == pytest.approx(1.1)
    limited.now_s += 0.5
    limited.left_s()
    assert limited.account.use().delayed_ms == pytest.approx(1100, abs=1)


def test_what_a_worker_counts_itself_is_told_to_the_broker() -> None:
    told: list[str] = []
    clock = TestClock(0)
    home, worker = AccountBook(clock), AccountBook(clock, told.append)
    limits = {"filter_ms_per_second": 100, "received_messages_per_second": 10}
    for book in (home, worker):
        book.of("billing").set(Quotas.of(limits), Rights(()))
    here, there = worker.of("billing"), home.of("billing")
    here.charge_filter(0.15)
    here.charge_received(4, 1_000)
    assert told == ["billing"]
    spent = json.loads(json.dumps(here.take_spent()))
    assert spent == {FILTERING: 150.0, RECEIVING[0]: 4}
    assert there.charge_elsewhere(spent) == {FILTERING: -50.0, RECEIVING[0]: 6.0}
    assert there.held_back(filters=True) is not None


# -- each port ---------------------------------------------------------------------------------------------------------


class Used:
    """What an identity has used up, and what is ready for it."""

    def __init__(self, broker: Broker, identity: str, topic: str, group: str) -> None:
        self.broker, self.identity = broker, identity
        self._topic, self._group = topic, group
        broker.set_group(topic, group)
        for number in range(3):
            broker.schedule(topic, b"x", id=str(number))
        wait_until(lambda: broker.group_info(topic, group).ready == 3)

    @property
    def account(self) -> Any:
        return self.broker.accounts.of(self.identity)

    def messages(self) -> None:
        """It has received for an hour ahead."""
        self.broker.set_identity(self.identity, quotas=MESSAGES)
        self.account.charge_received(int(HOUR), 0)

    def filters(self) -> None:
        """Its group has a condition, for which an hour's CPU time was taken ahead."""
        self.broker.set_group(self._topic, self._group, filter=SQL)
        self.broker.set_identity(self.identity, quotas=FILTERS)
        self.account.charge_filter(HOUR / 1000)

    def nothing(self) -> None:
        self.broker.set_identity(self.identity, quotas={})

    def assert_nothing_was_lost(self) -> None:
        info = self.broker.group_info(self._topic, self._group)
        assert (info.ready, info.leased) == (3, 0)


@pytest.fixture
def used(known: Known) -> Used:
    return Used(known.broker, "billing", TOPIC, GROUP)


def test_in_the_broker(known: Known, used: Used) -> None:
    used.messages()
    consumer = known.broker.group(TOPIC, GROUP).subscribe(prefetch=10, lease_ms=20_000, account=used.account)
    with pytest.raises(QuotaExceededError, match="received_messages_per_second=1 is used up"):
        consumer.fetch(10, 0)
    used.assert_nothing_was_lost()
    used.nothing()
    assert consumer.fetch(10, 0).num_rows == 3


def test_by_the_link(known: Known, used: Used) -> None:
    front = LinkFront.start(known.broker, "127.0.0.1:0")
    with Client(front.address, token=known.billing) as client:
        used.messages()
        with pytest.raises(QuotaExceededError, match="received_messages_per_second"):
            client.receive(TOPIC, group=GROUP)
        began_s = time.monotonic()
        assert len(client.receive(TOPIC, group=GROUP, wait=1.5)) == 0
        assert time.monotonic() - began_s >= 1.5
        used.filters()
        with pytest.raises(QuotaExceededError, match="filter_ms_per_second=1 is used up"):
            client.receive(TOPIC, group=GROUP, wait=30)
        used.assert_nothing_was_lost()
        # A consumer is not refused: it gets its messages later.
        with client.consume(TOPIC, group=GROUP, timeout=30) as consumer:
            threading.Timer(1.5 * DELAY_S_MAX, used.nothing).start()
            assert next(iter(consumer)).attempt == 1
    front.stop(0.2)


@pytest.mark.rest
def test_by_flight(known: Known, used: Used) -> None:
    front = FlightFront.start(known.broker, "127.0.0.1:0")

    def receive(**more: Any) -> int:
        asked = ticket(op="receive", topic=TOPIC, group=GROUP, max_messages=10, **more)
        return int(client.do_get(asked, shown(known.billing)).read_all().num_rows)

    with fl.FlightClient(f"grpc://{front.address}") as client:
        used.messages()
        with pytest.raises(fl.FlightError, match="received_messages_per_second"):
            receive()
        assert receive(wait_ms=1200) == 0
        used.filters()
        with pytest.raises(fl.FlightError, match="filter_ms_per_second"):
            receive(wait_ms=30_000)
        used.assert_nothing_was_lost()
        used.nothing()
        assert receive() == 3
    front.stop()


def test_by_http(known: Known, used: Used) -> None:
    with serving_http(known.broker) as place:
        path = f"/v1/topics/{TOPIC}/groups/{GROUP}/receive"
        used.messages()
        answer = place.ask("POST", path, known.billing)
        assert answer.status_code == 429
        assert answer.json()["error"] == "quota_exceeded"
        assert int(answer.headers["retry-after"]) > 3000
        answer = place.ask("POST", path, known.billing, params={"wait_ms": "1200"})
        assert (answer.status_code, answer.json()["messages"]) == (200, [])
        used.filters()
        answer = place.ask("POST", path, known.billing, params={"wait_ms": "30000"})
        assert answer.status_code == 429
        assert "filter_ms_per_second=1" in answer.text
        used.assert_nothing_was_lost()


def test_an_event_stream_goes_on(known: Known, used: Used) -> None:
    with serving_http(known.broker) as place:
        used.filters()
        path, token = f"/v1/topics/{TOPIC}/groups/{GROUP}/events", {"authorization": f"Bearer {known.billing}"}
        with place.http.stream("GET", path, headers=token) as stream:
            lines = stream.iter_lines()
            assert "begins" in next(line for line in lines if line.startswith(":"))
            threading.Timer(1.5 * DELAY_S_MAX, used.nothing).start()
            assert next(line for line in lines if line.startswith("event")) == "event: message"


@pytest.mark.rest
def test_by_lmstfy(known: Known) -> None:
    known.broker.set_identity("billing", ["produce ns/*", "consume ns/*"])
    used = Used(known.broker, "billing", "ns/q", "lmstfy")
    with serving_http(known.broker) as place:

        def get(timeout_s: int) -> Any:
            return place.ask("GET", "/api/ns/q", headers={"x-token": known.billing}, params={"timeout": timeout_s})

        used.messages()
        for _ in range(2):  # the second finds the queue known
            answer = get(0)
            assert answer.status_code == 429, answer.text
            assert "received_messages_per_second=1" in answer.text
        assert get(2).status_code == 404
        used.filters()
        assert get(30).status_code == 429
        used.assert_nothing_was_lost()
        used.nothing()
        assert get(10).status_code == 200


@pytest.mark.rest
def test_by_rocketmq_v5(tmp_path: Path) -> None:
    with serving_rocketmq(V5Shop, tmp_path) as start:
        shop = start()
        shop.make_identities()
        used = Used(shop.broker, "shop", "orders.new", "billing")
        rpc = shop.as_("shop")
        used.messages()
        with pytest.raises(RefusedError, match="received_messages_per_second") as refused:
            rpc.receive("orders.new", "billing", wait_s=0)
        assert refused.value.code == Code.TOO_MANY_REQUESTS
        assert rpc.receive("orders.new", "billing", wait_s=1.2) == []
        used.assert_nothing_was_lost()
        used.nothing()
        assert len(rpc.receive("orders.new", "billing", wait_s=10)) == 3


def test_filters_by_rocketmq_v5(tmp_path: Path) -> None:
    with serving_rocketmq(V5Shop, tmp_path) as start:
        shop = start()
        shop.make_identities()
        used = Used(shop.broker, "shop", "orders.new", "billing")
        used.filters()
        with pytest.raises(RefusedError, match="filter_ms_per_second=1") as refused:
            shop.as_("shop").receive("orders.new", "billing", wait_s=20, sql=SQL.removeprefix("sql:"))
        assert refused.value.code == Code.TOO_MANY_REQUESTS
        used.assert_nothing_was_lost()


@pytest.mark.rest
def test_pulls_by_rocketmq_v5(tmp_path: Path) -> None:
    with serving_rocketmq(V5Shop, tmp_path) as start:
        shop = start()
        shop.make_identities()
        used = Used(shop.broker, "shop", "orders.new", "billing")
        queue = d.MessageQueue(topic=res("orders.new"))
        request = s.PullMessageRequest(group=res("billing"), message_queue=queue, offset=0, batch_size=2)
        request.long_polling_timeout.FromMilliseconds(1200)
        request.filter_expression.CopyFrom(d.FilterExpression(type=d.FilterType.TAG, expression="*"))

        def pull() -> list[Any]:
            return list(shop.as_("shop").stream("PullMessage", request))

        used.messages()
        [refused] = pull()
        assert refused.status.code == Code.TOO_MANY_REQUESTS
        assert "received_messages_per_second=1" in refused.status.message
        shop.broker.set_identity("shop", quotas={"received_messages_per_second": 2})
        assert [answer.HasField("message") for answer in pull()] == [False, True, True, False]
        assert used.account.use().used["received_messages_per_second"] >= 1


@pytest.mark.rest
def test_by_classic_rocketmq(tmp_path: Path) -> None:
    with serving_rocketmq(ClassicShop, tmp_path) as start:
        shop = start(remoting_queues=1)
        shop.make_identities()
        used = Used(shop.broker, "shop", "orders.new", "billing")
        mine = shop.as_("shop")
        mine.heartbeat("c1", "billing", "orders.new")
        used.messages()
        for wait_s in (0, 1.2):
            answer = mine.pull("orders.new", "billing", 0, wait_s)
            assert answer.code == ResponseCode.SYSTEM_BUSY
            assert "received_messages_per_second=1" in answer.remark
        pop = {
            "topic": "orders.new", "consumerGroup": "billing", "queueId": -1, "maxMsgNums": 32, "bornTime": 0,
            "invisibleTime": 60_000, "initMode": 0, "exp": "*", "expType": "TAG",
        }  # fmt: skip
        answer = mine.ask(RequestCode.POP_MESSAGE, pop | {"pollTime": 0})
        assert answer.code == ResponseCode.SYSTEM_BUSY
        assert mine.ask(RequestCode.POP_MESSAGE, pop | {"pollTime": 1200}).code == ResponseCode.POLLING_TIMEOUT
        used.assert_nothing_was_lost()
        used.filters()
        condition = {"subscription": SQL.removeprefix("sql:"), "expressionType": "SQL92"}
        answer = mine.pull("orders.new", "billing", 0, 0, **condition)
        assert answer.code == ResponseCode.SYSTEM_BUSY
        assert "filter_ms_per_second=1" in answer.remark
        used.nothing()
        assert len(mine.pull_until(3, "orders.new", "billing")) == 3


def test_a_classic_pull_is_charged(tmp_path: Path) -> None:
    with serving_rocketmq(ClassicShop, tmp_path) as start:
        shop = start(remoting_queues=1)
        shop.make_identities()
        used = Used(shop.broker, "shop", "orders.new", "billing")
        shop.broker.set_identity("shop", quotas={"received_messages_per_second": 1})
        mine = shop.as_("shop")
        mine.heartbeat("c1", "billing", "orders.new")
        began_s = time.monotonic()
        assert len(mine.pull_until(3, "orders.new", "billing")) == 3
        assert time.monotonic() - began_s >= 0.9
        assert used.account.use().delayed_ms > 0


def test_by_mqtt(tmp_path: Path) -> None:
    with serving_mqtt(tmp_path) as mqtt:
        known = KnownMqtt(mqtt)
        used = Used(known.broker, "shop", "orders/new", "shop")
        used.filters()
        with known.raw("shop") as raw:
            raw.send(subscribe("$share/shop/orders/new"))
            assert raw.expect(SUBACK)[-1] == 1
            threading.Timer(1.5 * DELAY_S_MAX, used.nothing).start()
            raw.expect(PUBLISH)
        assert used.account.use().delayed_ms >= 1000
        used.messages()


def test_by_a_worker(known: Known, used: Used) -> None:
    """The broker counts what its workers hand out, and evaluates their filters."""

    async def use(remote: RemoteBroker) -> None:

        loop = asyncio.get_running_loop()
        account = Authenticator(remote).by_token(known.billing).account
        group = await loop.run_in_executor(None, remote.group, TOPIC, GROUP)
        consumer = group.subscribe(prefetch=10, lease_ms=20_000, account=account)
        used.messages()
        with pytest.raises(QuotaExceededError, match="received_messages_per_second"):
            await poll_now(loop, consumer, 10, 5.0)
        used.filters()
        queue = ReceiveQueue(loop, group)
        with pytest.raises(QuotaExceededError, match="filter_ms_per_second"):
            await queue.receive(consumer, 10)
        # Another identity's receive, behind one that gets nothing, is served.
        used.messages()
        held = queue.receive(group.subscribe(prefetch=10, lease_ms=20_000, account=account), 10)
        batch = await asyncio.wait_for(queue.receive(group.subscribe(prefetch=10, lease_ms=20_000), 10), 20)
        assert batch is not None
        assert batch.num_rows == 3
        assert not held.done()
        held.cancel()
        queue.close()

    with_worker(known.broker, use)


@pytest.mark.rest
def test_a_consumer_is_slowed_down_to_its_rate_and_another_is_not(known: Known) -> None:
    front = LinkFront.start(known.broker, "127.0.0.1:0")
    known.broker.set_identity("billing", quotas={"received_messages_per_second": 5})
    known.broker.set_identity("other", ["consume stock.*", "produce stock.*"])
    other = known.broker.add_credential("other").secret
    for topic in (TOPIC, "stock.a"):
        for number in range(20):
            known.broker.schedule(topic, b"x", id=str(number))

    def consumed(token: str, topic: str) -> tuple[set[str], float]:
        began_s = time.monotonic()
        with (
            Client(front.address, token=token) as client,
            client.consume(topic, group=GROUP, timeout=30, auto_ack=True) as consumer,
        ):
            found = [message.id for message in islice(consumer, 20)]
        assert len(found) == len(set(found)), "no message came twice"
        return set(found), time.monotonic() - began_s

    slow, slow_s = consumed(known.billing, TOPIC)
    quick, _ = consumed(other, "stock.a")
    front.stop(0.2)
    assert slow == quick == {str(number) for number in range(20)}
    assert slow_s >= (20 - 5 - 2) / 5
    [use] = known.broker.get_quota_use("billing")
    assert use.refused == {}
    assert use.delayed_ms > 0
