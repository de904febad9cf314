"""The bridge beside RabbitMQ: from one queue, by way of Tarry, to exchanges.

A message is acknowledged to RabbitMQ when Tarry has it durably, and to Tarry when RabbitMQ has confirmed it. So none is
lost, whoever is killed; one may come twice where an answer was lost, and then with the same message id. A message id
that is sent twice within the broker's dedupe window is scheduled once.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import aio_pika
from aio_pika.abc import AbstractChannel, AbstractConnection, AbstractExchange, AbstractIncomingMessage
from aiormq.exceptions import (
    AMQPError,
    AuthenticationError,
    ChannelAccessRefused,
    ChannelInvalidStateError,
    ChannelLockedResource,
    ChannelNotFoundEntity,
    ChannelPreconditionFailed,
    DeliveryError,
    PublishError,
)

from tarry.base.back_off import BackOff
from tarry.base.errors import (
    InvalidArgumentError,
    NotFoundError,
    StaleLeaseError,
    TarryError,
    UnauthenticatedError,
    UnavailableError,
)
from tarry.bridge.amqp_message import TOPIC, AmqpTarget, cancelled_key, message_of, row_of
from tarry.client.aio import AsyncClient
from tarry.client.delivery import Delivery

log = logging.getLogger(__name__)

GROUP = "bridge"
PAUSE_S, PAUSE_MAX_S = 0.2, 10.0
CONFIRM_S = 30.0
"""Longest wait for RabbitMQ's confirm; then the message is sent again."""
KNOWN_S = 30.0
"""For how long an exchange counts as there, or not, without another look."""
REASON = "x-tarry-refused"
OUTCOME = "x-tarry-outcome"
LOST: tuple[type[BaseException], ...] = (AMQPError, ChannelInvalidStateError, OSError)
"""Errors of a connection, or of a channel, that has ended."""
REFUSED: tuple[type[BaseException], ...] = (
    *(ChannelPreconditionFailed, ChannelAccessRefused, ChannelLockedResource, ChannelNotFoundEntity),
)
"""Errors that no other try will mend."""
NO_ANSWER: tuple[type[BaseException], ...] = (*LOST, AMQPError, TimeoutError, asyncio.CancelledError)
"""Errors after which nobody knows whether RabbitMQ has a message."""
NOT_TAKEN: tuple[type[BaseException], ...] = (DeliveryError, PublishError, NotFoundError)
"""Errors of a message that RabbitMQ has no queue for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BridgeSettings:
    """Settings of a bridge.

    ``queue``: where messages come from, made if it is not there. ``exchanges``: by name of an exchange that messages
    are published to, the one that they go to when they are due. ``window``: how many are under way at most, each way.
    ``ordered``: one message of a routing key at a time.
    """

    url: str
    queue: str = "tarry.delay"
    queue_type: str = "quorum"
    exchanges: Mapping[str, str] = field(default_factory=dict)
    window: int = 1000
    ordered: bool = False
    tries: int = 16
    retry: str = "exponential 1s max 1m"


@dataclass(slots=True)
class BridgeFigures:
    """Numbers of messages, since the bridge began."""

    taken: int = 0
    given: int = 0
    refused: int = 0
    """Taken, and put into the queue of the refused."""
    returned: int = 0
    """Not taken by an exchange; tried again, and at last a dead letter."""
    cancelled: int = 0
    connected: bool = False


class RabbitBridge:
    """A bridge between one virtual host of RabbitMQ and a broker."""

    def __init__(self, settings: BridgeSettings, client: AsyncClient) -> None:
        self.settings, self._client = settings, client
        self.figures = BridgeFigures()
        self._stopping = asyncio.Event()

    def stop(self) -> None:
        """Take nothing more, and end when what is under way is done."""
        self._stopping.set()

    async def run(self) -> None:
        """Work until :meth:`stop`; while RabbitMQ is away, connect again and again.

        Raises:
            TarryError: the broker refuses the group. InvalidArgumentError: RabbitMQ refuses the queue or an exchange.
            UnauthenticatedError: it refuses the user.
        """
        settings = self.settings
        back_off = BackOff(PAUSE_S, PAUSE_MAX_S)
        while not self._stopping.is_set():
            try:
                await self._client.set_group(
                    TOPIC, GROUP, tries=settings.tries, retry=settings.retry, ordered=settings.ordered
                )
                break
            except UnavailableError as error:
                log.warning("Tarry is away: %s", error)
                await self._pause(back_off.fail())
        back_off.reset()
        while not self._stopping.is_set():
            try:
                connection = await aio_pika.connect(settings.url, client_properties={"connection_name": "tarry bridge"})
                async with connection:
                    self.figures.connected = True
                    back_off.reset()
                    await _Session(self.settings, self._client, self.figures, connection).run(self._stopping)
            except AuthenticationError as error:
                raise UnauthenticatedError(
                    f"RabbitMQ refuses the login: {error}; allowed: a user, and its password"
                ) from error
            except LOST as error:
                log.warning("RabbitMQ is away: %s; connecting again", error or type(error).__name__)
            finally:
                self.figures.connected = False
            await self._pause(back_off.fail())

    async def _pause(self, seconds: float) -> None:
        """Wait, or until :meth:`stop`."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._stopping.wait(), seconds)


