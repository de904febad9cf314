"""Answers in the order of their questions; and an iterator of a loop, read in a thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator

from tarry.base.event_loop import iterate
from tarry.fronts.kit.in_order import InOrder


def test_answers_leave_in_the_order_of_their_questions() -> None:
    async def main() -> None:
        ready = asyncio.Event()
        waiting: InOrder[str, int | None] = InOrder(ready.set, 3)
        first, second, third = (waiting.add(name) for name in "abc")
        second(2)
        assert list(waiting.take()) == []
        room = asyncio.ensure_future(waiting.room())
        await asyncio.sleep(0)
        assert not room.done()
        threading.Thread(target=first, args=(None,)).start()
        ready.clear()
        await ready.wait()
        assert list(waiting.take()) == [("a", None), ("b", 2)]
        await room
        assert len(waiting) == 1
        third(3)
        assert list(waiting.take()) == [("c", 3)]
        assert not waiting

    asyncio.run(main())


def test_a_thread_reads_what_a_loop_gives() -> None:
    async def numbers() -> AsyncIterator[int | None]:
        for number in (1, None, 3):
            await asyncio.sleep(0)
            yield number

    async def main() -> list[int | None]:
        loop = asyncio.get_running_loop()
        return await asyncio.to_thread(lambda: list(iterate(loop, numbers())))

    assert asyncio.run(main()) == [1, None, 3]
