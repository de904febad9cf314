"""Small batches of a steady stream are held back, those that somebody waits for are not, and nothing stays behind."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tarry.base.errors import TarryError
from tarry.batching.coalescing import Batch, Coalescer
from tarry.batching.pacing import HOLD_S, ROWS_ENOUGH, Pace, PacedTurns

ROUND_S = 0.001
"""From a batch to its answer."""


class Loop:
    """As much of an event loop as is needed, with a clock of its own. ``ticks``: by how much it goes on with each look
    at it.
    """

    def __init__(self, ticks: Iterator[float] | None = None) -> None:
        self.now_s = 100.0
        self._ticks = ticks
        self._calls: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = count()

    def time(self) -> float:
        if self._ticks is not None:
            self.now_s += next(self._ticks)
        return self.now_s

    def call_soon(self, call: Callable[[], None]) -> None:
        self.call_later(0.0, call)

    def call_later(self, delay_s: float, call: Callable[[], None]) -> object:
        heapq.heappush(self._calls, (self.now_s + delay_s, next(self._numbers), call))
        return object()

    def run(self, until_s: float) -> None:
        while self._calls and self._calls[0][0] <= until_s:
            at_s, _, call = heapq.heappop(self._calls)
            self.now_s = max(self.now_s, at_s)
            call()
        self.now_s = max(self.now_s, until_s)


class Sender:
    """Sends batches, which are answered after ``round_s``; ``on_answer`` is told how many rows."""

    def __init__(self, loop: Loop, *, round_s: float = ROUND_S, **options: Any) -> None:
        self.loop = loop
        self.batches: list[list[int]] = []
        self.sent_s: list[float] = []
        self.on_answer: Callable[[int], None] = lambda rows: None
        self._round_s = round_s
        self.coalescer: Coalescer[int] = Coalescer(self._send, _refuse, pace=Pace(loop.time), **options)
        self.turns = PacedTurns(cast(asyncio.AbstractEventLoop, loop), self.coalescer)

    def add(self, number: int, *, urgent: bool = False) -> None:
        self.coalescer.add(number, urgent=urgent)
        self.turns.plan()

    def _send(self, batch: Batch[int]) -> None:
        self.batches.append(batch.entries)
        self.sent_s.append(self.loop.now_s)

        def answer() -> None:
            self.coalescer.on_accepted(batch)
            self.turns.plan()
            self.on_answer(len(batch.entries))

        self.loop.call_later(self._round_s, answer)


def _refuse(entries: list[int], error: TarryError) -> None:
    pytest.fail(f"{entries} refused: {error}")


def stream(sender: Sender, per_s: float, seconds: float) -> None:
    """Messages that come whether others are answered or not."""
    for number in range(int(per_s * seconds)):
        sender.loop.call_later(number / per_s, lambda number=number: sender.add(number))  # type: ignore[misc]
    sender.loop.run(sender.loop.now_s + seconds + 1)


def test_a_steady_stream_goes_in_few_batches() -> None:
    sender = Sender(Loop())
    stream(sender, per_s=2000, seconds=10)
    assert [number for batch in sender.batches for number in batch] == list(range(20_000))
    # Of 5 ms each, but for a tenth of a second now and then.
    assert len(sender.batches) < 20_000 / 6
    assert max(map(len, sender.batches)) <= ROWS_ENOUGH


def test_a_slow_stream_is_not_held_back() -> None:
    sender = Sender(Loop())
    stream(sender, per_s=150, seconds=10)
    assert len(sender.batches) == 1500


def test_what_is_due_soon_takes_along_what_waits() -> None:
    sender = Sender(Loop())
    stream(sender, per_s=2000, seconds=1)
    before = len(sender.batches)
    for number in range(3):
        sender.add(number)
        sender.loop.run(sender.loop.now_s)
    assert len(sender.batches) == before + 1, "the first had nothing before it"
    sender.add(3, urgent=True)
    sender.loop.run(sender.loop.now_s)
    assert sender.batches[-1] == [1, 2, 3]


@pytest.mark.parametrize("callers", [1, 4, 8])
@pytest.mark.parametrize("think_s", [0.0, 0.002])
def test_who_waits_for_answers_is_slowed_down_for_a_moment_only(callers: int, think_s: float) -> None:
    loop = Loop()
    sender = Sender(loop)
    numbers = count()

    def on_answer(rows: int) -> None:
        for _ in range(rows):
            loop.call_later(think_s, lambda: sender.add(next(numbers)))

    sender.on_answer = on_answer
    for _ in range(callers):
        sender.add(next(numbers))
    loop.run(loop.now_s + 20)
    each_s = think_s + ROUND_S
    assert sum(map(len, sender.batches)) > 0.9 * 20 / each_s * callers


def test_of_those_who_stop_waiting_it_is_noticed() -> None:
    loop = Loop()
    sender = Sender(loop)
    sender.on_answer = lambda rows: sender.add(0) if loop.now_s < 110 else None
    sender.add(0)
    loop.run(111)
    stream(sender, per_s=2000, seconds=30)
    assert sum(at_s > loop.now_s - 11 for at_s in sender.sent_s) < 20_000 / 6


@pytest.mark.parametrize("look", range(6))
def test_what_is_not_held_back_any_more_from_one_look_to_the_next_goes(look: int) -> None:
    """Between what finds it held back and what plans when it goes, the time for which it is may run out."""
    ticks: list[float] = []
    sender = Sender(Loop(ticks.pop() if ticks else 0.0 for _ in count()))
    stream(sender, per_s=2000, seconds=1)
    sender.add(2000)
    sender.loop.run(sender.loop.now_s + 2 * ROUND_S)  # its answer would take along what waits
    sender.add(2001)
    ticks.extend([HOLD_S, *[0.0] * look])
    sender.loop.run(sender.loop.now_s + 1)
    assert sender.batches[-1][-1] == 2001, "it waits, and nobody comes for it"


@given(
    data=st.data(),
    added_ms=st.lists(st.floats(0, 3), min_size=1, max_size=60),
    round_ms=st.floats(0.1, 12),
    beside=st.integers(1, 3),
)
def test_nothing_stays_behind(data: st.DataObject, added_ms: list[float], round_ms: float, beside: int) -> None:
    """Whatever time passes between two looks at the clock: also when something is not held back any more a moment after
    it was found to be.
    """
    ticks = st.sampled_from([0.0, 1e-6, HOLD_S / 3, HOLD_S])
    steps = data.draw(st.lists(ticks, min_size=8, max_size=40))
    loop = Loop(steps[i % len(steps)] for i in count())
    sender = Sender(loop, round_s=round_ms / 1000, rows_beside_min=beside)
    at_s = 0.0
    # First so many that they are held back, then some at odd times.
    for number in range(400):
        loop.call_later(at_s := at_s + 0.0005, lambda number=number: sender.add(number))  # type: ignore[misc]
    for number, after_ms in enumerate(added_ms, 400):
        loop.call_later(at_s := at_s + after_ms / 1000, lambda number=number: sender.add(number))  # type: ignore[misc]
    loop.run(1e6)
    assert [number for batch in sender.batches for number in batch] == list(range(400 + len(added_ms)))