class _Session:
    """One connection to RabbitMQ, until it ends."""

    def __init__(
        self, settings: BridgeSettings, client: AsyncClient, figures: BridgeFigures, connection: AbstractConnection
    ) -> None:
        self._settings, self._client, self._figures, self._connection = settings, client, figures, connection
        self._under_way: set[asyncio.Task[None]] = set()
        self._scheduling: dict[str, asyncio.Task[None]] = {}
        """By key, what is on its way to the broker: a message that cancels it comes behind."""
        self._lost = asyncio.Event()
        self._out: _Exchanges

    async def run(self, stopping: asyncio.Event) -> None:
        """Carry messages both ways until the connection ends, or ``stopping`` is set."""
        self._connection.close_callbacks.add(lambda *_: self._lost.set())
        channel = await self._connection.channel(publisher_confirms=False)
        channel.close_callbacks.add(lambda *_: self._lost.set())
        await channel.set_qos(prefetch_count=self._settings.window)
        queue = await declare(channel, self._settings)
        self._out = _Exchanges(self._connection)
        giving = asyncio.create_task(self._give())
        tag = await queue.consume(self._take)
        ends = [asyncio.create_task(each.wait()) for each in (stopping, self._lost)]
        try:
            await asyncio.wait([giving, *ends], return_when=asyncio.FIRST_COMPLETED)
            if not self._lost.is_set():
                with suppress(*LOST):
                    await queue.cancel(tag)
        finally:
            for each in ends:
                each.cancel()
            if not giving.done():
                giving.cancel()
            with suppress(asyncio.CancelledError):
                await giving
            if self._under_way:
                await asyncio.wait(self._under_way, timeout=CONFIRM_S)

    # -- from RabbitMQ -------------------------------------------------------------------------------------------------

    async def _take(self, incoming: AbstractIncomingMessage) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)
        with suppress(*LOST):  # then it is given to us again
            try:
                if (key := cancelled_key(incoming)) is not None:
                    await self._cancel(incoming, key)
                else:
                    await self._schedule(row_of(incoming, self._settings.exchanges), task)
            except InvalidArgumentError as error:
                await self._refuse(incoming, error)
            await incoming.ack()

    async def _schedule(self, row: dict[str, Any], task: asyncio.Task[None]) -> None:
        if (key := row["key"]) is not None:
            self._scheduling[key] = task
        try:
            await self._until_accepted(row)
        finally:
            if key is not None and self._scheduling.get(key) is task:
                del self._scheduling[key]
        self._figures.taken += 1

    async def _until_accepted(self, row: dict[str, Any]) -> None:
        back_off = BackOff(PAUSE_S, PAUSE_MAX_S)
        while True:
            try:
                await self._client.schedule(**row)
            except InvalidArgumentError:
                raise
            except TarryError as error:
                log.warning("a message is not accepted yet: %s", error)
                await asyncio.sleep(back_off.fail())
            else:
                return

    async def _cancel(self, incoming: AbstractIncomingMessage, key: str) -> None:
        if (scheduling := self._scheduling.get(key)) is not None:
            await asyncio.wait([scheduling])
        outcome = await self._client.cancel_key(TOPIC, key)
        self._figures.cancelled += outcome == "done"
        if incoming.reply_to:
            answer = aio_pika.Message(
                str(outcome).encode(), headers={OUTCOME: str(outcome)}, correlation_id=incoming.correlation_id
            )
            with suppress(*NOT_TAKEN):  # who asked has gone
                await self._out.publish(answer, AmqpTarget("", incoming.reply_to))

    async def _refuse(self, incoming: AbstractIncomingMessage, error: TarryError) -> None:
        """Put what can never be scheduled into a queue of its own, for people."""
        log.warning("message %s is refused: %s", incoming.message_id, error)
        message = aio_pika.Message(
            incoming.body, headers={**incoming.headers, REASON: str(error)}, message_id=incoming.message_id,
            content_type=incoming.content_type, delivery_mode=aio_pika.DeliveryMode.PERSISTENT,
        )  # fmt: skip
        await self._out.publish(message, AmqpTarget("", refused_queue(self._settings.queue)))
        self._figures.refused += 1

    # -- to RabbitMQ ---------------------------------------------------------------------------------------------------

    async def _give(self) -> None:
        slots = asyncio.Semaphore(self._settings.window)
        async with self._client.consume(TOPIC, group=GROUP, prefetch=self._settings.window) as consumer:
            async for delivery in consumer:
                await slots.acquire()
                task = asyncio.create_task(self._give_one(delivery))
                self._under_way.add(task)
                task.add_done_callback(self._under_way.discard)
                task.add_done_callback(lambda _: slots.release())

    async def _give_one(self, delivery: Delivery) -> None:
        with suppress(StaleLeaseError):
            async with delivery:  # acknowledged at its end, if it is not given back before
                try:
                    message, target = message_of(delivery)
                    await self._out.publish(message, target)
                except ValueError as error:
                    delivery.reject(reason=str(error))
                except NOT_TAKEN as error:
                    self._figures.returned += 1
                    delivery.nack(reason=f"RabbitMQ: {error}" if str(error) else f"RabbitMQ: {type(error).__name__}")
                except NO_ANSWER:
                    delivery.release()  # RabbitMQ is away, or its answer was lost
                else:
                    self._figures.given += 1


