"""A program beside the bridge that sends and takes messages as bytes, by a connection of its own."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from aiormq import Connection
from aiormq.abc import ChannelFrame
from aiormq.exceptions import ChannelNotFoundEntity, PublishError

from tarry.bridge import frames
from tarry.bridge.amqp_fields import AmqpProperties
from tests.rabbitmq.raw_transport import RawProperties, RawTransport, raw_of


class RawProgram:
    """Publishes to ``orders.delayed``, and takes from a queue behind ``orders``."""

    def __init__(self, connection: Connection, channel: Any, queue: str) -> None:
        self.connection, self.channel, self.queue = connection, channel, queue

    async def publish(
        self, body: bytes, properties: AmqpProperties, key: str = "new", to: str = "orders.delayed"
    ) -> None:
        await self.channel.basic_publish(
            body, exchange=to, routing_key=key, properties=RawProperties(properties.encode())
        )

    async def is_taken(self, body: bytes, properties: AmqpProperties) -> bool:
        """Publish, and return whether a queue has it."""
        raw = RawProperties(properties.encode())
        try:
            await self.channel.basic_publish(
                body, exchange="orders.delayed", routing_key="new", properties=raw, mandatory=True
            )
        except PublishError:
            return False
        return True

    async def send(self, body: bytes, delay_ms: int, key: str = "new", **more: str) -> None:
        """Publish a message with a delay; ``more``: its message id, or headers."""
        await self.publish(body, properties_of(delay_ms, **more), key)

    async def send_with_key(self, body: bytes, key: bytes) -> None:
        """Publish a message whose routing key need not be a text, which the library does not send."""
        other = await self.connection.channel(publisher_confirms=False)
        named = b"".join(bytes([len(part)]) + part for part in (b"orders.delayed", key))
        method = frames.frame(frames.METHOD, other.number, struct.pack(">HHH", 60, 40, 0) + named + b"\0")
        content = frames.content_frames(other.number, AmqpProperties().encode(), body, frames.FRAME_MAX)
        await self.connection.write_queue.put(ChannelFrame(b"".join((method, *content)), should_close=False))

    async def next(self, queue: str | None = None) -> tuple[AmqpProperties, bytes]:
        async with asyncio.timeout(90):
            while True:
                found = await self.channel.basic_get(queue or self.queue, no_ack=True)
                if found.delivery.name == "Basic.GetOk":
                    return AmqpProperties.decode(raw_of(found.header.properties)), found.body
                await asyncio.sleep(0.02)

    async def bodies(self, count: int) -> list[bytes]:
        return [(await self.next())[1] for _ in range(count)]

    async def is_empty(self, queue: str | None = None) -> bool:
        found = await self.channel.queue_declare(queue or self.queue, passive=True)
        return bool(found.message_count == 0)

    async def until_there(self, exchange: str) -> None:
        """Wait until there is this exchange, bound to the bridge's queue or about to be."""
        async with asyncio.timeout(60):
            while True:
                channel = await self.connection.channel()
                try:
                    await channel.exchange_declare(exchange, passive=True)
                except ChannelNotFoundEntity:
                    await asyncio.sleep(0.05)
                else:
                    await channel.close()
                    return

    async def until_taken(self) -> None:
        """Wait until a bridge takes: by then its exchanges are bound, and none drops a message."""
        async with asyncio.timeout(90):
            while True:
                channel = await self.connection.channel()
                try:
                    found = await channel.queue_declare("tarry.delay", passive=True)
                    await channel.close()
                except ChannelNotFoundEntity:
                    found = None
                if found is not None and found.consumer_count:
                    return
                await asyncio.sleep(0.05)


def properties_of(delay_ms: int, message_id: str | None = None, **headers: str) -> AmqpProperties:
    properties = AmqpProperties(fields={"delivery_mode": b"\2"})
    properties.set_header("x-delay", delay_ms)
    for name, value in headers.items():
        properties.set_header(name.replace("_", "-"), value)
    if message_id is not None:
        properties.set_text("message_id", message_id)
    return properties


@asynccontextmanager
async def raw_program(url: str, kind: str = "classic") -> AsyncIterator[RawProgram]:
    """Connect, and make ``orders`` and an empty queue behind it."""
    connection = Connection(url, transport_factory=RawTransport())
    await connection.connect()
    try:
        channel = await connection.channel()
        await channel.exchange_declare("orders", exchange_type="direct", durable=True)
        queue = f"orders.{kind}"
        await channel.queue_delete(queue)
        await channel.queue_declare(queue, durable=True, arguments={"x-queue-type": kind})
        for key in ("new", "old"):
            await channel.queue_bind(queue, "orders", key)
        found = RawProgram(connection, channel, queue)
        await found.until_taken()
        yield found
    finally:
        await connection.close()
