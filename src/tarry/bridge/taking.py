"""From RabbitMQ to Tarry: each message is scheduled, and acknowledged when Tarry has it durably."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from contextlib import nullcontext, suppress
from typing import TypeVar

from aiormq.abc import AbstractChannel, DeliveredMessage
from pamqp.commands import Basic

from tarry.base.back_off import BackOff
from tarry.base.clock import SystemClock
from tarry.base.errors import InvalidArgumentError, TarryError
from tarry.bridge import frames
from tarry.bridge.acks import Acks
from tarry.bridge.amqp_fields import AmqpProperties, MalformedError
from tarry.bridge.amqp_message import CANCEL, TOPIC, AmqpTarget, Incoming, cancelled_key, row_of
from tarry.bridge.exchanges import LOST, Exchanges
from tarry.bridge.gathering import Gathering
from tarry.bridge.once import Taken, schedule_once
from tarry.bridge.queues import declare, refused_queue
from tarry.bridge.saying import Saying
from tarry.bridge.settings import BridgeFigures, BridgeSettings
from tarry.bridge.under_way import UnderWay
from tarry.bridge.way import NotTakenError
from tarry.bridge.wire import WiredConnection
from tarry.client.aio import AsyncClient

log = logging.getLogger(__name__)

T = TypeVar("T")

PAUSE_S, PAUSE_MAX_S, TARRY_PAUSE_MAX_S = 0.2, 10.0, 2.0
GATHER_MIN_MS = 200
"""A message that waits for less is not held back for others."""
REASON = "x-tarry-refused"
OUTCOME, REFUSED = "x-tarry-outcome", "refused"
REASON_MAX = 1000
HEADER_BYTES_MAX = 100_000
"""A refused message keeps its properties if they have fewer: RabbitMQ takes 128 KiB, with the reason."""


class Taking:
    """Messages that come by one connection to RabbitMQ."""

    def __init__(
        self,
        settings: BridgeSettings,
        client: AsyncClient,
        figures: BridgeFigures,
        connection: WiredConnection,
        out: Exchanges,
    ) -> None:
        """Take by ``connection``; answers, and what is refused, go ``out``."""
        self._settings, self._client, self._figures = settings, client, figures
        self._connection, self._out = connection, out
        self.under_way = UnderWay()
        self._scheduling: dict[str, asyncio.Task[None]] = {}
        """By key, messages on their way to the broker: others of a key, and its cancellation, come behind."""
        self._clock = SystemClock()
        self._saying = Saying(log)
        self._gathering = Gathering()
        self._acks: Acks | None = None

    async def consume(self, channel: AbstractChannel, queue: str) -> Basic.ConsumeOk:
        """Begin to take messages, by a channel for that alone."""
        self._acks = Acks(self._connection, channel)
        self._connection.listen(channel, self)
        return await channel.basic_consume(queue, _never)

    def on_message(self, method: bytes, raw: bytes, body: bytes) -> None:
        """Begin with a message."""
        if method.startswith(frames.DELIVER):
            given = frames.delivered_of(method)
            self.under_way.begin(self._take_one(Incoming(raw, body, given.exchange, given.routing_key, given.tag)))

    def on_confirm(self, tag: int, *, multiple: bool, is_taken: bool) -> None:
        """Nothing is published here."""

    def on_closing(self) -> None:
        """Acknowledge nothing more."""
        if self._acks is not None:
            self._acks.close()

    async def _take_one(self, incoming: Incoming) -> None:
        try:
            await self._take_or_refuse(incoming)
            if self._acks is not None:
                self._acks.add(incoming.tag)
        except LOST:  # then it is given to us again
            pass
        except Exception:
            log.exception("a message cannot be handled, and stays in the queue")

    async def _take_or_refuse(self, incoming: Incoming) -> None:
        taken_ms = self._clock.now_ms()
        try:
            properties = incoming.properties()
            if (key := cancelled_key(properties)) is not None:
                await self._cancel(properties, key)
            else:
                fingerprint = incoming.fingerprint(properties)
                row = row_of(incoming, properties, self._settings.exchanges)
                await self._schedule(Taken(row, fingerprint, taken_ms))
        except InvalidArgumentError as error:
            await self._refuse(incoming, error)
        except LOST:
            raise
        except Exception as error:
            # Left in the queue, it would take a place of the window for ever, and as many as that would end the bridge.
            log.exception("a message cannot be handled, and is put aside")
            await self._put_aside(incoming, AmqpProperties(), f"it cannot be handled: {error!r}")

    async def _schedule(self, taken: Taken) -> None:
        task, key, taken_s = asyncio.current_task(), taken.row["key"], time.monotonic()
        await self._until_scheduled(key)
        if key is not None and task is not None:
            self._scheduling[key] = task
        try:
            async with self._gathering if taken.waits_ms >= GATHER_MIN_MS else nullcontext():
                await self._until_answered(lambda: schedule_once(self._client, taken, time.monotonic() - taken_s))
        finally:
            if key is not None and self._scheduling.get(key) is task:
                del self._scheduling[key]
        self._figures.taken += 1

    async def _until_scheduled(self, key: str | None) -> None:
        """Wait for messages of this key that came before."""
        while key is not None and (scheduling := self._scheduling.get(key)) is not None:
            await asyncio.wait([scheduling])

    async def _until_answered(self, call: Callable[[], Awaitable[T]]) -> T:
        back_off = BackOff(PAUSE_S, TARRY_PAUSE_MAX_S)
        while True:
            try:
                return await call()
            except InvalidArgumentError:
                raise
            except TarryError as error:
                self._saying.warn("Tarry does not take messages yet: %s", error)
                await asyncio.sleep(back_off.fail())

    async def _cancel(self, properties: AmqpProperties, key: str) -> None:
        await self._until_scheduled(key)
        outcome = await self._until_answered(lambda: self._client.cancel_key(TOPIC, key))
        self._figures.cancelled += outcome == "done"
        await self._answer(properties, str(outcome))

    async def _answer(self, asked: AmqpProperties, outcome: str, reason: str | None = None) -> None:
        """Say what became of a cancellation, to who asked for an answer."""
        if reply_to := asked.address("reply_to"):
            answer = AmqpProperties()
            answer.set_header(OUTCOME, outcome)
            if reason is not None:
                answer.set_header(REASON, reason)
            if (correlation := asked.fields.get("correlation_id")) is not None:
                answer.fields["correlation_id"] = correlation
            with suppress(NotTakenError):  # who asked has gone
                await self._out.publish(answer.encode(), outcome.encode(), AmqpTarget("", reply_to))

    async def _refuse(self, incoming: Incoming, error: TarryError) -> None:
        """Put what can never be scheduled into a queue of its own, for people."""
        properties = AmqpProperties()
        if len(incoming.raw) < HEADER_BYTES_MAX:
            with suppress(InvalidArgumentError):
                properties = incoming.properties()
        log.warning(
            "message %s, published to exchange %r with routing key %r, is refused: %s",
            _id_of(incoming) or "without an id",
            *(incoming.exchange, incoming.routing_key, error),
        )
        if properties.header(CANCEL):  # who waits for an answer gets one
            await self._answer(properties, REFUSED, str(error)[:REASON_MAX])
        await self._put_aside(incoming, properties, str(error))

    async def _put_aside(self, incoming: Incoming, properties: AmqpProperties, reason: str) -> None:
        for name in ("user_id", "expiration"):  # another user's, and it is to stay until somebody looks
            properties.fields.pop(name, None)
        properties.fields["delivery_mode"] = b"\2"
        properties.set_header(REASON, reason[:REASON_MAX])
        back_off = BackOff(PAUSE_S, PAUSE_MAX_S)
        while True:
            try:
                await self._out.publish(
                    properties.encode(), incoming.body, AmqpTarget("", refused_queue(self._settings.queue))
                )
                break
            except NotTakenError as refused:  # somebody has deleted it
                self._saying.warn("%s", refused)
                await asyncio.sleep(back_off.fail())
                await declare(self._connection, self._settings)
        self._figures.refused += 1


def _id_of(incoming: Incoming) -> str | None:
    """Return the message id, also where the properties are too large to keep, or the routing key no text."""
    try:
        return AmqpProperties.decode(incoming.raw).text("message_id")
    except MalformedError:
        return None


async def _never(message: DeliveredMessage) -> None:
    """Take what the library has read: nothing comes that way (:meth:`Taking.on_message`)."""
    raise AssertionError(message)
