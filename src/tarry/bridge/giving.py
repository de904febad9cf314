"""From Tarry to RabbitMQ: what is due is published, and acknowledged when RabbitMQ has confirmed it."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress

from tarry.base.errors import StaleLeaseError
from tarry.bridge.amqp_message import TOPIC, message_of
from tarry.bridge.confirmed import Confirmed
from tarry.bridge.exchanges import LOST, Exchanges, NotTakenError
from tarry.bridge.saying import Saying
from tarry.bridge.settings import BridgeFigures, BridgeSettings
from tarry.bridge.under_way import UnderWay
from tarry.client.aio import AsyncClient
from tarry.client.delivery import Delivery

log = logging.getLogger(__name__)

GROUP = "bridge"
NO_ANSWER: tuple[type[BaseException], ...] = (*LOST, asyncio.CancelledError)
"""RabbitMQ is away, or its answer was lost: nobody knows whether it has a message."""


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
        self.under_way = UnderWay()

    async def run(self) -> None:
        """Publish what is due, until cancelled."""
        slots = asyncio.Semaphore(self._settings.window)
        async with self._client.consume(TOPIC, group=GROUP, prefetch=self._settings.window) as consumer:
            following = asyncio.create_task(self._confirmed.follow(consumer))
            try:
                async for delivery in consumer:
                    await slots.acquire()
                    self.under_way.begin(self._give(delivery)).add_done_callback(lambda _: slots.release())
            finally:  # the consumer's end gives back what it has: before, what is under way is acknowledged
                await self.under_way.until_done()
                following.cancel()
                await self._confirmed.settle(consumer)

    async def _give(self, delivery: Delivery) -> None:
        name = delivery.seq, delivery.born_ms

        def check() -> None:
            if name in self._confirmed:
                raise _KnownError
            if delivery.lost:
                raise StaleLeaseError("the broker gives it again")

        with suppress(StaleLeaseError):
            async with delivery:  # acknowledged at its end, if it is not given back before
                try:
                    check()
                    raw, target = message_of(delivery)
                    # It may be under way already, and the broker has given it again: then it waits for its turn, and
                    # is checked once more.
                    await self._out.publish(raw, delivery.body, target, check)
                except _KnownError:
                    self._figures.known += 1
                    self._confirmed.add(name)
                except ValueError as error:
                    delivery.reject(reason=str(error))
                except NotTakenError as error:
                    self._figures.returned += 1
                    self._saying.warn("RabbitMQ does not take message %s: %s", delivery.id, error)
                    delivery.nack(reason=str(error))
                except NO_ANSWER:
                    delivery.release()
                else:
                    self._figures.given += 1
                    self._confirmed.add(name)


class _KnownError(Exception):
    """RabbitMQ has it already."""
