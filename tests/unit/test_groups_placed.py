"""One message by its place, found and discarded wherever it is: pending, ready, leased, waiting, dead, respawned."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.groups import SMALL, ids, nack, take

from tarry.base.clock import TestClock
from tarry.message.receipt import Receipt
from tarry.testing import TestBroker, open_broker

Place = tuple[str, str, int, int]


def place(receipt: Receipt, topic: str = "a") -> Place:
    return topic, "g", receipt.seq, receipt.due_ms


def found(broker: TestBroker, at: Place) -> tuple[Any, ...] | None:
    batch = broker.find_message(*at)
    rows = batch.to_pylist()
    return (rows[0]["state"], rows[0]["body"], rows[0]["attempt"]) if rows else None


def test_on_its_way(tmp_path: Path) -> None:
    clock = TestClock()
    with open_broker(tmp_path, clock=clock) as broker:
        broker.set_group("a", "g", tries=2)
        receipt = broker.schedule("a", b"one", delay=10, properties={"color": "red"})
        assert found(broker, place(receipt)) == ("pending", b"one", 0)
        assert found(broker, place(receipt, "b")) is None, "of another topic"
        assert found(broker, ("a", "g", receipt.seq, receipt.due_ms + 1)) is None
        clock.advance_ms(10_000)
        broker.step()
        assert found(broker, place(receipt)) == ("ready", b"one", 0)
        nack(broker, take(broker), delay_ms=5000)
        assert found(broker, place(receipt)) == ("waiting", b"one", 2)
        clock.advance_ms(5000)
        batch = take(broker)
        assert found(broker, place(receipt)) == ("leased", b"one", 2)
        nack(broker, batch)
        broker.step()
        assert found(broker, place(receipt)) == ("dead", b"one", 2)
        assert broker.respawn("a", "g", tries=7, ttl_ms=60_000) == 1
        broker.step()
        assert found(broker, place(receipt)) == ("ready", b"one", 0)
        [again] = take(broker).to_pylist()
        assert (again["tries"], again["expire_ms"]) == (7, again["due_ms"] + 60_000)
        assert again["seq"] != receipt.seq
        assert dict(again["properties"])["tarry.first"] == f"{receipt.seq}:{receipt.due_ms}"
        assert found(broker, place(receipt)) == ("leased", b"one", 1)
        assert broker.discard_message(*place(receipt))
        assert found(broker, place(receipt)) is None
        assert not broker.discard_message(*place(receipt))


@pytest.mark.parametrize("state", ["pending", "ready", "leased", "waiting", "dead"])
def test_what_is_discarded_never_comes(state: str, tmp_path: Path) -> None:
    clock = TestClock()
    with open_broker(tmp_path, clock=clock, **SMALL) as broker:
        broker.set_group("a", "g", tries=1 if state == "dead" else 5)
        receipts = [broker.schedule("a", bytes([65 + n]), id=f"m{n}", delay=10) for n in range(3)]
        if state != "pending":
            clock.advance_ms(10_000)
            broker.step()
        if state in ("leased", "waiting", "dead"):
            batch = take(broker)
        if state in ("waiting", "dead"):
            nack(broker, batch, delay_ms=5000)
            broker.step()
        held = found(broker, place(receipts[1]))
        assert held is not None
        assert held[0] == state
        assert not broker.discard_message(*place(receipts[1], "b"))
        assert broker.discard_message(*place(receipts[1]))
        assert not broker.discard_message(*place(receipts[1])), "only once"
    for _ in range(2):  # as it is after a restart, and after another
        with open_broker(tmp_path, clock=clock, **SMALL) as broker:
            assert found(broker, place(receipts[1])) is None
    with open_broker(tmp_path, clock=clock, **SMALL) as broker:
        clock.advance_ms(60_000)
        broker.step()
        if state == "dead":
            assert ids(broker.dead_letters("a", "g")) == ["m0", "m2"]
        else:
            assert ids(take(broker)) == ["m0", "m2"]
            assert broker.group_info("a", "g").lag == 2


def test_without_a_restart(tmp_path: Path) -> None:
    clock = TestClock()
    with open_broker(tmp_path, clock=clock, lease_ms=1000) as broker:
        broker.set_group("a", "g", tries=5)
        receipts = [broker.schedule("a", b"x", id=f"m{n}") for n in range(6)]
        broker.step()
        take(broker, limit=4)
        for n in (1, 5):  # one that is leased, one that nobody has come to
            assert broker.discard_message(*place(receipts[n]))
        assert broker.group_info("a", "g").leased == 3
        clock.advance_ms(1000)
        broker.discard_message(*place(receipts[2]))  # its lease is over, and nobody has noticed
        assert ids(take(broker)) == ["m0", "m3", "m4"]


def test_in_an_ordered_group_the_next_one_comes(tmp_path: Path) -> None:
    clock = TestClock()
    with open_broker(tmp_path, clock=clock) as broker:
        broker.set_group("a", "g", ordered=True)
        receipts = [broker.schedule("a", b"x", id=f"m{n}", order_key="k") for n in range(4)]
        broker.step()
        assert ids(take(broker)) == ["m0"]
        assert broker.discard_message(*place(receipts[1])), "held back"
        assert broker.discard_message(*place(receipts[0])), "leased"
        assert ids(take(broker)) == ["m2"]


def test_a_group_without_consumers_makes_dead_letters(tmp_path: Path) -> None:
    clock = TestClock()
    with open_broker(tmp_path, clock=clock, lease_ms=1000) as broker:
        broker.set_group("a", "g", tries=1)
        broker.schedule("a", b"x")
        broker.step()
        take(broker)
        clock.advance_ms(5000)
        broker.step()
        broker.step()
        assert broker.group_info("a", "g").dead == 1


def test_peek_at_what_nobody_has(tmp_path: Path) -> None:
    clock = TestClock()
    with open_broker(tmp_path, clock=clock) as broker:
        broker.set_group("a", "g")
        for n in range(4):
            broker.schedule("a", b"x", id=f"m{n}")
        broker.step()
        nack(broker, take(broker, limit=1), delay_ms=5000)
        take(broker, limit=1)
        assert ids(broker.peek("a", group="g")) == ["m0", "m1", "m2", "m3"]
        assert ids(broker.peek("a", group="g", waiting_only=True)) == ["m2", "m3"]
        clock.advance_ms(5000)
        assert ids(broker.peek("a", group="g", waiting_only=True)) == ["m0", "m2", "m3"]
