"""Late messages: delivered, dropped, or sent to the dead letters, as they say themselves or as their topic says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.groups import ack, drained, fail, ids, nack, put, says, take

from tarry.base.clock import TestClock
from tarry.testing import TestBroker, open_broker


def dead(broker: TestBroker) -> dict[str, str]:
    """Ids of the dead letters, and why each is one."""
    broker.step()
    dead_letters = broker.dead_letters("a", "g")
    return dict(zip(ids(dead_letters), [p["tarry.dead.cause"] for p in says(dead_letters)], strict=True))


def test_without_an_expiry_it_is_delivered_however_late(tmp_path: Path) -> None:
    with open_broker(tmp_path) as broker:
        put(broker, "a", "m", late="drop")
        broker.advance("2d")
        assert ids(take(broker)) == ["m"]


@pytest.mark.parametrize("late", [None, "deliver", "drop", "dead"])
@pytest.mark.parametrize("of_topic", [None, "deliver", "drop", "dead"])
def test_what_has_expired(late: str | None, of_topic: str | None, tmp_path: Path) -> None:
    with open_broker(tmp_path) as broker:
        if of_topic:
            broker.set_topic("a", late=of_topic)
        put(broker, "a", "in-time", "too-late", ttl=10, late=late)
        broker.advance(9.999)
        assert ids(take(broker, limit=1)) == ["in-time"]
        broker.advance(0.001)
        way = late or of_topic or "drop"
        assert ids(take(broker)) == (["too-late"] if way == "deliver" else [])
        assert dead(broker) == ({"too-late": "expired"} if way == "dead" else {})
        assert broker.group_info("a", "g").lag == (2 if way == "deliver" else 1)


def test_a_topic_may_limit_lateness(tmp_path: Path) -> None:
    with open_broker(tmp_path) as broker:
        broker.set_topic("a", lateness_ms_max=5000)
        put(broker, "a", "plain")
        put(broker, "a", "long", ttl=60)
        put(broker, "a", "kept", late="deliver")
        put(broker, "a", "mourned", late="dead")
        broker.advance(5)
        assert take(broker, group="h", limit=1)["id"].to_pylist() == ["plain"], "late by no more than that"
        broker.advance(0.001)
        assert ids(take(broker)) == ["long", "kept"], "its own expiry counts, and what it says itself"
        assert dead(broker) == {"mourned": "expired"}
        broker.set_topic("a", lateness_ms_max=0)
        put(broker, "a", "now")
        assert ids(take(broker)) == ["now"]


def test_retries_expire_too(tmp_path: Path) -> None:
    with open_broker(tmp_path, lease_ms=4000) as broker:
        put(broker, "a", "dropped", "dead", ttl=10, late="dead")
        put(broker, "b", "dropped", ttl=10)
        nack(broker, take(broker), delay_ms=3000)
        broker.advance(3)
        assert take(broker)["attempt"].to_pylist() == [2, 2]
        take(broker, "b", limit=1)
        broker.advance(8)
        assert take(broker).num_rows == 0
        assert take(broker, "b").num_rows == 0
        assert dead(broker) == {"dropped": "expired", "dead": "expired"}
        assert broker.dead_letters("a", "g")["attempt"].to_pylist() == [2, 2]
        assert broker.group_info("b", "g").lag == 0


def test_what_is_leased_is_the_consumers_to_settle(tmp_path: Path) -> None:
    with open_broker(tmp_path) as broker:
        put(broker, "a", "m", ttl=5)
        batch = take(broker)
        broker.advance(10)
        assert ack(broker, batch) == 1


def test_tries_come_before_lateness(tmp_path: Path) -> None:
    with open_broker(tmp_path) as broker:
        broker.set_group("a", "g", tries=1)
        put(broker, "a", "m", ttl=5, late="dead")
        batch = take(broker)
        broker.advance(6)
        nack(broker, batch)
        assert dead(broker) == {"m": "tries"}


def test_dropping_is_durable_and_so_is_the_policy(tmp_path: Path) -> None:
    clock = TestClock()
    with open_broker(tmp_path, clock=clock) as broker:
        broker.set_topic("a", lateness_ms_max=1000)
        put(broker, "a", "m", "n")
        batch = take(broker, limit=1)
        broker.advance(2)
        assert take(broker).num_rows == 0
        broker.set_topic("a", lateness_ms_max=-1)
        ack(broker, batch)
    with open_broker(tmp_path, clock=clock) as broker:
        assert take(broker).num_rows == 0
        broker.set_topic("a", lateness_ms_max=1000)
    with open_broker(tmp_path, clock=clock) as broker:
        put(broker, "a", "o")
        broker.advance(2)
        assert take(broker).num_rows == 0


def test_many_rows_and_one_that_is_late(tmp_path: Path) -> None:
    with open_broker(tmp_path) as broker:
        names = [f"{k}" for k in range(300)]
        for k, name in enumerate(names):
            broker.schedule("a", b"", id=name, ttl=5 if k % 7 == 0 else 500 if k % 3 == 0 else None)
        broker.step()
        broker.advance(6)
        assert drained(broker, limit=11) == [n for k, n in enumerate(names) if k % 7]
        assert broker.group_info("a", "g").lag == 0


def test_a_respawned_message_does_not_expire_again(tmp_path: Path) -> None:
    with open_broker(tmp_path) as broker:
        put(broker, "a", "m", ttl=1, late="dead")
        broker.advance(2)
        assert take(broker).num_rows == 0
        assert dead(broker) == {"m": "expired"}
        dead_letter = broker.dead_letters("a", "g")
        assert dead_letter["attempt"].to_pylist() == [0], "nobody had it"
        broker.respawn("a", "g")
        broker.step()
        broker.advance(100)
        assert ids(take(broker)) == ["m"]


def test_a_clock_that_was_wrong_expires_nothing_for_good(tmp_path: Path) -> None:
    with open_broker(tmp_path) as broker:
        put(broker, "a", "m", ttl=60)
        start = broker.clock.now_ms()
        broker.clock.set_ms(start - 3_600_000)
        assert take(broker).num_rows == 0
        broker.clock.set_ms(start + 1)
        assert ids(take(broker)) == ["m"]


@pytest.mark.parametrize("ordered", [False, True])
def test_lateness_and_order_and_a_filter_together(ordered: bool, tmp_path: Path) -> None:
    with open_broker(tmp_path) as broker:
        broker.set_group("a", "g", ordered=ordered, filter="A", tries=2)
        message: dict[str, Any] = {"order_key": "k", "tag": "A"}
        put(broker, "a", "first", ttl=5, **message)
        put(broker, "a", "other", order_key="k", tag="B")
        put(broker, "a", "second", ttl=5, late="dead", **message)
        put(broker, "a", "third", **message)
        broker.advance(6)
        seen = drained(broker)
        broker.step()
        assert seen + drained(broker) == ["third"]
        assert dead(broker) == {"second": "expired"}
        put(broker, "a", "fourth", **message)
        fail(broker, 2)
        assert dead(broker) == {"second": "expired", "fourth": "tries"}
