"""Queues and exchanges that a bridge needs in RabbitMQ."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any

from aiormq import Connection
from aiormq.abc import AbstractChannel
from aiormq.exceptions import ChannelNotFoundEntity, ChannelPreconditionFailed

from tarry.base.errors import InvalidArgumentError
from tarry.bridge.exchanges import LOST, REFUSED, open_channel
from tarry.bridge.settings import BridgeSettings

log = logging.getLogger(__name__)

NO_LIMIT_SINCE = (4, 0)
"""Version since which quorum queues drop what was given 20 times, unless made without that limit.

A bridge that is killed often may come to that.
"""


def refused_queue(queue: str) -> str:
    """Return the queue of what can never be scheduled."""
    return f"{queue}.refused"


async def declare(connection: Connection, settings: BridgeSettings) -> None:
    """Make the queues, and the exchanges that messages are published to.

    Raises:
        InvalidArgumentError: one is there, and is another kind, or the user may not make it.
    """
    without_limit = settings.queue_type == "quorum" and _version(connection) >= NO_LIMIT_SINCE
    with _refusals_named():
        for name in (settings.queue, refused_queue(settings.queue)):
            if not (without_limit and await _made_without_limit(connection, name)):
                async with _channel(connection) as channel:
                    await channel.queue_declare(name, durable=True, arguments={"x-queue-type": settings.queue_type})
        for name in _exchanges(settings):
            await _make_exchange(connection, name, settings.queue)


async def make_again(connection: Connection, settings: BridgeSettings) -> None:
    """Make the exchanges that somebody has deleted, and tell of them: RabbitMQ itself does not.

    It takes no other rights than :func:`declare`.

    Raises:
        InvalidArgumentError: as of :func:`declare`. What comes behind it is made all the same.
    """
    refused: InvalidArgumentError | None = None
    for name in _exchanges(settings):
        if not await _is_there(connection, name):
            log.warning("exchange %s is not there any more, and is made again", name)
        try:
            with _refusals_named():
                await _make_exchange(connection, name, settings.queue)  # also if it is there: somebody may have made it
        except InvalidArgumentError as error:
            refused = error
    if refused is not None:
        raise refused


def _exchanges(settings: BridgeSettings) -> tuple[str, ...]:
    return settings.queue, *settings.exchanges


@contextmanager
def _refusals_named() -> Iterator[None]:
    try:
        yield
    except REFUSED as error:
        raise InvalidArgumentError(f"RabbitMQ refuses what the bridge needs: {error}") from error


async def _make_exchange(connection: Connection, name: str, queue: str) -> None:
    async with _channel(connection) as channel:
        # No wait: RabbitMQ drops what a program publishes between the exchange and its binding.
        await channel.exchange_declare(name, exchange_type="topic", durable=True, nowait=True)
        await channel.queue_bind(queue, name, "#")


async def _is_there(connection: Connection, name: str) -> bool:
    """Look by a channel of its own: RabbitMQ closes it if there is no such exchange."""
    try:
        async with _channel(connection) as channel:
            await channel.exchange_declare(name, passive=True)
    except ChannelNotFoundEntity:
        return False
    return True


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
    channel = await open_channel(connection)
    yield channel
    with suppress(*LOST):
        await channel.close()


def _version(connection: Connection) -> tuple[int, ...]:
    """Return the server's version; (0,) if it says none that is one."""
    said: Any = connection.server_properties.get("version", "")
    parts = str(said).split(".")[:2]
    return tuple(map(int, parts)) if all(part.isdecimal() for part in parts) else (0,)
