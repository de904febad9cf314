"""Acks on their way: joined, each message settled once, none lost between threads."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tarry.base.errors import StaleLeaseError, UnavailableError
from tarry.client.background import background_loop
from tarry.client.delivery_batch import DeliveryBatch
from tarry.client.settling import Settler
from tarry.client.stream_op import StreamOp
from tarry.client.unanswered import Unanswered
from tarry.link.frames import LEASES_MAX


class Sent:
    """Where a settler sends to."""

    def __init__(self) -> None:
        self.calls: list[tuple[StreamOp, int, Any, list[int], list[int]]] = []

    def __call__(self, op: StreamOp, argument: int, source: Any, leases: Any, offsets: Any, reason: str) -> None:
        if len(leases):
            self.calls.append((op, argument, source, leases.tolist(), offsets.tolist()))


def batch_of(settler: Settler, rows: int, *, lease: int = 1, first: int = 0, topic: str = "t") -> DeliveryBatch:
    data = pa.record_batch(
        {"lease": np.full(rows, lease, np.int64), "offset": np.arange(first, first + rows, dtype=np.int64)}
    )
    return DeliveryBatch(data, settler, (topic, "g"))


@pytest.fixture
def sent() -> Sent:
    return Sent()


@pytest.fixture
def settler(sent: Sent) -> Settler:
    return Settler(sent, loop=None)


def test_acks_of_several_batches_travel_together(settler: Settler, sent: Sent) -> None:
    a, b = batch_of(settler, 3, lease=1), batch_of(settler, 3, lease=2, first=10)
    for message in [*a.messages()[:2], *b]:
        message.ack()
    settler.push()
    settler.push()
    assert sent.calls == [(StreamOp.ACK, 0, ("t", "g"), [1, 1, 2, 2, 2], [0, 1, 10, 11, 12])]


def test_a_message_is_settled_once_and_what_comes_first_counts(settler: Settler, sent: Sent) -> None:
    messages = batch_of(settler, 3).messages()
    messages[0].ack()
    messages[0].nack()
    messages[0].ack()
    messages[1].nack(delay=5)
    messages[1].ack()
    messages[2].extend(7)
    messages[2].ack()
    settler.push()
    assert [(op, argument, offsets) for op, argument, _, _, offsets in sent.calls] == [
        (StreamOp.ACK, 0, [0, 2]),
        (StreamOp.NACK, 5000, [1]),
        (StreamOp.EXTEND, 7000, [2]),
    ]


def test_the_whole_batch(settler: Settler, sent: Sent) -> None:
    batch = batch_of(settler, 4)
    batch.messages()[1].ack()
    batch.ack()
    batch.nack()
    settler.push()
    assert [(op, sorted(offsets)) for op, _, _, _, offsets in sent.calls] == [(StreamOp.ACK, [0, 1, 2, 3])]


def test_sources_are_kept_apart_and_large_settlements_cut(settler: Settler, sent: Sent) -> None:
    batch_of(settler, LEASES_MAX + 1, topic="a").ack()
    batch_of(settler, 1, topic="b").ack()
    settler.push()
    assert [(source, len(leases)) for _, _, source, leases, _ in sent.calls] == [
        (("a", "g"), LEASES_MAX), (("a", "g"), 1), (("b", "g"), 1),
    ]  # fmt: skip


def test_after_the_end_nothing_is_sent(settler: Settler, sent: Sent) -> None:
    message, other = batch_of(settler, 2).messages()
    message.ack()
    settler.close()
    other.ack()
    settler.push()
    assert sent.calls == []


def test_a_failure_is_told_once_and_the_rest_is_sent() -> None:
    sent = Sent()

    def send(op: StreamOp, argument: int, source: Any, leases: Any, offsets: Any, reason: str) -> None:
        if source[0] == "bad":
            raise UnavailableError("gone")
        sent(op, argument, source, leases, offsets, reason)

    settler = Settler(send, loop=None)
    for topic in ("bad", "good"):
        batch_of(settler, 1, topic=topic).ack()
    settler.push()
    assert [call[2][0] for call in sent.calls] == ["good"]
    assert isinstance(settler.take_error(), UnavailableError)
    assert settler.take_error() is None


@given(st.lists(st.tuples(st.sampled_from(["ack", "nack", "push"]), st.integers(0, 9)), max_size=60))
def test_against_a_model(steps: list[tuple[str, int]]) -> None:
    sent = Sent()
    settler = Settler(sent, loop=None)
    messages = batch_of(settler, 10).messages()
    expected: dict[int, StreamOp] = {}
    for what, row in steps:
        if what == "push":
            settler.push()
        else:
            getattr(messages[row], what)()
            expected.setdefault(row, StreamOp.ACK if what == "ack" else StreamOp.NACK)
    settler.push()
    found = [(offset, op) for op, _, _, _, offsets in sent.calls for offset in offsets]
    assert sorted(found) == sorted(expected.items())


def test_acks_from_many_threads_all_arrive() -> None:
    sent = Sent()
    settler = Settler(sent, loop=background_loop())
    messages = batch_of(settler, 40_000).messages()
    threads = [threading.Thread(target=lambda part: [m.ack() for m in part], args=(messages[n::4],)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    settler.push()
    settler.close()
    offsets = [offset for *_, offsets in sent.calls for offset in offsets]
    assert sorted(offsets) == list(range(40_000))


def test_the_loop_sends_without_being_pushed() -> None:
    sent = Sent()
    came = threading.Event()

    def send(*args: Any) -> None:
        sent(*args)
        came.set()

    settler = Settler(send, loop=background_loop())
    for message in batch_of(settler, 2):
        came.clear()
        message.ack()
        assert came.wait(30)
    settler.close()
    assert [offsets for *_, offsets in sent.calls] == [[0], [1]]


def test_what_no_broker_confirmed_is_told_once() -> None:
    answered, waited, open_ = Unanswered(lambda _: None), Unanswered(lambda _: None), Unanswered(lambda _: None)
    for each in (answered, waited, open_):
        each.begin()(memoryview(b""))
    assert answered.close() is None
    waited.begin()
    with pytest.raises(UnavailableError, match="no answer within"):
        waited.wait(0.0)
    assert waited.close() is None
    open_.begin()
    assert isinstance(open_.close(), UnavailableError)
    failed = Unanswered(lambda _: None)
    failed.begin()(StaleLeaseError("over"))
    assert isinstance(failed.close(), StaleLeaseError)
    assert failed.close() is None


def test_acks_that_come_too_late_are_counted() -> None:
    sent, void = Sent(), list[int]()
    settler = Settler(sent, loop=None, on_void=void.append)
    batch = batch_of(settler, 4)
    first, second, third, _ = batch.messages()
    first.ack()
    settler.close()
    second.ack()
    second.ack()
    third.nack()
    batch.ack()
    assert (void, sent.calls) == ([1, 1, 1], [])
