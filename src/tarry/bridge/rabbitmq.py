"""The bridge beside RabbitMQ: from one queue, by way of Tarry, to exchanges.

A message is acknowledged to RabbitMQ when Tarry has it durably, and to Tarry when RabbitMQ has confirmed it. So none is
lost, whoever is killed; one may come twice where an answer was lost, and then with the same message id.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import Any

from aiormq.exceptions import AuthenticationError, ConnectionClosed, InvalidFrameError, ProbableAuthenticationError
from yarl import URL

from tarry.base.back_off import BackOff
from tarry.base.errors import InvalidArgumentError, UnauthenticatedError, UnavailableError
from tarry.bridge.amqp_message import TOPIC
from tarry.bridge.confirmed import Confirmed
from tarry.bridge.exchanges import LOST, Exchanges, open_channel
from tarry.bridge.giving import GROUP, Giving
from tarry.bridge.queues import declare, make_again
from tarry.bridge.saying import Saying
from tarry.bridge.settings import BridgeFigures, BridgeSettings
from tarry.bridge.taking import Taking
from tarry.bridge.wire import WiredConnection
from tarry.client.aio import AsyncClient

log = logging.getLogger(__name__)

PAUSE_S, PAUSE_MAX_S = 0.2, 10.0
LOOK_S = 5.0
"""Seconds between looks at the bridge's exchanges: RabbitMQ does not tell of one that is deleted."""
CANCEL_S, STOP_S, CLOSE_S = 2.0, 6.0, 1.0
"""Longest waits at a stop: for RabbitMQ's answer; for what is under way; for a connection's end.

Together they are less than the ten seconds after which many a supervisor kills, which leaves leases behind.
"""
DEFAULT_PORTS = {"amqp": 5672, "amqps": 5671}
NOT_ALLOWED, LIMIT = 530, "limit"
"""RabbitMQ's reply code for a virtual host that is absent, not the user's, or full of connections.

The last of these, which its text tells, ends by itself.
"""


