"""Clients of a campaign: the record of what they ask, are answered and are handed; and those that consume."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from tarry.base.errors import DiskFullError, KeyExistsError, OverloadedError, TarryError, UnavailableError
from tarry.client import AsyncClient
from tarry.client.delivery import Delivery as ClientDelivery
from tests.takeover.events import UNKNOWN, Ack, Cancel, Delivery, Event, Send
from tests.takeover.owners import Life, Owners

PLAIN, ORDERED, SERIES = TOPICS = ("plain", "ordered", "series")
GROUP = "g"
TIMEOUT_S = 12.0
MESSAGE_LEASE_S = 5.0


def now_ms() -> float:
    return time.time_ns() / 1e6


@dataclass
class Recorder:
    """Everything that clients have seen, and the clients, one for each life."""

    owners: Owners
    events: list[Event] = field(default_factory=list)
    errors: Counter[str] = field(default_factory=Counter)
    """Calls without an answer, by the error's code."""
    came: asyncio.Event = field(default_factory=asyncio.Event)
    """Set with each delivery."""
    _clients: dict[int, AsyncClient] = field(default_factory=dict)

    def client(self, life: Life) -> AsyncClient:
        if life.number not in self._clients:
            self._clients[life.number] = AsyncClient(life.address, timeout=TIMEOUT_S)
        return self._clients[life.number]

    async def ask(
        self, request: Awaitable[Any], event: Callable[[float, float, Any], Send | Cancel], refused: str = ""
    ) -> tuple[bool, Any]:
        """Carry a call out, and write it down; return whether it was answered, and the answer.

        ``event`` makes the event, of an answer or of None where there was none. ``refused``: answer that stands for
        KeyExistsError.
        """
        begin_ms = now_ms()
        try:
            answer = await request
        except KeyExistsError:
            answer = refused
        except (OverloadedError, DiskFullError) as error:
            self.errors[error.code] += 1
            return False, None  # it certainly did not happen
        except TarryError as error:
            self.errors[error.code] += 1
            if isinstance(error, UnavailableError) and error.nothing_sent:
                return False, None
            self.events.append(replace(event(begin_ms, now_ms(), None), error=error.code))
            return False, None
        self.events.append(event(begin_ms, now_ms(), answer))
        return True, answer

    async def close_former(self) -> None:
        """Close the clients of lives that are over."""
        for life in self.owners.lives:
            if life.over.is_set() and (client := self._clients.pop(life.number, None)) is not None:
                with suppress(TarryError):
                    await client.close()

    async def close(self) -> None:
        for client in self._clients.values():
            with suppress(TarryError):
                await client.close()


class Consumers:
    """For each life of a broker, consumers of all topics, by streams and by calls, until its process has ended."""

    def __init__(self, recorder: Recorder, rng: random.Random) -> None:
        self._recorder, self._rng = recorder, rng
        self._tasks: set[asyncio.Task[None]] = set()

    def follow(self, life: Life) -> None:
        """Begin to consume from a broker."""
        for topic in TOPICS:
            for consume in (self._by_calls, self._by_stream):
                self._tasks.add(asyncio.create_task(self._consume(consume, topic, life)))

    def forget(self) -> None:
        """Forget consumers that have ended. Raises what one of them raised."""
        for task in [each for each in self._tasks if each.done()]:
            self._tasks.discard(task)
            task.result()

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        for result in await asyncio.gather(*self._tasks, return_exceptions=True):
            if isinstance(result, Exception):
                raise result

    async def _consume(
        self, consume: Callable[[AsyncClient, str, Life], Awaitable[None]], topic: str, life: Life
    ) -> None:
        client = AsyncClient(life.address, timeout=TIMEOUT_S)  # its own: acknowledgements are waited for by client
        try:
            while not life.over.is_set():
                with suppress(TarryError):
                    await consume(client, topic, life)
                await asyncio.sleep(0.1)
        finally:
            with suppress(TarryError):
                await client.close()

    async def _by_calls(self, client: AsyncClient, topic: str, life: Life) -> None:
        """By calls: what was acknowledged is certain."""
        while not life.over.is_set():
            batch = await client.receive(topic, group=GROUP, max_messages=20, wait=0.5, lease=MESSAGE_LEASE_S)
            came = [self._came(message, life) for message in batch]
            chosen = [each for each in came if self._rng.random() > 0.05]
            for message in (batch[came.index(each)] for each in chosen):
                message.ack()  # the others come again when their lease ends
            begin_ms, answer = now_ms(), UNKNOWN
            with suppress(TarryError):
                await client.flush()
                answer = "done"
            self._recorder.events += [self._acked(each, begin_ms, answer) for each in chosen]

    async def _by_stream(self, client: AsyncClient, topic: str, life: Life) -> None:
        """By a stream, which connects again by itself: a flush says nothing of what went with an earlier one."""
        async for message in client.consume(topic, group=GROUP, timeout=1.0, lease=MESSAGE_LEASE_S, prefetch=20):
            came = self._came(message, life)
            begin_ms = now_ms()
            message.ack()
            self._recorder.events.append(self._acked(came, begin_ms, UNKNOWN))
            if life.over.is_set():
                return

    def _came(self, message: ClientDelivery, life: Life) -> Delivery:
        at_ms = message.due_ms + message.lateness_ms
        came = Delivery(
            at_ms=at_ms, name=message.body.decode(), due_ms=message.due_ms, seq=message.seq, life=life.number
        )
        self._recorder.events.append(came)
        self._recorder.came.set()
        return came

    def _acked(self, came: Delivery, begin_ms: float, answer: str) -> Ack:
        return Ack(
            begin_ms=begin_ms,
            end_ms=now_ms(),
            answer=answer,
            life=came.life,
            name=came.name,
            due_ms=came.due_ms,
            seq=came.seq,
        )
