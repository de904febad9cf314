"""What a consumer holds: leases of work that begins late."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from tarry.api.views import DELIVERY
from tarry.api.wire import StreamOp
from tarry.base.types import Int64s
from tarry.client.delivery import DeliveryBatch
from tarry.client.holding import Hand, Holding
from tarry.client.settling import Settler, Source


def test_work_that_begins_late_extends_its_lease_by_itself() -> None:
    """The thread that tends may come when the lease is over, and would let go of what is in work."""
    sent: list[tuple[StreamOp, int]] = []

    def send(op: StreamOp, argument: int, source: Source, leases: Int64s, offsets: Int64s, reason: str) -> None:
        if len(leases):
            sent.append((op, argument))

    settler, holding = Settler(send, threaded=False), Holding(10)
    holding.begin_stream(settler, 3_600_000, int, adapts=True)
    row: dict[str, Any] = {"topic": "t", "body": b"x", "due_ms": 0, "seq": 1, "offset": 0, "lease": 7, "attempt": 1}
    row |= {"properties": [], "id": "i"}
    batch = DeliveryBatch(pa.RecordBatch.from_pylist([row], schema=DELIVERY), settler, ("t", "g"))
    holding.add(batch)
    hand = Hand()
    rest = holding.take(hand, batch)
    assert rest is not None
    next(rest)
    holding.done(hand)  # a loop gave it to a pool, and went on
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
