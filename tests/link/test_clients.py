"""Clients of the link: scheduling, consuming, settling and calls, and what ends a connection or does not."""

from __future__ import annotations

import asyncio
import json
import socket
import struct
import threading
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from loopgrpc import UnreadBytes
from tarry.base.errors import NotFoundError, OwnershipLostError
from tarry.broker import Broker
from tarry.fronts.link.client import CONSUMERS_MAX
from tarry.fronts.link.flow import CALLS_MAX, QUESTIONS_MAX
from tarry.fronts.link.front import LinkFront
from tarry.fronts.link.groups import GroupTable
from tarry.link.frames import HEAD, FrameKind, Pairs, Poll, SettleFrame, SettleOp
from tests.link.conftest import Connect
from tests.link.raw_client import HELLO, RawClient, RefusedError, stream_of
from tests.waiting import wait_until


def send_now(client: RawClient, *bodies: bytes, topic: str = "a") -> int:
    return client.schedule(topic=[topic] * len(bodies), body=list(bodies), delay_ms=[0] * len(bodies))


def test_a_message_is_scheduled_handed_out_and_settled(connect: Connect, broker: Broker) -> None:
    client = connect()
    assert client.welcome["version"] == 1
    group = client.group("a", "g")
    due_ms = broker.clock.now_ms() + 300
    client.poll(1, group)
    client.schedule(topic=["a"], body=[b"later"], due_ms=[due_ms], key=["k"])
    batch = client.batch(1)
    assert broker.clock.now_ms() >= due_ms
    assert (batch["body"].to_pylist(), batch["key"].to_pylist(), batch["attempt"].to_pylist()) == (
        [b"later"],
        ["k"],
        [1],
    )
    assert client.settle(SettleOp.ACK, group, batch) == b""
    assert client.call("group-info", topic="a", group="g")["lag"] == 0


def test_all_of_a_batch_is_accepted_or_none(connect: Connect) -> None:
    client = connect()
    with pytest.raises(RefusedError, match="row 1"):
        client.schedule(topic=["a", ""], body=[b"", b""], delay_ms=[0, 0])
    with pytest.raises(RefusedError, match="invalid_message"):
        client.schedule(topic=["tarry.own"], body=[b""], delay_ms=[0])
    group = client.group("a", "g")
    client.poll(1, group)
    send_now(client, b"the only one")
    assert client.batch(1)["body"].to_pylist() == [b"the only one"]


def test_batches_are_accepted_in_the_order_in_which_they_were_sent(connect: Connect) -> None:
    """Large ones are read in a thread, and small ones do not overtake them."""
    client = connect()
    sizes = [1, 4 << 20, 1, 300_000, 1, 1]
    for number, size in enumerate(sizes, 1):
        batch = pa.record_batch({"topic": ["a"], "body": [b"x" * size], "delay_ms": [3_600_000]})
        client.send(FrameKind.SUBMIT, number, stream_of(batch))
    seqs = [struct.unpack_from("<q", client.read(FrameKind.ACCEPTED, n), 5)[0] for n in range(1, len(sizes) + 1)]
    assert seqs == sorted(seqs)
    with pytest.raises(RefusedError, match="invalid_argument"):
        client.submit(b"x" * 300_000)
    assert send_now(client, b"and on") == seqs[-1] + 1


