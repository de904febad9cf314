"""The parts of a group by themselves: what is to come, leases, the order, copies under way; and rows by offsets."""

from __future__ import annotations

import itertools
import random
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.test_queue_log import NOW, Box

from tarry.base.errors import IllegalTransitionError
from tarry.groups.copies import RETRY_MS, ROWS_MAX, CopiesUnderWay
from tarry.groups.leases import FEW_ROWS, Holder, Leases
from tarry.groups.order import Order
from tarry.groups.states import State, StateEvent
from tarry.groups.upcoming import Upcoming, UpcomingRows


def column(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def ones(count: int) -> np.ndarray:
    return np.ones(count, np.int32)


# -- what waits ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(5))
def test_what_waits_is_taken_when_its_moment_has_come_and_once(seed: int) -> None:
    rng, waiting, expected = random.Random(seed), Upcoming(), {}
    for _ in range(40):
        offsets = sorted(rng.sample(range(10_000), rng.randint(1, 6)))
        if any(o in expected for o in offsets):
            continue
        moments = [rng.randint(0, 50) for _ in offsets]
        expected |= dict(zip(offsets, moments, strict=True))
        attempts = np.array([o % 5 + 1 for o in offsets], np.int32)
        waiting.push_each(column(*moments), column(*offsets), attempts, State.WAITING)
    assert waiting.next_ms == min(expected.values())
    for now in range(0, 51, 7):
        due = {o for o, at in expected.items() if at <= now}
        assert waiting.waiting(now) == len(expected) - len(due)
        while (rows := waiting.take(now, rng.randint(1, 9))) is not None:
            offsets = rows.offsets.tolist()
            assert offsets == sorted(offsets)
            assert rows.attempts.tolist() == [o % 5 + 1 for o in offsets]
            assert set(offsets) <= due
            for offset in offsets:
                del expected[offset]
        assert not due & expected.keys()


def test_what_waits_keeps_its_state_when_it_is_put_back() -> None:
    waiting = Upcoming()
    states = np.array([State.READY, State.WAITING, State.READY], np.int8)
    waiting.push_back(5, UpcomingRows(column(1, 2, 3), np.array([1, 4, 1], np.int32), states))
    rows = waiting.take(5, 9)
    assert rows is not None
    assert (rows.offsets.tolist(), rows.attempts.tolist(), rows.states.tolist()) == ([1, 2, 3], [1, 4, 1], [0, 2, 0])
    waiting.push(5, column(1, 4, 9), ones(3), State.READY)
    assert waiting.drop_below(5).tolist() == [1, 4]
    assert waiting.drop_below(99).tolist() == [9]
    assert waiting.next_ms is None


# -- leases ----------------------------------------------------------------------------------------------------------


def test_a_lease_ends_row_by_row_and_by_the_table() -> None:
    holder, leases = Holder(prefetch=10, lease_ms=1000, since_ms=0), Leases(itertools.count(1))
    number = leases.open(holder, column(3, 5, 9), State.READY, ones(3), None, 100)
    assert (holder.held, leases.rows) == (3, 3)
    [(lease, at)] = leases.find(column(number, number, number, 7), column(5, 4, 9, 3))
    assert lease.offsets[at].tolist() == [5, 9]
    leases.end(lease, at[:1], StateEvent.ACK)
    assert (holder.held, leases.rows, lease.offsets[lease.held].tolist()) == (2, 2, [3, 9])
    with pytest.raises(IllegalTransitionError):
        leases.end(lease, lease.held, StateEvent.BLOCK)
    assert (holder.held, leases.rows, lease.offsets[lease.held].tolist()) == (2, 2, [3, 9]), "nothing was changed"
    assert leases.find(column(number), column(5)) == []
    [expired] = leases.expired(100)
    leases.end(expired, expired.held, StateEvent.EXPIRE)
    assert (holder.held, leases.rows, list(leases)) == (0, 0, [])
    with pytest.raises(IllegalTransitionError):
        leases.open(holder, column(1), np.array([State.ACKED], np.int8), ones(1), None, 5)


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 12)), max_size=FEW_ROWS))
def test_a_few_rows_are_found_as_many_are(asked: list[tuple[int, int]]) -> None:
    holder, leases = Holder(prefetch=99, lease_ms=1000, since_ms=0), Leases(itertools.count(1))
    for offsets in (column(0, 1, 2), column(3, 5, 9), column(4, 6, 7, 8)):
        leases.open(holder, offsets, State.READY, ones(len(offsets)), None, 100)
    [(lease, at)] = leases.find(column(2), column(5))
    leases.end(lease, at, StateEvent.ACK)
    beside = [(77, offset) for offset in range(FEW_ROWS + 1)]  # of a lease that there never was
    found = []
    for rows in (asked, [*asked, *beside]):
        numbers, offsets = column(*(number for number, _ in rows)), column(*(offset for _, offset in rows))
        by_lease = leases.find(numbers, offsets)
        found.append(sorted((lease.number, lease.offsets[at].tolist()) for lease, at in by_lease))
    assert found[0] == found[1]


