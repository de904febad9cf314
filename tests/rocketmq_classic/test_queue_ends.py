"""Pulls that wait for a queue to grow: nothing that comes is missed, and the broker is asked once for all of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest

from tarry.base.errors import ClosedError
from tarry.fronts.rocketmq.classic.queue_ends import Ends, QueueEnds


class Fake:
    """A broker and its group. Looks end when the test says so; ``end`` is what they see when they begin."""

    topic_name = "orders"

    def __init__(self) -> None:
        self.end = 0
        self.looks: list[tuple[asyncio.Future[Ends], int]] = []
        self.on_news: Callable[[], None] = lambda: None
        loop = asyncio.get_running_loop()
        self.ends = QueueEnds(cast(Any, self), loop, cast(Any, self), cast(Any, self._run))

    def listen(self, on_news: Callable[[], None]) -> Callable[[], None]:
        self.on_news = on_news
        return lambda: None

    def _run(self, _: Callable[[], Ends]) -> asyncio.Future[Ends]:
        look = asyncio.get_running_loop().create_future()
        self.looks.append((look, self.end))
        return look

    def wait(self, offset: int, wait_s: float = 60) -> asyncio.Task[Ends]:
        return asyncio.ensure_future(self.ends.wait(offset, wait_s))

    def grow(self) -> None:
        self.end += 1
        self.on_news()

    async def answer(self) -> None:
        """End the look that is under way, once it is there."""
        while not self.looks:
            await asyncio.sleep(0)
        look, end = self.looks.pop(0)
        look.set_result((0, end))
        await turn()


async def turn() -> None:
    """Let everything happen that can."""
    for _ in range(10):
        await asyncio.sleep(0)


def run(scenario: Callable[[Fake], Any]) -> None:
    async def within() -> None:
        await scenario(Fake())

    asyncio.run(asyncio.wait_for(within(), 10))


def test_one_question_for_all_who_wait() -> None:
    async def scenario(fake: Fake) -> None:
        waiting = [fake.wait(0) for _ in range(4)]
        await fake.answer()
        assert not any(task.done() for task in waiting)
        assert not fake.looks
        fake.grow()
        await fake.answer()
        assert await asyncio.gather(*waiting) == [(0, 1)] * 4
        assert not fake.looks

    run(scenario)


def test_news_while_the_broker_is_asked_are_not_missed() -> None:
    async def scenario(fake: Fake) -> None:
        waiting = fake.wait(0)
        await turn()
        fake.grow()  # after the question was asked with nothing there
        await turn()
        await fake.answer()
        await fake.answer()
        assert await waiting == (0, 1)

    run(scenario)


@pytest.mark.timeout(20)
def test_who_comes_with_the_answer_waits_no_longer_than_others() -> None:
    async def scenario(fake: Fake) -> None:
        first = fake.wait(0)
        await turn()
        fake.end = 1
        # It begins before anybody has heard of the answer.
        second = fake.wait(0)
        look, _ = fake.looks.pop()
        look.set_result((0, 1))
        assert await asyncio.gather(first, second) == [(0, 1)] * 2

    run(scenario)


def test_what_is_known_is_answered_without_asking() -> None:
    async def scenario(fake: Fake) -> None:
        fake.end = 5
        first = fake.wait(0)
        await fake.answer()
        assert await first == await fake.wait(4) == (0, 5)
        assert not fake.looks
        # Beyond the end: only what is certain says that.
        fake.grow()
        beyond = fake.wait(9)
        await fake.answer()
        assert await beyond == (0, 6)

    run(scenario)


def test_who_does_not_wait_is_told_what_is_there_now() -> None:
    async def scenario(fake: Fake) -> None:
        impatient = fake.wait(0, 0)
        await fake.answer()
        assert await impatient == (0, 0)

    run(scenario)


def test_who_leaves_takes_nothing_from_others_and_an_error_is_told_once() -> None:
    async def scenario(fake: Fake) -> None:
        leaving, staying = fake.wait(0), fake.wait(0)
        await turn()
        leaving.cancel()
        await turn()
        look, _ = fake.looks.pop()
        look.set_exception(ClosedError("closed"))
        with pytest.raises(ClosedError):
            await staying
        later = fake.wait(0, 0)
        await fake.answer()
        assert await later == (0, 0)

    run(scenario)
