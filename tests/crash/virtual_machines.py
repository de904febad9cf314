"""Machines on one clock and in one thread: whole brokers whose logs are in one object store, requests included.

The event loops of all engines are one, :class:`~tests.engines.object_store.VirtualLoop`, which runs while some broker
waits for a request; its time passes at once. So what happens, and in which order, is a matter of the seed alone. While
a broker waits, other machines may be called: a call inside of a call. The outer one goes on when the inner one has
ended, as a thread does that stood still; its requests, and its beats, go on meanwhile.
"""

from __future__ import annotations

import asyncio
import contextvars
import random
import shutil
from collections.abc import Callable, Coroutine, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeoutError
from concurrent.futures import wait as wait_really
from contextlib import contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar
from unittest.mock import patch

from tarry.base.config import Config
from tarry.broker.engines import LOCAL
from tarry.log.objects import engine as engine_module
from tarry.log.objects.engine import ObjectEngine
from tarry.log.objects.lease import OwnerLease
from tarry.log.objects.store import ObjectStore
from tarry.testing import TestBroker, TestClock
from tests.crash.tools import SMALL
from tests.engines.object_store import FaultyWay, MemoryObjects, VirtualLoop
from tests.faults import Crash, FaultyFiles

A = TypeVar("A")
SETTINGS: dict[str, Any] = {"dedupe_ms": 86_400_000}
"""Ids are known longer than clocks differ."""
START_MS = 1_767_225_600_000
_MACHINE: contextvars.ContextVar[Machine | None] = contextvars.ContextVar("machine", default=None)


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
    """One machine's way to the store. ``frozen_until_s``: until then, its process takes no notice of any answer."""

    def __init__(self, store: ObjectStore, rng: random.Random, late: set[asyncio.Task[Any]], rate: float) -> None:
        super().__init__(store, rng, late, rate)
        # Mostly so fast that a few calls fit into a lease.
        self._delays_s = rng.choice([(0.0,), (0.01, 0.06), (0.01, 0.06), (0.001, 0.01, 0.1, 1.0)])
        self.frozen_until_s = 0.0

    async def _travel(self) -> None:
        await super()._travel()
        while (left_s := self.frozen_until_s - asyncio.get_running_loop().time()) > 0:
            await asyncio.sleep(left_s)

    def _later(self, request: Callable[[], Coroutine[Any, Any, object]]) -> None:
        contextvars.Context().run(super()._later, request)  # no task of the machine, whose end it outlives

    def be_fast(self) -> None:
        self._delays_s, self._rate = (0.0,), 0.0

    def set_rate(self, rate: float) -> None:
        self._rate = rate


class SharedObjects(MemoryObjects):
    """The store of all; notes when each epoch was claimed."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        super().__init__()
        self._now_s = now_s
        self.claimed_s: dict[int, float] = {}

    async def create(self, key: str, content: bytes) -> bool:
        is_new = await super().create(key, content)
        if is_new and key.startswith("epoch/"):
            self.claimed_s[int(key.removeprefix("epoch/"))] = self._now_s()
        return is_new


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
    """A broker with its clocks, its disk and its way to the store; also its engine's loop of requests."""

    def __init__(self, world: VirtualWorld, number: int, offset_ms: int, boot_rate: float, rate: float) -> None:
        self.world, self.number, self.boot_rate, self.loop = world, number, boot_rate, world.loop
        self.clock = MachineClock(world.loop, offset_ms)
        self.way = MachineWay(world.objects, world.rng, world.late, rate)
        self.files = FaultyFiles()
        self.data = world.directory / str(number)
        self.lease = OwnerLease(lambda: world.loop.time() * boot_rate)
        self.tasks: dict[asyncio.Task[Any], None] = {}
        self.is_dead = False
        self.engine: ObjectEngine | None = None
        self.opened: TestBroker | None = None
        self.epoch = 0

    @property
    def broker(self) -> TestBroker:
        assert self.opened is not None
        return self.opened

    def open(self) -> None:
        """Claim the logs, and open the broker."""
        self.data.mkdir(parents=True)
        config = Config(data=self.data, store=str(self.world.directory / "store"), pipeline="off", **SMALL, **SETTINGS)
        with patch.object(engine_module, "RequestLoop", lambda: self):
            self.engine = ObjectEngine(
                self.way, self.files, self.data, self.clock, look_s=0.0, local=LOCAL, lease=self.lease
            )
        self.opened = TestBroker(config, self.clock, self.files, engine=self.engine, threads=False)
        self.opened.components.progress.base_s = 1e9
        self.epoch = self.engine.state["epoch"]

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
        if not self.is_dead or self in self.world.stack:
            return
        if self.engine is not None:
            with suppress(OSError):
                self.engine.release()
        self.files.close_all()
        shutil.rmtree(self.data, ignore_errors=True)

    # -- RequestLoop ---------------------------------------------------------------------------------------------------

    def start(self, work: Coroutine[Any, Any, A]) -> DrivenFuture[A]:
        if self.is_dead:
            work.close()
            raise Crash("killed")
        context = contextvars.copy_context()
        context.run(_MACHINE.set, self)
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


