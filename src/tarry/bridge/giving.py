"""From Tarry to RabbitMQ: what is due is published, and acknowledged when RabbitMQ has confirmed it."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from functools import partial

from aiormq.exceptions import ChannelClosed

from tarry.base.errors import StaleLeaseError
from tarry.bridge.amqp_message import TOPIC, AmqpTarget, amqp_id_of, message_of
from tarry.bridge.confirmed import Confirmed, Name
from tarry.bridge.exchanges import LOST, Exchanges
from tarry.bridge.saying import Saying
from tarry.bridge.settings import BridgeFigures, BridgeSettings
from tarry.bridge.under_way import UnderWay
from tarry.bridge.way import NotTakenError
from tarry.client.aio import AsyncClient
from tarry.client.delivery import Delivery
from tarry.client.delivery_batch import DeliveryBatch

log = logging.getLogger(__name__)

GROUP = "bridge"
NO_ANSWER: tuple[type[BaseException], ...] = (*LOST, asyncio.CancelledError)
"""RabbitMQ is away, or its answer was lost: nobody knows whether it has a message."""


class _Round:
    """A batch of messages that Tarry has handed out."""

    def __init__(self, deliveries: list[Delivery]) -> None:
        self.left = {delivery.row: delivery for delivery in deliveries}
        """By row, what is not settled."""
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def take(self, delivery: Delivery) -> bool:
        """Take a message that is being settled; False: it was, before."""
        if self.left.pop(delivery.row, None) is None:
            return False
        if not self.left and not self.done.done():
            self.done.set_result(None)
        return True


class Giving:
    """Messages that go by one connection to RabbitMQ."""

    def __init__(
        self,
        settings: BridgeSettings,
        client: AsyncClient,
        figures: BridgeFigures,
        out: Exchanges,
        confirmed: Confirmed,
    ) -> None:
        self._settings, self._client, self._figures = settings, client, figures
        self._out, self._confirmed = out, confirmed
        self._saying = Saying(log)
        self._open: dict[Name, Delivery] = {}
        """Messages that are being published."""
        self._again: dict[Name, list[tuple[_Round, Delivery]]] = {}
        """Those of them that the broker has given again meanwhile: they wait for what becomes of the first."""
        self.under_way = UnderWay()

    async def run(self) -> None:
        """Publish what is due, until cancelled."""
        async with self._client.consume(TOPIC, group=GROUP, prefetch=self._settings.window) as consumer:
            following = asyncio.create_task(self._confirmed.follow(consumer))
            try:
                async for batch in consumer.batches():
                    self.under_way.begin(self._give(batch))
            finally:  # the consumer's end gives back what it has: before, what is under way is acknowledged
                await self.under_way.until_done()
                following.cancel()
                await self._confirmed.settle(consumer)

    async def _give(self, batch: DeliveryBatch) -> None:
        """Publish a batch. Each of its messages is settled when RabbitMQ has answered it."""
        with suppress(StaleLeaseError):
            async with batch:
                deliveries = batch.messages()
                this = _Round(deliveries)
                try:
                    for delivery in deliveries:
                        self._begin(this, delivery)
                    await this.done
                finally:  # the block's end acknowledges what is not settled by then
                    for delivery in list(this.left.values()):
                        self._settle(this, delivery, asyncio.CancelledError())

    def _begin(self, this: _Round, delivery: Delivery) -> None:
        """Publish a message now, or have a task of its own do it when it may be."""
        name = _name_of(delivery)
        if name in self._open:
            self._again.setdefault(name, []).append((this, delivery))
            return
        try:
            self._check(delivery)
            raw, target = message_of(delivery)
            self._open[name] = delivery
            if (way := self._out.at_once(target.exchange)) is not None:
                way.send(raw, delivery.body, target.routing_key, partial(self._on_answer, this, delivery, target))
            else:
                self.under_way.begin(self._publish(this, delivery, raw, target))
        except Exception as error:  # noqa: BLE001 - of this message alone
            self._settle(this, delivery, error)

    async def _publish(self, this: _Round, delivery: Delivery, raw: bytes, target: AmqpTarget) -> None:
        error: BaseException | None = None
        try:
            await self._out.publish(raw, delivery.body, target, partial(self._check, delivery))
        except BaseException as caught:  # noqa: BLE001 - it is settled, whatever it is
            error = caught
        self._settle(this, delivery, error)

    def _on_answer(self, this: _Round, delivery: Delivery, target: AmqpTarget, error: BaseException | None) -> None:
        if isinstance(error, ChannelClosed):
            self._out.on_closed(target.exchange)
        self._settle(this, delivery, error)

    def _check(self, delivery: Delivery) -> None:
        """Raise where a message must not be published."""
        if _name_of(delivery) in self._confirmed:
            raise _KnownError
        if delivery.lost:
            raise StaleLeaseError("the broker gives it again")

    def _settle(self, this: _Round, delivery: Delivery, error: BaseException | None) -> None:
        """Settle a message, once, by what became of it."""
        name = _name_of(delivery)
        if self._open.get(name) is delivery:
            del self._open[name]
        if not this.take(delivery):
            if error is None:  # it was given back meanwhile, and RabbitMQ has it: what comes again is known
                self._confirmed.add(name)
            return
        match error:
            case None:
                self._figures.given += 1
                self._confirmed.add(name)
                delivery.ack()
            case _KnownError():
                self._figures.known += 1
                self._confirmed.add(name)
                delivery.ack()
            case NotTakenError():
                self._figures.returned += 1
                why = str(error)
                self._saying.warn("RabbitMQ does not take message %s: %s", amqp_id_of(delivery), why, cause=why)
                delivery.nack(reason=why)
            case ValueError():
                delivery.reject(reason=str(error))
            case _:
                if not isinstance(error, (*NO_ANSWER, StaleLeaseError)):
                    log.error("message %s cannot be published now", delivery.id, exc_info=error)
                delivery.release()
        for other, again in self._again.pop(name, ()):
            if isinstance(error, asyncio.CancelledError):
                self._settle(other, again, error)
            else:
                self._begin(other, again)


def _name_of(delivery: Delivery) -> Name:
    return delivery.seq, delivery.born_ms


class _KnownError(Exception):
    """RabbitMQ has it already."""
