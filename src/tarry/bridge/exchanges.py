"""Exchanges to publish to with confirms: what is wrong with one does not touch messages to others.

RabbitMQ closes the channel of who publishes to an exchange that is not there, or that it must not publish to, and with
it goes all that is under way on that channel. So each exchange has a channel of its own. It is looked for before, by
yet another one; and after a channel was closed, messages to its exchange go one by one for a while, so that it shows
which of them RabbitMQ refuses.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, cast

from aiormq import Connection
from aiormq.abc import AbstractChannel
from aiormq.channel import Channel
from aiormq.exceptions import (
    AMQPError,
    ChannelAccessRefused,
    ChannelClosed,
    ChannelInvalidStateError,
    ChannelLockedResource,
    ChannelNotFoundEntity,
    ChannelPreconditionFailed,
    DeliveryError,
    PublishError,
)

from tarry.bridge.amqp_message import AmqpTarget
from tarry.bridge.raw_transport import RawProperties

KNOWN_S = 30.0
"""For so long an exchange counts as there, or not, without another look.

After its channel was closed, so long it is published to one by one.
"""
CHANNELS_MAX = 200
LOST: tuple[type[BaseException], ...] = (AMQPError, ChannelInvalidStateError, OSError)
"""Errors of a connection, or of a channel, that has ended."""
REFUSED: tuple[type[BaseException], ...] = (
    *(ChannelPreconditionFailed, ChannelAccessRefused, ChannelLockedResource, ChannelNotFoundEntity),
)
"""Errors by which RabbitMQ closes a channel: no other try will mend them by itself."""


class NotTakenError(Exception):
    """RabbitMQ does not take a message; it says why: no such exchange, no queue behind it, or a refusal."""


@dataclass(slots=True)
class _Way:
    """The channel to one exchange, and what is under way on it."""

    channel: Channel
    under_way: dict[str, asyncio.Future[None]] = field(default_factory=dict)
    """Messages under way, by name of their properties.

    What RabbitMQ returns is found by that name, so two of one name wait for one another.
    """


class Exchanges:
    """Exchanges of a connection, to publish to with confirms."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._ways: OrderedDict[str, _Way] = OrderedDict()
        self._known: dict[str, tuple[float, bool]] = {}
        self._single_until_s: dict[str, float] = {}
        self._singles: dict[str, asyncio.Lock] = {}
        self._opening = asyncio.Lock()
        self._looking = asyncio.Lock()

    async def publish(
        self, raw: bytes, body: bytes, target: AmqpTarget, check: Callable[[], None] = lambda: None
    ) -> None:
        """Publish a message with encoded properties; return when RabbitMQ has it.

        While RabbitMQ's memory or disk is full, it takes none; that is waited for. ``check`` is called last of all
        before the message goes out, and raises where it must not.

        Raises:
            NotTakenError: RabbitMQ does not take it.
            AMQPError, ChannelInvalidStateError, OSError: the channel has ended; whether RabbitMQ has it is not known.
        """
        name = target.exchange
        if name and not await self._exists(name):
            raise NotTakenError(f"there is no exchange {name!r}")
        await self._connection.ready()
        if self._single_until_s.get(name, 0.0) <= asyncio.get_running_loop().time():
            await self._publish(raw, body, target, check)
            return
        async with self._singles.setdefault(name, asyncio.Lock()):
            try:
                await self._publish(raw, body, target, check)
            except ChannelClosed as error:  # by this message, since there was no other
                raise NotTakenError(f"RabbitMQ refuses it: {error}") from error

    async def _publish(self, raw: bytes, body: bytes, target: AmqpTarget, check: Callable[[], None]) -> None:
        way = await self._way(target.exchange)
        properties = RawProperties(raw)
        try:
            async with _turn(way, str(properties.message_id)):
                check()
                await way.channel.basic_publish(
                    body, exchange=target.exchange, routing_key=target.routing_key, properties=properties,
                    mandatory=True, wait=False,
                )  # fmt: skip
        except PublishError as error:
            raise NotTakenError(f"no queue takes it: {_return_text(error)}, {_shown(target)}") from error
        except DeliveryError as error:
            raise NotTakenError(f"a queue refuses it, {_shown(target)}") from error
        except ChannelClosed:
            self._single_until_s[target.exchange] = asyncio.get_running_loop().time() + KNOWN_S
            self._known.pop(target.exchange, None)
            raise

    async def _way(self, name: str) -> _Way:
        way = self._ways.get(name)
        if way is not None and not way.channel.is_closed:
            self._ways.move_to_end(name)
            return way
        async with self._opening:
            way = self._ways.get(name)
            if way is None or way.channel.is_closed:
                way = self._ways[name] = _Way(cast(Channel, await open_channel(self._connection, confirms=True)))
            self._ways.move_to_end(name)
            for other, idle in list(self._ways.items()):
                if len(self._ways) <= CHANNELS_MAX:
                    break
                if not idle.under_way and other != name:
                    del self._ways[other]
                    with suppress(*LOST):
                        await idle.channel.close()
        return way

    async def _exists(self, name: str) -> bool:
        if (known := self._look_up(name)) is not None:
            return known
        # One look for all that wait for it: a herd would open a channel for each of its messages.
        async with self._looking:
            known = self._look_up(name)
            return await self._look(name) if known is None else known

    def _look_up(self, name: str) -> bool | None:
        """Return what the last look has found; None: it was too long ago."""
        until_s, is_there = self._known.get(name, (0.0, False))
        return is_there if asyncio.get_running_loop().time() < until_s else None

    async def _look(self, name: str) -> bool:
        """Look by a channel of its own: RabbitMQ closes it if there is no such exchange."""
        channel = await open_channel(self._connection)
        try:
            await channel.exchange_declare(name, passive=True)
            is_there = True
        except ChannelNotFoundEntity:
            is_there = False
        if is_there:
            await channel.close()
        if len(self._known) > 10 * CHANNELS_MAX:
            self._known.clear()
        self._known[name] = (asyncio.get_running_loop().time() + KNOWN_S, is_there)
        return is_there


async def open_channel(connection: Connection, *, confirms: bool = False) -> AbstractChannel:
    """Open a channel.

    Raises:
        AMQPError, ChannelInvalidStateError, OSError: the connection has ended.
    """
    try:
        return await connection.channel(publisher_confirms=confirms)
    except RuntimeError as error:
        if not connection.is_closed:
            raise
        raise ChannelInvalidStateError("the connection has ended") from error  # the library has no error for it


@asynccontextmanager
async def _turn(way: _Way, name: str) -> AsyncIterator[None]:
    """Wait until no other message of this name is under way."""
    while (other := way.under_way.get(name)) is not None:
        await asyncio.wait([other])
    done = way.under_way[name] = asyncio.get_running_loop().create_future()
    try:
        yield
    finally:
        del way.under_way[name]
        done.set_result(None)


def _return_text(error: PublishError) -> str:
    frame: Any = error.frame
    return str(frame.reply_text)


def _shown(target: AmqpTarget) -> str:
    return f"exchange {target.exchange!r}, routing key {target.routing_key!r}"
