"""A life: machines and clients of one seed, from fault to fault, and the check of what was seen."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable, Collection
from pathlib import Path

from tests.crash.takeovers.checks import Checks
from tests.crash.takeovers.cluster import Cluster
from tests.crash.takeovers.consumers import Consumers
from tests.crash.takeovers.faults import FAULTS, PAUSES_S, Faults
from tests.crash.takeovers.jobs import Jobs
from tests.crash.takeovers.machines import Machine
from tests.crash.takeovers.producers import Producers
from tests.takeover.events import Move, Send

CRASHES = 10
"""Takeovers in one life, at least."""
OPERATIONS = 14
"""At most so many between two faults."""
REST_MS = 200_000
"""Longer than anything waits that is due: leases, retries, clocks that are wrong."""


class Life:
    """One run, of one seed, in a directory of its own."""

    def __init__(self, seed: int, directory: Path, faults: Collection[str] = ()) -> None:
        self.seed, self._kinds = seed, {name: FAULTS[name] for name in faults or FAULTS}
        self.cluster = cluster = Cluster(seed, directory)
        self._rng, self._world = cluster.rng, cluster.world
        self._consumers = consumers = Consumers(cluster)
        producers = Producers(cluster)
        jobs = Jobs(cluster, producers)
        self._checks = Checks(cluster)
        self._faults = Faults(cluster, producers, consumers, jobs, self._checks, self.work)
        cluster.on_claim, cluster.on_interrupt = self._checks.check_owner, self._faults.amid_call
        self._work: dict[str, tuple[int, Callable[[Machine], None]]] = {
            "send": (10, producers.send),
            "send many": (2, producers.send_many),
            "send again": (3, producers.send_again),
            "cancel": (5, producers.cancel),
            "move": (4, producers.move),
            "step": (6, lambda machine: self._ask_to_step(machine)),
            "receive": (4, consumers.receive),
            "receive what was fired": (6, consumers.receive_fired),
            "settle": (5, consumers.settle),
            "settle elsewhere": (1, consumers.settle_elsewhere),
            "consume": (1, consumers.consume),
            "seek": (1, consumers.seek),
            "configure": (1, consumers.configure),
            "list": (1, self._checks.check_list),
            "base": (2, self._make_base),
            "load a job": (1, jobs.load),
            "cancel a job": (1, jobs.cancel),
            "pipeline": (1, jobs.commit_intake),
            "stand by": (1, lambda _: self._faults.add_standby()),
            "look at standbys": (1, lambda _: self._look_at_standbys()),
        }

    def run(self, crashes: int = CRASHES) -> Counter[str]:
        """Live through so many takeovers; return what happened how often. Raise what must not be."""
        cluster = self.cluster
        with self._world.attached():
            try:
                cluster.begin()
                while cluster.takeovers < crashes:
                    self.work(self._rng.randint(1, OPERATIONS))
                    name = self._choose(self._kinds)
                    cluster.note(name)
                    FAULTS[name][1](self._faults)
                self._checks.check_all(self._drain())
            except BaseException as error:
                error.add_note(f"seed {self.seed}; the last that happened:\n" + "\n".join(cluster.log[-60:]))
                raise
            finally:
                cluster.kill_all()
        cluster.done["takeovers"] = cluster.takeovers
        return cluster.done

    def work(self, times: int) -> None:
        """Have clients do something, mostly with the owner."""
        for _ in range(times):
            name, machine = self._choose(self._work), self.cluster.any_machine()
            self.cluster.note(name, machine)
            self._work[name][1](machine)
            if not self._world.stack:
                self._world.sleep(self._rng.choice(PAUSES_S) * self._rng.random())

    def _choose(self, weighted: dict[str, tuple[int, Callable[..., None]]]) -> str:
        return self._rng.choices(list(weighted), [weight for weight, _ in weighted.values()])[0]

    def _look_at_standbys(self) -> None:
        for standby in self.cluster.standbys():
            self.cluster.check_standby(standby)

    def _ask_to_step(self, machine: Machine) -> None:
        self.cluster.ask(machine, machine.broker.step)

    def _make_base(self, machine: Machine) -> None:
        if not self.cluster.ask_former(machine, machine.make_base).error:  # there may be nothing new to write
            self.cluster.note("base made", machine)

    def _drain(self) -> Machine:
        """Deliver and acknowledge all that is left, at an owner whose store answers at once."""
        cluster = self.cluster
        cluster.note("drain")
        cluster.is_calm, cluster.rate, cluster.offsets_ms = True, 0.0, [0]
        cluster.open_claimed()
        owners = cluster.owners()
        last = owners[-1] if self._rng.random() < 0.3 and owners else None
        for machine in owners:
            if machine is not last or cluster.is_superseded(machine) or machine.broker.wait_fatal(0):
                cluster.drop(machine)
        for standby in cluster.standbys():
            standby.way.be_well()
        self._world.sleep(5.0)
        machine = self._checks.check_succession()
        machine.clock.offset_ms = min(0, machine.clock.offset_ms)
        calls = cluster.history.calls
        dues = [each.due_ms + each.every_ms * each.times for each in calls if isinstance(each, Send)]
        end_ms = max([cluster.now_ms(), *dues, *(each.due_ms for each in calls if isinstance(each, Move))]) + REST_MS
        came = 1
        while cluster.now_ms() < end_ms or came:
            self._world.jump(self._rng.choice([2.0, 40.0, 100.0]))
            machine.call(machine.broker.step)  # which renews the lease
            machine.call(machine.broker.step)
            came = self._consumers.drain(machine)
        return machine


def simulate(seed: int, directory: Path, crashes: int = CRASHES, faults: Collection[str] = ()) -> Counter[str]:
    """Live through so many takeovers; return what happened. The directory is removed, also after a failure.

    ``faults``: names of the only ones; of all, if there are none.

    Raises:
        AssertionError: something does not hold. Anything else: it was not to be raised.
    """
    try:
        return Life(seed, directory, faults).run(crashes)
    finally:
        shutil.rmtree(directory, ignore_errors=True)