class VirtualWorld:
    """The loop, the store and the time of all machines.

    ``interrupt``: called in the midst of a call that waits, when its time has come (:attr:`interrupt_s`).
    """

    def __init__(self, directory: Path, rng: random.Random, interrupt: Callable[[], None]) -> None:
        self.directory, self.rng, self._interrupt = directory, rng, interrupt
        self.loop = VirtualLoop()
        self.loop.set_default_executor(_Inline())
        self.loop.set_task_factory(_noted)
        self.objects = SharedObjects(self.loop.time)
        self.late: set[asyncio.Task[Any]] = set()
        self.stack: list[Machine] = []
        """Machines whose broker is being called, the inner ones last."""
        self.interrupt_s: float | None = None

    @contextmanager
    def attached(self) -> Iterator[None]:
        """Have engines wait and sleep in this world."""

        def wait(futures: Sequence[DrivenFuture[Any]], timeout: float | None = None) -> Any:
            futures[0].wait(timeout)
            return wait_really(futures, 0)

        time = SimpleNamespace(monotonic=self.loop.time, sleep=self.sleep)
        try:
            with patch.object(engine_module, "wait", wait), patch.object(engine_module, "time", time):
                yield
        finally:
            self.close()

    def sleep(self, seconds: float) -> None:
        """Sleep, as a thread of the machine that is called last."""
        self.wait(lambda: False, seconds, self.stack[-1] if self.stack else None)

    def wait(self, is_done: Callable[[], bool], timeout_s: float | None, machine: Machine | None) -> bool:
        """Have time pass until ``is_done()``, or for ``timeout_s``; return whether it is done."""
        until_s = None if timeout_s is None else self.loop.time() + timeout_s
        while not is_done() and (until_s is None or self.loop.time() < until_s):
            self._drive(min((each for each in (until_s, self.interrupt_s) if each is not None), default=None))
            if self.interrupt_s is not None and self.loop.time() >= self.interrupt_s and not is_done():
                self.interrupt_s = None
                self._interrupt()
            if machine is not None and machine.is_dead:
                raise Crash("killed")
        return is_done()

    def jump(self, seconds: float) -> None:
        """Have all machines stand still."""
        self.loop.now_s += seconds

    def turn(self) -> None:
        """Carry out what is to be done at once."""
        self.loop.call_soon(self.loop.stop)
        self.loop.run_forever()

    def _drive(self, until_s: float | None) -> None:
        """Run until a result is there (of whichever call), or until then."""
        timer = None if until_s is None else self.loop.call_at(until_s, self.loop.stop)
        self.loop.run_forever()
        if timer is not None:
            timer.cancel()

    def close(self) -> None:
        for task in asyncio.all_tasks(self.loop):
            task.cancel()
        while asyncio.all_tasks(self.loop):
            self.turn()
        self.loop.close()


class _Inline(ThreadPoolExecutor):
    """Does at once what is submitted."""

    def __init__(self) -> None:
        super().__init__(1)

    def submit(self, work: Callable[..., A], /, *args: Any, **kwargs: Any) -> Future[A]:
        future = Future[A]()
        try:
            future.set_result(work(*args, **kwargs))
        except Exception as error:  # noqa: BLE001  it is the future's
            future.set_exception(error)
        return future


def _noted(loop: asyncio.AbstractEventLoop, work: Any, **options: Any) -> asyncio.Task[Any]:
    """Make a task; the machine that began it knows it."""
    task = asyncio.Task(work, loop=loop, **options)
    context = options.get("context")
    machine = _MACHINE.get() if context is None else context.get(_MACHINE)
    if machine is not None:
        machine.tasks[task] = None
        task.add_done_callback(lambda task: machine.tasks.pop(task, None))
    return task
