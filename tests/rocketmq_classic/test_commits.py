"""What is committed with pulls: gathered, and never so that those who wait for it hold up the loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest

from tarry.fronts.rocketmq.classic.commits import Commits
from tarry.fronts.rocketmq.classic.positions import Positions
from tarry.fronts.rocketmq.common.threads import RunInThread

pytestmark = pytest.mark.asyncio


class FakePositions:
    def __init__(self) -> None:
        self.settled: list[tuple[str, str, dict[int, int], dict[int, tuple[int, int]]]] = []

    def settle(self, topic: str, group: str, offsets: Any, gaps: Any) -> None:
        if topic == "bad":
            raise ValueError(topic)
        self.settled.append((topic, group, offsets, gaps))


class Threads:
    """Work is done when the test says so, or at once."""

    def __init__(self, *, at_once: bool) -> None:
        self._at_once = at_once
        self.begun: list[tuple[Callable[[], Any], asyncio.Future[Any]]] = []

    def __call__(self, work: Callable[[], Any]) -> asyncio.Future[Any]:
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.begun.append((work, future))
        if self._at_once:
            self.end()
        return future

    def end(self) -> None:
        work, future = self.begun.pop(0)
        future.set_result(work())


def commits_of(positions: FakePositions, threads: Threads) -> Commits:
    return Commits(asyncio.get_running_loop(), cast(Positions, positions), cast(RunInThread, threads))


async def test_what_is_gathered_is_written_once_and_an_end_that_the_loop_has_not_seen_is_no_obstacle() -> None:
    positions = FakePositions()
    commits = commits_of(positions, Threads(at_once=True))
    for offset in (3, 2):
        commits.commit("t", "g", 0, offset)
    for start, stop in ((5, 6), (6, 9), (1, 2)):
        commits.pass_over("t", "g", 1, start, stop)
    commits.pass_over("t", "h", 1, 5, 6)
    commits.pass_over("t", "h", 1, 6, 9)
    commits.discard("t", "other")
    await commits.flush()
    # The future is done, and its call-back has not run yet.
    await commits.flush()
    assert positions.settled == [("t", "g", {0: 3}, {1: (1, 2)}), ("t", "h", {}, {1: (5, 9)})]
    commits.close()


async def test_who_waits_has_also_what_came_during_a_write() -> None:
    positions, threads = FakePositions(), Threads(at_once=False)
    commits = commits_of(positions, threads)
    commits.commit("bad", "g", 0, 1)
    commits.commit("t", "g", 0, 1)
    flushed = asyncio.ensure_future(commits.flush())
    while not threads.begun:
        await asyncio.sleep(0)
    commits.commit("t", "g", 0, 2)
    second = asyncio.ensure_future(commits.flush())
    threads.end()
    while not threads.begun:
        await asyncio.sleep(0)
    assert not second.done()
    threads.end()
    await asyncio.gather(flushed, second)
    assert [offsets for _, _, offsets, _ in positions.settled] == [{0: 1}, {0: 2}]
    commits.commit("t", "g", 0, 3)
    commits.discard("t", "g")
    commits.commit("t", "h", 0, 4)
    commits.close()
    assert [offsets for _, _, offsets, _ in positions.settled][2:] == [{0: 4}]
