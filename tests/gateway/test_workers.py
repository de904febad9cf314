"""Several workers of one front: a client is treated alike whichever it reaches, and loses nothing when it changes."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

from tarry.base.clock import TestClock as Clock
from tarry.fronts.gateway.front import GatewayFront
from tarry.fronts.gateway.remote.broker import BrokerClock, RemoteBroker
from tarry.fronts.rocketmq.v5 import clients
from tarry.fronts.rocketmq.v5 import peers as colleagues
from tarry.fronts.rocketmq.v5.receiving import INVISIBLE_MS
from tarry.link.frames import LINK, FrameKind, Poll, frame
from tests.gateway.places import GatewayPlace, Worker
from tests.gateway.raw_link import RawLink
from tests.rocketmq.rpc import Code, Rpc, consumer, d, producer, res, s
from tests.rocketmq.test_transactions import COMMIT, HALF
from tests.waiting import wait_until

WAIT_S = 15


@pytest.fixture
def second(place: GatewayPlace) -> Worker:
    """A second worker of the same broker."""
    return place.worker("rocketmq-2")


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who has lost a client notices it soon."""
    monkeypatch.setattr(clients, "LOST_S", 0.3)
    monkeypatch.setattr(clients, "SWEEP_S", 0.02)
    monkeypatch.setattr(colleagues, "_TOPICS_S", 0.0)


def client_of(place: GatewayPlace, worker: Worker, id: str) -> Rpc:
    client = Rpc(worker.front.port, id, shared=False)
    place.clients.append(client)
    return client


def leased(place: GatewayPlace) -> int:
    return place.broker.group_info("orders", "g").leased


def test_what_one_worker_handed_out_another_one_settles(place: GatewayPlace, second: Worker) -> None:
    here, there = place.client("C"), client_of(place, second, "C")
    for _ in range(3):
        here.send("orders")
    first, held, failed = here.receive("orders", "g", push=True)
    assert there.ack("orders", "g", first).status.code == Code.OK
    assert there.ack("orders", "g", first).status.code == Code.INVALID_RECEIPT_HANDLE
    # A push consumer says so when it has failed, and a simple one when it needs more time: the handle tells which.
    assert there.change("orders", "g", failed.system_properties.receipt_handle, 0).status.code == Code.OK
    [again] = there.receive("orders", "g", push=True, wait_s=WAIT_S)
    assert again.system_properties.delivery_attempt == 2
    assert there.ack("orders", "g", again, held).status.code == Code.OK
    wait_until(lambda: place.broker.group_info("orders", "g").lag == 0)


def test_a_simple_consumers_lease_is_changed_by_another_worker(place: GatewayPlace, second: Worker) -> None:
    here, there = place.client("C"), client_of(place, second, "C")
    here.send("orders")
    [got] = here.receive("orders", "g", invisible_ms=INVISIBLE_MS[0])
    changed = there.change("orders", "g", got.system_properties.receipt_handle, 60_000)
    assert changed.status.code == Code.OK
    got.system_properties.receipt_handle = changed.receipt_handle
    assert here.ack("orders", "g", got).status.code == Code.OK


@pytest.mark.usefixtures("quick")
def test_a_client_that_moves_keeps_what_it_holds(place: GatewayPlace, second: Worker) -> None:
    here, there = place.client("C", shared=False), client_of(place, second, "C")
    here.telemetry(consumer("g", "orders")).next()
    here.send("orders")
    [got] = here.receive("orders", "g", push=True)
    there.telemetry(consumer("g", "orders")).next()
    here.close()
    first = place.workers[0].front
    wait_until(lambda: first.figures()["connections"] == 0)
    # Another one vanishes with it, and is with nobody: what that one had comes back, so the worker has looked.
    other = Rpc(first.port, "D", shared=False)
    other.telemetry(consumer("other", "orders")).next()
    assert len(other.receive("orders", "other", push=True)) == 1
    other.close()
    wait_until(lambda: place.broker.group_info("orders", "other").leased == 0)
    assert leased(place) == 1, "it is with the second worker now"
    assert there.ack("orders", "g", got).status.code == Code.OK


