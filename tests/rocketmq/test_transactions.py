"""Transactions: a message that is undecided is durable and unseen, and becomes one or nothing in one step."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tarry.fronts.rocketmq.common.names import HALF_MESSAGES
from tests.rocketmq.conftest import Place
from tests.rocketmq.rpc import Code, Rpc, d, message, now_ms, producer, res, s

COMMIT, ROLLBACK = d.TransactionResolution.COMMIT, d.TransactionResolution.ROLLBACK
HALF = {"message_type": d.MessageType.TRANSACTION}


def test_committed_and_rolled_back(rpc: Rpc, place: Place) -> None:
    good = rpc.send("orders", b"good", tag="t", keys=["k"], properties={"x": "1"}, message_id="G", **HALF)
    bad = rpc.send("orders", b"bad", **HALF)
    assert good.transaction_id
    assert good.transaction_id != bad.transaction_id
    assert rpc.receive("orders", "g", wait_s=0.3) == []
    assert rpc.end("orders", bad, ROLLBACK) == Code.OK
    assert rpc.end("orders", good, COMMIT) == Code.OK
    [got] = rpc.receive("orders", "g")
    system = got.system_properties
    assert (got.body, dict(got.user_properties), system.tag, list(system.keys)) == (b"good", {"x": "1"}, "t", ["k"])
    assert (system.message_id, system.message_type) == ("G", d.MessageType.TRANSACTION)
    assert rpc.receive("orders", "g", wait_s=0.3) == []
    assert {t.topic: t.pending for t in place.broker.pending()}[HALF_MESSAGES] == 0


@pytest.mark.parametrize(("first", "second"), [(COMMIT, ROLLBACK), (ROLLBACK, COMMIT), (COMMIT, COMMIT)])
def test_what_is_decided_stays_so(rpc: Rpc, first: int, second: int) -> None:
    sent = rpc.send("orders", b"x", **HALF)
    assert rpc.end("orders", sent, first) == Code.OK
    assert rpc.end("orders", sent, second) == Code.NOT_FOUND
    assert len(rpc.receive("orders", "g", wait_s=0.3)) == (1 if first == COMMIT else 0)


def test_unknown_transactions_are_refused(rpc: Rpc) -> None:
    sent = rpc.send("orders", b"x", **HALF)
    sent.transaction_id = "never"
    assert rpc.end("orders", sent, COMMIT) == Code.NOT_FOUND
    sent.transaction_id = " "
    assert rpc.end("orders", sent, COMMIT) == Code.INVALID_TRANSACTION_ID


def test_delayed_and_ordered_when_it_is_committed(rpc: Rpc) -> None:
    due = now_ms() + 500
    sent = rpc.send("orders", b"x", due_ms=due, message_group="G", **HALF)
    assert rpc.end("orders", sent, COMMIT) == Code.OK
    [got] = rpc.receive("orders", "g")
    assert now_ms() >= due
    assert got.system_properties.message_group == "G"


def test_undecided_ones_outlive_a_restart(place: Place) -> None:
    sent = place.client().send("orders", b"x", **HALF)
    place.restart()
    rpc = place.client()
    assert rpc.receive("orders", "g", wait_s=0.2) == []
    assert rpc.end("orders", sent, COMMIT) == Code.OK
    assert len(rpc.receive("orders", "g")) == 1


def test_a_retry_of_the_send_is_the_same_transaction(rpc: Rpc) -> None:
    first, second = (rpc.send("orders", b"x", message_id="SAME", **HALF) for _ in range(2))
    assert first.transaction_id == second.transaction_id
    assert rpc.end("orders", first, COMMIT) == Code.OK
    assert len(rpc.receive("orders", "g")) == 1
    assert rpc.receive("orders", "g", wait_s=0.3) == []


def test_a_transaction_beside_other_messages(rpc: Rpc) -> None:
    """They are not stored in the same way: what goes for one kind is not asked of the other."""
    tag = "t" * 5000
    messages = [message("orders", b"half", tag=tag, **HALF), message("orders", b"plain", tag=tag, message_group="g")]
    answer = rpc.ask("SendMessage", s.SendMessageRequest(messages=messages))
    assert [entry.status.code for entry in answer.entries] == [Code.OK, Code.OK]
    half, plain = answer.entries
    assert (bool(half.transaction_id), bool(plain.transaction_id)) == (True, False)
    assert [m.body for m in rpc.receive("orders", "g")] == [b"plain"]
    assert rpc.end("orders", half, COMMIT) == Code.OK
    assert [(m.body, m.system_properties.tag) for m in rpc.receive("orders", "g")] == [(b"half", tag)]


def test_a_producer_is_asked(serve: Callable[..., Place]) -> None:
    place = serve(rocketmq_check_first_ms=300, rocketmq_check_ms=1000)
    rpc = place.client()
    stream = rpc.telemetry(producer("orders"))
    stream.next()
    tag, due_ms = "t" * 5000, 1_700_000_000_000
    sent = rpc.send("orders", b"x", message_id="M", properties={"x": "1"}, tag=tag, due_ms=due_ms, **HALF)
    for _ in range(2):  # no answer, so it is asked again
        command = stream.next().recover_orphaned_transaction_command
        assert (command.transaction_id, command.message.body) == (sent.transaction_id, b"x")
        assert command.message.topic == res("orders")
        assert dict(command.message.user_properties) == {"x": "1"}
        system = command.message.system_properties
        assert (system.message_id, system.tag) == ("M", tag)
        assert system.delivery_timestamp.ToMilliseconds() == due_ms
    assert rpc.receive("orders", "g", wait_s=0) == []
    request = s.EndTransactionRequest(
        topic=res("orders"), message_id="M", transaction_id=sent.transaction_id, resolution=COMMIT,
        source=d.TransactionSource.SOURCE_SERVER_CHECK,
    )  # fmt: skip
    assert rpc.ask("EndTransaction", request).status.code == Code.OK
    assert len(rpc.receive("orders", "g")) == 1
    stream.close()


@pytest.mark.rest
def test_asked_in_vain_it_is_kept_as_a_dead_letter(serve: Callable[..., Place]) -> None:
    place = serve(rocketmq_check_first_ms=1, rocketmq_check_ms=1000, rocketmq_checks_max=2)
    rpc = place.client()
    sent = rpc.send("orders", b"x", **HALF)
    rpc.receive("orders", "g", wait_s=3)
    dead_letters = place.broker.dead_letters(HALF_MESSAGES, "checks")
    assert dead_letters.column("body").to_pylist() == [b""], "of a topic of the broker's own nobody sees more"
    assert rpc.end("orders", sent, COMMIT) == Code.NOT_FOUND
    assert rpc.receive("orders", "g", wait_s=0.2) == []
