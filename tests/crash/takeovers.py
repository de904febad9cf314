"""Brokers that take a log over from one another: a life, drawn from a seed, of machines, clients and faults.

Machines have wall clocks of their own (some seconds, now and then an hour apart), boot clocks that do not run quite
alike, and ways to the store that delay, fail, lose answers, or have PUTs arrive later (``virtual_machines.py``). Their
clients schedule, replace, cancel, move, receive and settle, seek and set; also those of former owners, which may not
know that they are. A fault is one of :data:`FAULTS`; it comes between two calls, or while one waits for the store.

What clients see is a history, which is checked in the end as that of ``make takeover`` (``tests/takeover/history.py``).
At once is checked:

- an owner that was superseded before it was asked answers nothing;
- nothing is handed out early, by the clock of the machine; nor after a lease that the store does not know of; nor by a
  former owner after a later one has begun to;
- settings, and the place to which a group was moved, are those that were answered;
- what is certainly pending is listed, and what was cancelled is not.
"""

from __future__ import annotations

import random
import shutil
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from tarry.api.outcome import Rescheduled
from tarry.base.errors import KeyExistsError, TarryError
from tarry.log.objects.lease import LEASE_S
from tarry.message.receipt import Receipt
from tests.crash.virtual_machines import START_MS, Machine, VirtualWorld
from tests.faults import Crash
from tests.takeover.events import UNKNOWN, Ack, Cancel, Claim, Delivery, Event, Move, Placing, Send
from tests.takeover.history import ACCEPTED, check

CRASHES = 10
"""In one life."""
OPERATIONS = 14
"""At most so many between two faults."""
PLAIN, ORDERED, SERIES = TOPICS = ("plain", "ordered", "series")
GROUP, SEEKING = "g", "s"
"""A group that consumes everything, and one that is moved to and fro."""
DELAYS_MS = (0, 0, 20, 300, 1_500, 3_000, 8_000, 8_000, 60_000, 240_000)
PAUSES_S = (0.0, 0.0, 0.02, 0.2, 0.5, 1.0, 2.2, 4.0)
KEY_SENDS = 6
"""A key is used so often, and then a new one: the search for an order is in few calls."""
TRIES = (5, 7, 9, 16)
HOUR_MS = 3_600_000
AHEAD_MS = 2_500.0
"""At a claim, what is due within a lease counts as taken; and calls take a millisecond."""


@dataclass
class Known:
    """A message that was accepted, as clients know it."""

    placing: Placing
    handle: str
    key: str | None
    topic: str


@dataclass(eq=False)
class Held:
    """What a consumer was handed and has not settled."""

    machine: Machine
    topic: str
    group: str
    rows: pa.RecordBatch