@pytest.mark.usefixtures("quick")
def test_goodbye_is_heard_by_all(place: GatewayPlace, second: Worker) -> None:
    here, there = place.client("C"), client_of(place, second, "C")
    here.send("orders")
    assert len(here.receive("orders", "g", push=True)) == 1
    request = s.NotifyClientTerminationRequest(group=res("g"))
    assert there.ask("NotifyClientTermination", request).status.code == Code.OK
    wait_until(lambda: leased(place) == 0)


@pytest.mark.usefixtures("quick")
def test_an_attempt_that_was_answered_in_vain_elsewhere_is_given_back(place: GatewayPlace, second: Worker) -> None:
    here, there = place.client("C"), client_of(place, second, "C")
    here.send("orders")
    assert len(here.receive("orders", "g", push=True, attempt_id="once")) == 1
    [got] = there.receive("orders", "g", push=True, attempt_id="once", wait_s=WAIT_S)
    assert got.system_properties.delivery_attempt == 2


@pytest.mark.rest
@pytest.mark.usefixtures("quick")
def test_the_producer_is_asked_wherever_it_is(serve: Callable[..., GatewayPlace]) -> None:
    place = serve(rocketmq_check_first_ms=500, rocketmq_check_ms=1000)
    second = place.worker("rocketmq-2")
    there = client_of(place, second, "P")
    stream = there.telemetry(producer("orders"))
    stream.next()
    member = place.workers[0].remote.join("rocketmq", lambda _, message: None)
    wait_until(lambda: bool(member.others("topics")))
    asked = []
    for _ in range(3):  # the workers take turns in asking
        sent = there.send("orders", b"?", **HALF)
        command = stream.next(WAIT_S).recover_orphaned_transaction_command
        asked.append(command.transaction_id)
        assert command.message.body == b"?"
        assert there.end("orders", sent, COMMIT) == Code.OK
    assert len(set(asked)) == 3


def test_the_order_of_a_message_group_is_kept(place: GatewayPlace, second: Worker) -> None:
    here, there = place.client(), client_of(place, second, "D")
    fifo = {"message_type": d.MessageType.FIFO, "message_group": "G"}
    for number in range(6):
        (here, there)[number % 2].send("orders", b"%d" % number, **fifo)
    bodies = []
    for number in range(6):
        consumers = (here, there) if number % 2 else (there, here)
        [got] = consumers[0].receive("orders", "g", wait_s=WAIT_S)
        assert consumers[1].receive("orders", "g", wait_s=0) == [], "one at a time"
        assert consumers[1].ack("orders", "g", got).status.code == Code.OK
        bodies.append(got.body)
    assert bodies == [b"%d" % number for number in range(6)]


def test_a_filter_that_one_worker_sets_counts_for_all(place: GatewayPlace, second: Worker) -> None:
    here, there = place.client(), client_of(place, second, "D")
    assert here.receive("orders", "g", wait_s=0, filter="a") == []
    assert there.receive("orders", "g", wait_s=0, filter="b") == []
    known = place.workers[0].remote.find_group("orders", "g")
    wait_until(lambda: known.settings.filter == "b")
    assert here.receive("orders", "g", wait_s=0, filter="a") == []
    assert place.broker.group_info("orders", "g").filter == "a"


def test_a_group_that_is_deleted_is_made_again(place: GatewayPlace, second: Worker) -> None:
    here, there = place.client(), client_of(place, second, "D")
    here.send("orders")
    assert len(here.receive("orders", "g")) == 1
    assert len(there.receive("orders", "g", wait_s=0)) == 0
    place.broker.delete_group("orders", "g")
    wait_until(lambda: len(there.receive("orders", "g", wait_s=0.2)) == 1)


def test_what_a_lost_worker_did_not_take_is_for_others_at_once(place: GatewayPlace) -> None:
    place.client().send("orders")
    with RawLink(place.gateway.address) as link:
        group = link.group("orders", "g")
        link.send(*frame(FrameKind.POLL, 1, Poll(group, 10, 3_600_000, 10).encode()))
        link.read_until(FrameKind.BATCH)
        assert leased(place) == 1
    [again] = place.client().receive("orders", "g", wait_s=WAIT_S)
    assert again.system_properties.delivery_attempt == 2


