"""The client's single messages and bulk, with a broker that is a function: each caller gets one answer."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pytest

from tarry.api.wire import encode_accepted
from tarry.base.errors import (
    ClosedError,
    InvalidMessageError,
    OverloadedError,
    TarryError,
    UnavailableError,
    from_wire,
)
from tarry.client.bulk import CHUNKS_IN_FLIGHT, BulkSender
from tarry.client.producing import Producer
from tarry.link.frames import decode_rows, numbered
from tarry.link.peer import OnAnswer
from tarry.message.accepted import Accepted
from tarry.message.receipt import Receipt
from tarry.message.rows import make_row

Outcomes = dict[int, Receipt | TarryError]
Answer = Callable[[pa.Table], memoryview | TarryError]


def accepted(first_seq: int, rows: int) -> memoryview:
    raw = encode_accepted(first_seq, rows, bytes(8), np.arange(rows))
    return memoryview(numbered(len(raw)) + raw)


class Link:
    """Answers at once, or when it is told to."""

    def __init__(self, answer: Answer, *, at_once: bool = True) -> None:
        self.answer = answer
        self.at_once = at_once
        self.waiting: list[Callable[[], None]] = []
        self.tables: list[pa.Table] = []

    def submit(self, rows: bytes, on_answer: OnAnswer) -> None:
        table = decode_rows(memoryview(rows))
        self.tables.append(table)
        self.waiting.append(lambda: on_answer(self.answer(table)))
        if self.at_once:
            self.answer_all()

    def answer_all(self) -> None:
        waiting, self.waiting = self.waiting, []
        for each in waiting:
            each()


def producer_of(link: Link) -> tuple[Producer[int], Outcomes]:
    outcomes: Outcomes = {}

    def resolve(answers: list[tuple[int, Receipt | TarryError]]) -> None:
        for number, answer in answers:
            assert number not in outcomes, "each caller gets one answer"
            outcomes[number] = answer

    return Producer(link.submit, resolve), outcomes


def test_answers_reach_their_callers_until_it_is_closed() -> None:
    producer, outcomes = producer_of(Link(lambda table: accepted(7, table.num_rows)))
    for number in range(5):
        producer.add(make_row("t", b"x", due=number), number)
    producer.pump()
    producer.close()
    assert [getattr(outcomes[number], "seq", None) for number in range(5)] == [7, 8, 9, 10, 11]
    with pytest.raises(ClosedError):
        producer.add(make_row("t", b"x"), 5)


def test_the_caller_of_a_bad_row_is_refused_and_the_others_go_again() -> None:
    def answer(table: pa.Table) -> memoryview | TarryError:
        bodies = table["body"].to_pylist()
        if b"bad" in bodies:
            return InvalidMessageError("no", row=bodies.index(b"bad"))
        return accepted(3, len(bodies))

    producer, outcomes = producer_of(Link(answer))
    for number, body in enumerate((b"1", b"bad", b"2")):
        producer.add(make_row("t", body, due=1), number)
    producer.pump()
    assert isinstance(outcomes[1], InvalidMessageError)
    assert [getattr(outcomes[number], "seq", None) for number in (0, 2)] == [3, 4]


@pytest.mark.parametrize(
    "answer",
    [
        lambda _: UnavailableError("lost"),
        lambda _: memoryview(b"what is this"),
        lambda table: accepted(1, table.num_rows + 1),
    ],
)
def test_an_answer_that_says_nothing_fails_its_callers_and_no_others(answer: Answer) -> None:
    link = Link(answer)
    producer, outcomes = producer_of(link)
    producer.add(make_row("t", b"x", due=1), 0)
    producer.pump()
    assert isinstance(outcomes[0], TarryError)
    link.answer = lambda table: accepted(1, table.num_rows)
    producer.add(make_row("t", b"x", due=1), 1)
    producer.pump()
    assert isinstance(outcomes[1], Receipt)


# -- bulk ------------------------------------------------------------------------------------------------------------


def chunks(count: int) -> list[pa.RecordBatch]:
    return [pa.record_batch({"topic": ["t"] * 2, "body": [b"x"] * 2, "due_ms": [n, n]}) for n in range(count)]


def test_chunks_go_a_few_at_a_time_and_are_told_in_order() -> None:
    link = Link(lambda table: accepted(10 * table["due_ms"][0].as_py(), 2), at_once=False)
    most = 0
    submit = link.submit

    def counted(rows: bytes, on_answer: OnAnswer) -> None:
        nonlocal most
        submit(rows, on_answer)
        most = max(most, len(link.waiting))
        if len(link.waiting) == CHUNKS_IN_FLIGHT or len(link.tables) == 10:
            link.waiting.reverse()  # answers may overtake each other
            link.answer_all()

    told: list[Accepted] = []
    found = BulkSender(counted, told.append, 0).send(chunks(10))
    assert most == CHUNKS_IN_FLIGHT
    assert [each.row for each in found] == list(range(0, 20, 2))
    assert [each.first_seq for each in found] == [10 * n for n in range(10)]
    assert sorted(each.row for each in told) == list(range(0, 20, 2))


def test_an_overloaded_broker_is_asked_again_for_a_while() -> None:
    refusals = [OverloadedError("later"), OverloadedError("later")]
    link = Link(lambda _: refusals.pop() if refusals else accepted(0, 2))
    assert [each.row for each in BulkSender(link.submit, None, 10).send(chunks(2))] == [0, 2]
    assert len(link.tables) == 4
    with pytest.raises(OverloadedError):
        BulkSender(Link(lambda _: OverloadedError("later")).submit, None, 0).send(chunks(1))


def test_the_bad_row_of_all_is_named_and_what_was_accepted_is_told() -> None:
    def answer(table: pa.Table) -> memoryview | TarryError:
        return InvalidMessageError("no", row=1) if table["due_ms"][0].as_py() == 2 else accepted(0, 2)

    told: list[Accepted] = []
    with pytest.raises(InvalidMessageError, match="row 5: no") as refused:
        BulkSender(Link(answer).submit, told.append, 0).send(chunks(3))
    assert refused.value.row == 5
    assert [each.row for each in told] == [0, 2]


def test_a_lost_connection_names_the_rows_of_which_nothing_is_known() -> None:
    link = Link(lambda table: UnavailableError("lost") if table["due_ms"][0].as_py() else accepted(0, 2))
    with pytest.raises(UnavailableError, match="lost; rows 2 to 5 may or may not have been accepted"):
        BulkSender(link.submit, None, 0).send(chunks(3))
    with pytest.raises(UnavailableError, match="nothing was sent; rows 0 to 5 may or may not"):
        said = Link(lambda _: from_wire("unavailable", "elsewhere nothing was sent"))
        BulkSender(said.submit, None, 0).send(chunks(3))
    unsent = Link(lambda _: UnavailableError("away", nothing_sent=True))
    with pytest.raises(UnavailableError, match=r"^away; nothing was sent$"):
        BulkSender(unsent.submit, None, 0).send(chunks(3))
