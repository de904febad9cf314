"""Gathering acknowledgements: what goes together, what waits, and who is told what."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple, cast

import numpy as np
import pytest

from tarry.api.consuming import ConsumerGroup, OnResult, OnSettled
from tarry.base.errors import ClosedError, StaleLeaseError, TarryError
from tarry.fronts.kit.settling import AckGatherer, AckOutcome, Entries, HandOver


class Delivery(NamedTuple):
    lease: int
    offset: int = 0


class FakeGroup:
    """Notes what it is handed, and is told when that is durable."""

    name = "fake"

    def __init__(self, error: Exception | None = None) -> None:
        self.calls: list[tuple[list[int], OnSettled]] = []
        self.acks: list[tuple[list[int], OnResult]] = []
        self._error = error

    def ack_each(self, leases: Any, offsets: Any, on_settled: OnSettled) -> None:
        if self._error is not None:
            raise self._error
        self.calls.append((leases.tolist(), on_settled))

    def ack(self, leases: Any, offsets: Any, on_result: OnResult) -> None:
        self.acks.append((leases.tolist(), on_result))

    @property
    def leases(self) -> list[list[int]]:
        return [leases for leases, _ in self.calls]

    def finish(self, call: int = -1, stale: int = -1) -> None:
        leases, on_settled = self.calls[call]
        on_settled(np.array([lease != stale for lease in leases]))


class Place:
    """A gatherer with what it answered."""

    def __init__(self, **options: Any) -> None:
        self.answers: list[tuple[str, bool | TarryError]] = []
        self.acks: AckGatherer[Delivery, str] = AckGatherer(asyncio.get_running_loop(), self._answer, **options)

    def _answer(self, entries: Entries[Delivery, str], held: AckOutcome) -> None:
        for row, (_, who) in enumerate(entries):
            self.answers.append((who, held if isinstance(held, TarryError) else held[row]))

    def add(self, group: FakeGroup, *leases: int, urgent: bool = True) -> None:
        for lease in leases:
            self.acks.add(cast(ConsumerGroup, group), Delivery(lease), f"{lease}", urgent=urgent)


def run(test: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        await asyncio.wait_for(test(), 20)

    asyncio.run(bounded())


async def turns() -> None:
    for _ in range(4):
        await asyncio.sleep(0)


@pytest.mark.parametrize("mode", HandOver)
def test_one_turn_goes_together_and_each_has_its_own_answer(mode: HandOver) -> None:
    async def test() -> None:
        place, one, other = Place(hand_over=mode), FakeGroup(), FakeGroup()
        place.add(one, 3, 1)
        place.add(other, 7)
        place.add(one, 2)
        assert not one.calls
        await turns()
        assert (one.leases, other.leases) == ([[3, 1, 2]], [[7]])
        one.finish(stale=1)
        await turns()
        assert place.answers == [("3", True), ("1", False), ("2", True)]

    run(test)


@pytest.mark.parametrize(
    ("mode", "one_now", "other_now"),
    [(HandOver.FREE, [[1], [2]], [[5]]), (HandOver.GROUP, [[1]], [[5]]), (HandOver.ALL, [[1]], [])],
)
def test_more_gather_until_the_last_hand_over_is_durable(
    mode: HandOver, one_now: list[list[int]], other_now: list[list[int]]
) -> None:
    async def test() -> None:
        place, one, other = Place(hand_over=mode), FakeGroup(), FakeGroup()
        place.add(one, 1)
        await turns()
        place.add(one, 2)
        place.add(other, 5)
        await turns()
        assert (one.leases, other.leases) == (one_now, other_now)
        one.finish(0)
        await turns()
        assert (one.leases, other.leases) == ([[1], [2]], [[5]])

    run(test)


def test_what_is_not_urgent_waits_for_the_window_or_for_something_urgent() -> None:
    async def test() -> None:
        place, group = Place(window_s=3600.0), FakeGroup()
        place.add(group, 1, urgent=False)
        await turns()
        assert not group.calls
        place.add(group, 2)
        await turns()
        assert group.leases == [[1, 2]]
        place.add(group, 3, urgent=False)
        place.acks.flush()
        assert group.leases == [[1, 2], [3]]

    run(test)


def test_the_window_ends() -> None:
    async def test() -> None:
        place, group = Place(window_s=0.001), FakeGroup()
        place.add(group, 1, urgent=False)
        while not group.calls:
            await asyncio.sleep(0.001)

    run(test)


def test_no_more_than_the_most_go_in_one_call_and_so_many_at_once() -> None:
    async def test() -> None:
        place, group = Place(hand_over=HandOver.GROUP, window_s=3600.0, entries_max=2), FakeGroup()
        place.add(group, 1, 2, urgent=False)
        assert group.leases == [[1, 2]]
        place.add(group, 3, 4, 5)
        await turns()
        for leases in ([3, 4], [5]):
            group.finish()
            await turns()
            assert group.leases[-1] == leases

    run(test)


@pytest.mark.parametrize("mode", HandOver)
@pytest.mark.parametrize("error", [ClosedError("closed"), ValueError("a fault")])
def test_an_error_is_everyones_answer_and_holds_up_nobody(mode: HandOver, error: Exception) -> None:
    async def test() -> None:
        place, broken, good = Place(hand_over=mode), FakeGroup(error), FakeGroup()
        place.add(broken, 1, 2)
        place.add(good, 5)
        await turns()
        assert [who for who, _ in place.answers] == ["1", "2"]
        assert all(isinstance(held, TarryError) for _, held in place.answers)
        good.finish()
        await turns()
        place.add(good, 6)
        await turns()
        assert good.leases == [[5], [6]]

    run(test)


def test_an_error_instead_of_durability() -> None:
    async def test() -> None:
        place, group = Place(hand_over=HandOver.ALL), FakeGroup()
        place.add(group, 1)
        await turns()
        error = ClosedError("closed")
        group.calls[0][1](error)
        await turns()
        assert place.answers == [("1", error)]

    run(test)


def test_of_hand_overs_that_nobody_waits_for_only_failures_are_told() -> None:
    async def test() -> None:
        place, group = Place(failures_only=True), FakeGroup()
        for leases in ((1, 2), (3, 4), (5,)):
            place.add(group, *leases)
            await turns()
        assert [leases for leases, _ in group.acks] == [[1, 2], [3, 4], [5]]
        stale, closed = StaleLeaseError("1 of 2 leases are stale"), ClosedError("closed")
        for (_, on_result), error in zip(group.acks, (None, stale, closed), strict=True):
            on_result(error)
        await turns()
        assert place.answers == [("3", stale), ("4", stale), ("5", closed)]

    run(test)