class RabbitBridge:
    """A bridge between one virtual host of RabbitMQ and a broker."""

    def __init__(self, settings: BridgeSettings, client: AsyncClient) -> None:
        self.settings, self._client = settings, client
        self.figures = BridgeFigures()
        self._confirmed = Confirmed()
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
        settings, url = self.settings, URL(self.settings.url)
        is_made = False
        back_off = BackOff(PAUSE_S, PAUSE_MAX_S)
        while not self._stopping.is_set():
            try:
                await self._client.set_group(
                    TOPIC, GROUP, tries=settings.tries, retry=settings.retry, ordered=settings.ordered
                )
                break
            except UnavailableError as error:
                log.warning("Tarry is away: %s", error)
                is_made = is_made or await self._make()
                await self._pause(back_off.fail())
        back_off.reset()
        while not self._stopping.is_set():
            try:
                await self._until_stopped(self._connected(back_off))
            except LOST as error:
                why = error or type(error).__name__
                log.warning(
                    "RabbitMQ at %s:%s is away: %s; connecting again",
                    url.host,
                    url.port or DEFAULT_PORTS[url.scheme],
                    why,
                )
            finally:
                self.figures.connected = False
            await self._pause(back_off.fail())

    async def _make(self) -> bool:
        """Make the queues and exchanges, so that programs may publish while Tarry is away.

        Returns False while RabbitMQ is away, too.
        """
        try:
            async with _connection(self.settings.url, "makes") as connection:
                await declare(connection, self.settings)
        except LOST:
            return False
        return True

    async def _connected(self, back_off: BackOff) -> None:
        """Work while two connections last.

        RabbitMQ stops reading from one that publishes while its memory is full: acknowledgements have another.
        """
        async with _connection(self.settings.url, "takes") as taking, _connection(self.settings.url, "gives") as giving:
            began_s = time.monotonic()
            session = _Session(self.settings, self._client, self.figures, taking, giving, self._confirmed)
            await session.run(self._stopping)
            if time.monotonic() - began_s > PAUSE_MAX_S:
                back_off.reset()
            if session.why_not:
                log.warning("%s; connecting again", session.why_not)

    async def _until_stopped(self, work: Coroutine[Any, Any, None]) -> None:
        """Wait for work that ends at :meth:`stop`, and cancel it where RabbitMQ gives no answer then."""
        working, stopping = asyncio.create_task(work), asyncio.create_task(self._stopping.wait())
        try:
            await asyncio.wait([working, stopping], return_when=asyncio.FIRST_COMPLETED)
            await asyncio.wait([working], timeout=CANCEL_S + STOP_S)
        finally:
            stopping.cancel()
            working.cancel()
            await asyncio.wait([working])
        if not working.cancelled():
            working.result()

    async def _pause(self, seconds: float) -> None:
        """Wait, or until :meth:`stop`."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._stopping.wait(), seconds)


@asynccontextmanager
async def _connection(url: str, what: str) -> AsyncIterator[WiredConnection]:
    name: Any = {"connection_name": f"tarry bridge, {what}"}
    connection = WiredConnection(url, client_properties=name)
    try:
        await connection.connect()
    except InvalidFrameError as error:
        if connection.wire.closed is None:
            raise
        code, text = connection.wire.closed
        if code == NOT_ALLOWED and LIMIT not in text:
            raise InvalidArgumentError(
                f"RabbitMQ refuses the virtual host {connection.vhost!r}: {text}; allowed: one that is there, and the "
                "user's. It is the path in --url amqp://USER@HOST/VHOST; without a path it is '/'"
            ) from error
        raise ConnectionClosed(code, text) from error
    except (AuthenticationError, ProbableAuthenticationError) as error:
        raise UnauthenticatedError(
            f"RabbitMQ refuses the login of user {URL(url).user!r}: {error}; allowed: a user of RabbitMQ, and its "
            "password"
        ) from error
    try:
        yield connection
    finally:
        # One that stands still, or reads nothing while its memory is full, does not answer a goodbye either.
        try:
            await asyncio.wait_for(connection.close(), CLOSE_S)
        except TimeoutError:
            connection.wire.abort()
        except LOST:
            pass


class _Session:
    """Two connections to RabbitMQ, until one ends."""

    def __init__(
        self,
        settings: BridgeSettings,
        client: AsyncClient,
        figures: BridgeFigures,
        taking: WiredConnection,
        giving: WiredConnection,
        confirmed: Confirmed,
    ) -> None:
        self._settings, self._figures, self._connections = settings, figures, (taking, giving)
        out = Exchanges(giving)
        self._taking = Taking(settings, client, figures, taking, out)
        self._giving = Giving(settings, client, figures, out, confirmed)
        self._saying = Saying(log)
        self._lost = asyncio.Event()
        self.why_not = ""
        """Reason of its end, if not by a stop."""

    async def run(self, stopping: asyncio.Event) -> None:
        """Carry messages both ways until a connection ends, the queue is deleted, or ``stopping`` is set."""
        taking, queue = self._connections[0], self._settings.queue
        channel = await open_channel(taking)
        for place in (*self._connections, channel):
            place.closing.add_done_callback(lambda ended: self._lose(_reason(ended)))
        channel.on_consumer_cancel_callbacks.add(lambda _: self._lose(f"queue {queue} is not there any more"))
        await channel.basic_qos(prefetch_count=self._settings.window)
        await declare(taking, self._settings)
        giving = asyncio.create_task(self._giving.run())
        consumed = await self._taking.consume(channel, queue)
        self._figures.connected = True
        to = dict(self._settings.exchanges) or "-"
        log.info("connected to RabbitMQ, taking from queue %s; exchanges: %s", queue, to)
        looking = asyncio.create_task(self._look_after(taking))
        abandoning: asyncio.TimerHandle | None = None
        ends = [asyncio.create_task(each.wait()) for each in (stopping, self._lost)]
        try:
            await asyncio.wait([giving, *ends], return_when=asyncio.FIRST_COMPLETED)
            if not self._lost.is_set():
                abandoning = asyncio.get_running_loop().call_later(STOP_S, self._abandon)
                with suppress(*LOST, TimeoutError):
                    await asyncio.wait_for(channel.basic_cancel(str(consumed.consumer_tag)), CANCEL_S)
        finally:
            for each in (looking, *ends):
                each.cancel()
            if self._lost.is_set():
                self._abandon()
            giving.cancel()
            with suppress(asyncio.CancelledError):
                await giving
            await self._taking.under_way.until_done()
            if abandoning is not None:
                abandoning.cancel()

    async def _look_after(self, connection: WiredConnection) -> None:
        """Have the exchanges there, until cancelled."""
        while True:
            await asyncio.sleep(LOOK_S)
            try:
                await make_again(connection, self._settings)
            except InvalidArgumentError as error:  # what goes by the others goes on
                self._saying.warn("%s", error)
            except LOST:  # of the connection, that ends the session; of a channel, the next look is another one
                pass

    def _abandon(self) -> None:
        """Give back what is under way: whether RabbitMQ has it, nobody knows."""
        self._taking.under_way.cancel()
        self._giving.under_way.cancel()

    def _lose(self, why: str) -> None:
        self.why_not = self.why_not or why
        self._lost.set()


def _reason(ended: asyncio.Future[Any]) -> str:
    error = None if ended.cancelled() else ended.exception()
    return f"RabbitMQ has gone: {error or type(error).__name__}" if error else "RabbitMQ has gone"
