"""The client's single messages, with a Flight connection that is a fake: streams that end at a bad moment."""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

import pyarrow as pa
import pytest
from tests.waiting import wait_until

from tarry.api.wire import AnswerKind, encode_accepted, encode_refused
from tarry.base.errors import ClosedError, OverloadedError, TarryError, UnavailableError
from tarry.client.producing import Producer
from tarry.message.receipt import Receipt
from tarry.message.rows import make_row

Outcomes = dict[int, Receipt | TarryError]


class Flight:
    """One stream after the other; each answers what ``answer`` makes of a batch, None: it ends."""

    address = "fake"

    def __init__(self, answer: Callable[[pa.RecordBatch | None], bytes | None]) -> None:
        self.flight = self
        self.answer = answer
        self.streams = 0

    def check_open(self) -> None:
        pass

    def do_put(self, descriptor: Any, schema: pa.Schema) -> tuple[Any, Any]:
        self.streams += 1
        stream = Stream(self.answer)
        return stream, stream


class Stream:
    def __init__(self, answer: Callable[[pa.RecordBatch | None], bytes | None]) -> None:
        self.answer = answer
        self.answers: SimpleQueue[bytes | None] = SimpleQueue()
        if answer(None) is None:
            self.answers.put(None)

    def write_batch(self, batch: pa.RecordBatch) -> None:
        self.answers.put(self.answer(batch))

    def read(self) -> pa.Buffer | None:
        raw = self.answers.get()
        return None if raw is None else pa.py_buffer(raw)

    def done_writing(self) -> None:
        self.answers.put(None)

    def close(self) -> None:
        pass


def producer_of(flight: Flight) -> tuple[Producer[int], Outcomes]:
    outcomes: Outcomes = {}

    def resolve(answers: list[tuple[int, Receipt | TarryError]]) -> None:
        for number, answer in answers:
            assert number not in outcomes, "each caller gets one answer"
            outcomes[number] = answer

    return Producer(flight, resolve), outcomes  # type: ignore[arg-type]


def accept(batch: pa.RecordBatch | None) -> bytes:
    return b"" if batch is None else encode_accepted(7, batch.num_rows, bytes(8), None)


def test_answers_reach_their_callers_until_it_is_closed() -> None:
    producer, outcomes = producer_of(Flight(accept))
    for number in range(5):
        producer.add(make_row("t", b"x", due=number), number)
    producer.pump()
    producer.close()
    assert [getattr(outcomes[number], "seq", None) for number in range(5)] == [7, 8, 9, 10, 11]
    with pytest.raises(ClosedError):
        producer.add(make_row("t", b"x"), 5)


def test_a_stream_that_ends_before_it_is_used_is_replaced_once(monkeypatch: pytest.MonkeyPatch) -> None:
    class EndsAtOnce(threading.Thread):
        def start(self) -> None:
            super().start()
            self.join()

    monkeypatch.setattr("tarry.client.producing.threading.Thread", EndsAtOnce)
    flight = Flight(lambda _: None)
    producer, outcomes = producer_of(flight)
    producer.add(make_row("t", b"x"), 0)
    producer.pump()
    assert isinstance(outcomes[0], UnavailableError)
    assert "nothing was sent" in str(outcomes[0])
    assert flight.streams == 2
    producer.close()


def test_a_goodbye_ends_the_stream_and_the_next_batch_opens_another() -> None:
    goodbyes = [encode_refused(OverloadedError("stopping"), AnswerKind.GOODBYE)]
    flight = Flight(lambda batch: goodbyes.pop() if batch is not None and goodbyes else accept(batch))
    producer, outcomes = producer_of(flight)
    producer.add(make_row("t", b"x", due=1), 0)
    producer.pump()
    wait_until(lambda: 0 in outcomes)
    error = outcomes[0]
    assert isinstance(error, UnavailableError)
    assert "may or may not have been accepted" in str(error)
    producer.add(make_row("t", b"x", due=1), 1)
    producer.pump()
    producer.close()
    assert isinstance(outcomes[1], Receipt)
    assert flight.streams == 2
