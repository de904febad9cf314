"""A machine: a whole broker with its clocks, its disk and its way to the store.

:meth:`Machine.open` makes it an owner. One that stands by (``standbys.py``) has no epoch before, and is asked nothing.
"""

from __future__ import annotations

import asyncio
import contextvars
import math
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar
from unittest.mock import patch

from tarry.base.config import Config
from tarry.base.errors import UnavailableError
from tarry.broker.engines import LOCAL
from tarry.log.objects import engine as engine_module
from tarry.log.objects.engine import ObjectEngine, Takeover
from tarry.log.objects.lease import OwnerLease
from tarry.testing import TestBroker, TestClock
from tests.crash.takeovers.world import TASKS, Tasks, VirtualWorld
from tests.crash.tools import SMALL
from tests.engines.object_store import FaultyWay, VirtualLoop
from tests.faults import Crash, FaultyFiles

A = TypeVar("A")
E = TypeVar("E", bound=ObjectEngine)
SETTINGS: dict[str, Any] = {**SMALL, "segment_bytes_max": 4096, "dedupe_ms": 86_400_000}
"""A few dozen messages roll a log; ids are known longer than clocks differ."""
START_MS = 1_767_225_600_000
NEVER_S = 1e9
DAY_S = 86_400.0


class MachineClock(TestClock):
    """A wall clock that goes with the loop, and is wrong by ``offset_ms``."""

    def __init__(self, loop: VirtualLoop, offset_ms: int) -> None:
        super().__init__()
        self._loop, self.offset_ms = loop, offset_ms

    def now_ms(self) -> int:
        return int(START_MS + self._loop.time() * 1000) + self.offset_ms

    def start_ms(self) -> int:
        return self.now_ms() + 1

    def seconds_until(self, due_ms: int) -> float:
        return (due_ms - self.offset_ms - START_MS) / 1000 - self._loop.time()


