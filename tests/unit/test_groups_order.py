"""Order by key: one message of a key at a time, the next one only when it is settled, whatever happens to it."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from tests.groups import SMALL, ack, drained, ids, nack, of, take

from tarry.base.clock import TestClock
from tarry.groups import order
from tarry.testing import TestBroker, open_broker


def keyed(broker: TestBroker, *names: str) -> None:
    """Messages whose key is their first letter; "-" has none."""
    for name in names:
        broker.schedule("a", b"", id=name, order_key=None if name[0] == "-" else name[0])
    broker.step()


def test_one_of_a_key_at_a_time(tmp_path: Path) -> None:
    with open_broker(tmp_path) as broker:
        broker.set_group("a", "g", ordered=True)
        keyed(broker, "x1", "x2", "y1", "-1", "x3", "-2", "y2")
        batch = take(broker)
        assert ids(batch) == ["x1", "y1", "-1", "-2"]
        info = broker.group_info("a", "g")
        assert (info.leased, info.blocked, info.ready, info.lag) == (4, 3, 0, 7)
        assert take(broker).num_rows == 0
        ack(broker, batch, 0)
        again = take(broker)
        assert ids(again) == ["x2"]
        ack(broker, batch, 1, 2, 3)
        assert ids(take(broker)) == ["y2"]
        ack(broker, again)
        assert ids(take(broker)) == ["x3"]
        keyed(broker, "x4", "z1")
        assert ids(take(broker)) == ["z1"]
        assert ids(take(broker, group="h")) == ["x1", "x2", "y1", "-1", "x3", "-2", "y2", "x4", "z1"], "by group"


def test_those_behind_a_retry_wait_and_others_do_not(tmp_path: Path) -> None:
    with open_broker(tmp_path, lease_ms=5000) as broker:
        broker.set_group("a", "g", ordered=True)
        keyed(broker, "x1", "x2", "y1")
        batch = take(broker)
        nack(broker, batch, 0, delay_ms=10_000)
        ack(broker, batch, 1)
        keyed(broker, "y2", "x3")
        assert drained(broker) == ["y2"]
        broker.advance(10)
        again = take(broker)
        assert (ids(again), again["attempt"].to_pylist()) == (["x1"], [2])
        broker.advance(5)  # the lease ends
        again = take(broker)
        assert (ids(again), again["attempt"].to_pylist()) == (["x1"], [3])
        consumer = broker.subscribe("a", "g")
        nack(broker, again)
        assert consumer.fetch(9, 0) is not None
        consumer.close()
        assert drained(broker) == ["x1", "x2", "x3"]


def test_a_dead_letter_lets_the_next_one_go(tmp_path: Path) -> None:
    with open_broker(tmp_path) as broker:
        broker.set_group("a", "g", ordered=True, tries=2)
        keyed(broker, "x1", "x2", "y1")
        for _ in range(2):
            batch = take(broker)
            nack(broker, batch, ids(batch).index("x1"))
        assert drained(broker) == ["x2"]
        broker.step()
        assert ids(broker.dead_letters("a", "g")) == ["x1"]


def test_order_holds_after_a_restart(tmp_path: Path) -> None:
    clock = TestClock()
    with open_broker(tmp_path, clock=clock) as broker:
        broker.set_group("a", "g", ordered=True)
        keyed(broker, "x1", "x2", "x3", "y1", "y2", "z1")
        batch = take(broker)
        assert ids(batch) == ["x1", "y1", "z1"]
        ack(broker, batch, 1)
        nack(broker, batch, 0, delay_ms=5000)
    with open_broker(tmp_path, clock=clock) as broker:
        assert ids(take(broker)) == ["y2", "z1"]
        assert broker.group_info("a", "g").blocked == 2
        broker.advance(5)
        batch = take(broker)
        assert (ids(batch), batch["attempt"].to_pylist()) == (["x1"], [2])
        ack(broker, batch)
        batch = take(broker)
        assert ids(batch) == ["x2"]
        nack(broker, batch, delay_ms=0)
    with open_broker(tmp_path, clock=clock) as broker:
        batch = take(broker, limit=1)
        assert ids(batch) == ["x2"], "it comes before the cursor has passed it"
        assert sorted(drained(broker)) == ["y2", "z1"]
        ack(broker, batch)
        assert drained(broker) == ["x3"]


def test_the_clock_may_be_set_back(tmp_path: Path) -> None:
    clock = TestClock()
    with open_broker(tmp_path, clock=clock) as broker:
        broker.set_group("a", "g", ordered=True)
        start = clock.now_ms()
        broker.schedule("a", b"", id="x1", order_key="x", due=start + 1000)
        clock.set_ms(start + 1000)
        broker.step()
        clock.set_ms(start)
        keyed(broker, "x2", "y1")
        assert drained(broker) == ["y1"], "not before its time, and x2 came after it"
    with open_broker(tmp_path, clock=clock) as broker:
        assert drained(broker) == []
        broker.advance(1)
        assert drained(broker) == ["x1", "x2"]


def test_switching_it_on_and_off(tmp_path: Path) -> None:
    with open_broker(tmp_path) as broker:
        keyed(broker, "x1", "x2", "x3", "y1")
        batch = take(broker, limit=2)
        nack(broker, batch, 1, delay_ms=1000)
        broker.set_group("a", "g", ordered=True)
        assert ids(take(broker)) == ["y1"], "two of x are on their way already"
        ack(broker, batch, 0)
        assert take(broker).num_rows == 0
        broker.advance(1)
        batch = take(broker)
        assert ids(batch) == ["x2"]
        keyed(broker, "x4")
        assert take(broker).num_rows == 0
        assert broker.group_info("a", "g").blocked == 2
        broker.set_group("a", "g", ordered=False)
        assert ids(take(broker)) == ["x3", "x4"]
        assert ack(broker, batch) == 1


def test_what_is_held_back_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(order, "HELD_MAX", 50)
    with open_broker(tmp_path) as broker:
        broker.set_group("a", "g", ordered=True)
        keyed(broker, *[f"x{k}" for k in range(200)], "y1")
        batch = take(broker)
        assert ids(batch) == ["x0"]
        assert broker.group_info("a", "g").blocked == 50
        assert take(broker).num_rows == 0, "y1 is behind what is not looked at"
        ack(broker, batch)
        seen = drained(broker)
        assert [n for n in seen if n != "y1"] == [f"x{k}" for k in range(1, 200)]
        assert seen.count("y1") == 1


@pytest.mark.parametrize("seed", range(8))
def test_whatever_happens_each_key_is_settled_in_order(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    clock = TestClock()
    settled: dict[str, list[str]] = {}
    held: list[tuple[str, object, object]] = []
    done: set[str] = set()
    count = 0

    def on_way(broker: TestBroker) -> None:
        """What consumers hold of a key is one message."""
        keys = [name[0] for name, _, _ in held if name not in done]
        assert len(keys) == len(set(keys)), keys
        assert broker.group_info("a", "g").leased <= len(keys)

    for _ in range(4):
        held.clear()  # their leases end with the broker
        with open_broker(tmp_path, clock=clock, **{**SMALL, "lease_ms": 1000}) as broker:
            broker.set_group("a", "g", ordered=True, tries=0)
            for _ in range(60):
                match rng.choice(["put", "take", "ack", "ack", "nack", "wait", "close"]):
                    case "put":
                        names = [f"{rng.choice('xyz')}{count + i:04}" for i in range(rng.randint(1, 5))]
                        count += len(names)
                        keyed(broker, *names)
                    case "take":
                        now = clock.now_ms()
                        batch = take(broker, limit=rng.randint(1, 6))
                        assert clock.now_ms() == now
                        held = [h for h in held if h[0] not in set(ids(batch))]
                        held += [(n, *of(batch, row)) for row, n in enumerate(ids(batch))]
                        on_way(broker)
                    case "ack" if held:
                        name, leases, offsets = held.pop(rng.randrange(len(held)))
                        broker.group("a", "g").ack(leases, offsets, lambda _: None)  # type: ignore[arg-type]
                        settled.setdefault(name[0], []).append(name)
                        done.add(name)
                    case "nack" if held:
                        name, leases, offsets = held.pop(rng.randrange(len(held)))
                        group = broker.group("a", "g")
                        group.nack(leases, offsets, rng.choice([0, 500]), lambda _: None)  # type: ignore[arg-type]
                    case "wait":
                        broker.advance(0.3)
                        held = []  # nobody settles what may have ended
                        broker.advance(1)
    with open_broker(tmp_path, clock=clock) as broker:
        broker.advance(10)
        for name in drained(broker, limit=3):
            settled.setdefault(name[0], []).append(name)
    for names in settled.values():
        assert names == sorted(set(names)), "each once, in order"
    assert sum(len(names) for names in settled.values()) == count
