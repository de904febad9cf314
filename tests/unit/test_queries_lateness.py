"""Lateness: which hand-outs say something about the broker, and how that is counted."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tarry.base.clock import TestClock
from tarry.broker.queries import lateness as module
from tarry.broker.queries.lateness import OTHERS, Lateness
from tarry.testing import TestBroker, open_broker


def delivered(broker: TestBroker) -> list[int]:
    """Lateness of each hand-out that counts."""
    plain = broker.components.lateness.delivered().to_json()
    return [b for b, c in zip(plain["buckets"], plain["counts"], strict=True) for _ in range(c)]


def test_a_consumer_that_was_waiting_counts_and_one_that_comes_later_does_not(tmp_path: Path) -> None:
    with open_broker(tmp_path) as broker:
        waiting = broker.subscribe("a", "waiting", prefetch=10)
        broker.schedule("a", b"x", delay=1)
        broker.advance(1)
        broker.clock.advance_ms(7)
        assert waiting.fetch(10, 0) is not None
        assert delivered(broker) == [7]
        broker.clock.advance_ms(50)
        assert broker.receive("a", "late").num_rows == 1
        assert delivered(broker) == [7]
        assert broker.status()["handed_out"] == 2
        assert broker.status()["queue_lateness_ms"]["max"] == 0


def test_what_waited_for_a_consumer_that_had_its_hands_full_does_not_count(tmp_path: Path) -> None:
    with open_broker(tmp_path) as broker:
        consumer = broker.subscribe("a", "g", prefetch=2)
        for n in range(6):
            broker.schedule("a", b"x", delay=1 + n)
        broker.advance(1)
        broker.advance(1)
        first = consumer.fetch(10, 0)
        assert first is not None
        found = broker.components.lateness.delivered()
        assert (found.count, found.min, found.max) == (2, 0, 1000)
        broker.advance(2)
        consumer.ack(first["lease"].to_numpy(), first["offset"].to_numpy())
        assert consumer.fetch(1, 0) is not None
        assert broker.components.lateness.delivered().count == 2, "due before there was room"
        assert broker.status()["handed_out"] == 3
        broker.advance(1)
        assert consumer.fetch(1, 0) is not None
        assert broker.components.lateness.delivered().count == 3, "from then on there was"


def test_what_comes_again_does_not_count(tmp_path: Path) -> None:
    with open_broker(tmp_path) as broker:
        consumer = broker.subscribe("a", "g", prefetch=10)
        broker.schedule("a", b"x")
        broker.step()
        batch = consumer.fetch(10, 0)
        assert batch is not None
        consumer.nack(batch["lease"].to_numpy(), batch["offset"].to_numpy(), 5000)
        broker.advance(5)
        again = consumer.fetch(10, 0)
        assert again is not None
        assert again["attempt"].to_pylist() == [2]
        assert delivered(broker) == [0]


def test_the_way_into_the_queue_is_the_brokers_alone(tmp_path: Path) -> None:
    with open_broker(tmp_path) as broker:
        broker.schedule("a", b"x", delay=1)
        broker.step()
        broker.clock.advance_ms(1030)
        broker.step()
        assert broker.components.lateness.queued().summary()["max"] == 30
        assert broker.components.lateness.delivered().count == 0


def test_histograms_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TOPICS_MAX", 3)
    monkeypatch.setattr(module, "WAITING_MAX", 7)
    found = Lateness(TestClock(0))
    for n in range(100):
        moments = np.array([1000 - n], np.int64)
        found.on_handed_out(moments, moments, 1000, f"t{n % 10}", 0)
    by_topic = found.by_topic()
    assert list(by_topic) == ["t0", "t1", "t2", OTHERS]
    assert [h.count for h in by_topic.values()] == [10, 10, 10, 70]
    assert found.delivered().count == 100
    assert (found.delivered().min, found.delivered().max) == (0, 99)


def test_what_comes_overdue_is_late_from_when_it_came_and_counted_by_itself(tmp_path: Path) -> None:
    with open_broker(tmp_path) as broker:
        waiting = broker.subscribe("a", "g", prefetch=10)
        broker.clock.advance_ms(2 * 3_600_000)
        broker.schedule("a", b"x", due=broker.clock.now_ms() - 3_600_000)
        broker.schedule("a", b"x")
        broker.clock.advance_ms(3)
        broker.step()
        assert broker.status()["queue_lateness_ms"]["max"] == 3
        broker.clock.advance_ms(4)
        batch = waiting.fetch(10, 0)
        assert batch is not None
        assert batch.num_rows == 2
        assert delivered(broker) == [7, 7]
        assert broker.status()["overdue"] == 1, "what is due at once is not overdue"
        assert broker.overview()["lateness"]["overdue"] == 1


def test_what_a_seek_or_a_pause_makes_late_does_not_count(tmp_path: Path) -> None:
    with open_broker(tmp_path) as broker:
        consumer = broker.subscribe("a", "g", prefetch=10)
        broker.schedule("a", b"x", delay=3600)
        broker.advance(3600)
        assert consumer.fetch(10, 0) is not None
        broker.clock.advance_ms(3_600_000)
        broker.set_group("a", "g", paused=True)
        broker.schedule("a", b"y")
        broker.step()
        assert consumer.fetch(10, 0) is None
        broker.clock.advance_ms(1000)
        broker.set_group("a", "g", paused=False)
        assert consumer.fetch(10, 0) is not None
        assert delivered(broker) == [0]
        broker.seek("a", "g", "earliest")
        again = consumer.fetch(10, 0)
        assert again is not None
        assert again["attempt"].to_pylist() == [1, 1]
        assert delivered(broker) == [0]


def test_of_what_comes_in_one_batch_only_first_tries_count(tmp_path: Path) -> None:
    with open_broker(tmp_path) as broker:
        consumer = broker.subscribe("a", "g", prefetch=10)
        first = broker.subscribe("a", "g", prefetch=10)
        for _ in range(2):
            broker.schedule("a", b"x")
        broker.step()
        batch = first.fetch(10, 0)
        assert batch is not None
        consumer.nack(batch["lease"].to_numpy(), batch["offset"].to_numpy(), 5000)
        first.nack(batch["lease"].to_numpy(), batch["offset"].to_numpy(), 5000)
        broker.schedule("a", b"y", delay=5)
        broker.advance(5)
        again = consumer.fetch(10, 0)
        assert again is not None
        assert sorted(again["attempt"].to_pylist()) == [1, 2, 2]
        assert delivered(broker) == [0, 0, 0]
