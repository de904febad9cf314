"""The bridge beside RabbitMQ: from one queue, by way of Tarry, to exchanges.

A message is acknowledged to RabbitMQ when Tarry has it durably, and to Tarry when RabbitMQ has confirmed it. So none is
lost, whoever is killed; one may come twice where an answer was lost, and then with the same message id.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar

from aiormq import Connection
from aiormq.abc import AbstractChannel, DeliveredMessage
from aiormq.exceptions import (
    AuthenticationError,
    ChannelPreconditionFailed,
    ConnectionNotAllowed,
    ProbableAuthenticationError,
)

from tarry.base.back_off import BackOff
from tarry.base.clock import SystemClock
from tarry.base.errors import (
    InvalidArgumentError,
    StaleLeaseError,
    TarryError,
    UnauthenticatedError,
    UnavailableError,
)
from tarry.bridge.amqp_fields import AmqpProperties
from tarry.bridge.amqp_message import TOPIC, AmqpTarget, Incoming, cancelled_key, message_of, row_of
from tarry.bridge.exchanges import LOST, REFUSED, Exchanges, NotTakenError
from tarry.bridge.once import schedule_once
from tarry.bridge.raw_transport import RawTransport, raw_of
from tarry.client.aio import AsyncClient
from tarry.client.delivery import Delivery

log = logging.getLogger(__name__)

T = TypeVar("T")

GROUP = "bridge"
PAUSE_S, PAUSE_MAX_S = 0.2, 10.0
STOP_S = 30.0
"""Longest wait, at a stop, for what is under way."""
SAY_S = 10.0
"""The same trouble of many messages is told so often."""
REASON = "x-tarry-refused"
OUTCOME = "x-tarry-outcome"
NO_ANSWER: tuple[type[BaseException], ...] = (*LOST, asyncio.CancelledError)
"""RabbitMQ is away, or its answer was lost: nobody knows whether it has a message."""
HEADER_BYTES_MAX = 100_000
"""A refused message keeps its properties if they have fewer: RabbitMQ takes 128 KiB, with the reason."""
NO_LIMIT_SINCE = (4, 0)
"""Version since which quorum queues drop what was given 20 times, unless made without that limit.

A bridge that is killed often may come to that.
"""


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
            TarryError: the broker refuses the group. InvalidArgumentError: RabbitMQ refuses the virtual host, the queue
            or an exchange. UnauthenticatedError: it refuses the user.
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
                await self._connected(back_off)
            except (AuthenticationError, ProbableAuthenticationError) as error:
                raise UnauthenticatedError(
                    f"RabbitMQ refuses the login: {error}; allowed: a user, and its password"
                ) from error
            except ConnectionNotAllowed as error:
                raise InvalidArgumentError(
                    f"RabbitMQ refuses the connection: {error}; allowed: a virtual host that is there, and the user's"
                ) from error
            except LOST as error:
                log.warning("RabbitMQ is away: %s; connecting again", error or type(error).__name__)
            finally:
                self.figures.connected = False
            await self._pause(back_off.fail())

    async def _connected(self, back_off: BackOff) -> None:
        """Work while two connections last.

        RabbitMQ stops reading from one that publishes while its memory is full: acknowledgements have another.
        """
        async with _connection(self.settings.url, "takes") as taking, _connection(self.settings.url, "gives") as giving:
            self.figures.connected = True
            log.info("connected to RabbitMQ")
            began_s = time.monotonic()
            session = _Session(self.settings, self._client, self.figures, taking, giving)
            await session.run(self._stopping)
            if time.monotonic() - began_s > PAUSE_MAX_S:
                back_off.reset()
            if session.why_not:
                log.warning("%s; connecting again", session.why_not)

    async def _pause(self, seconds: float) -> None:
        """Wait, or until :meth:`stop`."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._stopping.wait(), seconds)


@asynccontextmanager
async def _connection(url: str, what: str) -> AsyncIterator[Connection]:
    name: Any = {"connection_name": f"tarry bridge, {what}"}
    connection = Connection(url, transport_factory=RawTransport(), client_properties=name)
    await connection.connect()
    try:
        yield connection
    finally:
        with suppress(*LOST, TimeoutError):
            await connection.close()


