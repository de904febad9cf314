"""Programs beside RabbitMQ, each in a process of its own: one publishes at a steady rate, one takes.

They have the bridge's wire, so that they cost little beside it.
"""

from __future__ import annotations

import asyncio
import sys
import time
from typing import Any

import numpy as np
import uvloop
from tests.rabbitmq.traffic import DELAYED, QUEUE, connected, declare_target

from tarry.bridge.amqp_fields import AmqpProperties
from tarry.bridge.frames import DELIVER
from tarry.bridge.way import ExchangeWay

LEAD_S = 5.0
"""How long each message waits."""
TICK_S = 0.01


async def publish(url: str, count: int, rate: int, path: str) -> None:
    """Publish ``count`` messages with confirms; write when each is due."""
    due, done, began = np.zeros(count), 0, time.time()
    async with connected(url) as connection:
        way = ExchangeWay(connection, await connection.channel(publisher_confirms=True), DELAYED)
        while done < count:
            for number in range(done, min(count, int((time.time() - began) * rate))):
                due_ms = int((time.time() + LEAD_S) * 1000)
                due[number], done = due_ms / 1000, number + 1
                properties = AmqpProperties(fields={"delivery_mode": b"\2"})
                properties.set_header("x-tarry-due", due_ms)
                properties.set_text("message_id", f"{began}.{number}")
                way.send(properties.encode(), b"%d" % number, "new", _confirmed)
            await asyncio.sleep(TICK_S)
        while not way.is_idle:
            await asyncio.sleep(TICK_S)
    np.save(path, due)


def _confirmed(error: BaseException | None) -> None:
    if error is not None:
        raise error


class _Taker:
    """Gets what comes from the target queue."""

    def __init__(self, count: int) -> None:
        self.came, self.left, self.done = np.zeros(count), count, asyncio.Event()

    def on_message(self, method: bytes, _: bytes, body: bytes) -> None:
        if method.startswith(DELIVER):
            self.came[int(body)] = time.time()
            self.left -= 1
            if not self.left:
                self.done.set()

    def on_confirm(self, tag: int, **_: bool) -> None:
        """Nothing is published here."""

    def on_closing(self) -> None:
        self.done.set()


async def take(url: str, count: int, path: str) -> None:
    """Take ``count`` messages; write when each has come."""
    async with connected(url) as connection:
        channel = await connection.channel(publisher_confirms=False)
        await declare_target(channel, "classic")
        taker = _Taker(count)
        connection.listen(channel, taker)
        await channel.basic_consume(QUEUE, _never, no_ack=True)
        print("ready", flush=True)
        await taker.done.wait()
    np.save(path, taker.came)


async def _never(message: Any) -> None:
    raise AssertionError(message)


if __name__ == "__main__":
    _, what, url, count, *more = sys.argv
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        if what == "publish":
            runner.run(publish(url, int(count), int(more[0]), more[1]))
        else:
            runner.run(take(url, int(count), more[0]))
