"""``max_per_second`` of groups and topics: no more in any second, nothing lost by it, and a waiting consumer wakes."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.groups import ack, ids, nack, put, take

import tarry
from tarry.api.groups import GroupSettings, TopicSettings
from tarry.api.retry import parse_retry
from tarry.base.clock import TestClock
from tarry.groups.policy import Policy
from tarry.testing import TestBroker, open_broker

NAMES = [f"m{n:03}" for n in range(100)]


def handed(broker: TestBroker, steps: int, step_s: float, group: str = "g") -> list[list[str]]:
    """What each step brings, all of it acknowledged."""
    found = []
    for _ in range(steps):
        batch = take(broker, group=group)
        found.append(ids(batch))
        if batch.num_rows:
            ack(broker, batch)
        broker.advance(step_s)
    return found


def test_no_more_than_that_in_a_second_and_all_in_their_order(tmp_path: Path) -> None:
    with open_broker(tmp_path) as broker:
        broker.set_group("a", "g", max_per_second=20)
        put(broker, "a", *NAMES)
        found = handed(broker, 120, 0.05)
        assert [name for step in found for name in step] == NAMES
        counts = [len(step) for step in found]
        for begin in range(len(counts)):
            for length in (1, 2, 20, 40):
                # What a tenth of a second saves up, and what comes in the time itself.
                assert sum(counts[begin : begin + length]) <= 2 + length
        assert max(counts) == 2


@pytest.mark.parametrize("settings", [{"ordered": True}, {"filter": "x || y"}, {"inflight_max": 3}])
def test_with_other_settings(tmp_path: Path, settings: dict[str, object]) -> None:
    with open_broker(tmp_path) as broker:
        broker.set_group("a", "g", max_per_second=10, **settings)  # type: ignore[arg-type]
        for name in NAMES[:20]:
            broker.schedule("a", b"", id=name, order_key=name[-1], tag="x")
        broker.step()
        found = handed(broker, 30, 0.1)
        assert [name for step in found for name in step] == NAMES[:20]
        assert max(len(step) for step in found) == 1


def test_a_retry_counts(tmp_path: Path) -> None:
    with open_broker(tmp_path, retry_ms=0) as broker:
        broker.set_group("a", "g", max_per_second=1)
        put(broker, "a", "one", "two")
        nack(broker, take(broker))
        assert take(broker).num_rows == 0
        broker.advance(1)
        assert ids(take(broker)) == ["one"]


def test_a_topics_rate_holds_for_each_group_and_the_lower_one_counts(tmp_path: Path) -> None:
    clock = TestClock()
    with open_broker(tmp_path, clock=clock) as broker:
        assert broker.set_topic("a", max_per_second=100).max_per_second == 100
        broker.set_group("a", "slow", max_per_second=1)
        broker.set_group("a", "fast", max_per_second=1000)
        broker.set_group("a", "none")
        put(broker, "a", *NAMES)
        assert [take(broker, group=name).num_rows for name in ("slow", "fast", "none")] == [1, 10, 10]
    with open_broker(tmp_path, clock=clock) as broker:
        assert broker.topic_info("a").max_per_second == 100, "it outlives the broker"
        assert broker.group_info("a", "slow").max_per_second == 1
        broker.set_topic("a", max_per_second=0)
        assert take(broker, group="none").num_rows == len(NAMES)


def test_a_consumer_that_waits_wakes_when_the_rate_allows_it(tmp_path: Path) -> None:
    with tarry.open(tmp_path) as broker:
        broker.set_group("a", "g", max_per_second=100)
        for name in NAMES[:30]:
            broker.schedule("a", name.encode())
        consumer = broker.subscribe("a", "g")
        seen: list[str] = []
        while len(seen) < 30:
            batch = consumer.fetch(30, 60)
            assert batch is not None
            seen += [body.decode() for body in batch.column("body").to_pylist()]
    assert sorted(seen) == NAMES[:30]


def test_another_setting_does_not_fill_the_bucket() -> None:
    policy = Policy("a", GroupSettings(max_per_second=5), None, parse_retry("fixed 1s"))
    rate = policy.rate
    policy.change(GroupSettings(max_per_second=5, tries=3), TopicSettings(max_per_second=7))
    assert policy.rate is rate
    policy.change(GroupSettings(max_per_second=5), TopicSettings(max_per_second=4))
    assert policy.rate is not rate
    policy.change(GroupSettings(), None)
    assert policy.rate is None