class MachineWay(FaultyWay):
    """One machine's way to the store.

    ``frozen_until_s``: until then, its process takes no notice of any answer. ``still_s``: if it is not 0, it stands
    still for so long once its next look for a later epoch was carried out. ``late_s``: if it is not 0, its next round
    arrives so much later. ``requests_left``: if it is not 0, something happens when it begins the last of so many
    requests. ``until_manifest``: something happens once a base counts. See :meth:`stop_in` as well.
    """

    def __init__(self, world: VirtualWorld, rate: float) -> None:
        super().__init__(world.objects, world.rng, world.late, rate)
        self._interrupt = world.interrupt_now
        # Mostly so fast that a few calls fit into a lease.
        self._delays_s = world.rng.choice([(0.0,), (0.01, 0.06), (0.01, 0.06), (0.001, 0.01, 0.1, 1.0)])
        self.frozen_until_s = self.still_s = self.late_s = 0.0
        self.requests_left = 0
        self.until_manifest = False
        self._stop_in = 0
        self._stop_s = 0.0

    async def exists(self, key: str) -> bool:
        async def request() -> bool:
            found = await self.store.exists(key)
            if self.still_s:
                self.frozen_until_s, self.still_s = asyncio.get_running_loop().time() + self.still_s, 0.0
            return found

        return await self._pass("exists", key, request)

    async def create(self, key: str, content: bytes) -> bool:
        if self.late_s and key.startswith("log/"):
            late_s, self.late_s = self.late_s, 0.0

            async def arrive() -> None:
                await asyncio.sleep(late_s)
                await self.store.create(key, content)

            self._outlive(arrive)
            await asyncio.sleep(late_s)
            raise UnavailableError("timeout (injected)")
        is_new = await super().create(key, content)
        if self.until_manifest and key.endswith("/manifest"):
            self.until_manifest = False
            self._interrupt()
            await asyncio.sleep(0.001)  # its sender has no answer yet
        return is_new

    def stop_in(self, requests: int, seconds: float) -> None:
        """Have the process stand still for so long at such a request; infinite: it was killed."""
        self._stop_in, self._stop_s = requests, seconds

    async def _pass(self, what: str, key: str, request: Callable[[], Awaitable[A]]) -> A:
        if self.requests_left:
            self.requests_left -= 1
            if not self.requests_left:
                self._interrupt()
        if self._stop_in:
            self._stop_in -= 1
            if not self._stop_in:
                self.frozen_until_s = asyncio.get_running_loop().time() + self._stop_s
                asyncio.get_running_loop().stop()  # who waits looks whether it was killed
        return await super()._pass(what, key, request)

    async def _travel(self) -> None:
        await super()._travel()
        while (left_s := self.frozen_until_s - asyncio.get_running_loop().time()) > 0:
            await asyncio.sleep(min(left_s, DAY_S))

    def _later(self, request: Callable[[], Coroutine[Any, Any, object]]) -> None:
        contextvars.Context().run(super()._later, request)  # no task of the machine, whose end it outlives

    def _outlive(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        task = contextvars.Context().run(lambda: asyncio.get_running_loop().create_task(work()))
        self._late.add(task)
        task.add_done_callback(self._late.discard)

    def be_fast(self) -> None:
        self._delays_s, self._rate = (0.0,), 0.0

    def be_well(self) -> None:
        """Have requests pass at once, and nothing more happen."""
        self.be_fast()
        self.cut_until_s = self.frozen_until_s = self.still_s = self.late_s = 0.0
        self.requests_left = self._stop_in = 0

    @property
    def is_dead(self) -> bool:
        """Whether it was killed as :meth:`stop_in` says."""
        return math.isinf(self.frozen_until_s)

    def set_rate(self, rate: float) -> None:
        self._rate = rate


class DrivenFuture(Future[A]):
    """The result of a request; who waits for it has time pass."""

    def __init__(self, machine: Machine) -> None:
        super().__init__()
        self._machine = machine

    def wait(self, timeout_s: float | None) -> bool:
        return self._machine.world.wait(self.done, timeout_s, self._machine)

    def result(self, timeout: float | None = None) -> A:
        if not self.wait(timeout):
            raise FutureTimeoutError
        return super().result(0)


class Machine:
    """A broker with its clocks, its disk and its way to the store; also its engine's loop of requests.

    ``data``: its directory, perhaps as a machine of before has left it.
    """

    def __init__(
        self, world: VirtualWorld, number: int, offset_ms: int, boot_rate: float, rate: float, data: Path
    ) -> None:
        self.world, self.number, self.boot_rate, self.loop = world, number, boot_rate, world.loop
        self.clock = MachineClock(world.loop, offset_ms)
        self.way = MachineWay(world, rate)
        self.files = FaultyFiles()
        self.data = data
        self.lease = OwnerLease(lambda: world.loop.time() * boot_rate)
        self.tasks: Tasks = {}
        self.is_dead = self._is_buried = False
        self.engine: ObjectEngine | None = None
        self.opened: TestBroker | None = None
        self.epoch = 0

    @property
    def broker(self) -> TestBroker:
        assert self.opened is not None
        return self.opened

    def open(self) -> None:
        """Claim the logs, if it has not yet, and open the broker."""
        if self.engine is None:
            self.engine = self._new(ObjectEngine, takeover="now")
        config = Config(data=self.data, store=str(self.world.directory / "store"), pipeline="off", **SETTINGS)
        self.opened = TestBroker(config, self.clock, self.files, engine=self.engine, threads=False)
        self.opened.components.progress.base_s = NEVER_S  # :meth:`make_base` does
        self.epoch = self.engine.state["epoch"]

    def _new(self, kind: type[E], takeover: Takeover) -> E:
        self.data.mkdir(parents=True, exist_ok=True)
        with patch.object(engine_module, "RequestLoop", lambda: self):
            return kind(
                *(self.way, self.files, self.data, self.clock),
                look_s=0.0,
                local=LOCAL,
                lease=self.lease,
                takeover=takeover,
            )

    def call(self, work: Callable[[], A]) -> A:
        """Have its broker do something.

        Raises:
            Crash: it was killed meanwhile.
        """
        self.world.stack.append(self)
        try:
            return work()
        except BaseException as error:
            if self.is_dead:
                raise Crash("killed") from error  # what the end of a thread finds closed says nothing
            raise
        finally:
            self.world.stack.pop()
            self._bury()

    def kill(self) -> None:
        """End the process, at whatever place it is."""
        self.is_dead = True
        self.close()
        self._bury()

    def _bury(self) -> None:
        if not self.is_dead or self._is_buried or self in self.world.stack:
            return
        self._is_buried = True
        if self.engine is not None:
            with suppress(OSError):
                self.engine.release()
        self.files.close_all()
        self.world.left.append(self.data)

    # -- what its threads would do -------------------------------------------------------------------------------------

    def fire(self) -> None:
        """Have what is due handed to consumers, before the ready log has it."""
        parts = self.broker.components
        parts.loader.step()
        while parts.dispatcher.step():
            pass

    def make_base(self) -> None:
        """Make a checkpoint, which is a base, and delete what it makes superfluous."""
        progress = self.broker.components.progress
        progress.base_s = 0.0
        try:
            progress.checkpoint()
        finally:
            progress.base_s = NEVER_S

    def segments(self) -> set[Path]:
        """Return the segments of the logs that it has."""
        return set(self.data.glob("*/*.log"))

    def beat(self) -> None:
        """Begin a round, and wait for nothing."""
        if self.engine is not None and not self.is_dead:
            self.start(self.engine._owned().renew())  # noqa: SLF001  its caller would wait

    # -- RequestLoop ---------------------------------------------------------------------------------------------------

    def start(self, work: Coroutine[Any, Any, A]) -> DrivenFuture[A]:
        if self.is_dead:
            work.close()
            raise Crash("killed")
        context = contextvars.copy_context()
        context.run(TASKS.set, self.tasks)
        task = self.loop.create_task(work, context=context)
        future = DrivenFuture[A](self)

        def settle(task: asyncio.Task[A]) -> None:
            if task.cancelled():
                future.set_exception(Crash("killed"))
            elif (error := task.exception()) is not None:
                future.set_exception(error)
            else:
                future.set_result(task.result())
            self.loop.stop()  # who waits looks whether it is for this

        task.add_done_callback(settle)
        return future

    def run(self, work: Coroutine[Any, Any, A]) -> A:
        return self.start(work).result()

    def close(self) -> None:
        """End what is under way. A PUT may arrive all the same."""
        for task in list(self.tasks):
            task.cancel()
        while self.tasks:
            self.world.turn()