def test_what_is_no_stream_is_refused_and_the_connection_goes_on(connect: Connect) -> None:
    client = connect()
    batch = pa.record_batch({"topic": ["a"] * 1000, "body": [b"x" * 1000] * 1000, "delay_ms": [0] * 1000})
    with pytest.raises(RefusedError, match="compressed"):
        client.submit(stream_of(batch, compression="zstd"))
    whole = stream_of(batch.slice(0, 2))
    for damaged in (b"", b"x" * 100, whole[:50], whole[: len(whole) // 2], b"\xff" * 8 + whole):
        with pytest.raises(RefusedError, match="invalid_argument"):
            client.submit(damaged)
    rng = np.random.default_rng(1)
    for _ in range(300):
        flipped = bytearray(whole)
        flipped[rng.integers(len(flipped))] ^= 1 << rng.integers(8)
        try:
            client.submit(bytes(flipped))
        except RefusedError as error:
            assert error.code in ("invalid_argument", "invalid_message", "message_too_large")
    assert client.call("ping")["now_ms"] > 0


def test_a_message_given_back_comes_again(connect: Connect) -> None:
    client = connect()
    group = client.group("a", "g")
    send_now(client, b"1")
    client.poll(1, group)
    first = client.batch(1)
    assert client.settle(SettleOp.NACK, group, first, 0, "not now") == b""
    client.poll(1, group)
    second = client.batch(1)
    assert second["attempt"].to_pylist() == [2]
    leases, offsets = (second.column(name).to_numpy() for name in ("lease", "offset"))
    client.send(FrameKind.RETURN, 1, Pairs(leases, offsets).encode())
    client.poll(1, group)
    third = client.batch(1)
    assert third["attempt"].to_pylist() == [2], "nobody had looked at it"
    with pytest.raises(RefusedError, match="stale_lease"):
        client.settle(SettleOp.ACK, group, second)
    both = pa.Table.from_batches([second, third]).combine_chunks().to_batches()[0]
    assert client.settle(SettleOp.ACK_EACH, group, both) == b"\0\1"


def test_a_stale_ack_is_an_error_and_the_rest_is_settled(connect: Connect) -> None:
    client = connect()
    group = client.group("a", "g")
    send_now(client, b"1", b"2")
    client.poll(1, group)
    batch = client.batch(1)
    leases, offsets = (batch.column(name).to_numpy() for name in ("lease", "offset"))
    settled = SettleFrame(SettleOp.ACK, group, 0, np.append(leases, 1 << 60), np.append(offsets, -1))
    with pytest.raises(RefusedError, match="stale_lease"):
        client.ask(FrameKind.SETTLE, FrameKind.SETTLED, settled.encode())
    assert client.call("group-info", topic="a", group="g")["lag"] == 0


def test_a_settlement_that_cannot_be_read_is_refused_and_the_consumer_goes_on(connect: Connect) -> None:
    client = connect()
    group = client.group("a", "g")
    client.poll(1, group)
    whole = SettleFrame(SettleOp.ACK, group, 0, np.array([1]), np.array([0])).encode()
    for garbage in (b"", b"garbage", whole[:-1], b"\x63" + whole[1:]):
        with pytest.raises(RefusedError, match="invalid_argument"):
            client.ask(FrameKind.SETTLE, FrameKind.SETTLED, garbage)
    send_now(client, b"1")
    assert client.settle(SettleOp.ACK, group, client.batch(1)) == b""


def test_leases_are_renewed_extended_and_changed(connect: Connect) -> None:
    client = connect()
    group = client.group("a", "g")
    send_now(client, b"1", b"2")
    client.poll(1, group, lease_ms=400)
    batch = client.batch(1)
    begin_s = time.monotonic()
    while time.monotonic() - begin_s < 1.2:
        client.send(FrameKind.RENEW, 1, struct.pack("<q", 60_000))
        time.sleep(0.1)
    changed = client.settle(SettleOp.CHANGE, group, batch.slice(0, 1), 30_000)
    assert len(changed) == 8
    with pytest.raises(RefusedError, match="stale_lease"):
        client.settle(SettleOp.ACK, group, batch.slice(0, 1))
    assert client.settle(SettleOp.ACK, group, batch.slice(1)) == b""
    with pytest.raises(RefusedError, match="argument of extend is 0; allowed: 1 to"):
        client.settle(SettleOp.EXTEND, group, batch.slice(1), 0)
    with pytest.raises(RefusedError, match="2 leases to be changed; allowed: one"):
        client.settle(SettleOp.CHANGE, group, batch, 1)


@pytest.mark.parametrize("how", ["close", "reset", "consumer"])
def test_what_a_client_held_is_for_others_at_once(how: str, connect: Connect) -> None:
    client, other = connect(), connect()
    group = client.group("a", "g")
    send_now(client, *(b"%d" % n for n in range(10)))
    client.poll(1, group)
    assert client.batch(1).num_rows == 10
    if how == "consumer":
        client.send(FrameKind.CLOSE, 1)
    else:
        if how == "reset":
            client.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client.close()
    other.poll(1, other.group("a", "g"))
    assert other.batch(1).num_rows == 10


def test_what_was_acked_right_before_the_end_does_not_come_again(connect: Connect) -> None:
    client, other = connect(), connect()
    group = client.group("a", "g")
    send_now(client, b"1", b"2")
    client.poll(1, group)
    batch = client.batch(1)
    leases, offsets = (batch.column(name).to_numpy()[:1] for name in ("lease", "offset"))
    client.send(FrameKind.SETTLE, 7, SettleFrame(SettleOp.ACK, group, 0, leases, offsets).encode())
    client.close()  # without waiting for the answer
    other.poll(1, other.group("a", "g"))
    assert other.batch(1)["body"].to_pylist() == [b"2"]


def test_a_poll_that_is_withdrawn_gets_nothing(connect: Connect) -> None:
    client = connect()
    group = client.group("a", "g")
    client.poll(1, group)
    client.send(FrameKind.WITHDRAW, 1)
    client.call("ping")
    send_now(client, b"1")
    client.poll(2, group)
    assert client.batch(2).num_rows == 1


def test_each_poll_is_answered_once(connect: Connect) -> None:
    client = connect()
    group = client.group("a", "g")
    for _ in range(2):
        client.poll(1, group)
        client.send(FrameKind.WITHDRAW, 1)
        assert client.polled(1) == ""
    send_now(client, b"1")
    client.poll(1, group)
    assert client.batch(1).num_rows == 1
    client.send(FrameKind.WITHDRAW, 1)  # too late, and answered by nothing
    send_now(client, b"2")
    client.poll(1, group)
    assert client.batch(1)["body"].to_pylist() == [b"2"]


def test_a_poll_says_how_much_the_consumer_may_hold(connect: Connect) -> None:
    client = connect()
    group = client.group("a", "g")
    send_now(client, *[b"%d" % number for number in range(10)])
    client.poll(1, group, prefetch=2)
    assert client.batch(1).num_rows == 2
    client.poll(1, group, prefetch=5)
    assert client.batch(1).num_rows == 3
    client.poll(1, group, prefetch=5)
    client.send(FrameKind.WITHDRAW, 1)
    assert client.polled(1) == "", "it has no room"
    client.poll(1, group, prefetch=100)
    assert client.batch(1).num_rows == 5


def test_a_consumer_that_is_full_holds_up_nobody(connect: Connect) -> None:
    client, other = connect(), connect()
    group = client.group("a", "g")
    send_now(client, b"1")
    client.poll(1, group, prefetch=1)
    first = client.batch(1)
    client.poll(1, group, prefetch=1)
    other.poll(1, other.group("a", "g"), rows_max=1)
    send_now(client, b"2", b"3")
    assert other.batch(1)["body"].to_pylist() == [b"2"]
    client.settle(SettleOp.ACK, group, first)
    assert client.batch(1)["body"].to_pylist() == [b"3"], "it has room again"


def test_a_consumer_whose_leases_ended_in_silence_has_to_speak(connect: Connect) -> None:
    """One that stands still is not handed the same messages again and again, until their tries are used up."""
    client = connect()
    group = client.group("a", "g")
    send_now(client, b"1")
    client.poll(1, group, lease_ms=100)
    assert client.batch(1)["attempt"].to_pylist() == [1]
    client.poll(1, group)
    other = connect()
    assert client.polled(1) == "", "its lease has ended, and it has said nothing since"
    other.poll(1, other.group("a", "g"))
    assert other.batch(1)["attempt"].to_pylist() == [2], "it holds up nobody"
    send_now(client, b"2")
    client.poll(1, group)
    assert client.batch(1)["body"].to_pylist() == [b"2"]


def test_receives_wait_for_messages_and_leave_them_leased(connect: Connect) -> None:
    client = connect()
    client.begin_receive(1, "a", "g")
    assert client.received(1).num_rows == 0
    client.begin_receive(2, "a", "g", wait_ms=60_000, max_messages=10)
    client.begin_receive(3, "a", "g", wait_ms=200)
    client.begin_receive(4, "a", "g", wait_ms=60_000)
    client.send(FrameKind.WITHDRAW, 4)
    assert client.received(4).num_rows == 0
    assert client.received(3).num_rows == 0, "it has waited"
    send_now(client, b"1", b"2")
    got = client.received(2)
    assert got["body"].to_pylist() == [b"1", b"2"]
    client.close()
    other = connect()
    assert other.call("group-info", topic="a", group="g")["leased"] == 2
    leases, offsets = (got[name].to_pylist() for name in ("lease", "offset"))
    assert other.call("ack", topic="a", group="g", leases=leases, offsets=offsets) == {"settled": 2}


def test_what_a_receive_would_get_for_a_client_that_left_is_for_others(connect: Connect) -> None:
    client = connect()
    client.begin_receive(1, "a", "g", wait_ms=60_000)
    assert client.call("ping")
    client.close()
    other = connect()
    send_now(other, b"1")
    other.begin_receive(1, "a", "g", wait_ms=20_000)
    assert other.received(1)["body"].to_pylist() == [b"1"]


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"topic": "tarry.own", "group": "g"}, "tarry.own"),
        ({"topic": "a", "group": ""}, "group"),
        ({"topic": "a", "group": "g", "max_messages": 0}, "max_messages is 0"),
        ({"topic": "a", "group": "g", "lease_ms": 0}, "lease_ms"),
        ({"topic": "a", "group": "g", "wait": 1}, "wait"),
    ],
)
def test_a_wrong_receive_is_refused(fields: dict[str, object], text: str, connect: Connect) -> None:
    client = connect()
    with pytest.raises(RefusedError, match=text):
        client.ask(FrameKind.RECEIVE, FrameKind.ROWS, json.dumps(fields).encode())
    assert client.call("ping")


