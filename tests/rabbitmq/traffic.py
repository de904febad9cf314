"""A program that publishes with confirms, and one that takes: what each has seen, over broken connections.

Both are as cheap as the bridge, whose wire they have: the rate is to be that of what they test.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial

from aiormq.abc import AbstractChannel, DeliveredMessage
from aiormq.exceptions import AMQPError, ChannelInvalidStateError

from tarry.bridge.acks import Acks
from tarry.bridge.amqp_fields import AmqpProperties
from tarry.bridge.frames import DELIVER, delivered_of
from tarry.bridge.way import ExchangeWay
from tarry.bridge.wire import WiredConnection

GONE = (AMQPError, ChannelInvalidStateError, OSError, RuntimeError, TimeoutError, asyncio.CancelledError)
CONFIRM_S = 60.0
TICK_S = 0.02
DELAYED, TARGET, QUEUE = "orders.delayed", "orders", "orders.target"


@dataclass
class Seen:
    """What became of each message; times of the wall clock in seconds."""

    due: dict[int, float] = field(default_factory=dict)
    """Of what has been confirmed to its producer: before this it must not come."""
    published_again: Counter[int] = field(default_factory=Counter)
    """How often the producer has published it once more, since its confirm was lost."""
    came: dict[int, list[float]] = field(default_factory=lambda: defaultdict(list))
    last: float = 0.0
    """When anything has come."""
    given_again: Counter[int] = field(default_factory=Counter)
    """How often the target queue has given it once more, since the program's acknowledgement was lost."""
    faults: list[str] = field(default_factory=list)


class Producer:
    """Publishes ``per_second`` messages, each until it is confirmed, under one message id."""

    def __init__(self, url: str, seen: Seen, per_second: int, delay_ms_max: int, seed: int) -> None:
        self._url, self._seen, self._per_second, self._delay_ms_max = url, seen, per_second, delay_ms_max
        self._random = random.Random(seed)
        self._open: dict[int, int] = {}
        """By number, the delay in ms of what is published and not confirmed."""
        self.published = 0
        self.stopping = asyncio.Event()

    async def run(self) -> None:
        """Publish until ``stopping`` is set and everything is confirmed."""
        while not self.stopping.is_set() or self._open:
            try:
                async with connected(self._url) as connection:
                    await self._publish_on(connection)
            except GONE:
                await asyncio.sleep(0.2)

    async def _publish_on(self, connection: WiredConnection) -> None:
        looking = await connection.channel(publisher_confirms=False)
        await looking.exchange_declare(DELAYED, passive=True)  # a bridge has been there
        way = ExchangeWay(connection, await connection.channel(publisher_confirms=True), DELAYED)
        again = list(self._open)
        self._seen.published_again.update(again)
        for number in again:
            self._publish(way, number)
        following = time.monotonic()
        while not self.stopping.is_set() and way.is_open:
            following = max(following + TICK_S, time.monotonic() - 1)
            for _ in range(int(self._per_second * TICK_S)):
                number, self.published = self.published, self.published + 1
                self._open[number] = self._random.randrange(self._delay_ms_max)
                self._publish(way, number)
            await asyncio.sleep(max(0, following - time.monotonic()))
            while len(self._open) > self._per_second and way.is_open:  # it does not keep up
                await asyncio.sleep(TICK_S)
        with suppress(TimeoutError):
            async with asyncio.timeout(CONFIRM_S):
                while not way.is_idle:
                    await asyncio.sleep(TICK_S)

    def _publish(self, way: ExchangeWay, number: int) -> None:
        if not way.is_open:
            return
        properties = AmqpProperties(fields={"delivery_mode": b"\2"})
        properties.set_header("x-delay", self._open[number])
        properties.set_text("message_id", f"m{number}")
        way.send(properties.encode(), b"%d" % number, "new", partial(self._on_answer, number, time.time()))

    def _on_answer(self, number: int, began: float, error: BaseException | None) -> None:
        if error is None:
            delay_ms = self._open.pop(number, 0)
            self._seen.due[number] = min(self._seen.due.get(number, began), began) + delay_ms / 1000


class Taker:
    """Takes from the target queue, and acknowledges."""

    def __init__(self, url: str, seen: Seen) -> None:
        self._url, self._seen = url, seen
        self._acks: Acks | None = None
        self.stopping = asyncio.Event()

    async def run(self) -> None:
        while not self.stopping.is_set():
            try:
                async with connected(self._url) as connection:
                    channel = await connection.channel(publisher_confirms=False)
                    await channel.basic_qos(prefetch_count=1000)
                    await declare_target(channel)
                    self._acks = Acks(connection, channel)
                    connection.listen(channel, self)
                    await channel.basic_consume(QUEUE, _never)
                    stopping = asyncio.create_task(self.stopping.wait())
                    await asyncio.wait([channel.closing, stopping], return_when=asyncio.FIRST_COMPLETED)
                    stopping.cancel()
            except GONE:
                await asyncio.sleep(0.2)

    def on_message(self, method: bytes, raw: bytes, body: bytes) -> None:
        """Take a message."""
        if not method.startswith(DELIVER) or self._acks is None:
            return
        number, seen, tag = int(body), self._seen, delivered_of(method).tag
        if (message_id := AmqpProperties.decode(raw).text("message_id")) != f"m{number}":
            seen.faults.append(f"m{number} has come with the message id {message_id!r}")
        seen.last = time.time()
        is_again = method[5 + method[4] + 8]
        if is_again and seen.came.get(number):
            seen.given_again[number] += 1
        else:
            seen.came[number].append(seen.last)
        self._acks.add(tag)

    def on_confirm(self, tag: int, *, multiple: bool, is_taken: bool) -> None:
        """Nothing is published here."""

    def on_closing(self) -> None:
        """Acknowledge nothing more."""
        if self._acks is not None:
            self._acks.close()


@asynccontextmanager
async def connected(url: str) -> AsyncIterator[WiredConnection]:
    connection = WiredConnection(url)
    await connection.connect()
    try:
        yield connection
    finally:
        with suppress(*GONE):
            await connection.close()


async def declare_target(channel: AbstractChannel, kind: str = "quorum") -> None:
    """Make the exchange that messages go to when they are due, and a queue behind it."""
    await channel.exchange_declare(TARGET, exchange_type="direct", durable=True)
    await channel.queue_declare(QUEUE, durable=True, arguments={"x-queue-type": kind})
    await channel.queue_bind(QUEUE, TARGET, "new")


async def _never(message: DeliveredMessage) -> None:
    raise AssertionError(message)
