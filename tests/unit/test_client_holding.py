"""What a consumer holds: leases of work that begins late, and work that goes on when it is closed."""

from __future__ import annotations

import threading
from typing import Any

import pyarrow as pa
import pytest

from tarry.api.row_schemas import DELIVERY
from tarry.base.types import Int64s
from tarry.client.delivery_batch import DeliveryBatch
from tarry.client.holding import Hand, Holding
from tarry.client.settling import Settler, Source
from tarry.client.stream_op import StreamOp


def a_batch(settler: Settler) -> DeliveryBatch:
    row: dict[str, Any] = {"topic": "t", "body": b"x", "due_ms": 0, "seq": 1, "offset": 0, "lease": 7, "attempt": 1}
    row |= {"properties": [], "id": "i"}
    return DeliveryBatch(pa.RecordBatch.from_pylist([row], schema=DELIVERY), settler, ("t", "g"))


def in_a_pool(holding: Holding, settler: Settler) -> DeliveryBatch:
    """A batch of one message, which a loop gave to a pool before it went on."""
    holding.begin_stream(settler, 3_600_000, int)
    batch = a_batch(settler)
    holding.add(batch)
    hand = Hand()
    rest = holding.take(hand, batch)
    assert rest is not None
    next(rest)
    holding.done(hand)
    return batch


def test_work_that_begins_late_extends_its_lease_by_itself() -> None:
    """The thread that tends may come when the lease is over, and would let go of what is in work."""
    sent: list[tuple[StreamOp, int]] = []

    def send(op: StreamOp, argument: int, source: Source, leases: Int64s, offsets: Int64s, reason: str) -> None:
        if len(leases):
            sent.append((op, argument))

    settler, holding = Settler(send, loop=None), Holding(10)
    batch = in_a_pool(holding, settler)
    holding.enter(batch)
    settler.push()
    assert sent == [], "it is young"
    holding.leave_work(batch)
    batch.extended_s -= 3_000  # the other 600 s of its hour are left
    batch.until_s -= 3_000
    before_s = batch.until_s
    holding.enter(batch)
    settler.push()
    assert sent == [(StreamOp.EXTEND, 3_600_000)]
    assert batch.until_s > before_s + 2_000


class Sent:
    """What was sent to the broker, by op."""

    def __init__(self) -> None:
        self.ops: list[StreamOp] = []
        self.arguments: list[int] = []
        self.settler = Settler(self, loop=None)

    def __call__(
        self, op: StreamOp, argument: int, source: Source, leases: Int64s, offsets: Int64s, reason: str
    ) -> None:
        if len(leases) or op is StreamOp.WINDOW:
            self.ops.append(op)
            self.arguments.append(argument)


def test_closing_waits_for_work_in_other_threads() -> None:
    sent, holding = Sent(), Holding(10)
    batch = in_a_pool(holding, sent.settler)
    [message] = batch.messages()
    entered, closing, done = threading.Event(), threading.Event(), threading.Event()

    def work() -> None:
        with message:
            entered.set()
            closing.wait()
        done.set()

    worker = threading.Thread(target=work)
    worker.start()
    entered.wait()
    holding.give_back()
    closing.set()
    holding.wait_for_work(threading.get_ident(), 30)
    sent.settler.push()
    assert StreamOp.ACK in sent.ops, "what the block acknowledged goes with the stream"
    worker.join()


def test_closing_in_ones_own_block_does_not_wait(caplog: pytest.LogCaptureFixture) -> None:
    sent, holding = Sent(), Holding(10)
    [message] = in_a_pool(holding, sent.settler).messages()
    with message:
        holding.give_back()
        holding.wait_for_work(threading.get_ident(), timeout_s=1e9)
    assert caplog.records == []


def test_work_that_goes_on_for_too_long_is_told(caplog: pytest.LogCaptureFixture) -> None:
    sent, holding = Sent(), Holding(10)
    batch = in_a_pool(holding, sent.settler)
    holding.enter(batch)
    holding.give_back()
    holding.wait_for_work("another", timeout_s=0.01)
    [record] = caplog.records
    assert "1 messages are still worked on" in record.getMessage()


def test_a_lost_stream_ends_the_wait() -> None:
    sent, holding = Sent(), Holding(10)
    holding.enter(in_a_pool(holding, sent.settler))
    holding.give_back()
    waiting = threading.Thread(target=holding.wait_for_work, args=("another", 1e9))
    waiting.start()
    holding.end_stream()
    waiting.join(10)
    assert not waiting.is_alive()


def test_a_consumer_that_is_closed_is_sent_nothing_more() -> None:
    sent, holding = Sent(), Holding(10)
    in_a_pool(holding, sent.settler)
    holding.give_back()
    holding.begin_wait()  # a loop in another thread goes on
    holding.add(a_batch(sent.settler))
    sent.settler.push()
    assert sent.ops[0] is StreamOp.WINDOW
    assert sent.arguments[0] == 0
    assert sent.ops.count(StreamOp.WINDOW) == 1
    assert sent.ops[-1] is StreamOp.RETURN, "what was on its way is for others"
