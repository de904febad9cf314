"""A program that publishes with confirms, and one that takes: what each has seen, over broken connections."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter, defaultdict
from dataclasses import dataclass, field

import aio_pika
from aio_pika.abc import AbstractChannel, AbstractIncomingMessage
from aiormq.exceptions import AMQPError, ChannelInvalidStateError

GONE = (AMQPError, ChannelInvalidStateError, OSError, TimeoutError, asyncio.CancelledError)
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
                async with await aio_pika.connect(self._url) as connection:
                    await self._publish_on(await connection.channel())
            except GONE:
                await asyncio.sleep(0.2)

    async def _publish_on(self, channel: AbstractChannel) -> None:
        await channel.get_exchange(DELAYED)  # a bridge has been there
        again = list(self._open)
        self._seen.published_again.update(again)
        under_way = {asyncio.create_task(self._publish(channel, number)) for number in again}
        following = time.monotonic()
        while not self.stopping.is_set() and not channel.is_closed:
            following = max(following + TICK_S, time.monotonic() - 1)
            for _ in range(int(self._per_second * TICK_S)):
                number, self.published = self.published, self.published + 1
                self._open[number] = self._random.randrange(self._delay_ms_max)
                under_way.add(asyncio.create_task(self._publish(channel, number)))
            await asyncio.sleep(max(0, following - time.monotonic()))
            under_way = {task for task in under_way if not task.done()}
            while len(under_way) > self._per_second and not channel.is_closed:  # it does not keep up
                _, under_way = await asyncio.wait(under_way, timeout=1, return_when=asyncio.FIRST_COMPLETED)
        if under_way:
            await asyncio.wait(under_way, timeout=60)

    async def _publish(self, channel: AbstractChannel, number: int) -> None:
        delay_ms, began = self._open[number], time.time()
        message = aio_pika.Message(
            str(number).encode(), headers={"x-delay": delay_ms}, message_id=f"m{number}", delivery_mode=2
        )
        try:
            exchange = await channel.get_exchange(DELAYED, ensure=False)
            await exchange.publish(message, "new", timeout=60)
        except GONE:
            return
        self._seen.due[number] = min(self._seen.due.get(number, began), began) + delay_ms / 1000
        self._open.pop(number, None)


class Taker:
    """Takes from the target queue, and acknowledges."""

    def __init__(self, url: str, seen: Seen) -> None:
        self._url, self._seen = url, seen
        self.stopping = asyncio.Event()

    async def run(self) -> None:
        while not self.stopping.is_set():
            try:
                async with await aio_pika.connect(self._url) as connection:
                    channel = await connection.channel(publisher_confirms=False)
                    await channel.set_qos(prefetch_count=1000)
                    queue = await declare_target(channel)
                    gone = asyncio.Event()
                    connection.close_callbacks.add(lambda *_: gone.set())  # noqa: B023 - of this connection
                    await queue.consume(self._take)
                    ends = [asyncio.create_task(each.wait()) for each in (gone, self.stopping)]
                    await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
                    for each in ends:
                        each.cancel()
            except GONE:
                await asyncio.sleep(0.2)

    async def _take(self, message: AbstractIncomingMessage) -> None:
        number, seen = int(message.body), self._seen
        if message.message_id != f"m{number}":
            seen.faults.append(f"m{number} has come with the message id {message.message_id!r}")
        seen.last = time.time()
        if message.redelivered and seen.came.get(number):
            seen.given_again[number] += 1
        else:
            seen.came[number].append(seen.last)
        try:
            await message.ack()
        except GONE:
            pass


async def declare_target(channel: AbstractChannel, kind: str = "quorum") -> aio_pika.abc.AbstractQueue:
    """Make the exchange that messages go to when they are due, and a queue behind it."""
    exchange = await channel.declare_exchange(TARGET, "direct", durable=True)
    queue = await channel.declare_queue(QUEUE, durable=True, arguments={"x-queue-type": kind})
    await queue.bind(exchange, "new")
    return queue
