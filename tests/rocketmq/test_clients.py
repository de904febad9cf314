"""Clients that come, go, vanish and come again: what they held is for others, and nobody else notices."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import pytest

from tarry.fronts.rocketmq.front import RocketMQFront
from tarry.fronts.rocketmq.v5 import clients
from tarry.fronts.rocketmq.v5.routes import QUEUES
from tarry.testing import TestBroker, open_broker
from tests.rocketmq.conftest import Place
from tests.rocketmq.rpc import Code, Rpc, consumer, producer, receive_request, res, s
from tests.waiting import wait_until

WAIT_S = 15


def test_a_client_that_says_goodbye_gives_back_what_it_holds(place: Place) -> None:
    one, other = place.client(), place.client()
    one.send("orders", b"x")
    assert len(one.receive("orders", "g", push=True)) == 1
    assert other.receive("orders", "g", push=True, wait_s=0) == []
    request = s.NotifyClientTerminationRequest(group=res("g"))
    assert one.ask("NotifyClientTermination", request).status.code == Code.OK
    [again] = other.receive("orders", "g", push=True, wait_s=WAIT_S)
    assert again.system_properties.delivery_attempt == 2


def test_a_client_that_vanishes_gives_back_what_it_holds(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clients, "LOST_S", 0.2)
    one, other = place.client(), place.client()
    stream = one.telemetry(consumer("g", "orders"))
    stream.next()
    one.send("orders", b"x")
    assert len(one.receive("orders", "g", push=True)) == 1
    one.close()
    [again] = other.receive("orders", "g", push=True, wait_s=WAIT_S)
    assert again.system_properties.delivery_attempt == 2


def test_a_push_consumers_messages_stay_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However long its listener takes: the lease is renewed as long as the client is there. By the broker's clock,
    which the test moves when it sees that the lease was renewed.
    """
    monkeypatch.setattr(clients, "RENEW_S", 0.05)
    monkeypatch.setattr(clients, "SWEEP_S", 0.02)
    with open_broker(tmp_path) as broker, RocketMQFront.start(broker, "127.0.0.1:0") as front:
        one, other = Rpc(front.port), Rpc(front.port)
        stream = one.telemetry(consumer("g", "orders"))
        stream.next()
        one.send("orders", b"x", message_id="M")
        broker.step()
        [got] = one.receive("orders", "g", push=True)
        for _ in range(4):
            broker.advance(clients.LEASE_MS / 2000)
            renewed_ms = broker.clock.now_ms() + clients.LEASE_MS
            wait_until(lambda: leased_until_ms(broker, "M") == renewed_ms)  # noqa: B023  it is called at once
        assert other.receive("orders", "g", push=True, wait_s=0) == []
        assert one.ack("orders", "g", got).status.code == Code.OK
        stream.close()
        one.close()
        other.close()


def leased_until_ms(broker: TestBroker, id: str) -> int | None:
    """Of the message's lease in its only group."""
    [event] = [event for event in broker.history(id, topic="orders").events if event.event == "group"]
    return event.details.get("until_ms")


def test_a_receive_that_is_given_up_takes_nothing_with_it(place: Place) -> None:
    one, other = place.client(), place.client()
    waiting = one.stream("ReceiveMessage", receive_request("orders", "g", wait_s=20, push=True))
    place.wait_for_receives(1)
    waiting.cancel()
    place.wait_for_receives(0)
    other.send("orders", b"x")
    [got] = other.receive("orders", "g")
    assert got.system_properties.delivery_attempt == 1


@pytest.mark.rest
def test_a_slow_reader_who_leaves_in_the_middle(place: Place) -> None:
    """What the peer's window did not take is for others at once; what was on the way comes when its time is up."""
    one, other = place.client(), place.client()
    for _ in range(8):
        one.send("orders", b"x" * (1 << 20))
    call = one.stream("ReceiveMessage", receive_request("orders", "g", most=8, invisible_ms=10_000))
    next(call)  # its status, and no more
    assert one.send("elsewhere").status.code == Code.OK, "others are served meanwhile"
    call.cancel()
    got = other.receive("orders", "g", most=8, wait_s=WAIT_S)
    got += other.receive("orders", "g", most=8, wait_s=WAIT_S) if len(got) < 8 else []
    assert 1 <= len(got) <= 8
    assert place.broker.group_info("orders", "g").lag == 8


def test_the_same_attempt_again_gets_what_the_first_was_given(place: Place) -> None:
    """A push consumer asks again with the same id when it did not get the answer: nobody else would settle that."""
    rpc = place.client()
    rpc.send("orders", b"x")
    [lost] = rpc.receive("orders", "g", push=True, attempt_id="A")
    [again] = rpc.receive("orders", "g", push=True, attempt_id="A")
    assert again.system_properties.message_id == lost.system_properties.message_id
    assert rpc.receive("orders", "g", push=True, attempt_id="B", wait_s=0.2) == []


