"""What fronts that hold no threads ask of a group: looking without waiting, being told, single leases, giving up."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from tests.groups import drained, put
from tests.unit.test_groups_group import LEASE_MS, Rig, empty, of, offsets, take

from tarry.testing import TestBroker, open_broker


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    made = Rig(tmp_path, tries=3)
    yield made
    made.close()


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[TestBroker]:
    with open_broker(tmp_path) as made:
        yield made


def test_a_query_without_waiting_says_when_to_look_again(rig: Rig) -> None:
    consumer = rig.consumer()
    assert consumer.poll(10) == (None, None), "when it is told"
    rig.box.append("a")
    batch, again = consumer.poll(10)
    assert batch is not None
    assert again is None
    assert consumer.poll(10) == (None, LEASE_MS / 1000), "when the lease runs out"
    consumer.nack(*of(batch), 300)
    assert consumer.poll(10) == (None, 0.3)
    rig.clock.advance_ms(300)
    batch, _ = consumer.poll(10)
    assert batch is not None
    assert batch["attempt"].to_pylist() == [2]
    consumer.close()
    assert consumer.poll(10) == (None, None)


def test_an_acknowledgement_is_news_where_it_lets_somebody_have_more(rig: Rig) -> None:
    calls: list[int] = []
    rig.group.listen(lambda: calls.append(1))
    rig.box.append("a", "a", "a")
    full = rig.consumer(prefetch=2)
    batch, _ = full.poll(10)
    assert batch is not None
    assert full.poll(10)[0] is None, "it holds as many as it may"
    leases, places = of(batch)
    rig.group.ack_each(leases[:1], places[:1], lambda error: None)
    assert len(calls) == 1
    last, _ = full.poll(10)
    assert last is not None
    rig.group.ack_each(*of(last), lambda error: None)
    assert len(calls) == 1, "nothing is left that waits for it"
    rig.group.nack(leases[1:], places[1:], 0)
    before = len(calls)
    again, _ = full.poll(10)
    assert again is not None
    rig.group.ack_each(*of(again), lambda error: None)
    assert len(calls) == before


def test_a_listener_is_told_of_news_until_it_has_enough(rig: Rig) -> None:
    calls: list[int] = []
    unsubscribe = rig.group.listen(lambda: calls.append(1))
    other: list[int] = []
    rig.group.listen(lambda: other.append(1))
    rig.box.append("a")
    rig.topic.notify()
    assert len(calls) == len(other) == 1
    consumer = rig.consumer()
    taken = take(consumer)
    rig.box.append("a")
    consumer.ack(*of(taken))
    assert len(calls) == 2, "there is more, and room for it"
    unsubscribe()
    rig.topic.notify()
    assert (len(calls), len(other)) == (2, 3)
    rig.control.stop()
    assert len(other) == 4


def test_each_acknowledgement_has_its_own_answer(rig: Rig) -> None:
    rig.box.append(*["a"] * 4)
    consumer = rig.consumer()
    batch = take(consumer)
    leases, places = of(batch, 0, 2, 2, 3)
    leases = leases.copy()
    leases[3] = 99
    results: list[object] = []
    rig.group.ack_each(leases, places, lambda settled: results.append(settled.tolist()))
    assert results == [[True, True, False, False]], "to be stale is no failure"
    rig.group.ack_each(leases, places, lambda settled: results.append(settled.tolist()))
    assert results[1:] == [[False] * 4]
    assert rig.group.unsettled == 2


def test_one_message_of_a_batch_is_held_for_longer(rig: Rig) -> None:
    rig.box.append(*["a"] * 3)
    consumer = rig.consumer()
    batch = take(consumer)
    [lease, *_], _ = of(batch)
    changed: list[object] = []
    rig.group.change_lease(int(lease), 1, 5 * LEASE_MS, changed.append)
    [fresh] = changed
    assert fresh not in (None, int(lease))
    rig.group.change_lease(int(lease), 1, LEASE_MS, changed.append)
    assert changed == [fresh, None], "the former lease has let it go"
    assert consumer.held == 3
    rig.clock.advance_ms(LEASE_MS)
    again = take(rig.consumer())
    assert (offsets(again), again["attempt"].to_pylist()) == ([0, 2], [2, 2])
    assert consumer.ack(np.array([fresh]), np.array([1])) == 1
    assert consumer.held == 0


def test_a_batch_of_one_gets_another_lease_too(rig: Rig) -> None:
    rig.box.append("a")
    consumer = rig.consumer()
    batch = take(consumer)
    changed: list[object] = []
    rig.group.change_lease(int(batch["lease"][0].as_py()), 0, 100, changed.append)
    assert rig.group.ack(*of(batch)) == 0
    rig.clock.advance_ms(100)
    assert take(consumer)["attempt"].to_pylist() == [2]
    assert rig.group.ack(np.array(changed), np.array([0])) == 0, "its time is up"


def test_what_a_consumer_holds_is_renewed_but_not_for_ever(rig: Rig) -> None:
    rig.box.append("a", "a")
    consumer, other = rig.consumer(), rig.consumer()
    take(consumer, 1)
    take(other, 1)
    renewed = []
    for _ in range(4):
        rig.clock.advance_ms(LEASE_MS - 1)
        renewed.append(consumer.renew(3 * LEASE_MS))
    assert renewed == [1, 1, 1, 0]
    rig.clock.advance_ms(1)
    assert offsets(take(other)) == [0, 1], "both came again: one was never renewed, one had its time"


def test_a_consumer_gives_a_message_up(rig: Rig) -> None:
    rig.box.append("a", "a")
    consumer = rig.consumer()
    batch = take(consumer)
    results: list[object] = []
    assert rig.group.reject(*of(batch, 1), results.append) == 1
    assert results == [None]
    [copies] = rig.copies
    assert dict(copies["properties"][0].as_py())["tarry.dead.attempts"] == "1"
    assert consumer.ack(*of(batch)) == 1
    assert rig.group.unsettled == 0
    assert empty(consumer)


def test_a_restart_after_a_lease_of_its_own(rig: Rig) -> None:
    """Leases are not kept: what was held comes again, as the same try."""
    rig.box.append("a")
    batch = take(rig.consumer())
    rig.group.change_lease(int(batch["lease"][0].as_py()), 0, 100_000, lambda lease: None)
    rig.restart()
    assert take(rig.consumer())["attempt"].to_pylist() == [1]


def test_a_topic_makes_its_groups_keep_the_order(broker: TestBroker) -> None:
    broker.set_group("a", "g", tries=5)
    put(broker, "a", "1", "2", order_key="k")
    broker.set_topic("a", ordered=True)
    first = broker.receive("a", "g", max_messages=10)
    assert first["id"].to_pylist() == ["1"]
    assert broker.group_info("a", "g").ordered
    broker.set_topic("a", ordered=False)
    assert broker.receive("a", "g", max_messages=10)["id"].to_pylist() == ["2"]
    broker.set_topic("a", ordered=True)
    put(broker, "a", "3", "4", order_key="k")
    assert broker.receive("a", "g", max_messages=10).num_rows == 0, "two of its key are out"
    assert drained(broker, "a", "new") == ["1", "2", "3", "4"]


def test_a_topics_order_outlives_a_restart(tmp_path: Path) -> None:
    with open_broker(tmp_path) as broker:
        broker.set_topic("a", ordered=True)
        broker.set_topic("b", declared=True)
        assert (broker.has_topic("b"), broker.has_topic("c")) == (True, False)
        put(broker, "a", "1", "2", order_key="k")
        broker.group("a", "g")
    with open_broker(tmp_path) as broker:
        assert broker.has_topic("b")
        assert broker.receive("a", "g", max_messages=10)["id"].to_pylist() == ["1"]
