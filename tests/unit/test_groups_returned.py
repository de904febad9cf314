"""What a consumer gives back unseen, how far ahead it is sent messages, and why it could not handle some."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from tests.groups import SMALL, ack, drained, ids, nack, of, put, says, take

from tarry.groups.reasons import REASONS_MAX, TEXT_MAX, Reasons
from tarry.testing import TestBroker, open_broker


def fetch(subscription: Any, rows_max: int = 100) -> Any:
    return subscription.fetch(rows_max, 0)


def test_what_nobody_saw_is_ready_again_as_the_same_try(tmp_path: Path) -> None:
    with open_broker(tmp_path, **SMALL) as broker:
        broker.set_group("a", "g", tries=2)
        put(broker, "a", "x", "y", "z")
        nack(broker, take(broker, limit=1))
        consumer = broker.subscribe("a", "g")
        for _ in range(5):  # more often than there are tries
            batch = fetch(consumer)
            assert (ids(batch), batch["attempt"].to_pylist()) == (["x", "y", "z"], [2, 1, 1])
            assert consumer.give_back(*of(batch)) == 3
            assert consumer.give_back(*of(batch)) == 0, "it has them no more"
            assert consumer.held == 0
        info = broker.group_info("a", "g")
        assert (info.ready, info.leased, info.dead) == (3, 0, 0)
        assert drained(broker) == ["x", "y", "z"]


def test_after_a_crash_the_try_is_what_it_was(tmp_path: Path) -> None:
    with open_broker(tmp_path, **SMALL) as broker:
        put(broker, "a", "x", "y")
        nack(broker, take(broker, limit=1))
        consumer = broker.subscribe("a", "g")
        consumer.give_back(*of(fetch(consumer)))
    with open_broker(tmp_path, **SMALL) as broker:
        batch = take(broker)
        assert (ids(batch), batch["attempt"].to_pylist()) == (["x", "y"], [2, 1])


def test_order_holds_over_what_is_given_back(tmp_path: Path) -> None:
    with open_broker(tmp_path, **SMALL) as broker:
        broker.set_group("a", "g", ordered=True)
        put(broker, "a", "x", "y", "z", order_key="k")
        consumer = broker.subscribe("a", "g")
        for _ in range(2):
            batch = fetch(consumer)
            assert ids(batch) == ["x"]
            consumer.give_back(*of(batch))
        assert drained(broker) == ["x", "y", "z"]


def test_the_window_bounds_what_is_held_and_prefetch_the_window(tmp_path: Path) -> None:
    with open_broker(tmp_path, **SMALL) as broker:
        put(broker, "a", *map(str, range(9)))
        consumer = broker.subscribe("a", "g", prefetch=5)
        consumer.resize(2)
        first = fetch(consumer)
        assert first.num_rows == 2
        assert fetch(consumer) is None
        consumer.resize(0)
        ack(broker, first)
        assert fetch(consumer) is None
        consumer.resize(1000)
        assert fetch(consumer).num_rows == 5


def test_a_consumer_whose_leases_end_in_silence_gets_no_more_until_it_is_heard_of(tmp_path: Path) -> None:
    with open_broker(tmp_path, **SMALL) as broker:
        broker.set_group("a", "g", tries=3)
        put(broker, "a", "x", "y", "z")
        consumer = broker.subscribe("a", "g", lease_ms=1000)
        consumer.resize(2)
        held = fetch(consumer)
        for _ in range(5):  # more often than there are tries
            broker.clock.advance_ms(1000)
            assert fetch(consumer) is None
            assert consumer.silent
        info = broker.group_info("a", "g")
        assert (info.ready + info.waiting, info.leased, info.dead) == (3, 0, 0)
        other = broker.subscribe("a", "g")
        batch = fetch(other, 1)
        assert (ids(batch), batch["attempt"].to_pylist()) == (["x"], [2])
        assert consumer.ack(*of(held)) == 0, "they are others' by now"
        assert not consumer.silent
        batch = fetch(consumer)
        assert (ids(batch), batch["attempt"].to_pylist()) == (["y", "z"], [2, 1])


def test_the_window_is_a_sign_of_life(tmp_path: Path) -> None:
    with open_broker(tmp_path, **SMALL) as broker:
        put(broker, "a", "x")
        consumer = broker.subscribe("a", "g", lease_ms=1000)
        consumer.resize(1)
        fetch(consumer)
        broker.clock.advance_ms(1000)
        assert fetch(consumer) is None
        consumer.resize(1)
        assert fetch(consumer)["attempt"].to_pylist() == [2]


def test_a_consumer_without_a_window_need_not_be_heard_of(tmp_path: Path) -> None:
    with open_broker(tmp_path, **SMALL) as broker:
        put(broker, "a", "x")
        consumer = broker.subscribe("a", "g", lease_ms=1000)
        fetch(consumer)
        broker.clock.advance_ms(1000)
        assert fetch(consumer)["attempt"].to_pylist() == [2]


def lateness(broker: TestBroker) -> Any:
    return broker.overview().get("lateness")


def test_what_is_handed_out_again_is_not_late(tmp_path: Path) -> None:
    with open_broker(tmp_path, **SMALL) as broker:
        put(broker, "a", "x")
        consumer = broker.subscribe("a", "g")
        batch = fetch(consumer)
        before = lateness(broker)
        consumer.give_back(*of(batch))
        broker.advance(5000)
        assert fetch(consumer).num_rows == 1
        assert lateness(broker) == before


def test_the_reason_of_a_try_is_shown_until_the_next_and_is_in_the_dead_letter(tmp_path: Path) -> None:
    with open_broker(tmp_path, **SMALL) as broker:
        broker.set_group("a", "g", tries=3, retry="fixed 0s")
        put(broker, "a", "x", "y")

        def reason() -> Any:
            events = broker.history("x", topic="a").events
            return next(e.details.get("reason") for e in events if e.event == "group")

        broker.nack("a", "g", *of(take(broker)), reason="first")
        assert reason() == "first"
        broker.nack("a", "g", *of(take(broker)))
        assert reason() is None, "of the last try nothing is known"
        batch = take(broker)
        broker.nack("a", "g", *of(batch, 0), reason="L" * 1000)
        broker.nack("a", "g", *of(batch, 1))
        broker.step()
        x, y = says(broker.dead_letters("a", "g"))
        assert x["tarry.dead.reason"] == "L" * (TEXT_MAX - 1) + "…"
        assert "tarry.dead.reason" not in y
        broker.respawn("a", "g")
        broker.step()
        assert says(take(broker)) == [{"tarry.only": "g"}] * 2, "it is gone with the rest of its death"


def test_reasons_are_bounded_and_forgotten_with_their_messages() -> None:
    reasons = Reasons()
    reasons.note(np.arange(REASONS_MAX + 10, dtype=np.int64), "many")
    assert (reasons.get(9), reasons.get(10)) == (None, "many")
    reasons.note(np.array([7], np.int64), "later")
    assert (reasons.get(7), reasons.get(10), reasons.get(11)) == ("later", None, "many")
    assert reasons.of(np.array([7, 8], np.int64)) == ["later", None]
    reasons.forget(np.array([7], np.int64))
    assert reasons.of(np.array([7, 8], np.int64)) is None
