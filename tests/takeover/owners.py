"""Machines of a campaign: each has a directory, a way to the store with a proxy, and one broker at a time."""

from __future__ import annotations

import asyncio
import os
import signal
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote

from tarry.base.errors import TarryError
from tarry.cli.exits import ExitCode
from tarry.log.objects.role import read_role
from tarry_demo.broker_process import BrokerProcess
from tests.engines.versitygw import BUCKET, environment_at
from tests.takeover import broker
from tests.takeover.broker import BASE, SKEW
from tests.takeover.proxy import Proxy, Request

END_S = 30.0
"""So long a broker may take to end that owns the logs no longer, once it goes on and reaches the store."""
ATTEMPTS = 3
"""Starts that may fail in a row."""
ALLOWED_CODES = (ExitCode.UNAVAILABLE, ExitCode.OWNERSHIP_LOST, None)
"""Starts may fail with these: the store gives no answer, or another one was faster. None: it took too long."""


def area(request: Request) -> str:
    """Part of the bucket that a request is about."""
    names = request.body.decode("latin-1") if request.kind == "DELETE" else request.target
    return "log" if "logs/shard" in unquote(names) else "store"


class CampaignBroker(BrokerProcess):
    """A broker that is made for a campaign."""

    MODULE = broker.__name__


@dataclass(eq=False)
class Life:
    """One life of a broker, by its number; ``address`` is where clients find it."""

    number: int
    machine: Machine
    process: BrokerProcess
    why: str
    """The fault that it followed."""
    fault_ms: float
    """Time of that fault."""
    address: str = ""
    claimed_ms: tuple[float, float] = (0.0, 0.0)
    """Beginning of its process, and when it served."""
    stood_by: bool = False
    """It stood by before."""
    exit_code: int | None = None
    over: asyncio.Event = field(default_factory=asyncio.Event)
    """Its process has ended, or is about to be ended."""

    @property
    def label(self) -> str:
        """How it came to serve, for people."""
        return f"{self.why}, standby" if self.stood_by else self.why

    def send_signal(self, number: signal.Signals) -> None:
        assert self.process.pid is not None
        os.kill(self.process.pid, number)

    def kill(self) -> None:
        self.process.kill()
        self.exit_code = -signal.SIGKILL
        self.over.set()

    async def stop(self) -> None:
        """Stop it as an operator does, and wait for its end."""
        self.exit_code = await asyncio.to_thread(self.process.stop)
        self.over.set()

    async def ends_by_itself(self) -> bool:
        """Wait for the end of one that owns the logs no longer; False: it had to be killed."""
        for _ in range(int(END_S / 0.05)):
            if (code := self.process.died()) is not None:
                self.exit_code = code
                self.process.kill()  # reaps it
                self.over.set()
                return code == ExitCode.OWNERSHIP_LOST
            await asyncio.sleep(0.05)
        self.kill()
        return False


@dataclass(eq=False)
class Machine:
    """A machine. Without a proxy it has the logs in its directory."""

    name: str
    directory: Path
    proxy: Proxy | None = None
    skew_ms: int = 0
    """Its clock is ahead by so much."""
    base_s: float = 5.0
    """It makes a base so often."""

    def make(self, number: int, why: str, fault_ms: float, takeover: str = "now") -> Life:
        """Make a life, whose broker takes over as the setting ``takeover`` says."""
        environment = {SKEW: str(self.skew_ms), BASE: str(self.base_s)}
        settings: dict[str, str | int] = {"pipeline": "off", "disk_free_bytes_min": 0}
        if self.proxy is not None:
            settings |= {"log": f"s3://{BUCKET}/logs", "store": f"s3://{BUCKET}/store", "takeover": takeover}
            environment |= environment_at(self.proxy.address)
        log = self.directory.parent / f"{self.directory.name}-{self.name}.log"
        process = CampaignBroker(self.directory, log, settings, environment)
        return Life(number, self, process, why, fault_ms)