def test_a_client_has_so_many_receives(connect: Connect) -> None:
    client = connect()
    for number in range(CONSUMERS_MAX):
        client.begin_receive(number + 1, "a", "g", wait_ms=60_000)
    with pytest.raises(RefusedError, match="overloaded"):
        client.ask(FrameKind.RECEIVE, FrameKind.ROWS, b'{"topic": "a", "group": "g"}')
    send_now(client, b"1")
    assert client.received(1).num_rows == 1


def test_a_deleted_group_ends_polls_and_a_new_one_has_another_number(connect: Connect) -> None:
    client = connect()
    group = client.group("a", "g")
    client.poll(1, group)
    client.call("delete-group", topic="a", group="g")
    assert client.polled(1) == "closed"
    client.poll(1, group)
    assert client.polled(1) == "not_found"
    wait_until(lambda: client.group("a", "g") != group)


def test_a_broker_that_fails_tells_no_consumer_that_its_group_was_deleted(connect: Connect, broker: Broker) -> None:
    client = connect()
    group = client.group("a", "g")
    client.poll(1, group)
    client.call("status")
    broker.components.health.fail(OwnershipLostError("another one's"))
    assert client.polled(1) == "unavailable"
    for consumer in (1, 2):
        client.poll(consumer, group)
        assert client.polled(consumer) == "unavailable"