def test_what_settled_leases_leave_behind_is_bounded() -> None:
    holder, leases = Holder(prefetch=10, lease_ms=3_600_000, since_ms=0), Leases(itertools.count(1))
    for offset in range(5000):
        number = leases.open(holder, column(offset), State.READY, ones(1), None, 3_600_000)
        [(lease, at)] = leases.find(column(number), column(offset))
        leases.end(lease, at, StateEvent.ACK)
    assert len(leases._deadlines) < 2000, "only memory shows it"  # noqa: SLF001 - only memory shows it


# -- order -----------------------------------------------------------------------------------------------------------


def test_the_order_lets_one_of_a_key_go() -> None:
    order = Order(active=True)
    assert [order.enter(o, k) for o, k in [(1, "x"), (2, "x"), (3, "y"), (4, "x"), (5, "y")]] == [
        True, False, True, False, False,
    ]  # fmt: skip
    assert order.held == 3
    assert order.leave([2, 99]) == [], "that one is not on its way"
    assert order.leave([3, 1]) == [2, 5]
    order.note(7, "x")
    assert order.leave([2]) == [], "two were on their way"
    assert order.leave([7]) == [4]
    assert order.leave([4, 5]) == []
    assert (order.held, order.enter(8, "x")) == (0, True)
    assert not order.enter(9, "x")
    assert (order.below(9), order.drop_below(10), order.held) == ({8}, [9], 0)
    assert [order.enter(o, "x") for o in (11, 12)] == [False, False]
    assert (order.reset(active=False), order.active, order.held) == ([11, 12], False, 0)
    assert order.reset(active=True) == []
    assert order.enter(13, "x"), "it knows of none before"


# -- copies ----------------------------------------------------------------------------------------------------------


def test_copies_give_parts_and_try_again_later() -> None:
    copies = CopiesUnderWay()
    copies.add(np.arange(ROWS_MAX + 5), ones(ROWS_MAX + 5), "tries")
    first = copies.begin(0)
    second = copies.begin(0)
    assert first is not None
    assert second is not None
    assert (len(first.offsets), len(second.offsets), copies.begin(0), copies.is_copying) == (ROWS_MAX, 5, None, True)
    copies.fail(first, 100)
    copies.finish(second)
    assert (copies.rows, copies.is_copying, copies.next_ms) == (ROWS_MAX, False, 100 + RETRY_MS)
    assert copies.begin(100) is None
    assert copies.begin(100 + RETRY_MS) is first
    with pytest.raises(IllegalTransitionError):
        copies.clear()
    copies.shorten(first, 10)
    copies.finish(first)
    assert copies.rows == ROWS_MAX - 10


# -- rows by offset --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cache", [0, 3000, 1 << 20])
def test_rows_are_read_by_their_offsets(cache: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tarry.queue import topic as topic_module

    rng = random.Random(cache)
    box = Box(tmp_path, cache=cache)
    for _ in range(60):
        box.append(*rng.choices(["a", "b"], k=rng.randint(1, 20)), body=rng.choice([20, 300]))
        if rng.random() < 0.4:
            box.log.flush()
    topic = box.log.topic("a")
    for gap in (0, 3, 64):
        monkeypatch.setattr(topic_module, "GAP_MAX", gap)
        for _ in range(40):
            wanted = np.array(sorted(rng.sample(range(topic.end), rng.randint(1, 40))), np.int64)
            looked, found, batch = topic.read_rows(wanted)
            assert (looked, found.tolist()) == (len(wanted), wanted.tolist())
            assert batch is not None
            assert batch["seq"].to_pylist() == [box.seqs["a"][o] for o in wanted.tolist()]
    looked, found, batch = topic.read_rows(np.arange(topic.end), 1)
    assert 0 < looked < topic.end
    assert found.tolist() == list(range(looked))
    box.log.flush()
    monkeypatch.undo()
    if cache == 0:
        first = topic.extents[2].first
        topic.extents = topic.extents[2:]
        looked, found, batch = topic.read_rows(np.array([0, 1, first, first + 1], np.int64))
        assert (looked, found.tolist()) == (4, [first, first + 1])
        assert topic.read_rows(np.array([0, 1], np.int64))[1].tolist() == []
    box.log.close()


def test_the_first_that_is_due_then_or_later(tmp_path: Path) -> None:
    rng = random.Random(3)
    box, dues = Box(tmp_path), []
    for k in range(80):
        due = NOW + 10 * k - rng.choice([0, 0, 300])
        box.append("a", "b", due_ms=due, body=200)
        dues.append(due)
        if rng.random() < 0.3:
            box.log.flush()
    topic = box.log.topic("a")
    for moment in range(NOW - 400, NOW + 900, 7):
        expected = next((o for o, d in enumerate(dues) if d >= moment), len(dues))
        assert box.log.first_due(topic, moment) == expected
    box.log.close()
