"""The coalescer of an event loop: what travels together, and who hears of it where."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tarry.base.errors import ClosedError, InvalidMessageError, OverloadedError, TarryError
from tarry.batching.pacing import HOLD_S, LOOK_S, PER_S_MIN, Pace
from tarry.batching.submitting import Submitter

OnResult = Callable[[str | TarryError], None]


class Place:
    """A submitter whose batches are answered when the test says so."""

    def __init__(self, **options: Any) -> None:
        self.sent: list[tuple[list[str], OnResult]] = []
        self.told: list[tuple[str, str]] = []
        self.threads: set[threading.Thread] = set()
        self.submitter: Submitter[str, str] = Submitter(
            asyncio.get_running_loop(), self._submit, self._accept, self._refuse, **options
        )

    def _submit(self, entries: list[str], on_result: OnResult) -> None:
        if "bad" in entries:
            raise InvalidMessageError("no good", row=entries.index("bad"))
        if "fault" in entries:
            raise ValueError("a fault")
        self.sent.append((entries, on_result))

    def _accept(self, entries: list[str], answer: str) -> None:
        self.threads.add(threading.current_thread())
        self.told += [(entry, answer) for entry in entries]

    def _refuse(self, entries: list[str], error: TarryError) -> None:
        self.threads.add(threading.current_thread())
        self.told += [(entry, type(error).__name__) for entry in entries]

    def add(self, *entries: str) -> None:
        for entry in entries:
            self.submitter.add(entry)
        self.submitter.plan()

    @property
    def batches(self) -> list[list[str]]:
        return [entries for entries, _ in self.sent]

    def answer(self, batch: int, answer: str | TarryError) -> None:
        """Answer from another thread, as a broker does."""
        thread = threading.Thread(target=self.sent[batch][1], args=[answer])
        thread.start()
        thread.join()


def run(test: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        await asyncio.wait_for(test(), 20)

    asyncio.run(bounded())


async def turns() -> None:
    for _ in range(4):
        await asyncio.sleep(0)


def test_one_turn_travels_together_and_its_callers_hear_of_it_on_the_loop() -> None:
    async def test() -> None:
        place = Place()
        place.add("a", "b")
        place.add("c")
        assert not place.sent
        await turns()
        assert place.batches == [["a", "b", "c"]]
        place.answer(0, "done")
        await turns()
        assert place.told == [("a", "done"), ("b", "done"), ("c", "done")]
        assert place.threads == {threading.current_thread()}

    run(test)


def test_what_came_meanwhile_goes_with_the_answer() -> None:
    async def test() -> None:
        place = Place(batches_max=1)
        place.add("a")
        await turns()
        place.add("b")
        place.add("c")
        await turns()
        assert place.batches == [["a"]]
        place.answer(0, "done")
        await turns()
        assert place.batches == [["a"], ["b", "c"]]

    run(test)


def test_a_second_batch_wants_its_rows_and_a_batch_ends_by_its_bytes() -> None:
    async def test() -> None:
        place = Place(rows_beside_min=2, size_of=len, bytes_max=4)
        place.add("a")
        await turns()
        place.add("b")
        await turns()
        assert place.batches == [["a"]]
        place.add("ccc", "d")
        await turns()
        assert place.batches == [["a"], ["b", "ccc"]]

    run(test)


@pytest.mark.parametrize("answer", [InvalidMessageError("no good", row=1), OverloadedError("full")])
def test_a_refusal_harms_only_those_that_it_is_about(answer: TarryError) -> None:
    async def test() -> None:
        place = Place()
        place.add("a", "b", "c")
        await turns()
        place.answer(0, answer)
        await turns()
        if isinstance(answer, OverloadedError):
            assert place.told == [(entry, "OverloadedError") for entry in "abc"]
        else:
            assert place.told == [("b", "InvalidMessageError")]
            assert place.batches[1:] == [["a", "c"]]

    run(test)


def test_what_raises_while_a_batch_is_sent_is_its_answer() -> None:
    async def test() -> None:
        place = Place()
        place.add("a", "bad")
        await turns()
        assert place.told == [("bad", "InvalidMessageError")]
        assert place.batches == [["a"]]
        place.add("fault")
        await turns()
        assert place.told[1:] == [("fault", "TarryError")]

    run(test)


def test_close_refuses_what_was_not_sent_and_takes_no_more() -> None:
    async def test() -> None:
        place = Place(batches_max=1)
        place.add("a")
        await turns()
        place.add("b")
        await turns()
        place.submitter.close("the front has stopped")
        assert place.told == [("b", "ClosedError")]
        with pytest.raises(ClosedError, match="the front has stopped"):
            place.add("c")
        place.answer(0, "done")
        await turns()
        assert place.told[1:] == [("a", "done")]

    run(test)


def test_what_a_batch_leaves_behind_and_its_pace_holds_back_goes_after_the_answer() -> None:
    async def test() -> None:
        now_s = 0.0
        place = Place(batches_max=1, size_of=len, bytes_max=4, pace=Pace(lambda: now_s))
        place.add(*[""] * round(2 * PER_S_MIN * LOOK_S))
        await turns()
        place.answer(0, "done")
        now_s = LOOK_S  # from now on small batches are held back
        place.add("long", "last")
        await turns()
        assert place.batches[1:] == [["long"]]
        place.answer(1, "done")
        await turns()
        assert place.batches[1:] == [["long"]]
        now_s += HOLD_S
        while place.batches[-1] != ["last"]:
            await asyncio.sleep(0.001)

    run(test)