def test_groups_of_a_broker_that_ends_keep_their_numbers(broker: Broker) -> None:
    async def test() -> None:
        table = GroupTable(asyncio.get_running_loop())
        kept, deleted = (table.get_or_add(broker.group("a", name)) for name in ("kept", "deleted"))
        broker.delete_group("a", "deleted")
        broker.components.groups.stop()
        table.look()
        assert table.find(kept.number) is kept
        with pytest.raises(NotFoundError):
            table.find(deleted.number)
        table.close()

    asyncio.run(test())


def test_a_broadcast_has_a_group_of_its_own(connect: Connect) -> None:
    client = connect()
    shared, own = client.group("a", "g"), client.group("a", "g", broadcast="me")
    assert shared != own
    send_now(client, b"1")
    for consumer, group in ((1, shared), (2, own)):
        client.poll(consumer, group)
        assert client.batch(consumer).num_rows == 1


def test_what_is_not_allowed_is_refused_by_its_number(connect: Connect) -> None:
    client = connect()
    group = client.group("a", "g")
    with pytest.raises(RefusedError, match="op is 'receive'"):
        client.call("receive", topic="a", group="g")
    with pytest.raises(RefusedError, match="allowed by the link: 4194304 at a time"):
        client.call("cancelled", start=0, end=1 << 23)
    with pytest.raises(RefusedError, match="op is 'no such'"):
        client.call("no such")
    with pytest.raises(RefusedError, match=r"tarry\.own"):
        client.group("tarry.own", "g")
    with pytest.raises(RefusedError, match="other"):
        client.group("a", "g", other=1)
    for poll in (Poll(group, 0, 0, 1), Poll(group, 1, 0, 0), Poll(group, 1, -1, 1), Poll(group, 1, 1 << 60, 1)):
        client.send(FrameKind.POLL, 7, poll.encode())
        assert client.polled(7) == "invalid_argument"
    client.send(FrameKind.POLL, 7, Poll(999, 1, 0, 1).encode())
    assert client.polled(7) == "not_found"
    client.poll(8, group)
    client.poll(8, group)
    assert client.polled(8) == "invalid_argument", "a second poll of a consumer"
    assert client.call("ping")["now_ms"] > 0


