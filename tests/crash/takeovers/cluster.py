"""The machines of a life: who lives, who claims, and how a broker is asked."""

from __future__ import annotations

import math
import random
import shutil
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from tarry.base.errors import KeyExistsError, TarryError
from tarry.log.objects.lease import LEASE_S
from tests.crash.takeovers.history import GROUP, PLAIN, SEEKING, TOPICS, History
from tests.crash.takeovers.machines import START_MS, Machine
from tests.crash.takeovers.standbys import StandbyMachine
from tests.crash.takeovers.world import VirtualWorld
from tests.faults import Crash
from tests.takeover.events import UNKNOWN, Claim

M = TypeVar("M", bound=Machine)
HOUR_MS = 3_600_000
CLAIMS = 20
"""So many attempts, one after the other, do not fail."""
NESTED = 3
"""At most so many calls inside of one another."""
INTERRUPTED = 0.2
"""Part of the calls amid which something happens."""
PLANNED_IN = 30
"""At such a request, at the latest, something happens that was planned; at the first two as often."""
KEPT = 3
"""So many directories of killed machines are kept."""
LOST = ("ownership_lost", "closed", "fatal")
"""Codes of errors after which a broker is of no use."""


class Answer(NamedTuple):
    """Answer to a call. ``error``: code of the error that came in its place; "": there was none."""

    value: Any = None
    error: str = ""

    @property
    def word(self) -> str:
        """The answer as an event has it."""
        return UNKNOWN if self.error else str(self.value)


