"""Many callers, few batches: nothing is lost, nobody waits for ever, what is sent is bounded and in order."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tarry.base.errors import (
    ClosedError,
    InvalidArgumentError,
    InvalidMessageError,
    KeyExistsError,
    OverloadedError,
    TarryError,
    UnavailableError,
)
from tarry.batching.coalescing import LATE_BATCHES, LATE_S, Batch, Coalescer, EndOfTurn, fail_futures

Entry = tuple[int, int]
"""Its number, and its size."""


class Sent:
    """Batches that wait for their answers, and what became of each entry."""

    def __init__(self) -> None:
        self.batches: list[Batch[Entry]] = []
        self.all: list[Batch[Entry]] = []
        self.accepted: Counter[int] = Counter()
        self.refused: dict[int, TarryError] = {}
        self.raises: Exception | None = None

    def send(self, batch: Batch[Entry]) -> None:
        self.all.append(batch)
        if self.raises is not None:
            error, self.raises = self.raises, None
            raise error
        self.batches.append(batch)

    def refuse(self, entries: list[Entry], error: TarryError) -> None:
        for number, _ in entries:
            assert number not in self.refused, "each caller gets one answer"
            self.refused[number] = error

    def accept(self, coalescer: Coalescer[Entry], place: int = 0) -> None:
        batch = self.batches.pop(place)
        self.accepted.update(number for number, _ in batch.entries)
        coalescer.on_accepted(batch)
        coalescer.pump()


def coalescer_of(sent: Sent, now_s: Callable[[], float] = lambda: 0.0, **options: int) -> Coalescer[Entry]:
    return Coalescer(sent.send, sent.refuse, now_s=now_s, **options)


def numbers(batch: Batch[Entry]) -> list[int]:
    return [number for number, _ in batch.entries]


def test_beside_late_answers_more_batches_go() -> None:
    sent, now_s = Sent(), 100.0
    coalescer = coalescer_of(sent, lambda: now_s)

    def add(number: int) -> None:
        coalescer.add((number, 0))
        coalescer.pump()

    for number in range(4):
        add(number)
    assert len(sent.batches) == 2
    now_s += 1.5 * LATE_S
    add(4)
    assert numbers(sent.batches[2]) == [2, 3, 4], "what had waited goes along"
    add(5)
    assert len(sent.batches) == 3, "one for each time that they are late"
    for _ in range(100):
        now_s += 1.5 * LATE_S
        add(6)
    assert len(sent.batches) == 2 * LATE_BATCHES
    one = coalescer_of(alone := Sent(), lambda: now_s, batches_max=1)
    for number in range(3):
        one.add((number, 0))
        one.pump()
        now_s += 1.5 * LATE_S
    assert len(alone.batches) == 1, "where the order of answers matters, there is one at a time"


def test_alone_it_goes_at_once_and_behind_two_batches_it_gathers() -> None:
    sent = Sent()
    coalescer = coalescer_of(sent)
    for number in range(10):
        coalescer.add((number, 0))
        coalescer.pump()
    assert [numbers(batch) for batch in sent.all] == [[0], [1]]
    sent.accept(coalescer)
    assert numbers(sent.all[2]) == list(range(2, 10))


def test_a_batch_beside_another_wants_its_rows() -> None:
    sent = Sent()
    coalescer = coalescer_of(sent, rows_beside_min=3)
    for number in range(4):
        coalescer.add((number, 0))
        coalescer.pump()
    assert [numbers(batch) for batch in sent.all] == [[0], [1, 2, 3]]


@given(st.lists(st.integers(0, 120), min_size=1, max_size=30))
def test_batches_end_by_rows_and_by_bytes(sizes: list[int]) -> None:
    sent = Sent()
    coalescer: Coalescer[Entry] = Coalescer(
        sent.send, sent.refuse, rows_max=7, size_of=lambda entry: entry[1], bytes_max=100
    )
    for entry in enumerate(sizes):
        coalescer.add(entry)
    coalescer.pump()
    while sent.batches:
        sent.accept(coalescer)
    assert [number for batch in sent.all for number in numbers(batch)] == list(range(len(sizes)))
    for batch in sent.all:
        assert len(batch.entries) <= 7
        assert sum(size for _, size in batch.entries[:-1]) < 100, "only the last one may be beyond it"


def test_a_key_that_an_entry_of_the_same_batch_has_taken_is_asked_for_again() -> None:
    """That entry was refused with it, and may never be accepted: then nobody had taken the key."""
    sent = Sent()
    coalescer = coalescer_of(sent)
    for number in range(3):
        coalescer.add((number, 0))
    coalescer.pump()
    coalescer.on_refused(sent.batches.pop(0), KeyExistsError("key k is pending", row=1))
    coalescer.pump()
    assert sent.refused == {}
    assert [numbers(batch) for batch in sent.batches] == [[0, 2], [1]]
    coalescer.on_failed(sent.batches.pop(0), UnavailableError("the link is lost"))
    sent.accept(coalescer)
    assert sent.accepted == {1: 1}


def test_a_key_that_is_taken_is_asked_for_once() -> None:
    sent = Sent()
    coalescer = coalescer_of(sent)
    for number in range(2):
        coalescer.add((number, 0))
    coalescer.pump()
    coalescer.on_refused(sent.batches.pop(0), KeyExistsError("key k is pending", row=0))
    coalescer.pump()
    assert set(sent.refused) == {0}, "no entry is before it"
    assert [numbers(batch) for batch in sent.batches] == [[1]]


@pytest.mark.parametrize("bad", [{3}, {3, 5}, set(range(8))])
def test_a_bad_row_harms_only_its_own_caller(bad: set[int]) -> None:
    sent = Sent()
    coalescer = coalescer_of(sent)
    for number in range(8):
        coalescer.add((number, 0))
    coalescer.pump()
    while sent.batches:
        row = next((row for row, (number, _) in enumerate(sent.batches[0].entries) if number in bad), None)
        if row is None:
            sent.accept(coalescer)
        else:
            coalescer.on_refused(sent.batches.pop(0), KeyExistsError("no good", row=row))
            coalescer.pump()
    assert set(sent.refused) == bad
    assert set(sent.accepted) == set(range(8)) - bad
    assert set(sent.accepted.values()) <= {1}
    assert {(type(error), str(error)) for error in sent.refused.values()} == {(KeyExistsError, "no good")}


def test_what_names_no_row_is_found_by_sending_each_alone() -> None:
    sent = Sent()
    coalescer = coalescer_of(sent)
    sent.raises = InvalidArgumentError("one of them")
    for number in range(3):
        coalescer.add((number, 0))
    coalescer.pump()
    coalescer.on_refused(sent.batches.pop(0), InvalidArgumentError("this one"))
    coalescer.pump()
    while sent.batches:
        sent.accept(coalescer)
    assert [numbers(batch) for batch in sent.all] == [[0, 1, 2], [0], [1], [2]]
    assert set(sent.refused) == {0}


def test_a_fault_of_ours_is_everybodys_error_and_nobody_waits() -> None:
    sent = Sent()
    coalescer = coalescer_of(sent)
    sent.raises = ZeroDivisionError("oh")
    for number in range(3):
        coalescer.add((number, 0))
    coalescer.pump()
    assert sorted(sent.refused) == [0, 1, 2]
    coalescer.add((3, 0))
    coalescer.pump()
    assert numbers(sent.batches[0]) == [3], "it goes on"


ERRORS = st.sampled_from(
    [OverloadedError("full"), UnavailableError("away"), InvalidArgumentError("bad"), InvalidMessageError("bad", row=9)]
)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(1, 5)),
        st.tuples(st.just("pump"), st.none()),
        st.tuples(st.just("accept"), st.integers(0, 1)),
        st.tuples(st.just("refuse row"), st.integers(0, 6)),
        st.tuples(st.just("refuse"), ERRORS),
        st.tuples(st.just("lose"), st.none()),
        st.tuples(st.just("raise"), ERRORS),
    ),
    max_size=60,
)


@given(STEPS, st.integers(1, 6), st.integers(1, 3), st.integers(1, 3), st.booleans())
def test_whatever_happens_each_caller_gets_one_answer(
    steps: list[tuple[str, object]], rows_max: int, batches_max: int, beside: int, closes: bool
) -> None:
    sent, added = Sent(), 0
    coalescer = coalescer_of(sent, rows_max=rows_max, batches_max=batches_max, rows_beside_min=beside)
    for step, argument in steps:
        if step == "add":
            assert isinstance(argument, int)
            for number in range(added, added + argument):
                coalescer.add((number, 0))
            added += argument
        elif step == "raise":
            assert isinstance(argument, Exception)
            sent.raises = argument
        elif sent.batches and step == "accept":
            assert isinstance(argument, int)
            sent.accept(coalescer, argument % len(sent.batches))
        elif sent.batches and step != "pump":
            batch = sent.batches.pop(0)
            if step == "lose":
                coalescer.on_failed(batch, UnavailableError("the answer never came"))
            elif isinstance(argument, int):
                coalescer.on_refused(batch, InvalidMessageError("no good", row=argument % len(batch.entries)))
            else:
                assert isinstance(argument, TarryError)
                coalescer.on_refused(batch, argument)
        coalescer.pump()
        assert len(sent.batches) <= batches_max
        assert sent.batches or not coalescer.is_ready
    if closes:
        coalescer.close("closed")
        with pytest.raises(ClosedError):
            coalescer.add((added, 0))
    while sent.batches:
        sent.accept(coalescer)
    assert all(len(batch.entries) <= rows_max for batch in sent.all)
    firsts = [number for batch in sent.all if not batch.is_retry for number in numbers(batch)]
    assert firsts == sorted(firsts), "in the order in which they were added"
    assert Counter(sent.accepted) + Counter(dict.fromkeys(sent.refused, 1)) == Counter(range(added))


def test_closing_waits_for_what_is_under_way_and_refuses_the_rest() -> None:
    sent = Sent()
    coalescer = coalescer_of(sent, batches_max=1)
    for number in range(3):
        coalescer.add((number, 0))
        coalescer.pump()
    closing = threading.Thread(target=coalescer.close, args=("closed", 60.0))
    closing.start()
    sent.accept(coalescer)  # what waited goes now
    assert numbers(sent.all[1]) == [1, 2]
    assert closing.is_alive()
    sent.accept(coalescer)
    closing.join()
    assert (set(sent.accepted), sent.refused) == ({0, 1, 2}, {})
    late = Sent()
    coalescer = coalescer_of(late, batches_max=1)
    for number in range(3):
        coalescer.add((number, 0))
        coalescer.pump()
    coalescer.close("closed")
    assert set(late.refused) == {1, 2}
    late.accept(coalescer)
    assert (set(late.accepted), len(late.all)) == ({0}, 1)


def test_many_threads_each_get_their_own_answer() -> None:
    """Answers come from another thread, in whose pump batches may be sent, too."""
    under_way: SimpleQueue[Batch[tuple[int, Future[int]]] | None] = SimpleQueue()

    def refuse(entries: list[tuple[int, Future[int]]], error: TarryError) -> None:
        for _, future in entries:
            future.set_exception(error)

    coalescer: Coalescer[tuple[int, Future[int]]] = Coalescer(under_way.put, refuse)

    def answer() -> None:
        while (batch := under_way.get()) is not None:
            bad = next((row for row, (number, _) in enumerate(batch.entries) if number % 10 == 3), None)
            if bad is not None:
                coalescer.on_refused(batch, InvalidMessageError("no good", row=bad))
            else:
                for number, future in batch.entries:
                    future.set_result(number)
                coalescer.on_accepted(batch)
            coalescer.pump()

    def ask(first: int, results: list[tuple[int, int | str]]) -> None:
        for number in range(first, first + 200):
            future: Future[int] = Future()
            coalescer.add((number, future))
            coalescer.pump()
            error = future.exception(timeout=60)
            results.append((number, future.result() if error is None else str(error)))

    answers = threading.Thread(target=answer)
    answers.start()
    results: list[tuple[int, int | str]] = []
    threads = [threading.Thread(target=ask, args=(1000 * place, results)) for place in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    under_way.put(None)
    answers.join()
    assert len(results) == 1600
    assert all(result == ("no good" if number % 10 == 3 else number) for number, result in results)


def test_the_end_of_a_turn_comes_once() -> None:
    async def main() -> list[int]:
        turns: list[int] = []
        added: list[int] = []
        end_of_turn = EndOfTurn(asyncio.get_running_loop(), lambda: turns.append(len(added)))

        async def add(number: int) -> None:
            added.append(number)
            end_of_turn.plan()

        await asyncio.gather(*(add(number) for number in range(5)))
        await add(5)
        await asyncio.sleep(0)
        return turns

    assert asyncio.run(main()) == [5, 6]


TASK_STEPS = st.lists(
    st.tuples(st.sampled_from(["add", "cancel", "accept", "refuse row", "refuse", "lose"]), st.integers(0, 9)),
    max_size=40,
)


@given(TASK_STEPS, st.booleans())
def test_tasks_that_leave_harm_nobody_and_nobody_waits_for_ever(steps: list[tuple[str, int]], closes: bool) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        sent: list[Batch[tuple[int, asyncio.Future[int]]]] = []
        coalescer: Coalescer[tuple[int, asyncio.Future[int]]] = Coalescer(sent.append, fail_futures, rows_max=4)
        end_of_turn = EndOfTurn(loop, coalescer.pump)
        futures: list[asyncio.Future[int]] = []
        left: set[int] = set()

        def accept(batch: Batch[tuple[int, asyncio.Future[int]]]) -> None:
            for number, future in batch.entries:
                if not future.done():
                    future.set_result(number)
            coalescer.on_accepted(batch)

        def answer(step: str, argument: int) -> None:
            batch = sent.pop(argument % len(sent))
            if step == "accept":
                accept(batch)
            elif step == "refuse row":
                coalescer.on_refused(batch, KeyExistsError("no", row=argument % len(batch.entries)))
            elif step == "refuse":
                coalescer.on_refused(batch, OverloadedError("full"))
            else:
                coalescer.on_failed(batch, UnavailableError("away"))
            end_of_turn.plan()

        for step, argument in steps:
            if step == "add":
                future = loop.create_future()
                coalescer.add((len(futures), future))
                futures.append(future)
                end_of_turn.plan()
            elif step == "cancel" and futures:
                if futures[argument % len(futures)].cancel():
                    left.add(argument % len(futures))
            elif sent:
                answer(step, argument)
            if argument % 3 == 0:
                await asyncio.sleep(0)  # a turn of the loop
        await asyncio.sleep(0)
        if closes:
            coalescer.close("closed")
        while sent:
            answer("accept", 0)
            await asyncio.sleep(0)
        assert all(future.done() for future in futures)
        assert {number for number, future in enumerate(futures) if future.cancelled()} == left
        for number, future in enumerate(futures):
            assert future.cancelled() or future.exception() or future.result() == number

    asyncio.run(main())