WORKERS_OWN = ("SUBMIT_CHECKED", "POST", "SEND", "REPLACE", "FIND_KEYED", "POLL_NOW", "DROP")
"""Frames that a gateway's worker may send, and a client may not."""


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (HEAD.pack(0, 99, 1), "frame of kind 99"),
        (HEAD.pack(1 << 30, FrameKind.SUBMIT, 1), "a frame of 1073741824 bytes"),
        *((HEAD.pack(0, FrameKind[name], 1), f"frame of kind {FrameKind[name]:d}") for name in WORKERS_OWN),
    ],
)
def test_what_means_nothing_ends_the_connection_and_no_other(data: bytes, text: str, connect: Connect) -> None:
    client, other = connect(), connect()
    client.send_bytes(data)
    reason = client.ended()
    assert reason is not None
    assert text in reason["message"]
    assert other.call("ping")["now_ms"] > 0


@pytest.mark.parametrize(
    "hello",
    [
        *(b"{}", b"[]", b"no json", b'{"version": 2, "as": "client"}'),
        *(b'{"version": 1, "as": "link"}', b'{"version": 1, "as": "control"}', b'{"version": 1, "as": []}'),
    ],
)
def test_only_clients_are_greeted_here(hello: bytes, connect: Connect) -> None:
    client = connect(hello=None)
    client.send(FrameKind.HELLO, 0, hello)
    reason = client.ended()
    assert reason is not None
    assert reason["code"] == "invalid_argument"


@pytest.mark.parametrize("role", ["link", "control"])
def test_a_gateway_at_the_port_of_clients_is_told_where_gateways_connect(role: str, connect: Connect) -> None:
    client = connect(hello=None)
    client.send(FrameKind.HELLO, 0, b'{"version": 1, "as": "%s"}' % role.encode())
    reason = client.ended()
    assert reason is not None
    assert reason["code"] == "invalid_argument"
    assert "this is the broker's port for clients, not the one for gateways; allowed: " in reason["message"]
    assert "setting gateway" in reason["message"]


