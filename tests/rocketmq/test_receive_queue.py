"""Receives that wait for messages: served at once, but not one by one while many come."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from tarry.api.accounts import HeldBack
from tarry.api.quotas import FILTERING, RECEIVING
from tarry.errors import QuotaExceededError
from tarry.fronts.kit import receiving
from tarry.fronts.kit.receiving import GATHER_S, ReceiveQueue, Waiter, receive_within

pytestmark = pytest.mark.asyncio


class Group:
    """Has so many messages, and counts how often it is asked; a subscription of itself, too."""

    silent = False
    account: Any = None
    held_back: Any = None

    def __init__(self) -> None:
        self.closed = False
        self.gathers = False
        self.ready = 0
        self.asked = 0
        self.on_news: Callable[[], None] = lambda: None

    def listen(self, on_news: Callable[[], None]) -> Callable[[], None]:
        self.on_news = on_news
        return lambda: None

    def come(self, rows: int) -> None:
        self.ready += rows
        self.on_news()

    def withdraw(self) -> None:
        pass

    def poll(self, rows_max: int) -> tuple[pa.RecordBatch | None, float | None]:
        self.asked += 1
        rows = min(rows_max, self.ready)
        self.ready -= rows
        return (pa.record_batch({"row": list(range(rows))}) if rows else None), None


async def test_the_first_is_served_at_once_and_the_next_ones_together() -> None:
    group: Any = Group()
    queue = ReceiveQueue(asyncio.get_running_loop(), group)
    group.come(1)
    first = queue.receive(group, 32)
    assert first.done(), "nobody was served before"
    second = queue.receive(group, 32)
    group.come(1)
    await asyncio.sleep(0)
    group.come(2)
    await asyncio.sleep(0)
    assert group.asked == 1, "the group is asked again when some have gathered"
    batch = await asyncio.wait_for(second, 60)
    assert batch is not None
    assert batch.num_rows == 3
    assert group.asked == 2
    queue.close()


async def test_who_has_more_to_get_does_not_wait() -> None:
    group: Any = Group()
    queue = ReceiveQueue(asyncio.get_running_loop(), group)
    group.come(100)
    rows = []
    for _ in range(3):
        waiting = queue.receive(group, 32)
        assert waiting.done(), "a full batch says that there may be more"
        batch = waiting.result()
        assert batch is not None
        rows.append(batch.num_rows)
    assert rows == [32, 32, 32]
    queue.close()


async def test_who_waits_for_less_than_messages_gather_is_served_all_the_same() -> None:
    group: Any = Group()
    queue = ReceiveQueue(asyncio.get_running_loop(), group, gather_s=0.1)
    group.come(1)
    assert queue.receive(group, 32).done(), "and nothing is left"
    group.come(1)
    batch = await receive_within(queue, group, 32, 0.001)
    assert batch is not None
    assert group.asked == 2
    queue.close()


async def test_a_queue_that_closes_lets_go_of_who_waits_for_others_to_gather() -> None:
    group: Any = Group()
    queue = ReceiveQueue(asyncio.get_running_loop(), group)
    group.come(1)
    queue.receive(group, 32)
    second = queue.receive(group, 32)
    queue.close()
    assert await asyncio.wait_for(second, 60) is None
    await asyncio.sleep(
        2 * GATHER_S
    )  # the loop's timers run in the order of their times: its own would have run before
    assert group.asked == 1


async def test_who_has_left_is_handed_nothing_also_before_its_call_back() -> None:
    group: Any = Group()
    queue = ReceiveQueue(asyncio.get_running_loop(), group)
    waiting = queue.receive(group, 32)
    left = queue.receive(group, 32)
    group.come(2)
    # The one that is served cancels the next one, whose call-back comes only after this turn.
    original, asked = group.poll, []

    def poll(rows_max: int) -> Any:
        asked.append(rows_max)
        left.cancel()
        return original(1)

    group.poll = poll
    await asyncio.wait_for(waiting, 60)
    assert asked == [32]
    assert group.ready == 1
    queue.close()


class Limits:
    """An account with a quota on consuming."""

    limits_consuming = True

    def refusal(self, held: HeldBack) -> QuotaExceededError:
        return QuotaExceededError(f"{held.quota} is used up")


class Held(Group):
    """A consumer that is handed nothing for a quota, of a group with messages."""

    def __init__(self, group: Group, quota: str) -> None:
        super().__init__()
        self.account, self.held_back, self._group = Limits(), HeldBack(quota, 0.01), group

    def poll(self, rows_max: int) -> tuple[pa.RecordBatch | None, float | None]:
        self.asked += 1
        return (None, self.held_back.wait_s) if self.held_back is not None else self._group.poll(rows_max)


@pytest.mark.parametrize("quota", [RECEIVING[0], FILTERING])
async def test_who_has_used_up_a_quota_holds_up_nobody_and_is_served_when_it_has_not(quota: str) -> None:
    group: Any = Group()
    queue = ReceiveQueue(asyncio.get_running_loop(), group)
    held: Any = Held(group, quota)
    waiting = queue.receive(held, 32)
    group.ready = 1
    first = queue.receive(group, 32)
    await asyncio.wait_for(first, 60)
    behind = queue.receive(group, 32)
    group.come(1)
    await asyncio.wait_for(behind, 60)
    assert not waiting.done()
    held.held_back = None
    group.ready = 1  # without news: it looks by itself
    batch = await asyncio.wait_for(waiting, 60)
    assert batch is not None
    queue.close()


async def test_news_are_nothing_to_those_who_are_held_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(receiving, "DELAY_S_MAX", 3600.0)
    group: Any = Group()
    queue = ReceiveQueue(asyncio.get_running_loop(), group)
    held: Any = Held(group, RECEIVING[0])
    held.held_back = HeldBack(RECEIVING[0], 3600.0)
    waiting = queue.receive(held, 32)
    for _ in range(10):
        group.come(1)
        await asyncio.sleep(0)
    assert held.asked == 1
    batch = await asyncio.wait_for(queue.receive(group, 5), 60)
    assert batch is not None
    group.closed = True
    group.on_news()
    assert await asyncio.wait_for(waiting, 60) is None


async def test_who_filters_too_much_is_refused_after_the_delay_and_a_stream_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(receiving, "DELAY_S_MAX", 0.02)
    group: Any = Group()
    queue = ReceiveQueue(asyncio.get_running_loop(), group)
    stream = queue.receive(Held(group, FILTERING), 32, is_patient=True)  # type: ignore[arg-type]
    slow = queue.receive(Held(group, RECEIVING[0]), 32)  # type: ignore[arg-type]
    refused: Any = Held(group, FILTERING)
    with pytest.raises(QuotaExceededError, match="filter_ms_per_second is used up"):
        await asyncio.wait_for(queue.receive(refused, 32), 60)
    assert refused.asked >= 2
    assert not stream.done()
    assert not slow.done()
    assert len(queue) == 2
    queue.close()


def full(queue: ReceiveQueue, group: Any, looks: list[int]) -> None:
    """Queue a consumer that takes nothing more for now."""

    def is_full() -> bool:
        looks.append(1)
        return True

    queue.add(Waiter(group, 1, lambda _: None, lambda: False, is_full=is_full))


async def test_who_comes_behind_many_that_are_passed_over_is_looked_at_alone() -> None:
    group: Any = Group()
    queue = ReceiveQueue(asyncio.get_running_loop(), group)
    looks: list[int] = []
    for _ in range(200):
        full(queue, group, looks)
    assert len(looks) == 200
    group.ready = 1
    batch = await asyncio.wait_for(queue.receive(group, 5), 60)
    assert batch is not None
    assert len(looks) <= 400, "once more at most, when ready messages have gathered"
    queue.close()


async def test_many_that_one_quota_holds_back_are_asked_once_each_and_then_one_for_all() -> None:
    group: Any = Group()
    queue = ReceiveQueue(asyncio.get_running_loop(), group)
    account, waiting = Limits(), []
    for _ in range(100):
        held: Any = Held(group, RECEIVING[0])
        held.account = account
        waiting.append((held, queue.receive(held, 1)))
    assert [held.asked for held, _ in waiting] == [1] * 100
    while sum(held.asked for held, _ in waiting) < 105:  # it looks by itself
        await asyncio.sleep(0.001)
    assert [held.asked for held, _ in waiting[1:]] == [1] * 99
    for held, _ in waiting:
        held.held_back = None
    group.come(100)
    for _, future in waiting:
        assert await asyncio.wait_for(future, 60) is not None
    queue.close()


async def test_a_long_look_in_vain_is_followed_by_a_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(receiving, "LONG_S", -1.0)
    monkeypatch.setattr(receiving, "REST", 1e9)
    group: Any = Group()
    queue = ReceiveQueue(asyncio.get_running_loop(), group)
    looks: list[int] = []
    full(queue, group, looks)
    for _ in range(10):
        group.come(1)
        await asyncio.sleep(0)
    assert len(looks) == 1
    queue.close()
