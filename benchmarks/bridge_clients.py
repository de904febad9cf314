"""Programs beside RabbitMQ, each in a process of its own: one publishes at a steady rate, one takes."""

from __future__ import annotations

import asyncio
import sys
import time

import numpy as np
from aiormq import Connection
from aiormq.abc import DeliveredMessage
from pamqp.commands import Basic

LEAD_S = 5.0
"""How long each message waits."""
TICK_S = 0.01
DELAYED, TARGET, QUEUE = "orders.delayed", "orders", "orders.target"


async def publish(url: str, count: int, rate: int, path: str) -> None:
    """Publish ``count`` messages; write when each is due."""
    due, connection = np.zeros(count), Connection(url)
    await connection.connect()
    channel = await connection.channel(publisher_confirms=False)
    began, done = time.time(), 0
    while done < count:
        for number in range(done, min(count, int((time.time() - began) * rate))):
            due_ms = int((time.time() + LEAD_S) * 1000)
            due[number], done = due_ms / 1000, number + 1
            properties = Basic.Properties(
                headers={"x-tarry-due": due_ms}, message_id=f"{began}.{number}", delivery_mode=2
            )
            await channel.basic_publish(
                b"%d" % number, exchange=DELAYED, routing_key="new", properties=properties, wait=False
            )
        await asyncio.sleep(TICK_S)
    await connection.close()
    np.save(path, due)


async def take(url: str, count: int, path: str) -> None:
    """Take ``count`` messages; write when each has come."""
    came, connection, done = np.zeros(count), Connection(url), asyncio.Event()
    await connection.connect()
    channel = await connection.channel(publisher_confirms=False)
    await channel.exchange_declare(TARGET, exchange_type="direct", durable=True)
    await channel.queue_declare(QUEUE, durable=True, arguments={"x-queue-type": "classic"})
    await channel.queue_bind(QUEUE, TARGET, "new")
    left = count

    async def on_message(message: DeliveredMessage) -> None:
        nonlocal left
        came[int(message.body)] = time.time()
        left -= 1
        if not left:
            done.set()

    await channel.basic_consume(QUEUE, on_message, no_ack=True)
    print("ready", flush=True)
    await done.wait()
    await connection.close()
    np.save(path, came)


if __name__ == "__main__":
    _, what, url, count, *more = sys.argv
    if what == "publish":
        asyncio.run(publish(url, int(count), int(more[0]), more[1]))
    else:
        asyncio.run(take(url, int(count), more[0]))
