"""Clients that receive and settle, seek, and set groups."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial

import pyarrow as pa

from tests.crash.takeovers.cluster import Cluster
from tests.crash.takeovers.history import GROUP, ORDERED, PLAIN, SEEKING, SERIES, TOPICS, Seek
from tests.crash.takeovers.machines import Machine
from tests.takeover.events import UNKNOWN, Ack, Delivery

TRIES = (5, 7, 9, 16)
LIMITS = (1, 7, 100)
ALL = 1000


@dataclass(eq=False)
class Held:
    """What a consumer was handed and has not settled."""

    machine: Machine
    topic: str
    group: str
    rows: pa.RecordBatch


@dataclass
class Consumers:
    """Each method is a call or some, of one machine. It is checked at once what may be handed out, and by whom.

    - Nothing is early, by the clock of the machine.
    - A former owner hands nothing out longer than its lease, counted from the claim of the next one.
    - It hands nothing out when a later owner has begun to.
    """

    _cluster: Cluster
    _held: list[Held] = field(default_factory=list)
    _newest: int = 0
    """The last epoch that has handed out anything."""

    def __post_init__(self) -> None:
        self._rng, self._history = self._cluster.rng, self._cluster.history

    # -- receiving -----------------------------------------------------------------------------------------------------

    def receive(self, machine: Machine) -> None:
        self.take(machine, self._rng.choice([PLAIN, PLAIN, ORDERED, SERIES]), GROUP)

    def receive_fired(self, machine: Machine) -> None:
        """What has just fallen due, handed out before the ready log has it; perhaps some of it is settled at once."""
        if not self._cluster.ask_former(machine, machine.fire).error:
            self.receive(machine)
            if self._rng.random() < 0.5:
                self.settle(machine)

    def receive_all_fired(self, machine: Machine) -> None:
        """All of PLAIN that has just fallen due."""
        if not self._cluster.ask_former(machine, machine.fire).error:
            self.take(machine, PLAIN, GROUP, ALL)

    def take(self, machine: Machine, topic: str, group: str, limit: int | None = None) -> Held | None:
        """Receive, and look at what came; None: nothing."""
        limit = limit or self._rng.choice(LIMITS)
        receive = partial(machine.broker.receive, topic, group, max_messages=limit)
        # The time at which it begins counts. It may write that leases have ended, which is another thread's work in
        # earnest: here it is one that stands still behind its look at the lease, of which nobody promises anything.
        at_ms, wall_ms = self._cluster.now_ms(), machine.clock.now_ms()
        was_superseded, newest = self._cluster.is_superseded(machine), self._newest
        rows, error = self._cluster.ask_former(machine, receive)  # which its lease allows
        if error or not rows.num_rows:
            return None
        if was_superseded:
            self._cluster.note("handed out by a former owner", machine)
            self._cluster.check_lease(machine, at_ms)
        assert machine.epoch >= newest, f"epoch {machine.epoch} hands out after epoch {newest} did"
        self._newest = max(self._newest, machine.epoch)
        for row in rows.select(["body", "due_ms", "seq"]).to_pylist():
            name, due_ms = row["body"].decode(), row["due_ms"]
            assert due_ms <= wall_ms, f"{name} is early, by the clock of machine {machine.number}"
            seen = Delivery(at_ms=at_ms, name=name, due_ms=due_ms, seq=row["seq"], life=machine.epoch)
            self._history.seen[group].append(seen)
        self._held.append(held := Held(machine, topic, group, rows))
        self._cluster.note("batches handed out", machine, [row.decode() for row in rows["body"].to_pylist()])
        self._cluster.done["messages handed out"] += rows.num_rows
        return held

    # -- settling ------------------------------------------------------------------------------------------------------

    def settle(self, machine: Machine) -> None:
        """Acknowledge some of what was handed out, and perhaps give the rest back."""
        if not (mine := self._held_of(machine)):
            return
        held = self._rng.choice(mine)
        self._held.remove(held)
        size = held.rows.num_rows
        count = self._rng.choice([0, size // 2, size, size])
        if count:
            self._ack(held, count)
        if count < size and self._rng.random() < 0.5:
            rest, delay_ms = held.rows.slice(count), self._rng.choice([0, 1_000, 20_000])
            leases, offsets = rest["lease"].to_numpy(), rest["offset"].to_numpy()
            nack = partial(machine.broker.nack, held.topic, held.group, leases, offsets, delay_ms)
            self._cluster.ask(machine, nack)

    def settle_all(self, machine: Machine) -> None:
        for held in self._held_of(machine):
            self.acknowledge(held)

    def settle_elsewhere(self, machine: Machine) -> None:
        """What another machine has handed out: its lease is stale."""
        if others := [each for each in self._held if each.machine is not machine]:
            self._ack(self._rng.choice(others), at=machine)

    def acknowledge(self, held: Held) -> None:
        if held in self._held:
            self._held.remove(held)
            self._ack(held)

    def _held_of(self, machine: Machine) -> list[Held]:
        self._held = [each for each in self._held if not each.machine.is_dead]
        return [each for each in self._held if each.machine is machine]

    def _ack(self, held: Held, count: int | None = None, at: Machine | None = None) -> None:
        machine, begin_ms = at or held.machine, self._cluster.now_ms()
        rows = held.rows if count is None else held.rows.slice(0, count)
        leases, offsets = rows["lease"].to_numpy(), rows["offset"].to_numpy()
        answer = self._cluster.ask(machine, partial(machine.broker.ack, held.topic, held.group, leases, offsets))
        end_ms, word = self._cluster.now_ms(), UNKNOWN if answer.error else "done"
        for row in rows.select(["body", "due_ms", "seq"]).to_pylist():
            what = {"name": row["body"].decode(), "due_ms": row["due_ms"], "seq": row["seq"], "life": machine.epoch}
            self._history.seen[held.group].append(Ack(begin_ms=begin_ms, end_ms=end_ms, answer=word, **what))

    # -- all of it -----------------------------------------------------------------------------------------------------

    def consume(self, machine: Machine) -> None:
        """All that is ready in all groups, acknowledged: segments of the ready log may be deleted then."""
        self._cluster.ask(machine, machine.broker.step)
        for topic, group in [*((topic, GROUP) for topic in TOPICS), (PLAIN, SEEKING)]:
            if held := self.take(machine, topic, group, ALL):
                self.acknowledge(held)

    def drain(self, machine: Machine) -> int:
        """Consume all that is ready in GROUP; return how many messages that were."""
        came = 0
        for topic in TOPICS:
            while held := self.take(machine, topic, GROUP, ALL):
                self.acknowledge(held)
                came += held.rows.num_rows
        return came

    # -- moving and setting --------------------------------------------------------------------------------------------

    def seek(self, machine: Machine) -> None:
        """Move SEEKING, then receive there, perhaps at a former owner."""
        where = self._rng.choice(["earliest", "latest", "latest"])
        begin_ms, life = self._cluster.now_ms(), machine.epoch
        _, error = self._cluster.ask(machine, partial(machine.broker.seek, PLAIN, SEEKING, where))
        word = UNKNOWN if error or where == "earliest" else "done"
        self._history.seeks.append(Seek(begin_ms=begin_ms, end_ms=self._cluster.now_ms(), answer=word, life=life))
        for each in self._rng.sample(self._cluster.machines, len(self._cluster.machines)):
            if each.epoch and each not in self._cluster.world.stack:
                self.take(each, PLAIN, SEEKING)

    def configure(self, machine: Machine) -> None:
        """How often a message of a topic's group is tried."""
        topic, tries = self._rng.choice(TOPICS), self._rng.choice(TRIES)
        self._history.tries[topic].add(tries)
        if not self._cluster.ask(machine, partial(machine.broker.set_group, topic, GROUP, tries=tries)).error:
            self._history.tries[topic] = {tries}
