"""Clients that come, go, vanish and come again: what they held is for others, and nobody else notices."""

from __future__ import annotations

import pytest

import grpc
from tarry.fronts.rocketmq import clients as clients_room
from tarry.fronts.rocketmq.routes import QUEUES
from tests.rocketmq.conftest import Place
from tests.rocketmq.rpc import Code, consumer, producer, receive_request, res, s
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
    monkeypatch.setattr(clients_room, "LOST_S", 0.2)
    one, other = place.client(), place.client()
    stream = one.telemetry(consumer("g", "orders"))
    stream.next()
    one.send("orders", b"x")
    assert len(one.receive("orders", "g", push=True)) == 1
    one.close()
    [again] = other.receive("orders", "g", push=True, wait_s=WAIT_S)
    assert again.system_properties.delivery_attempt == 2


def test_a_push_consumers_messages_stay_its_own(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """However long its listener takes: the lease is renewed as long as the client is there."""
    for module in ("clients", "receiving"):
        monkeypatch.setattr(f"tarry.fronts.rocketmq.{module}.LEASE_MS", 600)
    monkeypatch.setattr(clients_room, "SWEEP_S", 0.05)
    place.restart()
    one, other = place.client(), place.client()
    stream = one.telemetry(consumer("g", "orders"))
    stream.next()
    one.send("orders", b"x")
    [got] = one.receive("orders", "g", push=True)
    assert other.receive("orders", "g", push=True, wait_s=2) == []
    assert one.ack("orders", "g", got).status.code == Code.OK
    stream.close()


def test_a_receive_that_is_given_up_takes_nothing_with_it(place: Place) -> None:
    one, other = place.client(), place.client()
    waiting = one.stream("ReceiveMessage", receive_request("orders", "g", wait_s=20, push=True))
    wait_until(lambda: place.waiting("orders") == 1)
    waiting.cancel()
    wait_until(lambda: place.waiting("orders") == 0)
    other.send("orders", b"x")
    [got] = other.receive("orders", "g")
    assert got.system_properties.delivery_attempt == 1


def test_a_slow_reader_who_leaves_in_the_middle(place: Place) -> None:
    """What the peer's window did not take is for others at once; what was on the way comes when its time is up."""
    one, other = place.client(), place.client()
    for _ in range(8):
        one.send("orders", b"x" * (1 << 20))
    call = one.stream("ReceiveMessage", receive_request("orders", "g", most=8, invisible_ms=3_000))
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
    assert rpc.before_the_last("orders", "g", push=True, attempt_id="B") == []


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
    assert rpc.before_the_last("orders", "g", push=True, attempt_id="C", number=1) == []


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


@pytest.mark.parametrize("shared", [True, False], ids=["one-connection", "a-connection-each"])
def test_a_thousand_idle_clients(place: Place, shared: bool) -> None:
    channels = [place.client(shared=shared) for _ in range(1000)]
    waiting = [c.stream("ReceiveMessage", receive_request("orders", "g", wait_s=20)) for c in channels]
    sender = place.client()
    assert sender.send("orders", b"x").status.code == Code.OK
    assert sender.send("other", b"y").status.code == Code.OK
    assert len(sender.receive("other", "g")) == 1
    for call in waiting:
        call.cancel()


def test_a_group_that_is_deleted_and_made_anew(place: Place) -> None:
    rpc = place.client()
    rpc.send("orders", b"1")
    assert len(rpc.receive("orders", "g")) == 1
    waiting = rpc.stream("ReceiveMessage", receive_request("orders", "g", wait_s=20))
    wait_until(lambda: place.waiting("orders") == 1)
    place.broker.delete_group("orders", "g")
    assert [a.status.code for a in waiting if a.HasField("status")] == [Code.MESSAGE_NOT_FOUND]
    assert len(rpc.receive("orders", "g")) == 1, "from the earliest message again"


def test_stopping_lets_who_waits_go(place: Place) -> None:
    rpc = place.client()
    stream = rpc.telemetry(consumer("g", "orders"))
    stream.next()
    waiting = rpc.stream("ReceiveMessage", receive_request("orders", "g", wait_s=20))
    wait_until(lambda: place.waiting("orders") == 1)
    place.front.stop(3600)  # it ends because they leave: nobody is that patient
    assert [a.status.code for a in waiting if a.HasField("status")] == [Code.MESSAGE_NOT_FOUND]
    assert stream.commands.qsize() == 0


def test_who_gives_up_waiting_leaves_the_line(place: Place) -> None:
    """Behind one that waits for long, others come and go; what comes then is for who came first."""
    one, others = place.client(), place.client()
    first = one.stream("ReceiveMessage", receive_request("orders", "g", wait_s=20))
    wait_until(lambda: place.waiting("orders") == 1)
    for _ in range(20):
        assert others.receive("orders", "g", wait_s=0) == []
    wait_until(lambda: place.waiting("orders") == 1)
    others.send("orders", b"x")
    assert [a.message.body for a in first if a.HasField("message")] == [b"x"]


def test_a_client_that_does_not_read_its_commands(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tarry.fronts.rocketmq.telemetry.COMMANDS_MAX", 2)
    rpc = place.client()
    stream = rpc.telemetry(producer("orders"))
    for _ in range(500):
        stream.say(producer("orders"))
    assert rpc.send("orders").status.code == Code.OK
    for _ in range(501):
        assert stream.next().status.code == Code.OK
    stream.close()