class Cluster:
    """Machines of one world, the newest last; only those live that are in :attr:`machines`.

    ``on_claim`` is called with each new owner, ``on_interrupt`` with a machine while a call of it waits.
    """

    def __init__(self, seed: int, directory: Path) -> None:
        self.rng = rng = random.Random(seed)
        self.world = VirtualWorld(directory, rng, self._interrupt)
        self.history = History()
        self.done: Counter[str] = Counter()
        """What happened how often."""
        self.log: list[str] = []
        """The same in order, for a failure."""
        self.rate = rng.choice([0.0, 0.01, 0.05, 0.15])
        """Of requests that fail, in each of the ways in which they do."""
        self.offsets_ms = [-2000, 0, 2000] if rng.random() < 0.9 else [0, 0, HOUR_MS]
        self.skew_ms = max(map(abs, self.offsets_ms)) + 2000
        """By so much wall clocks may be wrong."""
        self.machines: list[Machine] = []
        self.opened = self.takeovers = 0
        self.is_calm = True
        """Nothing comes between: at the beginning, and at the end."""
        self.standbys_max = rng.choice([0, 1, 1, 2])
        self.on_claim: Callable[[Machine], None] = lambda machine: None
        self.on_interrupt: Callable[[Machine], None] = lambda machine: None
        self._planned: Callable[[Machine], object] | None = None

    def note(self, what: str, machine: Machine | None = None, more: object = "") -> None:
        self.done[what] += 1
        where = f" at {machine.number}, epoch {machine.epoch}" if machine is not None else ""
        indent = "  " * len(self.world.stack)
        self.log.append(f"  {self.world.loop.time():9.3f} {indent}{what}{where}{f': {more}' if more else ''}")

    def now_ms(self) -> float:
        """A millisecond after the last event: no two are at one time."""
        self.world.jump(0.001)
        return START_MS + self.world.loop.time() * 1000

    # -- who lives -----------------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Have a first machine claim, and make all groups."""
        machine = self.claim(rate=0.0)
        assert machine is not None
        self.is_calm = False
        for topic in TOPICS:
            machine.call(partial(machine.broker.receive, topic, GROUP))
        machine.call(partial(machine.broker.receive, PLAIN, SEEKING))

    def claim(self, rate: float | None = None, *, is_fast: bool = False) -> Machine | None:
        """Have another machine take over; None: it did not. ``is_fast``: no request of it takes any time."""
        machine = self._new(Machine, self.rate if rate is None else rate)
        if is_fast:
            machine.way.be_fast()
        self.note(f"claim (clock {machine.clock.offset_ms:+} ms)", machine)
        return self._open(machine, self.now_ms())

    def stand_by(self, *, by_itself: bool = True) -> StandbyMachine:
        """Have another machine stand by. ``by_itself``: it takes over without being told, too."""
        machine = self._new(StandbyMachine, self.rate)
        machine.follow("auto" if by_itself else "manual")
        self.note("stands by", machine)
        return machine

    def succeed(self, *, is_fast: bool = False) -> Machine | None:
        """Have some machine take over, whether the owner lives or not: one that stands by, or another."""
        standbys = self.standbys()
        if not standbys or self.rng.random() < 0.4:
            return self.claim(is_fast=is_fast)
        standby = self.rng.choice(standbys)
        if is_fast:
            standby.way.be_well()
        if is_fast or standby.takeover == "manual" or self.rng.random() < 0.5:
            self.note("told", standby)
            standby.tell()
        return self.until_taken_over(standby, self.rng.choice([0.5, 3.0, 8.0, 30.0]))

    def until_taken_over(self, standby: StandbyMachine, most_s: float) -> Machine | None:
        """Wait for the claim of a machine that stands by; None: it did not come."""
        waiting = self.world.stack[-1] if self.world.stack else None
        self.world.wait(lambda: standby.has_ended or standby.is_dead, most_s, waiting)
        self.open_claimed()
        return standby if standby in self.machines and standby.epoch else None

    def open_claimed(self) -> None:
        """Open the brokers that have claimed while they stood by."""
        for each in list(self.machines):
            if isinstance(each, StandbyMachine) and each.has_ended and not each.epoch and each not in self.world.stack:
                self.note("claimed by a standby", each)
                self._open(each, self.now_ms())

    def standbys(self) -> list[StandbyMachine]:
        """Return those that follow."""
        return [each for each in self.machines if isinstance(each, StandbyMachine) and each.stands_by]

    def _new(self, kind: type[M], rate: float) -> M:
        """Make a machine; now and then it is one that was killed, started again."""
        self.opened += 1
        left, directory = self.world.left, self.world.directory / str(self.opened)
        if left and self.rng.random() < 0.4:
            directory = left.pop(self.rng.randrange(len(left)))
        while len(left) > KEPT:
            shutil.rmtree(left.pop(0), ignore_errors=True)
        offset_ms, boot_rate = self.rng.choice(self.offsets_ms), self.rng.choice([0.98, 1.0, 1.02])
        machine = kind(self.world, self.opened, offset_ms, boot_rate, rate, directory)
        self.machines.append(machine)
        return machine

    def _open(self, machine: Machine, begin_ms: float) -> Machine | None:
        """Have a machine claim, if it has not yet, and open its broker."""
        is_planned = not self.is_calm and len(self.world.stack) < NESTED - 1 and self.rng.random() < INTERRUPTED
        if is_planned:
            self.world.interrupt_s = self.world.loop.time() + self.rng.choice([0.0, 0.1, 0.5]) * self.rng.random()
        try:
            machine.call(machine.open)
        except (TarryError, Crash) as error:
            if isinstance(error, TarryError) and error.code not in ("ownership_lost", "unavailable"):
                raise
            self.note("claim failed", machine, error)
            self.drop(machine)
            return None
        finally:
            if is_planned and not self.world.stack:
                self.world.interrupt_s = None
        begin_ms = min(begin_ms, START_MS + 1000 * self.world.objects.claimed_s[machine.epoch])
        self.history.calls.append(Claim(begin_ms=begin_ms, end_ms=self.now_ms(), life=machine.epoch))
        self.takeovers += machine.epoch > 1
        self.note("claimed", machine)
        self.on_claim(machine)
        return machine if machine in self.machines else None

    def drop(self, machine: Machine) -> None:
        """Kill a machine, if it lives."""
        if isinstance(machine, StandbyMachine):
            self.check_standby(machine)
        if machine in self.machines:
            self.machines.remove(machine)
        machine.kill()

    def check_standby(self, machine: StandbyMachine) -> None:
        """Nothing is damaged, so a standby must not find that it is."""
        if not machine.is_dead and not machine.has_ended:
            problem = machine.role.get("problem")
            assert problem is None, f"standby {machine.number} cannot follow: {problem}"

    def kill_all(self) -> None:
        for machine in self.machines:
            machine.kill()
        self.machines.clear()

    def owner(self) -> Machine:
        """Return the newest that can be called; a new one if there is none."""
        for _ in range(CLAIMS):
            self.open_claimed()
            if free := self._free():
                return free[-1]
            if (claimed := self.succeed()) is not None:
                return claimed
        raise AssertionError(f"nobody could claim the logs, {CLAIMS} times")

    def any_machine(self) -> Machine:
        """Return mostly the owner, now and then one of before."""
        free = self._free()
        return self.rng.choice(free) if free and self.rng.random() < 0.25 else self.owner()

    def owners(self) -> list[Machine]:
        """Return those that live and have claimed, the newest last."""
        return sorted((each for each in self.machines if each.epoch), key=lambda each: each.epoch)

    def _free(self) -> list[Machine]:
        return [each for each in self.owners() if each not in self.world.stack]

    def is_superseded(self, machine: Machine) -> bool:
        return machine.epoch + 1 in self.world.objects.claimed_s

    def check_lease(self, machine: Machine, at_ms: float) -> None:
        """Check that a lease of a machine may have lasted: it was not superseded longer ago."""
        superseded_s = self.world.objects.claimed_s.get(machine.epoch + 1, math.inf)
        late_s = (at_ms - START_MS) / 1000 - superseded_s - LEASE_S / machine.boot_rate
        assert late_s < 0, f"a lease of epoch {machine.epoch} has lasted {late_s:.3f} s too long"

    # -- calls ---------------------------------------------------------------------------------------------------------

    def ask(self, machine: Machine, call: Callable[[], Any]) -> Answer:
        """Call a broker; now and then something comes between.

        Raises:
            AssertionError: it answered, and another had claimed the log before it was asked.
        """
        was_superseded = self.is_superseded(machine)
        answer = self.ask_former(machine, call)
        if was_superseded and not answer.error:
            raise AssertionError(f"epoch {machine.epoch} answered {answer.value!r}, and had ended before it was asked")
        return answer

    def ask_former(
        self,
        machine: Machine,
        call: Callable[[], Any],
        planned: Callable[[Machine], object] | None = None,
        *,
        until_manifest: bool = False,
    ) -> Answer:
        """Call a broker as :meth:`ask` does, for what a former owner may answer, too.

        ``planned``: what comes between, at one of its requests; with ``until_manifest``, once a base of it counts.
        """
        if machine.is_dead:
            return Answer(error="killed")
        if planned and until_manifest:
            self._planned, machine.way.until_manifest = planned, True
        elif planned:
            self._planned, machine.way.requests_left = planned, self.rng.choice([1, 2, self.rng.randint(3, PLANNED_IN)])
        elif not self.is_calm and len(self.world.stack) < NESTED - 1 and self.rng.random() < INTERRUPTED:
            pause_s = self.rng.choice([0.0, 0.02, 0.3, 1.0]) * self.rng.random()
            self.world.interrupt_s = self.world.loop.time() + pause_s
        try:
            return Answer(machine.call(call))
        except Crash:
            self.drop(machine)
            return Answer(error="killed")
        except KeyExistsError as error:
            return Answer(error.code)  # which is an answer
        except TarryError as error:
            self.note(f"error {error.code}", machine, error)
            if error.code == "corrupt":
                raise
            if error.code in LOST and self.rng.random() < 0.7:
                self.drop(machine)
            return Answer(error=error.code)
        finally:
            if not self.world.stack:
                self.world.interrupt_s, self._planned, machine.way.requests_left = None, None, 0
                machine.way.until_manifest = False

    def _interrupt(self) -> None:
        planned, self._planned = self._planned, None
        (planned or self.on_interrupt)(self.world.stack[-1])
