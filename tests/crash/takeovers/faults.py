"""What happens to machines: each fault is followed by another owner, mostly."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from tests.crash.takeovers.checks import Checks
from tests.crash.takeovers.cluster import NESTED, Cluster
from tests.crash.takeovers.consumers import Consumers
from tests.crash.takeovers.jobs import Jobs
from tests.crash.takeovers.machines import Machine
from tests.crash.takeovers.producers import Producers
from tests.crash.takeovers.standbys import StandbyMachine

PAUSES_S = (0.0, 0.0, 0.02, 0.2, 0.5, 1.0, 2.2, 4.0)
STILL_S = (0.5, 2.0, 6.0)


@dataclass
class Faults:
    """``work(times)`` does what goes on between faults."""

    _cluster: Cluster
    _producers: Producers
    _consumers: Consumers
    _jobs: Jobs
    _checks: Checks
    _work: Callable[[int], None]

    def __post_init__(self) -> None:
        self._rng, self._world = self._cluster.rng, self._cluster.world

    def amid_call(self, waiting: Machine) -> None:
        """Have something happen while a call of a machine waits."""
        draw = self._rng.random()
        if draw < 0.2:
            self._cluster.note("killed amid a call", waiting)
            waiting.kill()
        elif draw < 0.25:
            self.trouble_standby()
        elif draw < 0.4:
            self._freeze(waiting)
            self.supersede()
        elif draw < 0.65:
            self.supersede()
        elif draw < 0.8:
            self._cut(waiting)
        if len(self._world.stack) < NESTED and len(self._cluster.machines) > 1:
            self._work(self._rng.randint(0, 4))

    # -- ends ----------------------------------------------------------------------------------------------------------

    def kill(self) -> None:
        self._cluster.drop(self._cluster.owner())
        self._pause()
        self._cluster.succeed()

    def stop(self) -> None:
        """A clean stop; the next owner may come at once."""
        machine = self._cluster.owner()
        self._cluster.ask_former(machine, machine.broker.close)
        self._cluster.drop(machine)
        self._pause()
        self._cluster.succeed()

    def supersede(self) -> None:
        """Another claims, though the owner lives."""
        self._cluster.succeed()

    def hand_out_and_kill(self) -> None:
        """What was just handed out is in no log; whoever comes next is asked to cancel it."""
        former = self._cluster.owner()
        self._fall_due(former)
        self._consumers.receive_all_fired(former)
        self._cluster.drop(former)
        if (claimed := self._cluster.succeed(is_fast=True)) is not None:
            self._producers.cancel_handed(claimed)

    def race(self) -> None:
        """Two owners have the same to hand out, settle and change, the former one until its lease ends."""
        former = self._cluster.owner()
        self._fall_due(former)
        if self._rng.random() < 0.7:
            self._consumers.receive_all_fired(former)
            self._consumers.settle_all(former)
        if (claimed := self._cluster.succeed(is_fast=True)) is not None:
            self._race(former, claimed)

    def settle_elsewhere(self) -> None:
        """What the former owner handed out is acknowledged at the next one, where its offsets may be others'."""
        former = self._cluster.owner()
        self._fall_due(former)
        self._consumers.receive_all_fired(former)
        if (claimed := self._cluster.succeed(is_fast=True)) is None:
            return
        for _ in range(self._rng.randint(1, 3)):
            self._producers.send_soon(claimed, 0)
        self._world.sleep(2.0 + 0.3 * self._rng.random())
        self._consumers.receive_all_fired(claimed)
        for _ in range(self._rng.randint(1, 3)):
            self._consumers.settle_elsewhere(claimed)

    def stand_still(self) -> None:
        """The owner stands still while the look for a round is on its way; another claims, and it goes on."""
        former = self._cluster.owner()
        self._fall_due(former)
        former.way.still_s = 5.0 * self._rng.random()
        former.beat()
        self._world.sleep(0.2)
        if self._rng.random() < 0.5:
            self._pause()
        claimed = self._cluster.succeed(is_fast=self._rng.random() < 0.7)
        left_s = former.way.frozen_until_s - self._world.loop.time()
        self._world.sleep(max(0.0, left_s) + 0.05 * self._rng.random())
        self._consumers.receive_all_fired(former)
        self._race(former, claimed)

    # -- bases ---------------------------------------------------------------------------------------------------------

    def trim_and_kill(self) -> None:
        """All is deleted that a base, the store and consumers make superfluous; the next owner begins from there."""
        machine = self._cluster.owner()
        self._trim(machine)
        if self._rng.random() < 0.5:
            self._pause()
        self._cluster.drop(machine)
        self._cluster.succeed()

    def end_amid_base(self) -> None:
        """An owner stands still amid a base, and goes on when it is none, or ends there; so does the next one."""
        former = self._cluster.owner()
        self._producers.send_many(former)

        def take_over(waiting: Machine) -> None:
            self._freeze(waiting)
            if (claimed := self._cluster.claim(is_fast=True)) is not None:
                self._producers.send_many(claimed)

        ends = [take_over, take_over, Machine.kill]
        self._cluster.ask_former(former, former.make_base, self._rng.choice(ends))
        self._pause()
        self._cluster.drop(self._cluster.owner())
        self._cluster.succeed()

    def end_behind_base(self) -> None:
        """An owner hands out, and ends, when a base of it counts, and before any other round: nothing else is known."""
        former = self._cluster.owner()
        self._fall_due(former)

        def hand_out(waiting: Machine) -> None:
            self._consumers.receive_all_fired(waiting)
            self._cluster.drop(waiting)

        self._cluster.ask_former(former, former.make_base, hand_out, until_manifest=True)
        self._cluster.drop(former)
        if (claimed := self._cluster.claim(is_fast=True)) is not None:
            self._producers.cancel_handed(claimed)

    # -- standbys ------------------------------------------------------------------------------------------------------

    def tell_standby(self) -> None:
        """A standby is told to take over; until it does, its owner goes on, and so it does after that."""
        owner, standby = self._cluster.owner(), self._standby()
        if self._rng.random() < 0.7:
            standby.way.be_well()
            self._world.sleep(self._rng.choice([0.1, 0.5]))
        if self._rng.random() < 0.5:
            self._fall_due(owner)
        standby.tell()
        for _ in range(self._rng.randint(1, 4)):
            self._producers.send(owner)
        if (claimed := self._cluster.until_taken_over(standby, 10.0)) is not None:
            self._race(owner, claimed)

    def trim_and_tell(self) -> None:
        """A standby that has followed for long takes over when a base has taken the place of what it has read."""
        standby = self._standby()
        standby.way.be_well()
        self._world.sleep(self._rng.choice([0.5, 12.0]))
        self._trim(self._cluster.owner())
        self._world.sleep(self._rng.choice([0.3, 12.0]))
        standby.tell()
        self._cluster.until_taken_over(standby, 10.0)

    def late_round(self) -> None:
        """A round arrives when its epoch has ended, a standby reads it all the same, and then has to take over."""
        owner, standby = self._cluster.owner(), self._standby()
        standby.way.be_well()
        self._world.sleep(self._rng.choice([0.5, 3.0]))
        owner.way.late_s = 0.1 + 0.5 * self._rng.random()
        owner.beat()
        self._world.sleep(0.01)
        if (claimed := self._cluster.claim(is_fast=True)) is not None:
            for _ in range(self._rng.randint(0, 3)):
                self._producers.send(claimed)
        self._world.sleep(self._rng.choice([0.6, 1.5, 3.0]))
        for each in self._cluster.owners():
            self._cluster.drop(each)
        if (claimed := self._cluster.until_taken_over(standby, 60.0)) is not None:
            self._work(self._rng.randint(1, 4))

    def end_amid_takeover(self) -> None:
        """A standby is killed, or stands still, at some request of its takeover; another one goes on."""
        owner, standby = self._cluster.owner(), self._standby()
        self._world.sleep(self._rng.choice([0.5, 3.0]))
        standby.way.stop_in(self._rng.randint(1, 30), self._rng.choice([math.inf, 1.0, 4.0]))
        if self._rng.random() < 0.6:
            self._cluster.drop(owner)
        standby.tell()
        self._cluster.until_taken_over(standby, self._rng.choice([1.0, 5.0, 20.0]))
        if standby.way.is_dead:
            self._cluster.drop(standby)
        self._cluster.succeed()

    def trouble_standby(self) -> None:
        """A standby is killed, cut off, or stands still; or a new one begins to follow."""
        standbys, draw = self._cluster.standbys(), self._rng.random()
        if not standbys or (draw < 0.3 and len(standbys) < self._cluster.standbys_max):
            self.add_standby()
        elif draw < 0.5:
            self._cluster.note("standby killed", standbys[0])
            self._cluster.drop(standbys[0])
        elif draw < 0.7:
            self._cut(standbys[0])
        else:
            self._freeze(standbys[0])

    def add_standby(self) -> None:
        """Another one stands by, if a life has any."""
        if len(self._cluster.standbys()) < self._cluster.standbys_max:
            self._cluster.stand_by(by_itself=self._rng.random() < 0.7)

    def _standby(self) -> StandbyMachine:
        standbys = self._cluster.standbys()
        return self._rng.choice(standbys) if standbys else self._cluster.stand_by()

    # -- no ends -------------------------------------------------------------------------------------------------------

    def cut_off(self) -> None:
        self._cut(self._cluster.owner())

    def step_clock(self) -> None:
        """A wall clock is set."""
        machine = self._cluster.owner()
        machine.clock.offset_ms = self._rng.choice(self._cluster.offsets_ms)
        self._cluster.note(f"clock set to {machine.clock.offset_ms:+} ms", machine)

    def stand(self) -> None:
        """All of them stand still."""
        self._world.jump(self._rng.choice([3.0, 35.0, 90.0]) * self._rng.random())

    # -- parts of them -------------------------------------------------------------------------------------------------

    def _trim(self, machine: Machine) -> None:
        before = machine.segments()
        for _ in range(self._rng.randint(1, 3)):
            self._producers.send_many(machine)
        self._consumers.consume(machine)
        self._jobs.commit_intake(machine)
        for _ in range(self._rng.randint(1, 2)):
            self._cluster.ask_former(machine, machine.make_base)
            self._cluster.ask(machine, machine.broker.step)
        self._cluster.done["segments deleted"] += len(before - machine.segments()) if not machine.is_dead else 0

    def _pause(self) -> None:
        self._world.sleep(self._rng.choice(PAUSES_S))

    def _fall_due(self, machine: Machine) -> None:
        """Have some messages fall due, mostly."""
        self._cluster.ask(machine, machine.broker.step)
        for _ in range(self._rng.randint(1, 4)):
            self._producers.send_soon(machine, self._rng.choice([0, 300, 900, 1_500]))
        self._world.sleep(1.5 * self._rng.random())

    def _race(self, *machines: Machine | None) -> None:
        """Ask some machines in turn, which may end on the way."""
        seek, receive = self._consumers.seek, self._consumers.receive_fired
        consumers, producers = self._consumers, self._producers
        others = [consumers.settle_all, consumers.settle_elsewhere, producers.cancel_handed, self._checks.check_list]
        for _ in range(self._rng.randint(2, 8)):
            for machine in self._rng.sample(machines, len(machines)):
                if machine is not None and not machine.is_dead:
                    self._cluster.note("races", machine)
                    self._rng.choice([seek, seek, receive, receive, *others])(machine)
            self._world.sleep(0.6 * self._rng.random())

    def _freeze(self, machine: Machine) -> float:
        """Have its process take no notice of any answer for a while; return until when."""
        machine.way.frozen_until_s = self._world.loop.time() + self._rng.choice(STILL_S) * self._rng.random()
        self._cluster.note("frozen", machine)
        return machine.way.frozen_until_s

    def _cut(self, machine: Machine) -> None:
        """Have its store give no answer for a while."""
        machine.way.cut_until_s = self._world.loop.time() + self._rng.choice(STILL_S) * self._rng.random()
        self._cluster.note("cut off", machine)


FAULTS: dict[str, tuple[int, Callable[[Faults], None]]] = {
    "kill": (6, Faults.kill),
    "stop": (3, Faults.stop),
    "supersede": (4, Faults.supersede),
    "hand out and kill": (4, Faults.hand_out_and_kill),
    "race": (6, Faults.race),
    "settle elsewhere": (3, Faults.settle_elsewhere),
    "stand still": (6, Faults.stand_still),
    "trim and kill": (5, Faults.trim_and_kill),
    "end amid a base": (3, Faults.end_amid_base),
    "end behind a base": (2, Faults.end_behind_base),
    "tell a standby": (3, Faults.tell_standby),
    "trim and tell a standby": (2, Faults.trim_and_tell),
    "late round": (3, Faults.late_round),
    "end amid a takeover": (3, Faults.end_amid_takeover),
    "trouble with a standby": (2, Faults.trouble_standby),
    "cut off": (2, Faults.cut_off),
    "set the clock": (1, Faults.step_clock),
    "all stand": (2, Faults.stand),
}
"""Faults with their weights."""
