"""One queue of receives for each group that is there."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from tarry.fronts.kit.groups import ReceiveQueues


class Group:
    """A group that has nothing to hand out."""

    topic_name = "t"
    gathers = silent = False
    may_send = True
    account = held_back = None

    def __init__(self, name: str = "g") -> None:
        self.name = name
        self.closed = False

    def listen(self, on_news: Callable[[], None]) -> Callable[[], None]:
        return lambda: None

    def poll(self, rows_max: int) -> tuple[None, None]:
        return None, None

    def withdraw(self) -> None:
        pass


def test_a_group_has_one_queue_until_it_is_deleted() -> None:
    async def test() -> None:
        queues = ReceiveQueues(asyncio.get_running_loop())
        group: Any = Group()
        assert queues.find("t", "g") is None
        queue = queues.of(group)
        assert queues.of(group) is queues.find("t", "g") is queue
        assert queues.find("u", "g") is None
        group.closed = True
        assert queues.find("t", "g") is None
        again: Any = Group()
        assert queues.of(again).group is again
        assert queues.find("t", "g") is queues.of(again)
        queues.forget("t", "g")
        queues.forget("t", "g")
        assert queues.find("t", "g") is None

    asyncio.run(test())


def test_who_waits_is_counted_and_ends_with_the_front() -> None:
    async def test() -> None:
        queues = ReceiveQueues(asyncio.get_running_loop())
        group: Any = Group()
        assert queues.waiting("t", "g") == 0
        waiting = queues.of(group).receive(group, 1)
        await asyncio.sleep(0)
        assert queues.waiting("t", "g") == 1
        queues.close()
        assert await asyncio.wait_for(waiting, 20) is None
        assert queues.waiting("t", "g") == 0

    asyncio.run(test())