class _Exchanges:
    """Exchanges of a connection, to publish to with confirms."""

    def __init__(self, connection: AbstractConnection) -> None:
        self._connection = connection
        self._channel: AbstractChannel | None = None
        self._known: dict[str, tuple[float, bool]] = {}
        self._lock = asyncio.Lock()

    async def publish(self, message: aio_pika.Message, target: AmqpTarget) -> None:
        """Publish a message; return when RabbitMQ has it.

        Raises:
            NotFoundError: there is no such exchange. DeliveryError, PublishError: no queue takes it.
            AMQPError, TimeoutError: the connection ended, or there was no confirm.
        """
        if target.exchange and not await self._exists(target.exchange):
            raise NotFoundError(f"no exchange {target.exchange!r}")
        exchange = await self._exchange(target.exchange)
        await exchange.publish(message, target.routing_key, mandatory=True, timeout=CONFIRM_S)

    async def _exchange(self, name: str) -> AbstractExchange:
        async with self._lock:
            if self._channel is None or self._channel.is_closed:
                self._channel = await self._connection.channel(publisher_confirms=True, on_return_raises=True)
        return await self._channel.get_exchange(name, ensure=False) if name else self._channel.default_exchange

    async def _exists(self, name: str) -> bool:
        """Look by a channel of its own.

        One that publishes to what is not there is closed, with all that it carries.
        """
        now_s = asyncio.get_running_loop().time()
        until_s, is_there = self._known.get(name, (0.0, False))
        if now_s < until_s:
            return is_there
        try:
            async with self._connection.channel() as channel:
                await channel.get_exchange(name, ensure=True)
            is_there = True
        except ChannelNotFoundEntity:
            is_there = False
        self._known[name] = (now_s + KNOWN_S, is_there)
        return is_there


def refused_queue(queue: str) -> str:
    """Return the queue of what can never be scheduled."""
    return f"{queue}.refused"


async def declare(channel: AbstractChannel, settings: BridgeSettings) -> aio_pika.abc.AbstractQueue:
    """Make the queues, and the exchanges that messages are published to; return the queue to take from.

    Raises:
        InvalidArgumentError: one is there, and is another kind.
    """
    arguments: dict[str, Any] = {"x-queue-type": settings.queue_type}
    try:
        queue = await channel.declare_queue(settings.queue, durable=True, arguments=arguments)
        await channel.declare_queue(refused_queue(settings.queue), durable=True, arguments=arguments)
        for name in (settings.queue, *settings.exchanges):
            exchange = await channel.declare_exchange(name, aio_pika.ExchangeType.TOPIC, durable=True)
            await queue.bind(exchange, "#")
    except REFUSED as error:
        raise InvalidArgumentError(f"RabbitMQ refuses what the bridge needs: {error}") from error
    return queue


def pairs(texts: Sequence[str]) -> dict[str, str]:
    """Return ``NAME=TARGET`` texts as a mapping. Raises InvalidArgumentError."""
    found = {}
    for text in texts:
        name, equals, target = text.partition("=")
        if not name or not equals:
            raise InvalidArgumentError(f"exchange {text!r}; allowed: NAME=TARGET")
        found[name] = target
    return found