@pytest.mark.rest
def test_what_a_lost_worker_took_is_its_clients_until_their_leases_end(place: GatewayPlace) -> None:
    place.client().send("orders")
    with RawLink(place.gateway.address) as link:
        group = link.group("orders", "g")
        link.send(*frame(FrameKind.POLL, 1, Poll(group, 10, 2_000, 10).encode()))
        batch = link.read_until(FrameKind.BATCH)
        link.send(*frame(FrameKind.TAKEN, int.from_bytes(batch[:4], "little")))
        link.send(*frame(FrameKind.WITHDRAW, 1))
        assert link.group("orders", "other")  # it was read
    wait_until(lambda: place.broker.status()["gateways"] == [])
    assert leased(place) == 1
    [again] = place.client().receive("orders", "g", wait_s=WAIT_S)
    assert again.system_properties.delivery_attempt == 2


def test_a_worker_whose_broker_stops_knows_it(place: GatewayPlace) -> None:
    [worker] = place.workers
    place.gateway.stop()
    wait_until(lambda: worker.lost)


@pytest.mark.parametrize("raw", [b"\xff" * 9, b"GET / HTTP/1.1\r\n\r\n", b"\0" * 40, b"\2\0\0\0\1\0\0\0\0{}"])
def test_who_is_no_gateway_is_cut_off(place: GatewayPlace, raw: bytes) -> None:
    with RawLink(place.gateway.address, hello=False) as link:
        link.send(raw)
        link.wait_closed()
    assert place.client().send("orders").status.code == Code.OK


def test_broken_frames_harm_nobody_else(place: GatewayPlace) -> None:
    with RawLink(place.gateway.address) as link:
        for kind in (
            FrameKind.SUBMIT,
            FrameKind.SUBMIT_CHECKED,
            FrameKind.SETTLE,
            FrameKind.CALL,
            FrameKind.REPLACE,
            FrameKind.GROUP,
        ):
            for payload in (b"", b"\0" * 64, b"{}", b"[1]", b'{"op":"x"}'):
                link.send(*frame(kind, 7, payload))
                link.read_until(FrameKind.REFUSED)
    assert place.client().send("orders").status.code == Code.OK


def test_a_gateway_by_tcp(serve: Callable[..., GatewayPlace], tmp_path: Path) -> None:
    secret = tmp_path / "gateway.secret"
    secret.write_text("x" * 32)
    place = serve(gateway_secret=str(secret))
    with ExitStack() as stack:
        front = GatewayFront.start(place.broker, "127.0.0.1:0")
        stack.callback(front.stop)
        worker = Worker(front.address, "far", own={"gateway_secret": str(secret)})
        stack.callback(worker.stop)
        client = Rpc(worker.front.port, shared=False)
        stack.callback(client.close)
        assert client.send("orders").status.code == Code.OK
        [got] = client.receive("orders", "g", wait_s=WAIT_S)
        assert client.ack("orders", "g", got).status.code == Code.OK


def test_the_brokers_clock_counts() -> None:
    here, there = Clock(1_000_000), Clock(1_090_000)
    clock = BrokerClock(here)
    clock.measure(there.now_ms)
    assert clock.now_ms() == 1_090_000
    here.advance_ms(500)
    assert clock.now_ms() == 1_090_500
    assert clock.seconds_until(1_091_500) == 1.0

    def slow() -> int:
        here.advance_ms(40)  # the way there; and none back
        return here.now_ms()

    clock.measure(slow)
    assert clock.now_ms() == here.now_ms(), "a difference that may be the way is none"


def test_a_settings_own_files_stay_the_gateways(place: GatewayPlace, tmp_path: Path) -> None:
    remote = RemoteBroker(place.gateway.address, "w", "rocketmq", LINK, {"data": str(tmp_path / "own")})
    assert remote.config.data == tmp_path / "own"
    assert remote.config.delay_ms_max == place.config.delay_ms_max
    remote.close()