def test_a_client_has_so_many_consumers(connect: Connect) -> None:
    client = connect()
    group = client.group("a", "g")
    for consumer in range(CONSUMERS_MAX + 1):
        client.poll(consumer + 1, group)
    assert client.polled(CONSUMERS_MAX + 1) == "invalid_argument"


def test_a_client_that_does_not_read_is_handed_no_more_than_its_share(
    connect: Connect, front: LinkFront, broker: Broker
) -> None:
    client, other = connect(), connect()
    many = 100
    for _ in range(many):
        client.schedule(topic=["a"], body=[b"x" * 1_000_000], delay_ms=[0])
    group = client.group("a", "g")
    for consumer in range(1, many + 1):
        client.poll(consumer, group, rows_max=1)
    wait_until(lambda: broker.group_info("a", "g").leased >= 1)
    assert other.call("ping")["now_ms"] > 0
    for consumer in range(1, many + 1):
        assert client.batch(consumer).num_rows == 1, "it is read as the client reads, and nothing is lost"


def test_many_questions_at_once_are_all_answered(connect: Connect) -> None:
    client = connect()
    many = 3 * QUESTIONS_MAX
    stream = stream_of(pa.record_batch({"topic": ["a"], "body": [b"x"], "delay_ms": [3_600_000]}))
    for number in range(1, many + 1):
        client.send(FrameKind.SUBMIT, number, stream)
    calls = 5 * CALLS_MAX
    for number in range(many + 1, many + calls + 1):
        client.send(FrameKind.CALL, number, b'{"op": "ping"}')
    for number in range(many + calls, many, -1):
        assert json.loads(client.read(FrameKind.RESULT, number))["now_ms"] > 0
    for number in range(1, many + 1):
        assert client.read(FrameKind.ACCEPTED, number)


def test_a_broker_that_stops_lets_clients_settle(connect: Connect, front: LinkFront, broker: Broker) -> None:
    client, idle = connect(), connect()
    group = client.group("a", "g")
    send_now(client, b"1")
    client.poll(1, group)
    batch = client.batch(1)
    client.poll(1, group)
    stopping = threading.Thread(target=front.stop, args=[20.0])
    stopping.start()
    assert json.loads(client.read(FrameKind.REFUSED, 0))["code"] == "unavailable"
    assert idle.ended() is not None
    with pytest.raises(RefusedError, match="unavailable"):
        send_now(client, b"2")
    assert client.settle(SettleOp.ACK, group, batch) == b""
    assert client.ended() is None
    stopping.join(20)
    assert not stopping.is_alive()


def test_a_unix_socket_serves_too(tmp_path: Path, broker: Broker) -> None:
    path = tmp_path / "link.sock"
    front = LinkFront.start(broker, f"unix:{path}", unread=UnreadBytes())
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(str(path))
            connection.sendall(HEAD.pack(len(HELLO), FrameKind.HELLO, 0) + HELLO)
            assert HEAD.unpack(connection.recv(HEAD.size))[1] == FrameKind.WELCOME
    finally:
        front.stop(0.2)
    assert not path.exists()


def test_settlements_of_all_kinds_leave_nothing_under_way(connect: Connect) -> None:
    """One that was counted and never answered would end the reading of this client, after so many, for good."""
    client = connect()
    group = client.group("a", "g")
    nothing = np.array([0], np.int64)
    for number in range(1, 2 * QUESTIONS_MAX):
        for op in SettleOp:
            frame_number = number * 10 + op if number % 2 else 0
            argument = 1_000 if op in (SettleOp.EXTEND, SettleOp.CHANGE) else 0
            settle = SettleFrame(op, group, argument, nothing, nothing).encode()
            client.send(FrameKind.SETTLE, frame_number, settle)
    client.send(FrameKind.SETTLE, 5, SettleFrame(SettleOp.ACK, group + 99, 0, nothing, nothing).encode())
    assert client.call("ping")["now_ms"] > 0