def test_a_push_consumer_has_several_queues_with_an_attempt_each(place: Place) -> None:
    rpc = place.client()
    queues = rpc.ask("QueryAssignment", s.QueryAssignmentRequest(topic=res("orders"), group=res("g"))).assignments
    assert [each.message_queue.id for each in queues] == list(range(QUEUES))
    rpc.send("orders", b"x")
    [lost] = rpc.receive("orders", "g", push=True, attempt_id="A", number=0)
    rpc.send("orders", b"y")
    [held] = rpc.receive("orders", "g", push=True, attempt_id="B", number=1)
    [again] = rpc.receive("orders", "g", push=True, attempt_id="A", number=0)
    assert again.system_properties.message_id == lost.system_properties.message_id
    assert held.body == b"y"
    assert rpc.receive("orders", "g", push=True, attempt_id="C", number=1, wait_s=0.2) == []


def test_who_sends_no_settings_is_served(place: Place) -> None:
    rpc = place.client()
    assert rpc.ask("Heartbeat", s.HeartbeatRequest(group=res("g"))).status.code == Code.OK
    assert rpc.ask("NotifyClientTermination", s.NotifyClientTerminationRequest()).status.code == Code.OK


def test_settings_that_cannot_be_end_their_stream_alone(place: Place) -> None:
    rpc = place.client()
    good = rpc.telemetry(producer("orders"))
    good.next()
    bad = rpc.telemetry(producer("no topic!"))
    error = bad.next()
    assert isinstance(error, grpc.RpcError)
    assert error.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert "no topic!" in error.details()
    good.say(producer("orders"))
    assert good.next().status.code == Code.OK
    good.close()


@pytest.mark.rest
@pytest.mark.parametrize("shared", [True, False], ids=["one-connection", "a-connection-each"])
def test_a_thousand_idle_clients(place: Place, shared: bool) -> None:
    """They keep nobody from being served, each call within its deadline, while all of them wait."""
    channels = [place.client(shared=shared) for _ in range(1000)]
    waiting = [c.stream("ReceiveMessage", receive_request("orders", "g", wait_s=50), timeout=60) for c in channels]
    place.wait_for_receives(1000)
    sender = place.client()
    assert sender.send("other", b"y").status.code == Code.OK
    assert len(sender.receive("other", "g")) == 1
    assert sender.send("orders", b"x").status.code == Code.OK
    place.wait_for_receives(999)
    for call in waiting:
        call.cancel()


def test_a_group_that_is_deleted_and_made_anew(place: Place) -> None:
    rpc = place.client()
    rpc.send("orders", b"1")
    assert len(rpc.receive("orders", "g")) == 1
    waiting = rpc.stream("ReceiveMessage", receive_request("orders", "g", wait_s=20))
    place.wait_for_receives(1)
    place.broker.delete_group("orders", "g")
    assert [a.status.code for a in waiting if a.HasField("status")] == [Code.MESSAGE_NOT_FOUND]
    assert len(rpc.receive("orders", "g")) == 1, "from the earliest message again"


def test_stopping_lets_who_waits_go(place: Place) -> None:
    """Long before the receive would end by itself, and before the grace is over."""
    rpc = place.client()
    stream = rpc.telemetry(consumer("g", "orders"))
    stream.next()
    waiting = rpc.stream("ReceiveMessage", receive_request("orders", "g", wait_s=50), timeout=60)
    place.wait_for_receives(1)
    with ThreadPoolExecutor(1) as pool:
        pool.submit(place.front.stop, 40).result(WAIT_S)
    assert [a.status.code for a in waiting if a.HasField("status")] == [Code.MESSAGE_NOT_FOUND]
    assert stream.commands.qsize() == 0


def test_who_gives_up_waiting_leaves_the_queue(place: Place) -> None:
    """Behind one that waits for long, others come and go; what comes then is for who came first."""
    one, others = place.client(), place.client()
    first = one.stream("ReceiveMessage", receive_request("orders", "g", wait_s=20))
    place.wait_for_receives(1)
    for _ in range(20):
        assert others.receive("orders", "g", wait_s=0) == []
    place.wait_for_receives(1)
    others.send("orders", b"x")
    assert [a.message.body for a in first if a.HasField("message")] == [b"x"]


def test_a_client_that_does_not_read_its_commands(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clients, "COMMANDS_MAX", 2)
    rpc = place.client()
    stream = rpc.telemetry(producer("orders"))
    for _ in range(500):
        stream.say(producer("orders"))
    assert rpc.send("orders").status.code == Code.OK
    for _ in range(501):
        assert stream.next().status.code == Code.OK
    stream.close()
