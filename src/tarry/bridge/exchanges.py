"""Exchanges to publish to with confirms: what is wrong with one does not touch messages to others.

RabbitMQ closes the channel of who publishes to an exchange that is not there, or that it must not publish to, and with
it goes all that is under way on that channel. So each exchange has a channel of its own. It is looked for before, by
yet another one; and after a channel was closed, messages to its exchange go one by one for a while, so that it shows
which of them RabbitMQ refuses.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress

from aiormq import Connection
from aiormq.abc import AbstractChannel
from aiormq.exceptions import (
    AMQPError,
    ChannelAccessRefused,
    ChannelClosed,
    ChannelInvalidStateError,
    ChannelLockedResource,
    ChannelNotFoundEntity,
    ChannelPreconditionFailed,
)

from tarry.base.event_loop import settle_future
from tarry.bridge.amqp_message import AmqpTarget
from tarry.bridge.way import ExchangeWay, NotTakenError
from tarry.bridge.wire import WiredConnection

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


class Exchanges:
    """Exchanges of a connection, to publish to with confirms."""

    def __init__(self, connection: WiredConnection) -> None:
        self._connection, self._loop = connection, asyncio.get_running_loop()
        self._ways: OrderedDict[str, ExchangeWay] = OrderedDict()
        self._known: dict[str, tuple[float, bool]] = {}
        self._single_until_s: dict[str, float] = {}
        self._singles: dict[str, asyncio.Lock] = {}
        self._opening = asyncio.Lock()
        self._looking = asyncio.Lock()

    def at_once(self, name: str) -> ExchangeWay | None:
        """Return the way by which messages may go to an exchange now; None: they have to :meth:`publish`.

        What its channel's end says of a message is to be given to :meth:`on_closed`.
        """
        now_s, way = self._loop.time(), self._ways.get(name)
        if way is None or not way.is_open or self._connection.wire.is_blocked:
            return None
        if (name and not self._look_up(name)) or self._single_until_s.get(name, 0.0) > now_s:
            return None
        self._ways.move_to_end(name)
        return way

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
        if self._single_until_s.get(name, 0.0) <= self._loop.time():
            await self._publish(raw, body, target, check)
            return
        async with self._singles.setdefault(name, asyncio.Lock()):
            try:
                await self._publish(raw, body, target, check)
            except ChannelClosed as error:  # by this message, since there was no other
                raise NotTakenError(f"RabbitMQ refuses it: {error}") from error

    async def _publish(self, raw: bytes, body: bytes, target: AmqpTarget, check: Callable[[], None]) -> None:
        way = await self._way(target.exchange)
        check()
        done = self._loop.create_future()
        way.send(raw, body, target.routing_key, lambda error: settle_future(done, error))
        try:
            await done
        except ChannelClosed:
            self.on_closed(target.exchange)
            raise

    def on_closed(self, name: str) -> None:
        """RabbitMQ has closed the channel to an exchange: what goes there goes one by one for a while."""
        self._single_until_s[name] = self._loop.time() + KNOWN_S
        self._known.pop(name, None)

    async def _way(self, name: str) -> ExchangeWay:
        way = self._ways.get(name)
        if way is not None and way.is_open:
            self._ways.move_to_end(name)
            return way
        async with self._opening:
            way = self._ways.get(name)
            if way is None or not way.is_open:
                channel = await open_channel(self._connection, confirms=True)
                way = self._ways[name] = ExchangeWay(self._connection, channel, name)
            self._ways.move_to_end(name)
            for other, idle in list(self._ways.items()):
                if len(self._ways) <= CHANNELS_MAX:
                    break
                if idle.is_idle and other != name:
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
        return is_there if self._loop.time() < until_s else None

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
        self._known[name] = (self._loop.time() + KNOWN_S, is_there)
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
