"""Clients of a campaign that send, cancel, move and replace, with any number of calls under way."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any

from tarry.api.outcome import Rescheduled
from tarry.message.receipt import Receipt
from tests.takeover.clients import ORDERED, PLAIN, SERIES, Recorder, now_ms
from tests.takeover.events import UNKNOWN, Cancel, Move, Placing, Send
from tests.takeover.owners import Life

DELAYS_MS = (0, 0, 20, 200, 800, 2_000, 4_000, 8_000)
KEY_SENDS = 6
"""A key is used so often, and then a new one: the search for an order is in few calls."""
TRIES = 20
"""A send whose answer was lost is repeated so often at most."""
CHANGED_AT_ONCE = 40


@dataclass
class Known:
    """A message that was accepted, as clients know it."""

    placing: Placing
    handle: str
    key: str | None
    topic: str


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

    def begin_again(self) -> None:
        """Forget all messages and keys, and use none of them any more; :meth:`run` may be called again."""
        self._known.clear()
        self._dues.clear()
        self._keys = {slot: (used // KEY_SENDS + 1) * KEY_SENDS for slot, used in self._keys.items()}
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
