"""What Tarry hands out again after RabbitMQ has confirmed it is acknowledged once more, and not published again.

Tarry is killed here between the confirm and the acknowledgement: a stream of deliveries ends, and the next one brings
the same message at another offset, as the ready log may after a crash.
"""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pyarrow as pa
import pytest

from tarry.base.errors import UnavailableError
from tarry.bridge.amqp_fields import AmqpProperties
from tarry.bridge.amqp_message import AMQP, AmqpTarget
from tarry.bridge.confirmed import DOUBT_S, Confirmed
from tarry.bridge.giving import Giving
from tarry.bridge.settings import BridgeFigures, BridgeSettings
from tarry.bridge.way import NotTakenError
from tarry.client.delivery_batch import DeliveryBatch
from tarry.client.settling import Settler
from tarry.client.stream_op import StreamOp

pytestmark = pytest.mark.asyncio

SOURCE = ("rabbitmq.delayed", "bridge")


class Stream:
    """One connection to a broker that can be killed, and the messages that it has handed out."""

    def __init__(self) -> None:
        self.settled: list[tuple[StreamOp, int]] = []
        """Op and offset."""
        self.settler = Settler(self._send, loop=None)

    def _send(self, op: StreamOp, argument: int, source: Any, leases: Any, offsets: Any, reason: str) -> None:
        self.settled += [(op, int(offset)) for offset in offsets]

    def hand_out(self, seq: int, offset: int, born_ms: int = 1000, message_id: str = "") -> DeliveryBatch:
        amqp = AmqpProperties()
        if message_id:
            amqp.set_text("message_id", message_id)
        rest = {"target": ["orders", "new"], "properties": base64.b64encode(amqp.encode()).decode()}
        row: dict[str, Any] = {
            "topic": SOURCE[0], "id": f"m{seq}", "seq": seq, "born_ms": born_ms, "lease": 1, "offset": offset,
            "body": b"%d" % seq, "properties": {AMQP: json.dumps(rest)},
        }  # fmt: skip
        columns = {name: [value] for name, value in row.items() if name != "properties"}
        properties = pa.array([list(row["properties"].items())], pa.map_(pa.string(), pa.string()))
        data = pa.record_batch({**columns, "properties": properties})
        return DeliveryBatch(data, self.settler, SOURCE)


class Place:
    """A client, its consumer, and RabbitMQ's exchanges, as far as :class:`Giving` uses them."""

    def __init__(self) -> None:
        self.published: list[bytes] = []
        self.deliveries: asyncio.Queue[DeliveryBatch] = asyncio.Queue()
        self.stream = Stream()
        self.is_served = True
        self.confirms = asyncio.Event()
        self.confirms.set()
        self.figures = BridgeFigures()
        self.now_s = 0.0
        self.not_taken = ""
        """Why RabbitMQ takes nothing; "": it does."""
        self.confirmed = Confirmed(known_max=4, now=lambda: self.now_s)
        self.flushes = asyncio.Event()
        self.flushes.set()
        """Whether a flush is answered at once."""
        self._turn = asyncio.Lock()
        settings = BridgeSettings(url="amqp://127.0.0.1/")
        me: Any = self
        self.giving = Giving(settings, me, self.figures, me, self.confirmed)

    @asynccontextmanager
    async def consume(self, *_: object, **__: object) -> AsyncIterator[Place]:
        yield self

    async def batches(self) -> AsyncIterator[DeliveryBatch]:
        while True:
            yield await self.deliveries.get()

    async def flush(self, timeout: float = 30.0) -> None:
        stream = self.stream
        await self.flushes.wait()
        if stream.settler.closed:
            raise UnavailableError("the connection was lost")
        stream.settler.push()

    def at_once(self, name: str) -> None:
        """Nothing may go at once."""

    async def publish(self, raw: bytes, body: bytes, target: AmqpTarget, check: Callable[[], None]) -> None:
        assert target == AmqpTarget("orders", "new")
        async with self._turn:
            check()
            if self.not_taken:
                raise NotTakenError(self.not_taken)
            self.published.append(body)
            await self.confirms.wait()

    def kill_broker(self) -> None:
        """And start it again: what it was not told is handed out again."""
        self.stream.settler.close()
        self.stream = Stream()

    async def give(self, seq: int, offset: int, born_ms: int = 1000, message_id: str = "") -> None:
        """Hand out a message, and wait until it is done with."""
        done = self._done()
        self.deliveries.put_nowait(self.stream.hand_out(seq, offset, born_ms, message_id))
        async with asyncio.timeout(30):
            while self._done() == done:
                await asyncio.sleep(0)

    def _done(self) -> int:
        return self.figures.given + self.figures.known + self.figures.returned