class _Session:
    """Two connections to RabbitMQ, until one ends."""

    def __init__(
        self,
        settings: BridgeSettings,
        client: AsyncClient,
        figures: BridgeFigures,
        taking: Connection,
        giving: Connection,
    ) -> None:
        self._settings, self._client, self._figures = settings, client, figures
        self._taking, self._giving = taking, giving
        self._under_way: set[asyncio.Task[None]] = set()
        self._scheduling: dict[str, asyncio.Task[None]] = {}
        """By key, what is on its way to the broker: a message that cancels it comes behind."""
        self._lost = asyncio.Event()
        self._out = Exchanges(giving)
        self._clock = SystemClock()
        self._silent_until_s = 0.0
        self.why_not = ""
        """Reason of its end, if not by a stop."""

    async def run(self, stopping: asyncio.Event) -> None:
        """Carry messages both ways until a connection ends, the queue is deleted, or ``stopping`` is set."""
        channel = await self._taking.channel(publisher_confirms=False)
        for place in (self._taking, self._giving, channel):
            place.closing.add_done_callback(lambda ended: self._lose(_reason(ended)))
        channel.on_consumer_cancel_callbacks.add(
            lambda _: self._lose(f"queue {self._settings.queue} is not there any more")
        )
        await channel.basic_qos(prefetch_count=self._settings.window)
        await declare(self._taking, self._settings)
        giving = asyncio.create_task(self._give())
        consumed = await channel.basic_consume(self._settings.queue, self._take)
        ends = [asyncio.create_task(each.wait()) for each in (stopping, self._lost)]
        try:
            await asyncio.wait([giving, *ends], return_when=asyncio.FIRST_COMPLETED)
            if not self._lost.is_set():
                with suppress(*LOST):
                    await channel.basic_cancel(str(consumed.consumer_tag))
        finally:
            for each in ends:
                each.cancel()
            if self._lost.is_set():
                for task in self._under_way:
                    task.cancel()
            giving.cancel()
            with suppress(asyncio.CancelledError):
                await giving
            await self._until_done()

    def _begin(self, task: asyncio.Task[None]) -> None:
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)

    async def _until_done(self) -> None:
        if self._under_way:
            await asyncio.wait(self._under_way, timeout=STOP_S)

    def _lose(self, why: str) -> None:
        self.why_not = self.why_not or why
        self._lost.set()

    # -- from RabbitMQ -------------------------------------------------------------------------------------------------

    async def _take(self, message: DeliveredMessage) -> None:
        # A task of ours: the library cancels its own where the channel ends.
        self._begin(asyncio.create_task(self._take_one(message)))

    async def _take_one(self, message: DeliveredMessage) -> None:
        taken_ms = self._clock.now_ms()
        incoming = Incoming(
            raw_of(message.header.properties), message.body, message.exchange or "", message.routing_key or "",
            message.delivery_tag or 0,
        )  # fmt: skip
        try:
            try:
                properties = incoming.properties()
                if (key := cancelled_key(properties)) is not None:
                    await self._cancel(properties, key)
                else:
                    fingerprint = incoming.fingerprint(properties)
                    row = row_of(incoming, properties, self._settings.exchanges)
                    await self._schedule(row, fingerprint, taken_ms)
            except InvalidArgumentError as error:
                await self._refuse(incoming, error)
            await message.channel.basic_ack(incoming.tag, wait=False)
        except LOST:  # then it is given to us again
            pass
        except Exception:
            log.exception("a message cannot be handled, and stays in the queue")

    async def _schedule(self, row: dict[str, Any], fingerprint: str, taken_ms: int) -> None:
        task, key = asyncio.current_task(), row["key"]
        if key is not None and task is not None:
            self._scheduling[key] = task
        try:
            await self._until_answered(lambda: schedule_once(self._client, row, fingerprint, taken_ms))
        finally:
            if key is not None and self._scheduling.get(key) is task:
                del self._scheduling[key]
        self._figures.taken += 1

    async def _until_answered(self, call: Callable[[], Awaitable[T]]) -> T:
        back_off = BackOff(PAUSE_S, PAUSE_MAX_S)
        while True:
            try:
                return await call()
            except InvalidArgumentError:
                raise
            except TarryError as error:
                self._say("Tarry does not take messages yet: %s", error)
                await asyncio.sleep(back_off.fail())

    def _say(self, text: str, *more: object) -> None:
        if (now_s := time.monotonic()) >= self._silent_until_s:
            self._silent_until_s = now_s + SAY_S
            log.warning(text, *more)

    async def _cancel(self, properties: AmqpProperties, key: str) -> None:
        while (scheduling := self._scheduling.get(key)) is not None:
            await asyncio.wait([scheduling])
        outcome = await self._until_answered(lambda: self._client.cancel_key(TOPIC, key))
        self._figures.cancelled += outcome == "done"
        if reply_to := properties.text("reply_to"):
            answer = AmqpProperties()
            answer.set_header(OUTCOME, str(outcome))
            if (correlation := properties.fields.get("correlation_id")) is not None:
                answer.fields["correlation_id"] = correlation
            with suppress(NotTakenError):  # who asked has gone
                await self._out.publish(answer.encode(), str(outcome).encode(), AmqpTarget("", reply_to))

    async def _refuse(self, incoming: Incoming, error: TarryError) -> None:
        """Put what can never be scheduled into a queue of its own, for people."""
        properties = AmqpProperties()
        if len(incoming.raw) < HEADER_BYTES_MAX:
            with suppress(InvalidArgumentError):
                properties = incoming.properties()
        log.warning("message %s is refused: %s", properties.text("message_id"), error)
        for name in ("user_id", "expiration"):  # another user's, and it is to stay until somebody looks
            properties.fields.pop(name, None)
        properties.fields["delivery_mode"] = b"\2"
        properties.set_header(REASON, str(error)[:1000])
        back_off = BackOff(PAUSE_S, PAUSE_MAX_S)
        while True:
            try:
                await self._out.publish(
                    properties.encode(), incoming.body, AmqpTarget("", refused_queue(self._settings.queue))
                )
                break
            except NotTakenError as refused:  # somebody has deleted it
                self._say("%s", refused)
                await asyncio.sleep(back_off.fail())
                await declare(self._taking, self._settings)
        self._figures.refused += 1

    # -- to RabbitMQ ---------------------------------------------------------------------------------------------------

    async def _give(self) -> None:
        slots = asyncio.Semaphore(self._settings.window)
        async with self._client.consume(TOPIC, group=GROUP, prefetch=self._settings.window) as consumer:
            try:
                async for delivery in consumer:
                    await slots.acquire()
                    task = asyncio.create_task(self._give_one(delivery))
                    self._begin(task)
                    task.add_done_callback(lambda _: slots.release())
            finally:  # the consumer's end gives back what it has: before, what is under way is acknowledged
                await self._until_done()

    async def _give_one(self, delivery: Delivery) -> None:
        with suppress(StaleLeaseError):
            async with delivery:  # acknowledged at its end, if it is not given back before
                try:
                    raw, target = message_of(delivery)
                    await self._out.publish(raw, delivery.body, target, lambda: _check_held(delivery))
                except ValueError as error:
                    delivery.reject(reason=str(error))
                except NotTakenError as error:
                    self._figures.returned += 1
                    delivery.nack(reason=str(error))
                except NO_ANSWER:
                    delivery.release()
                else:
                    self._figures.given += 1


