"""Clients that send, cancel, move and replace."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pyarrow as pa

from tarry.message.receipt import Receipt
from tests.crash.takeovers.cluster import Cluster
from tests.crash.takeovers.history import ORDERED, PLAIN, SERIES, Known
from tests.crash.takeovers.machines import Machine
from tests.takeover.events import UNKNOWN, Cancel, Delivery, Move, Send
from tests.takeover.history import ACCEPTED

DELAYS_MS = (0, 0, 20, 300, 1_500, 3_000, 8_000, 8_000, 60_000, 240_000)
KEY_SENDS = 6
"""A key is used so often, and then a new one: the search for an order is in few calls."""
HANDED = 8
"""So many of those that were handed out last are cancelled at once."""


@dataclass
class Producers:
    """Each method is a call or some, of one machine; a message is sent in the name of its body."""

    _cluster: Cluster
    _names: int = 0
    _keys: int = 0
    _dues: dict[str, set[int]] = field(default_factory=dict)
    """By key or name: no two messages of one are due at the same time."""
    _unheard: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    """Topic and fields of what was not answered, and has an id."""

    def __post_init__(self) -> None:
        self._rng, self._history = self._cluster.rng, self._cluster.history

    def new_name(self) -> str:
        self._names += 1
        return f"m{self._names}"

    def new_due_ms(self, unit: str) -> int:
        """Return a due time for a message of a key, or of that name, by the clock of the world."""
        dues = self._dues.setdefault(unit, set())
        due_ms = int(self._cluster.now_ms()) + self._rng.choice(DELAYS_MS)
        while due_ms in dues:
            due_ms += 1
        dues.add(due_ms)
        return due_ms

    # -- sending -------------------------------------------------------------------------------------------------------

    def send(self, machine: Machine) -> None:
        """A message: alone, with a key, with an order key, or a series; mostly with an id."""
        name = self.new_name()
        fields: dict[str, Any] = {"name": name}
        topic, draw = PLAIN, self._rng.random()
        if draw < 0.4:
            self._keys += 1
            fields["key"] = f"k{self._keys % 3}-{self._keys // (3 * KEY_SENDS)}"
            fields["on_key"] = self._rng.choice(["replace", "replace", "replace", "keep", "refuse"])
        elif draw < 0.55:
            topic, fields["order_key"] = ORDERED, self._rng.choice(["o1", "o2"])
        elif draw < 0.65:
            topic, fields["every_ms"] = SERIES, 1000 * self._rng.randint(1, 2)
            fields["times"] = self._rng.randint(1, 6)
        fields["due_ms"] = self.new_due_ms(fields.get("key", name))
        if topic == SERIES or self._rng.random() < 0.7:
            fields["id"] = name
        self._schedule(machine, topic, fields)

    def send_soon(self, machine: Machine, delay_ms: int) -> None:
        """A message that is due so much later by the machine's clock."""
        due_ms = int(self._cluster.now_ms()) + machine.clock.offset_ms + delay_ms
        self._schedule(machine, PLAIN, {"name": self.new_name(), "due_ms": due_ms})

    def send_again(self, machine: Machine) -> None:
        """What was not answered, by its id."""
        if self._unheard:
            self._schedule(machine, *self._unheard.pop(self._rng.randrange(len(self._unheard))))

    def _schedule(self, machine: Machine, topic: str, fields: dict[str, Any]) -> None:
        options: dict[str, Any] = {
            each: fields[each] for each in ("key", "on_key", "order_key", "id") if each in fields
        }
        if "every_ms" in fields:
            options["repeat"] = {"every": fields["every_ms"] / 1000, "times": fields["times"]}
        begin_ms, life = self._cluster.now_ms(), machine.epoch
        body = fields["name"].encode()
        send = partial(machine.broker.schedule, topic, body, due=fields["due_ms"], **options)
        answer = self._cluster.ask(machine, send)
        if answer.error == "overloaded":
            return
        receipt = answer.value if isinstance(answer.value, Receipt) else None
        event = Send(
            begin_ms=begin_ms,
            end_ms=self._cluster.now_ms(),
            answer=answer.word if receipt is None else str(receipt.outcome),
            life=life,
            seq=None if receipt is None else receipt.seq,
            **{each: value for each, value in fields.items() if each != "id"},
        )
        self._history.calls.append(event)
        if receipt is not None and event.answer in ACCEPTED:
            self._history.known.append(Known(event.placing, receipt.handle, event.key, topic))
        elif event.answer == UNKNOWN and "id" in fields:
            self._unheard.append((topic, fields))

    def send_many(self, machine: Machine) -> None:
        """A batch: all of it is accepted, or nothing."""
        names = [self.new_name() for _ in range(self._rng.randint(2, 20))]
        dues = [self.new_due_ms(name) for name in names]
        begin_ms, life = self._cluster.now_ms(), machine.epoch
        accepted, error = self._cluster.ask(machine, partial(machine.broker.schedule_batch, rows_of(names, dues)))
        times: dict[str, Any] = {"begin_ms": begin_ms, "end_ms": self._cluster.now_ms(), "life": life}
        for number, (name, due_ms) in enumerate(zip(names, dues, strict=True)):
            word, seq = (UNKNOWN, None) if error else (str(accepted.outcomes[number]), int(accepted.seqs[number]))
            self._history.calls.append(Send(answer=word, name=name, due_ms=due_ms, seq=seq, **times))
        if not error:
            placings = zip(names, dues, strict=True)
            known = [Known(at, handle, None, PLAIN) for at, handle in zip(placings, accepted.handles(), strict=True)]
            self._history.known.extend(known)

    # -- changing ------------------------------------------------------------------------------------------------------

    def cancel(self, machine: Machine) -> None:
        """Some message, by its handle or its key."""
        if (known := self._choose()) is not None:
            self._cancel(machine, known)

    def cancel_handed(self, machine: Machine) -> None:
        """What was handed out last."""
        newest = {each.placing: each for each in self._history.known}
        handed = [each for seen in self._history.seen.values() for each in seen if isinstance(each, Delivery)]
        for delivery in sorted(handed, key=lambda each: each.at_ms)[-HANDED:]:
            if delivery.placing in newest:
                self._cancel(machine, newest[delivery.placing])

    def _cancel(self, machine: Machine, known: Known) -> None:
        key = known.key if self._rng.random() < 0.5 else None
        begin_ms, life, broker = self._cluster.now_ms(), machine.epoch, machine.broker
        call = partial(broker.cancel_key, known.topic, key) if key else partial(broker.cancel, known.handle)
        answer = self._cluster.ask(machine, call)
        target = None if key else known.placing
        times: dict[str, Any] = {"begin_ms": begin_ms, "end_ms": self._cluster.now_ms(), "life": life}
        self._history.calls.append(Cancel(answer=answer.word, target=target, key=key, **times))

    def move(self, machine: Machine) -> None:
        """Some message to another time, by its handle or its key."""
        if (known := self._choose()) is None:
            return
        if known.topic != PLAIN:
            self._cancel(machine, known)  # a series that moves, or order, is not checked
            return
        key = known.key if self._rng.random() < 0.5 else None
        due_ms = self.new_due_ms(known.key or known.placing[0])
        begin_ms, life, broker = self._cluster.now_ms(), machine.epoch, machine.broker
        by_key = partial(broker.reschedule_key, known.topic, key, due=due_ms) if key else None
        moved, error = self._cluster.ask(machine, by_key or partial(broker.reschedule, known.handle, due=due_ms))
        receipt = None if error else moved.receipt
        event = Move(
            begin_ms=begin_ms,
            end_ms=self._cluster.now_ms(),
            answer=UNKNOWN if error else str(moved.outcome),
            life=life,
            target=None if key else known.placing,
            key=key,
            due_ms=due_ms,
            seq=receipt.seq if receipt else None,
        )
        self._history.calls.append(event)
        if receipt and not key:
            self._history.known.append(Known((known.placing[0], due_ms), receipt.handle, known.key, known.topic))

    def _choose(self) -> Known | None:
        """Return a message, mostly a late one."""
        known = self._history.known
        return known[-min(len(known), 1 + int(self._rng.expovariate(1 / 12)))] if known else None


def rows_of(names: list[str], dues: list[int]) -> pa.RecordBatch:
    """Return messages of PLAIN."""
    columns: dict[str, Any] = {"topic": [PLAIN] * len(names), "due_ms": pa.array(dues, pa.int64())}
    return pa.record_batch({**columns, "body": [name.encode() for name in names]})
