"""Clients of a campaign, which write down what they ask, what they are answered, and what they are handed."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from tarry.api.outcome import Rescheduled
from tarry.base.errors import DiskFullError, KeyExistsError, OverloadedError, TarryError, UnavailableError
from tarry.client import AsyncClient
from tarry.client.delivery import Delivery as ClientDelivery
from tarry.message.receipt import Receipt
from tests.takeover.events import UNKNOWN, Ack, Cancel, Delivery, Event, Move, Placing, Send
from tests.takeover.owners import Life, Owners

PLAIN, ORDERED, SERIES = TOPICS = ("plain", "ordered", "series")
GROUP = "g"
DELAYS_MS = (0, 0, 20, 200, 800, 2_000, 4_000, 8_000)
KEY_SENDS = 6
"""A key is used so often, and then a new one: the search for an order is in few calls."""
TIMEOUT_S = 12.0
MESSAGE_LEASE_S = 5.0
CHANGED_AT_ONCE = 40
TRIES = 20
"""A send whose answer was lost is repeated so often at most."""


def now_ms() -> float:
    return time.time_ns() / 1e6


@dataclass
class Known:
    """A message that was accepted, as clients know it."""

    placing: Placing
    handle: str
    key: str | None
    topic: str


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
        self, request: Awaitable[Any], event: Callable[[float, float, Any], Event], refused: str = ""
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
            self.events.append(event(begin_ms, now_ms(), None))
            return False, None
        self.events.append(event(begin_ms, now_ms(), answer))
        return True, answer

    async def close(self) -> None:
        for client in self._clients.values():
            with suppress(TarryError):
                await client.close()


class Producers:
    """Sends, cancels, moves and replaces, at a rate, as many calls at a time as there are."""

    IN_FLIGHT_MAX = 400

    def __init__(self, recorder: Recorder, rng: random.Random, per_second: float) -> None:
        self._recorder, self._rng, self._per_second = recorder, rng, per_second
        self._owners = recorder.owners
        self._known: list[Known] = []
        self._dues: dict[str, set[int]] = {}
        self._number = 0
        self._keys = {f"k{number}": 0 for number in range(8)}
        self._calls: set[asyncio.Task[None]] = set()
        self._bugs: list[BaseException] = []
        self.stopping = False

    async def run(self) -> None:
        """Until :attr:`stopping`; then wait for what is under way."""
        while not self.stopping and not self._bugs:
            await asyncio.sleep(self._rng.expovariate(self._per_second))
            if len(self._calls) < self.IN_FLIGHT_MAX:
                self._begin(self._call())
        while self._calls:
            await asyncio.wait(self._calls)
        for bug in self._bugs:
            raise bug

    def change_newest(self) -> None:
        """Cancel or move the newest messages at once: what was handed out just before a fault is among them."""
        for known in self._known[-CHANGED_AT_ONCE:]:
            self._begin(self._rng.choice([self._cancel, self._move])(known))

    def _begin(self, call: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(call)
        self._calls.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._calls.discard(task)
        if not task.cancelled() and (bug := task.exception()) is not None:
            self._bugs.append(bug)

    def _life(self) -> Life:
        """The owner; now and then the one before, which must not answer any more."""
        lives = self._owners.lives
        if len(lives) > 1 and lives[-2].exit_code is None and self._rng.random() < 0.3:
            return lives[-2]
        return lives[-1]

    async def _call(self) -> None:
        draw = self._rng.random()
        if draw < 0.5 or not self._known:
            await self._send()
        elif draw < 0.75:
            await self._cancel()
        elif draw < 0.97:
            await self._move()
        else:
            await self._send_series()

    # -- sending -------------------------------------------------------------------------------------------------------

    def _new_name(self) -> str:
        self._number += 1
        return f"m{self._number}"

    def _new_due_ms(self, unit: str) -> int:
        """A due time that no message of a key, or the one of a name, ever had."""
        dues = self._dues.setdefault(unit, set())
        due_ms = int(now_ms()) + self._rng.choice(DELAYS_MS)
        while due_ms in dues:
            due_ms += 1
        dues.add(due_ms)
        return due_ms

    async def _send(self) -> None:
        name = self._new_name()
        fields: dict[str, Any] = {"name": name}
        topic, draw = PLAIN, self._rng.random()
        if draw < 0.3:
            slot = self._rng.choice(list(self._keys))
            self._keys[slot] += 1
            fields["key"] = f"{slot}-{self._keys[slot] // KEY_SENDS}"
            fields["on_key"] = self._rng.choice(["replace", "replace", "replace", "keep", "refuse"])
        elif draw < 0.5:
            topic, fields["order_key"] = ORDERED, self._rng.choice(["o1", "o2", "o3"])
        fields["due_ms"] = self._new_due_ms(fields.get("key", name))
        await self._schedule(topic, has_id=self._rng.random() < 0.7, **fields)

    async def _send_series(self) -> None:
        name = self._new_name()
        times = self._rng.randint(1, 8)
        await self._schedule(
            SERIES,
            has_id=True,
            name=name,
            due_ms=self._new_due_ms(name),
            every_ms=1000 * self._rng.randint(1, 2),
            times=times,
        )

    async def _schedule(self, topic: str, *, has_id: bool, **fields: Any) -> None:
        """Schedule a message; again, by its id, until it is answered."""
        options: dict[str, Any] = {name: fields[name] for name in ("key", "on_key", "order_key") if name in fields}
        if has_id:
            options["id"] = fields["name"]
        if "every_ms" in fields:
            options["repeat"] = {"every": fields["every_ms"] / 1000, "times": fields["times"]}
        for _ in range(TRIES if has_id else 1):
            life = self._life()

            def event(begin_ms: float, end_ms: float, receipt: Receipt | str | None, life: Life = life) -> Send:
                answer, seq = UNKNOWN, None
                if isinstance(receipt, Receipt):
                    answer, seq = receipt.outcome, receipt.seq
                elif receipt is not None:
                    answer = receipt
                return Send(begin_ms=begin_ms, end_ms=end_ms, answer=answer, life=life.number, seq=seq, **fields)

            request = self._recorder.client(life).schedule(
                topic, fields["name"].encode(), due=fields["due_ms"], **options
            )
            is_answered, receipt = await self._recorder.ask(request, event, refused="key_exists")
            if is_answered:
                if isinstance(receipt, Receipt) and receipt.outcome in ("scheduled", "replaced"):
                    self._note(Known((fields["name"], fields["due_ms"]), receipt.handle, fields.get("key"), topic))
                return
            await asyncio.sleep(self._rng.uniform(0.1, 2.0))

    def _note(self, known: Known) -> None:
        self._known.append(known)
        if len(self._known) > 300:
            del self._known[0]

    # -- changing ------------------------------------------------------------------------------------------------------

    def _choose(self) -> tuple[Known, str | None]:
        """A message, mostly a late one; and its key where it is to be changed by that."""
        known = self._known[-min(len(self._known), 1 + int(self._rng.expovariate(1 / 40)))]
        return known, known.key if self._rng.random() < 0.5 else None

    async def _cancel(self, known: Known | None = None) -> None:
        known, key = (known, None) if known is not None else self._choose()
        life, target = self._life(), None if key else known.placing
        client = self._recorder.client(life)
        request = client.cancel_key(known.topic, key) if key else client.cancel(known.handle)

        def event(begin_ms: float, end_ms: float, answer: Any) -> Cancel:
            word = UNKNOWN if answer is None else str(answer)
            return Cancel(begin_ms=begin_ms, end_ms=end_ms, answer=word, life=life.number, target=target, key=key)

        await self._recorder.ask(request, event)

    async def _move(self, known: Known | None = None) -> None:
        known, key = (known, None) if known is not None else self._choose()
        if known.topic != PLAIN:
            return await self._cancel(known)  # a series that moves, or order, is not checked
        life, target = self._life(), None if key else known.placing
        due_ms = self._new_due_ms(known.key or known.placing[0])
        client = self._recorder.client(life)
        request = (
            client.reschedule_key(known.topic, key, due=due_ms) if key else client.reschedule(known.handle, due=due_ms)
        )

        def event(begin_ms: float, end_ms: float, moved: Rescheduled | None) -> Move:
            answer, seq = UNKNOWN, None
            if moved is not None:
                answer, seq = str(moved.outcome), moved.receipt.seq if moved.receipt else None
            return Move(
                begin_ms=begin_ms,
                end_ms=end_ms,
                answer=answer,
                life=life.number,
                target=target,
                key=key,
                due_ms=due_ms,
                seq=seq,
            )

        _, moved = await self._recorder.ask(request, event)
        if target is not None and moved is not None and moved.receipt is not None:
            self._note(Known((target[0], due_ms), moved.receipt.handle, known.key, known.topic))
        return None


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