@asynccontextmanager
async def giving() -> AsyncIterator[Place]:
    place = Place()
    task = asyncio.create_task(place.giving.run())
    yield place
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_what_was_confirmed_is_not_published_again() -> None:
    async with giving() as place:
        await place.give(seq=7, offset=70)
        place.kill_broker()
        await place.give(seq=7, offset=69)
        assert place.published == [b"7"]
        await place.confirmed.settle(place)
        assert place.stream.settled == [(StreamOp.ACK, 69)]
        assert (place.figures.given, place.figures.known) == (1, 1)


async def test_what_is_under_way_is_not_published_again() -> None:
    async with giving() as place:
        place.confirms.clear()
        place.deliveries.put_nowait(place.stream.hand_out(seq=7, offset=70))
        while not place.published:
            await asyncio.sleep(0)
        place.kill_broker()
        again = asyncio.create_task(place.give(seq=7, offset=69))
        for _ in range(20):
            await asyncio.sleep(0)
        place.confirms.set()
        await again
        while not place.figures.known:
            await asyncio.sleep(0)
        assert place.published == [b"7"]


async def test_what_is_confirmed_during_a_flush_that_fails_is_not_published_again() -> None:
    """A flush that fails tells of all acknowledgements until its end, once: the next one has nothing to tell."""
    async with giving() as place:
        await place.give(seq=7, offset=70)
        place.flushes.clear()
        settling = asyncio.create_task(place.confirmed.settle(place))
        await asyncio.sleep(0)  # the flush is under way
        await place.give(seq=8, offset=80)
        place.kill_broker()
        place.flushes.set()
        await settling
        await place.confirmed.settle(place)
        for seq, offset in ((7, 69), (8, 79)):
            await place.give(seq, offset)
        assert place.published == [b"7", b"8"]


async def test_a_seq_that_is_given_anew_is_another_message() -> None:
    async with giving() as place:
        await place.give(seq=7, offset=70)
        place.kill_broker()
        await place.give(seq=7, offset=70, born_ms=1001)
        assert place.published == [b"7", b"7"]


async def test_what_was_acknowledged_durably_comes_again_by_a_seek() -> None:
    async with giving() as place:
        await place.give(seq=7, offset=70)
        await place.confirmed.settle(place)
        assert len(place.confirmed) == 0
        await place.give(seq=7, offset=70)
        assert place.published == [b"7", b"7"]


async def test_what_is_in_doubt_is_known_until_a_while_after_the_brokers_return() -> None:
    async with giving() as place:
        await place.give(seq=7, offset=70)
        place.stream.settler.close()
        await place.confirmed.settle(place)
        place.kill_broker()
        place.is_served = False
        for place.now_s in (0.9 * DOUBT_S, 1.8 * DOUBT_S):  # away all the while
            await place.confirmed.settle(place)
        place.is_served = True
        place.now_s += 0.9 * DOUBT_S
        await place.confirmed.settle(place)
        assert (7, 1000) in place.confirmed
        place.now_s += 0.2 * DOUBT_S
        await place.confirmed.settle(place)
        assert (7, 1000) not in place.confirmed


async def test_the_oldest_are_forgotten_beyond_a_number() -> None:
    async with giving() as place:
        for seq in (1, 2):
            await place.give(seq, offset=seq)
        place.stream.settler.close()
        await place.confirmed.settle(place)  # these two are in doubt
        place.kill_broker()
        for seq in (3, 4, 5):
            await place.give(seq, offset=seq)
        assert [seq for seq in range(1, 6) if (seq, 1000) in place.confirmed] == [2, 3, 4, 5]


async def test_each_cause_is_told_once_with_the_programs_message_id(caplog: pytest.LogCaptureFixture) -> None:
    causes = ("no queue takes it: NO_ROUTE, exchange 'orders', routing key 'no'", "there is no exchange 'nosuch'")
    async with giving() as place:
        for seq in range(4):
            place.not_taken = causes[seq // 2]
            await place.give(seq, offset=seq, message_id=f"order-{seq}")
        place.not_taken = "a queue refuses it"
        await place.give(4, offset=4)
    assert [record.getMessage() for record in caplog.records] == [
        f"RabbitMQ does not take message order-0: {causes[0]}",
        f"RabbitMQ does not take message order-2: {causes[1]}",
        "RabbitMQ does not take message m4: a queue refuses it",
    ]
