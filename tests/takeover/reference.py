"""A reference: a broker that does all things at once and right, and clients that see each of them within an interval.

It makes histories that are right, with everything that may happen: answers that are lost, sends that are repeated by
their id, deliveries that come again, claims at which what is due soon counts as taken.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from tests.takeover.events import UNKNOWN, Ack, Cancel, Claim, Delivery, Event, Move, Placing, Send

KEYS = (None, None, "k1", "k2")
AHEAD_MS = 2_000.0
"""Bound of what a claim takes."""


@dataclass
class Stored:
    """A placing in the broker."""

    placing: Placing
    seq: int
    key: str | None
    status: str = "pending"


@dataclass
class Reference:
    """One run, from a seed; :attr:`events` is its history."""

    rng: random.Random
    now_ms: float = 1_000.0
    life: int = 0
    events: list[Event] = field(default_factory=list)
    stored: dict[Placing, Stored] = field(default_factory=dict)
    keys: dict[str, Stored] = field(default_factory=dict)
    unheard: list[Send] = field(default_factory=list)
    dues: set[int] = field(default_factory=set)
    names: int = 0

    def run(self, steps: int) -> list[Event]:
        for _ in range(steps):
            self.now_ms += self.rng.choice([1, 10, 100, 1000]) * self.rng.random()
            self.deliver_due()
            self.rng.choice([self.send, self.send, self.cancel, self.move, self.send_again, self.claim])()
        self.now_ms += 1e6
        self.deliver_due()
        self.rng.shuffle(self.events)  # their order is that of their times
        return self.events

    def times(self) -> tuple[float, float]:
        """Beginning and end of a call that happens now."""
        return self.now_ms - 50 * self.rng.random(), self.now_ms + 50 * self.rng.random()

    def answered(self, answer: str) -> str:
        return UNKNOWN if self.rng.random() < 0.2 else answer

    def new_due_ms(self) -> int:
        self.names += 1
        due_ms = int(self.now_ms) + self.rng.choice([0, 100, 2_000, 9_000])
        while due_ms in self.dues:
            due_ms += 1
        self.dues.add(due_ms)
        return due_ms

    def send(self) -> None:
        due_ms = self.new_due_ms()
        on_key = self.rng.choice(["replace", "replace", "keep", "refuse"])
        self._send(f"m{self.names}", due_ms, self.rng.choice(KEYS), on_key)

    def send_again(self) -> None:
        if self.unheard:
            former = self.unheard.pop()
            self._send(former.name, former.due_ms, former.key, former.on_key)

    def _send(self, name: str, due_ms: int, key: str | None, on_key: str) -> None:
        begin_ms, end_ms = self.times()
        pending = self.keys.get(key or "")
        seq = len(self.stored) + 1
        if (name, due_ms) in self.stored:
            answer, seq = "duplicate", self.stored[name, due_ms].seq
        elif pending is not None and pending.status == "pending" and on_key != "replace":
            answer, seq = ("kept" if on_key == "keep" else "key_exists"), pending.seq
        else:
            answer = "scheduled"
            if pending is not None and pending.status == "pending":
                pending.status, answer = "cancelled", "replaced"
            self._place((name, due_ms), seq, key)
        send = Send(
            begin_ms=begin_ms,
            end_ms=end_ms,
            answer=self.answered(answer),
            life=self.life,
            name=name,
            due_ms=due_ms,
            key=key,
            on_key=on_key,
            seq=seq,
        )
        self.events.append(send)
        if send.answer == UNKNOWN:
            self.unheard.append(send)

    def _place(self, placing: Placing, seq: int, key: str | None) -> None:
        self.stored[placing] = Stored(placing, seq, key)
        if key is not None:
            self.keys[key] = self.stored[placing]

    def _target(self) -> tuple[Stored | None, str | None]:
        """A message by its handle, or a key and what is stored under it."""
        if self.rng.random() < 0.3:
            key = self.rng.choice(["k1", "k2"])
            return self.keys.get(key), key
        return (self.rng.choice(list(self.stored.values())) if self.stored else None), None

    def cancel(self) -> None:
        stored, key = self._target()
        if stored is None and key is None:
            return
        begin_ms, end_ms = self.times()
        answer = self._end(stored)
        target = None if key or stored is None else stored.placing
        self.events.append(
            Cancel(
                begin_ms=begin_ms, end_ms=end_ms, answer=self.answered(answer), life=self.life, target=target, key=key
            )
        )

    def move(self) -> None:
        stored, key = self._target()
        if stored is None:
            return
        begin_ms, end_ms = self.times()
        due_ms, seq = self.new_due_ms(), len(self.stored) + 1
        answer = self._end(stored)
        if answer == "done":
            self._place((stored.placing[0], due_ms), seq, stored.key)
        self.events.append(
            Move(
                begin_ms=begin_ms,
                end_ms=end_ms,
                answer=self.answered(answer),
                life=self.life,
                target=None if key else stored.placing,
                key=key,
                due_ms=due_ms,
                seq=seq,
            )
        )

    def _end(self, stored: Stored | None) -> str:
        if stored is None:
            return "unknown"
        if stored.status == "pending":
            stored.status = "cancelled"
            return "done"
        return "delivered" if stored.status == "taken" else "cancelled"

    def deliver_due(self) -> None:
        for stored in self.stored.values():
            if stored.status == "pending" and stored.placing[1] <= self.now_ms:
                self._hand_out(stored, self.now_ms)

    def _hand_out(self, stored: Stored, from_ms: float) -> None:
        stored.status = "taken"
        (name, due_ms), at_ms = stored.placing, from_ms
        for _ in range(self.rng.choice([1, 1, 1, 2, 3])):
            at_ms += 100 * self.rng.random()
            self.events.append(Delivery(at_ms=at_ms, name=name, due_ms=due_ms, seq=stored.seq, life=self.life))
        self.events.append(
            Ack(
                begin_ms=at_ms + 1,
                end_ms=at_ms + 2,
                answer=self.answered("done"),
                life=self.life,
                name=name,
                due_ms=due_ms,
                seq=stored.seq,
            )
        )

    def claim(self) -> None:
        if self.rng.random() < 0.5:
            return
        self.life += 1
        begin_ms, end_ms = self.times()
        self.events.append(Claim(begin_ms=begin_ms, end_ms=end_ms, life=self.life))
        for stored in self.stored.values():
            due_ms = stored.placing[1]
            if stored.status == "pending" and self.now_ms < due_ms <= self.now_ms + AHEAD_MS:
                self._hand_out(stored, due_ms)