def _check_held(delivery: Delivery) -> None:
    """Check that a message is still this bridge's: the connection to the broker may have been lost."""
    if delivery.lost:
        raise StaleLeaseError("the broker gives it again")


def refused_queue(queue: str) -> str:
    """Return the queue of what can never be scheduled."""
    return f"{queue}.refused"


def _reason(ended: asyncio.Future[Any]) -> str:
    error = None if ended.cancelled() else ended.exception()
    return f"RabbitMQ has gone: {error or type(error).__name__}" if error else "RabbitMQ has gone"


async def declare(connection: Connection, settings: BridgeSettings) -> None:
    """Make the queues, and the exchanges that messages are published to.

    Raises:
        InvalidArgumentError: one is there, and is another kind, or the user may not make it.
    """
    without_limit = settings.queue_type == "quorum" and _version(connection) >= NO_LIMIT_SINCE
    try:
        for name in (settings.queue, refused_queue(settings.queue)):
            if not (without_limit and await _made_without_limit(connection, name)):
                async with _channel(connection) as channel:
                    await channel.queue_declare(name, durable=True, arguments={"x-queue-type": settings.queue_type})
        async with _channel(connection) as channel:
            for name in (settings.queue, *settings.exchanges):
                await channel.exchange_declare(name, exchange_type="topic", durable=True)
                await channel.queue_bind(settings.queue, name, "#")
    except REFUSED as error:
        raise InvalidArgumentError(f"RabbitMQ refuses what the bridge needs: {error}") from error


async def _made_without_limit(connection: Connection, name: str) -> bool:
    """Make a queue that never drops a message for being given too often; False: it is there with a limit."""
    try:
        async with _channel(connection) as channel:
            arguments: dict[str, Any] = {"x-queue-type": "quorum", "x-delivery-limit": -1}
            await channel.queue_declare(name, durable=True, arguments=arguments)
    except ChannelPreconditionFailed:
        log.warning("queue %s has a delivery limit: a policy with delivery-limit -1 takes it away", name)
        return False
    return True


@asynccontextmanager
async def _channel(connection: Connection) -> AsyncIterator[AbstractChannel]:
    channel = await connection.channel(publisher_confirms=False)
    yield channel
    with suppress(*LOST):
        await channel.close()


def _version(connection: Connection) -> tuple[int, ...]:
    """Return the server's version; (0,) if it says none that is one."""
    said: Any = connection.server_properties.get("version", "")
    parts = str(said).split(".")[:2]
    return tuple(map(int, parts)) if all(part.isdecimal() for part in parts) else (0,)


def pairs(texts: Sequence[str]) -> dict[str, str]:
    """Return ``NAME=TARGET`` texts as a mapping. Raises InvalidArgumentError."""
    found = {}
    for text in texts:
        name, equals, target = text.partition("=")
        if not name or not equals:
            raise InvalidArgumentError(f"exchange {text!r}; allowed: NAME=TARGET")
        found[name] = target
    return found