@dataclass
class Lives:
    """One run, of one seed, in a directory of its own."""

    seed: int
    directory: Path
    done: Counter[str] = field(default_factory=Counter)
    """What happened how often."""
    log: list[str] = field(default_factory=list)
    """The same in order, for a failure."""

    def __post_init__(self) -> None:
        self.rng = rng = random.Random(self.seed)
        self.world = VirtualWorld(self.directory, rng, self.interrupted)
        self.rate = rng.choice([0.0, 0.01, 0.05, 0.15])
        self.offsets_ms = [-2000, 0, 2000] if rng.random() < 0.9 else [0, 0, HOUR_MS]
        self.skew_ms = max(map(abs, self.offsets_ms)) + 2000
        self.machines: list[Machine] = []
        """That live, the newest last."""
        self.opened = self.crashes = self.names = self.keys = 0
        self.calls: list[Event] = []
        self.seen: dict[str, list[Event]] = {GROUP: [], SEEKING: []}
        """Deliveries and acknowledgements by group."""
        self.known: list[Known] = []
        self.unheard: list[tuple[str, dict[str, Any]]] = []
        self.dues: dict[str, set[int]] = {}
        self.held: list[Held] = []
        self.last_handed: list[Placing] = []
        self.is_draining = False
        self.newest_handed = 0
        """The last epoch that has handed out anything."""
        self.tries: dict[str, set[int]] = {topic: {16} for topic in TOPICS}
        """What the setting of each topic's group may be."""

    def run(self, crashes: int = CRASHES) -> Counter[str]:
        """Live; raise what must not be."""
        with self.world.attached():
            try:
                self.begin()
                while self.crashes < crashes:
                    self.work(self.rng.randint(1, OPERATIONS))
                    self.fault()
                self.drain()
                self.check_history()
                self.check_counts()
            except BaseException as error:
                error.add_note(f"seed {self.seed}; the last that happened:\n" + "\n".join(self.log[-60:]))
                raise
            finally:
                for machine in self.machines:
                    machine.kill()
        self.done["owners that were taken over, killed or stopped"] = self.crashes
        return self.done

    def note(self, what: str, machine: Machine | None = None) -> None:
        self.done[what] += 1
        where = f" at {machine.number}, epoch {machine.epoch}" if machine is not None else ""
        self.log.append(f"  {self.world.loop.time():9.3f} {'  ' * len(self.world.stack)}{what}{where}")

    def now_ms(self) -> float:
        """A millisecond after the last event: no two are at one time."""
        self.world.jump(0.001)
        return START_MS + self.world.loop.time() * 1000

    # -- machines ------------------------------------------------------------------------------------------------------

    def begin(self) -> None:
        machine = self.claim(rate=0.0)
        assert machine is not None
        for topic in TOPICS:
            machine.call(partial(machine.broker.receive, topic, GROUP))
        machine.call(lambda: machine.broker.receive(PLAIN, SEEKING))

    def claim(self, rate: float | None = None, *, is_fast: bool = False) -> Machine | None:
        """Have another machine take over; None: it did not. ``is_fast``: no request of it takes any time."""
        self.opened += 1
        offset_ms = self.rng.choice(self.offsets_ms)
        boot_rate = self.rng.choice([0.98, 1.0, 1.02])
        machine = Machine(self.world, self.opened, offset_ms, boot_rate, self.rate if rate is None else rate)
        if is_fast:
            machine.way.be_fast()
        self.note(f"claim (clock {offset_ms:+} ms)", machine)
        self.machines.append(machine)
        begin_ms = self.now_ms()
        try:
            machine.call(machine.open)
        except (TarryError, Crash) as error:
            if (
                not isinstance(error, Crash)
                and error.code not in ("ownership_lost", "unavailable")
                and not _is_late_trial(error)
            ):
                raise
            self.note("claim failed", machine)
            self.log[-1] += f": {error}"
            self.drop(machine)
            return None
        self.calls.append(Claim(begin_ms=begin_ms, end_ms=self.now_ms(), life=machine.epoch))
        self.note("claimed", machine)
        self.check_state(machine)
        return machine if machine in self.machines else None

    def drop(self, machine: Machine) -> None:
        if machine in self.machines:
            self.machines.remove(machine)
        self.held = [each for each in self.held if each.machine is not machine]
        machine.kill()

    def owner(self) -> Machine:
        """The newest that can be called; a new one if there is none."""
        for _ in range(20):
            for machine in reversed(self.machines):
                if machine.epoch and machine not in self.world.stack:
                    return machine
            if (claimed := self.claim()) is not None:
                return claimed
        raise AssertionError("nobody could claim the logs, 20 times")

    def some_machine(self) -> Machine:
        """Mostly the owner; now and then one of before."""
        free = [each for each in self.machines if each.epoch and each not in self.world.stack]
        return self.rng.choice(free) if free and self.rng.random() < 0.25 else self.owner()

    def is_superseded(self, machine: Machine) -> bool:
        return machine.epoch + 1 in self.world.objects.claimed_s

    # -- calls ---------------------------------------------------------------------------------------------------------

    def ask(self, machine: Machine, call: Callable[[], Any], refused: str = "") -> tuple[bool, Any, str]:
        """Call a broker; return whether it answered, the answer, and the code of an error.

        ``refused``: answer that stands for KeyExistsError.
        """
        was_superseded = self.is_superseded(machine)
        if (
            not self.is_draining
            and self.world.interrupt_s is None
            and len(self.world.stack) < 2
            and self.rng.random() < 0.2
        ):
            self.world.interrupt_s = self.world.loop.time() + self.rng.choice([0.0, 0.02, 0.3, 1.0]) * self.rng.random()
        try:
            answer = machine.call(call)
        except KeyExistsError:
            answer = refused
        except Crash:
            self.drop(machine)
            return False, None, "killed"
        except TarryError as error:
            self.note(f"error {error.code}", machine)
            self.log[-1] += f": {error}"
            if error.code in ("ownership_lost", "closed", "fatal") and self.rng.random() < 0.7:
                self.drop(machine)
            return False, None, error.code
        finally:
            if not self.world.stack:
                self.world.interrupt_s = None
        if was_superseded:
            raise AssertionError(f"epoch {machine.epoch} has answered {answer!r}, and had ended before it was asked")
        return True, answer, ""

    def interrupted(self) -> None:
        """Something happens while a call waits."""
        waiting = self.world.stack[-1]
        draw = self.rng.random()
        if draw < 0.25:
            self.note("killed amid a call", waiting)
            self.crashes += 1
            waiting.kill()
        elif draw < 0.4:
            self.freeze(waiting)
            self.supersede()
        elif draw < 0.65:
            self.supersede()
        elif draw < 0.8:
            self.cut(waiting)
        if len(self.world.stack) < 3 and len(self.machines) > 1:
            self.work(self.rng.randint(0, 4))

    def work(self, times: int) -> None:
        for _ in range(times):
            name = self.rng.choices(list(WORK), [weight for weight, _ in WORK.values()])[0]
            machine = self.some_machine()
            self.note(name, machine)
            WORK[name][1](self, machine)
            if not self.world.stack:
                self.world.sleep(self.rng.choice(PAUSES_S) * self.rng.random())

    # -- faults --------------------------------------------------------------------------------------------------------

    def fault(self) -> None:
        name = self.rng.choices(list(FAULTS), [weight for weight, _ in FAULTS.values()])[0]
        self.note(name)
        FAULTS[name][1](self)

    def kill(self) -> None:
        self.crashes += 1
        self.drop(self.owner())
        self.world.sleep(self.rng.choice(PAUSES_S))
        self.claim()

    def hand_out_and_kill(self) -> None:
        """What was just handed out is in no log; whoever comes next is asked to cancel it."""
        if (claimed := self._race(kills=True)) is not None:
            self.crashes += 1
            self.cancel_handed(claimed)

    def race(self) -> None:
        """Both have the same to hand out, settle and change, the former one until its lease ends."""
        former = self.owner()
        if (claimed := self._race(kills=False)) is None:
            return
        self.crashes += 1
        for _ in range(self.rng.randint(2, 8)):
            for machine in self.rng.sample([claimed, former], 2):
                if machine in self.machines:
                    self.note("races", machine)
                    does = [Lives.receive_unwritten, Lives.receive_unwritten, Lives.settle_all, Lives.cancel_handed]
                    self.rng.choice(does)(self, machine)
            self.world.sleep(0.6 * self.rng.random())

    def _race(self, *, kills: bool) -> Machine | None:
        """Have an owner hand out what has just fallen due, and another one claim fast."""
        former = self.owner()
        self.step(former)
        for _ in range(self.rng.randint(1, 4)):
            if former in self.machines:
                self.schedule_plain(former, self.rng.choice([0, 300, 900, 1_500]))
        self.world.sleep(1.5 * self.rng.random())
        if former in self.machines and (kills or self.rng.random() < 0.7):
            self.receive_unwritten(former)
        if kills:
            self.drop(former)
        return self.claim(is_fast=True)

    def stop(self) -> None:
        """A clean stop, perhaps of a former owner."""
        self.crashes += 1
        machine = self.owner()
        self.ask_to_read(machine, machine.broker.close)
        self.drop(machine)
        if self.rng.random() < 0.5:
            self.world.sleep(self.rng.choice(PAUSES_S))
        self.claim()

    def supersede(self) -> None:
        """Another claims, though the owner lives."""
        self.crashes += 1
        self.claim()

    def stand_still(self) -> None:
        """The owner stands still, another one claims, and it goes on."""
        machine = self.owner()
        self.freeze(machine)
        self.world.sleep(self.rng.choice(PAUSES_S))
        self.supersede()
        if machine in self.machines:
            for _ in range(self.rng.randint(1, 3)):
                if machine in self.machines:
                    self.note("goes on", machine)
                    self.rng.choice([Lives.receive_unwritten, Lives.cancel, Lives.send, Lives.settle])(self, machine)

    def cut_off(self) -> None:
        self.cut(self.owner())

    def freeze(self, machine: Machine) -> None:
        machine.way.frozen_until_s = self.world.loop.time() + self.rng.choice([0.5, 2.0, 6.0]) * self.rng.random()
        self.note("frozen", machine)

    def cut(self, machine: Machine) -> None:
        """Its store gives no answer for a while."""
        machine.way.cut_until_s = self.world.loop.time() + self.rng.choice([0.5, 2.0, 6.0]) * self.rng.random()
        self.note("cut off", machine)

    def step_clock(self) -> None:
        """A wall clock is set."""
        machine = self.owner()
        machine.clock.offset_ms = self.rng.choice(self.offsets_ms)
        self.note(f"clock set to {machine.clock.offset_ms:+} ms", machine)

    def stand(self) -> None:
        """All of them stand still."""
        self.world.jump(self.rng.choice([3.0, 35.0, 90.0]) * self.rng.random())

    # -- sending -------------------------------------------------------------------------------------------------------

    def new_name(self) -> str:
        self.names += 1
        return f"m{self.names}"

    def new_due_ms(self, unit: str) -> int:
        dues = self.dues.setdefault(unit, set())
        due_ms = int(self.now_ms()) + self.rng.choice(DELAYS_MS)
        while due_ms in dues:
            due_ms += 1
        dues.add(due_ms)
        return due_ms

    def send(self, machine: Machine) -> None:
        name = self.new_name()
        fields: dict[str, Any] = {"name": name}
        topic, draw = PLAIN, self.rng.random()
        if draw < 0.4:
            self.keys += 1
            fields["key"] = f"k{self.keys % 3}-{self.keys // (3 * KEY_SENDS)}"
            fields["on_key"] = self.rng.choice(["replace", "replace", "replace", "keep", "refuse"])
        elif draw < 0.55:
            topic, fields["order_key"] = ORDERED, self.rng.choice(["o1", "o2"])
        elif draw < 0.65:
            topic, fields["every_ms"] = SERIES, 1000 * self.rng.randint(1, 2)
            fields["times"] = self.rng.randint(1, 6)
        fields["due_ms"] = self.new_due_ms(fields.get("key", name))
        if topic == SERIES or self.rng.random() < 0.7:
            fields["id"] = name
        self.schedule(machine, topic, fields)

    def schedule_plain(self, machine: Machine, delay_ms: int) -> None:
        name = self.new_name()
        due_ms = int(self.now_ms()) + machine.clock.offset_ms + delay_ms
        self.schedule(machine, PLAIN, {"name": name, "due_ms": due_ms})

    def send_again(self, machine: Machine) -> None:
        """What was not answered, by its id."""
        if self.unheard:
            self.schedule(machine, *self.unheard.pop(self.rng.randrange(len(self.unheard))))

    def schedule(self, machine: Machine, topic: str, fields: dict[str, Any]) -> None:
        options: dict[str, Any] = {
            each: fields[each] for each in ("key", "on_key", "order_key", "id") if each in fields
        }
        if "every_ms" in fields:
            options["repeat"] = {"every": fields["every_ms"] / 1000, "times": fields["times"]}
        begin_ms, life = self.now_ms(), machine.epoch
        body = fields["name"].encode()
        answered, receipt, error = self.ask(
            machine, lambda: machine.broker.schedule(topic, body, due=fields["due_ms"], **options), "key_exists"
        )
        if error == "overloaded":
            return
        answer = str(receipt.outcome) if isinstance(receipt, Receipt) else receipt if answered else UNKNOWN
        self.calls.append(
            Send(
                begin_ms=begin_ms,
                end_ms=self.now_ms(),
                answer=answer,
                life=life,
                seq=receipt.seq if isinstance(receipt, Receipt) else None,
                **{each: value for each, value in fields.items() if each != "id"},
            )
        )
        if answer in ACCEPTED:
            placing = fields["name"], fields["due_ms"]
            self.known.append(Known(placing, receipt.handle, fields.get("key"), topic))
        elif answer == UNKNOWN and "id" in fields:
            self.unheard.append((topic, fields))

    def send_many(self, machine: Machine) -> None:
        """A batch: all of it is accepted, or nothing."""
        names = [self.new_name() for _ in range(self.rng.randint(2, 20))]
        dues = [self.new_due_ms(name) for name in names]
        rows = pa.record_batch(
            {"topic": [PLAIN] * len(names), "due_ms": pa.array(dues, pa.int64()), "body": [n.encode() for n in names]}
        )
        begin_ms, life = self.now_ms(), machine.epoch
        answered, accepted, _ = self.ask(machine, lambda: machine.broker.schedule_batch(rows))
        end_ms = self.now_ms()
        answers = [str(each) for each in accepted.outcomes] if answered else [UNKNOWN] * len(names)
        seqs = accepted.seqs.tolist() if answered else [None] * len(names)
        for name, due_ms, answer, seq in zip(names, dues, answers, seqs, strict=True):
            times: dict[str, Any] = {"begin_ms": begin_ms, "end_ms": end_ms, "life": life}
            self.calls.append(Send(answer=answer, name=name, due_ms=due_ms, seq=seq, **times))
        if answered:
            for name, due_ms, handle in zip(names, dues, accepted.handles(), strict=True):
                self.known.append(Known((name, due_ms), handle, None, PLAIN))

    # -- changing ------------------------------------------------------------------------------------------------------

    def choose(self) -> Known | None:
        """A message, mostly a late one."""
        if not self.known:
            return None
        return self.known[-min(len(self.known), 1 + int(self.rng.expovariate(1 / 12)))]

    def cancel_handed(self, machine: Machine) -> None:
        """What was handed out last."""
        newest = {each.placing: each for each in self.known}
        for placing in self.last_handed[-8:]:
            if placing in newest and machine in self.machines:
                self.cancel(machine, newest[placing])

    def cancel(self, machine: Machine, known: Known | None = None) -> None:
        if (known := known or self.choose()) is None:
            return
        key = known.key if self.rng.random() < 0.5 else None
        begin_ms, life, broker = self.now_ms(), machine.epoch, machine.broker
        answered, answer, _ = self.ask(
            machine, lambda: broker.cancel_key(known.topic, key) if key else broker.cancel(known.handle)
        )
        self.calls.append(
            Cancel(
                begin_ms=begin_ms,
                end_ms=self.now_ms(),
                answer=str(answer) if answered else UNKNOWN,
                life=life,
                target=None if key else known.placing,
                key=key,
            )
        )

    def move(self, machine: Machine) -> None:
        if (known := self.choose()) is None:
            return
        if known.topic != PLAIN:
            self.cancel(machine)  # a series that moves, or order, is not checked
            return
        key = known.key if self.rng.random() < 0.5 else None
        due_ms = self.new_due_ms(known.key or known.placing[0])
        begin_ms, life, broker = self.now_ms(), machine.epoch, machine.broker
        _, moved, _ = self.ask(
            machine,
            lambda: (
                broker.reschedule_key(known.topic, key, due=due_ms)
                if key
                else broker.reschedule(known.handle, due=due_ms)
            ),
        )
        assert moved is None or isinstance(moved, Rescheduled)
        receipt = moved.receipt if moved is not None else None
        self.calls.append(
            Move(
                begin_ms=begin_ms,
                end_ms=self.now_ms(),
                answer=str(moved.outcome) if moved is not None else UNKNOWN,
                life=life,
                target=None if key else known.placing,
                key=key,
                due_ms=due_ms,
                seq=receipt.seq if receipt else None,
            )
        )
        if receipt is not None and key is None:
            self.known.append(Known((known.placing[0], due_ms), receipt.handle, known.key, known.topic))

    # -- consuming -----------------------------------------------------------------------------------------------------

    def step(self, machine: Machine) -> None:
        self.ask(machine, machine.broker.step)

    def receive(self, machine: Machine) -> None:
        self.take(machine, self.rng.choice([PLAIN, PLAIN, ORDERED, SERIES]), GROUP)

    def receive_unwritten(self, machine: Machine) -> None:
        """What has just fallen due, handed out before the ready log has it; at once, some of it is changed."""

        def hand_out() -> None:
            parts = machine.broker.components
            parts.loader.step()
            while parts.dispatcher.step():
                pass

        if self.ask_to_read(machine, hand_out)[0] and machine in self.machines:
            self.receive(machine)
            if self.rng.random() < 0.5 and machine in self.machines:
                self.settle(machine)

    def take(self, machine: Machine, topic: str, group: str, limit: int | None = None) -> int:
        """Receive, and look at what came."""
        limit = limit or self.rng.choice([1, 7, 100])
        answered, rows, _ = self.ask_to_hand_out(machine, topic, group, limit)
        if not answered or not rows.num_rows:
            return 0
        at_ms, wall_ms = self.now_ms(), machine.clock.now_ms()
        self.check_lease(machine)
        for row in rows.select(["body", "due_ms", "seq"]).to_pylist():
            name = row["body"].decode()
            assert row["due_ms"] <= wall_ms, f"{name} is early, by the clock of machine {machine.number}"
            seen = Delivery(at_ms=at_ms, name=name, due_ms=row["due_ms"], seq=row["seq"], life=machine.epoch)
            self.seen[group].append(seen)
            self.last_handed.append(seen.placing)
        self.held.append(Held(machine, topic, group, rows))
        self.done["messages handed out"] += rows.num_rows
        self.log.append(f"            {[row.decode() for row in rows['body'].to_pylist()]}")
        return int(rows.num_rows)

    def ask_to_hand_out(self, machine: Machine, topic: str, group: str, limit: int) -> tuple[bool, Any, str]:
        """As :meth:`ask`; a former owner may hand out while its lease lasts."""
        claimed_s, epoch = self.world.objects.claimed_s, machine.epoch
        former = claimed_s.pop(epoch + 1, None)  # so it does not count as an answer
        try:
            return self.ask(machine, lambda: machine.broker.receive(topic, group, max_messages=limit))
        finally:
            if former is not None:
                claimed_s[epoch + 1] = former

    def check_lease(self, machine: Machine) -> None:
        now_s, epoch = self.world.loop.time() - 0.001, machine.epoch
        superseded_s = self.world.objects.claimed_s.get(epoch + 1)
        if superseded_s is not None:
            self.note("handed out by a former owner", machine)
            assert now_s < superseded_s + LEASE_S / machine.boot_rate, "a lease of before has lasted too long"
        assert epoch >= self.newest_handed, f"epoch {epoch} hands out after epoch {self.newest_handed} did"
        self.newest_handed = epoch

    def settle(self, machine: Machine) -> None:
        """Acknowledge some of what was handed out, and give some back."""
        mine = [each for each in self.held if each.machine is machine]
        if not mine:
            return
        held = self.rng.choice(mine)
        self.held.remove(held)
        count = self.rng.choice([0, held.rows.num_rows // 2, held.rows.num_rows, held.rows.num_rows])
        if count:
            self.ack(held, held.rows.slice(0, count))
        if count < held.rows.num_rows and machine in self.machines and self.rng.random() < 0.5:
            rest = held.rows.slice(count)
            delay_ms = self.rng.choice([0, 1_000, 20_000])
            self.ask(
                machine,
                lambda: machine.broker.nack(
                    held.topic, held.group, rest["lease"].to_numpy(), rest["offset"].to_numpy(), delay_ms
                ),
            )

    def settle_all(self, machine: Machine) -> None:
        for held in [each for each in self.held if each.machine is machine]:
            if held in self.held:
                self.held.remove(held)
                self.ack(held, held.rows)

    def ack(self, held: Held, rows: pa.RecordBatch) -> None:
        machine, begin_ms = held.machine, self.now_ms()
        leases, offsets = rows["lease"].to_numpy(), rows["offset"].to_numpy()
        answered, _, _ = self.ask(machine, lambda: machine.broker.ack(held.topic, held.group, leases, offsets))
        end_ms = self.now_ms()
        for row in rows.select(["body", "due_ms", "seq"]).to_pylist():
            self.seen[held.group].append(
                Ack(
                    begin_ms=begin_ms,
                    end_ms=end_ms,
                    answer="done" if answered else UNKNOWN,
                    life=machine.epoch,
                    name=row["body"].decode(),
                    due_ms=row["due_ms"],
                    seq=row["seq"],
                )
            )

    def seek(self, machine: Machine) -> None:
        where = self.rng.choice(["earliest", "latest"])
        self.ask(machine, lambda: machine.broker.seek(PLAIN, SEEKING, where))
        if machine in self.machines:
            self.take(machine, PLAIN, SEEKING, 100)

    def configure(self, machine: Machine) -> None:
        topic, tries = self.rng.choice(TOPICS), self.rng.choice(TRIES)
        self.tries[topic].add(tries)
        if self.ask(machine, lambda: machine.broker.set_group(topic, GROUP, tries=tries))[0]:
            self.tries[topic] = {tries}

    def base(self, machine: Machine) -> None:
        """A checkpoint that is a base."""

        def make() -> None:
            progress = machine.broker.components.progress
            progress.base_s = 0.0
            try:
                progress.checkpoint()
            finally:
                progress.base_s = 1e9

        if self.ask_to_read(machine, make)[0]:  # there may be nothing new, and nothing is answered
            self.done["bases"] += 1

    # -- what must hold ------------------------------------------------------------------------------------------------

    def check_state(self, machine: Machine) -> None:
        """A new owner has the settings, and the list of what is pending."""
        for topic in TOPICS if machine in self.machines and self.opened > 1 else ():
            answered, info, _ = self.ask_to_read(machine, partial(machine.broker.group_info, topic, GROUP))
            if answered:
                assert info.tries in self.tries[topic], f"tries of {topic}: {info.tries}, not {self.tries[topic]}"
        if machine not in self.machines:
            return
        answered, listed, _ = self.ask_to_read(machine, lambda: listed_by(machine))
        if not answered or self.is_superseded(machine):
            return
        certain, ended = self.pending_and_ended()
        far_ms = self.now_ms() + AHEAD_MS + 2 * self.skew_ms
        certain = {each for each in certain if each[1] > far_ms}
        assert certain <= listed, f"not listed: {sorted(certain - listed)[:5]}"
        assert not ended & listed, f"listed, and ended: {sorted(ended & listed)[:5]}"
        self.done["pending messages that were listed"] += len(certain)

    def ask_to_read(self, machine: Machine, call: Callable[[], Any]) -> tuple[bool, Any, str]:
        """As :meth:`ask`; former owners may answer, with what was."""
        try:
            return True, machine.call(call), ""
        except Crash:
            self.drop(machine)
            return False, None, "killed"
        except TarryError as error:
            return False, None, error.code

    def pending_and_ended(self) -> tuple[set[Placing], set[Placing]]:
        """Messages without a key that are pending, if they are not due; and those that have ended for good."""
        pending: set[Placing] = set()
        ended: set[Placing] = set()
        keys = {call.name: call.key for call in self.calls if isinstance(call, Send)}
        series = {call.name for call in self.calls if isinstance(call, Send) and call.every_ms}
        for call in self.calls:
            match call:
                case Cancel(target=(name, _)) if name in series:
                    pass  # its end is not that of the occurrence that it began with
                case Send(key=None, every_ms=0) if call.answer in ACCEPTED:
                    pending.add(call.placing)
                case Cancel(target=(name, due_ms)) if call.answer in ("done", UNKNOWN):
                    pending.discard((name, due_ms))
                    if call.answer == "done":
                        ended.add((name, due_ms))
                        if isinstance(call, Move) and keys[name] is None:
                            pending.add((name, call.due_ms))
        return pending - ended, ended

    def drain(self) -> None:
        """Deliver and acknowledge all that is left, at an owner whose store answers at once."""
        self.note("drain")
        self.is_draining = True
        for machine in list(self.machines):
            if machine is not self.machines[-1] or self.is_superseded(machine) or machine.broker.wait_fatal(0):
                self.drop(machine)
        if not self.machines or self.rng.random() < 0.7:
            self.drop(self.machines[-1]) if self.machines else None
            self.rate = 0.0
            self.world.sleep(5.0)
            assert self.claim(rate=0.0) is not None
        [machine] = self.machines
        machine.way.set_rate(0.0)
        machine.way.cut_until_s = machine.way.frozen_until_s = 0.0
        self.offsets_ms = [0]
        machine.clock.offset_ms = min(0, machine.clock.offset_ms)
        dues = [each.due_ms + each.every_ms * each.times for each in self.calls if isinstance(each, Send)]
        end_ms = max([*dues, *(each.due_ms for each in self.calls if isinstance(each, Move)), 0]) + 200_000
        came = 1
        while self.now_ms() < end_ms or came:
            self.world.jump(self.rng.choice([2.0, 40.0, 100.0]))
            machine.call(machine.broker.step)  # which renews the lease
            machine.call(machine.broker.step)
            came = 0
            for topic in TOPICS:
                while count := self.take_quietly(machine, topic):
                    came += count

    def check_counts(self) -> None:
        [machine] = self.machines
        for entry in machine.broker.pending():
            assert entry.pending == 0, (
                f"{entry.pending} messages of {entry.topic} are pending for ever; listed: {sorted(listed_by(machine))}"
            )

    def take_quietly(self, machine: Machine, topic: str) -> int:
        count = self.take(machine, topic, GROUP, 1000)
        if count:
            held = self.held.pop()
            self.ack(held, held.rows)
        return count

    def check_history(self) -> None:
        for group, seen in self.seen.items():
            is_moved = group == SEEKING
            events = [*self.calls, *(each for each in seen if not is_moved or isinstance(each, Delivery))]
            report = check(events, drained=not is_moved, ahead_ms=AHEAD_MS, skew_ms=self.skew_ms)
            assert not report.violations, "\n".join(map(str, report.violations[:3]))
            assert not report.counts["stale"], "a former owner hands out what a later one has had acknowledged"
            self.done.update({f"history: {name}": count for name, count in report.counts.items() if not is_moved})


def _is_late_trial(error: TarryError) -> bool:
    """A store that carries the trial's PUT out after its DELETE looks as if it ignored conditions; it is refused."""
    return error.code == "fatal" and "after the deletion of trial/" in str(error)


def listed_by(machine: Machine) -> set[Placing]:
    """What a broker lists as pending."""
    rows: list[dict[str, Any]] = []
    cursor = None
    while True:
        page = machine.broker.list_pending(limit=1000, cursor=cursor)
        rows += page.rows.select(["body", "due_ms"]).to_pylist()
        cursor = page.cursor
        if cursor is None:
            return {(row["body"].decode(), row["due_ms"]) for row in rows}


WORK: dict[str, tuple[int, Callable[[Lives, Machine], None]]] = {
    "send": (10, Lives.send),
    "send many": (2, Lives.send_many),
    "send again": (3, Lives.send_again),
    "cancel": (5, Lives.cancel),
    "move": (4, Lives.move),
    "step": (6, Lives.step),
    "receive": (4, Lives.receive),
    "receive unwritten": (6, Lives.receive_unwritten),
    "settle": (5, Lives.settle),
    "seek": (1, Lives.seek),
    "configure": (1, Lives.configure),
    "base": (2, Lives.base),
}
FAULTS: dict[str, tuple[int, Callable[[Lives], None]]] = {
    "kill": (6, Lives.kill),
    "hand out and kill": (4, Lives.hand_out_and_kill),
    "race": (6, Lives.race),
    "stop": (3, Lives.stop),
    "supersede": (6, Lives.supersede),
    "stand still": (5, Lives.stand_still),
    "cut off": (2, Lives.cut_off),
    "set the clock": (1, Lives.step_clock),
    "all stand": (2, Lives.stand),
}


def simulate(seed: int, directory: Path, crashes: int = CRASHES) -> Counter[str]:
    """Live through so many faults; return what happened. The directory is removed, also after a failure.

    Raises:
        AssertionError: something does not hold. Anything else: it was not to be raised.
    """
    try:
        return Lives(seed, directory).run(crashes)
    finally:
        shutil.rmtree(directory, ignore_errors=True)