@dataclass
class Owners:
    """The machines, and whose life serves clients now."""

    machines: list[Machine]
    now_ms: Callable[[], float]
    lives: list[Life] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    """Starts that failed, and may."""
    wrong: list[str] = field(default_factory=list)
    """Ends that must not be."""
    standby: Life | None = None
    """One that waits for the end of the owner."""
    _standing_by: asyncio.Task[None] | None = None

    @property
    def has_one_directory(self) -> bool:
        """The machines share a directory, and there is no store."""
        return all(machine.proxy is None for machine in self.machines)

    @property
    def current(self) -> Life:
        return self.lives[-1]

    def free_machines(self) -> list[Machine]:
        """Machines without a broker, those first whose turn it is."""
        last = self.machines.index(self.current.machine) if self.lives else -1
        taken = [life.machine for life in self.lives if life.exit_code is None]
        turns = [self.machines[(last + 1 + turn) % len(self.machines)] for turn in range(len(self.machines))]
        return [machine for machine in turns if machine not in taken]

    @property
    def requests(self) -> Counter[str]:
        """Requests of all machines, by kind."""
        return sum((each.proxy.counts for each in self.machines if each.proxy), Counter[str]())

    def stand_by(self) -> None:
        """Start a standby on the next machine."""
        self.standby = self.free_machines()[0].make(len(self.lives), "alarm", self.now_ms(), "auto")
        self._standing_by = asyncio.create_task(self._start(self.standby))

    async def until_followed(self) -> None:
        """Wait until the standby has read all that is there, or serves."""
        while self.standby is not None and not self.is_taken_over:
            role = read_role(self.standby.machine.directory) or {}
            if role.get("position") and role["behind"]["rounds"] == 0:
                return
            await asyncio.sleep(0.1)

    @property
    def is_taken_over(self) -> bool:
        """The standby serves."""
        return self._standing_by is not None and self._standing_by.done()

    async def take_over(self, why: str, fault_ms: float) -> Life:
        """Have the standby take over, or start a broker on the next machine; wait until it serves.

        Raises:
            TarryError: it does not, three times in a row.
        """
        standby, standing_by, self.standby, self._standing_by = self.standby, self._standing_by, None, None
        if standby is not None and standing_by is not None:
            with suppress(TarryError):
                await standing_by
                standby.why, standby.fault_ms, standby.stood_by = why, fault_ms, True
                standby.claimed_ms = max(standby.claimed_ms[0], fault_ms), standby.claimed_ms[1]
                self.lives.append(standby)
                return standby
        for attempt in range(ATTEMPTS):
            life = self.free_machines()[0].make(len(self.lives), why, fault_ms)
            try:
                await self._start(life)
            except TarryError:
                if attempt == ATTEMPTS - 1:
                    raise
                continue
            break
        self.lives.append(life)
        return life

    async def duel(self, why: str, fault_ms: float) -> Life:
        """Start brokers on two machines at once, and wait until one is left, which serves.

        Raises:
            TarryError: none is, or both are.
        """
        two = [machine.make(len(self.lives), why, fault_ms) for machine in self.free_machines()[:2]]
        results = await asyncio.gather(*map(self._start, two), return_exceptions=True)
        started = [life for life, result in zip(two, results, strict=True) if not isinstance(result, BaseException)]
        ends = [asyncio.create_task(life.ends_by_itself()) for life in started]
        # Whoever claimed first ends, and the other does not, for nobody takes it over.
        if len(ends) > 1:
            done, _ = await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            if not all(end.result() for end in done):
                self.wrong.append(f"life {len(self.lives)}: of two, one ended as {[life.exit_code for life in two]}")
        for end in ends:
            end.cancel()
        left = [life for life in started if life.exit_code is None]
        if len(left) != 1:
            return await self.take_over(why, fault_ms)
        self.lives += left
        return left[0]

    async def _start(self, life: Life) -> None:
        begin_ms = self.now_ms()
        try:
            await asyncio.to_thread(life.process.start)
        except TarryError as error:
            told = self.failed if life.process.died() in ALLOWED_CODES else self.wrong
            told.append(f"life {life.number} on machine {life.machine.name}: {error}")
            await asyncio.to_thread(life.process.close)
            raise
        life.address, life.claimed_ms = life.process.address, (begin_ms, self.now_ms())

    async def close(self) -> None:
        for life in [*self.lives, *filter(None, [self.standby])]:
            if life.exit_code is None and life.process.pid is not None:
                life.kill()
        if self._standing_by is not None:
            await asyncio.gather(self._standing_by, return_exceptions=True)
        for machine in self.machines:
            if machine.proxy is not None:
                await machine.proxy.close()
