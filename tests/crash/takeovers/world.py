"""One clock, one event loop and one thread for many machines, and the store that they share.

The loop runs while some broker waits for a request; its time passes at once. So what happens, and in which order, is a
matter of the seed alone. While a broker waits, other machines may be called: a call inside of a call. The outer one
goes on when the inner one has ended, as a thread does that stood still; its requests, and its beats, go on meanwhile.
"""

from __future__ import annotations

import asyncio
import contextvars
import random
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import wait as wait_really
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, TypeVar
from unittest.mock import patch

from tarry.log.objects import engine as engine_module
from tarry.log.objects import silence as silence_module
from tests.engines.object_store import MemoryObjects, VirtualLoop
from tests.faults import Crash

if TYPE_CHECKING:
    from tests.crash.takeovers.machines import Machine

A = TypeVar("A")
Tasks = dict[asyncio.Task[Any], None]
TASKS: contextvars.ContextVar[Tasks | None] = contextvars.ContextVar("tasks", default=None)
"""Where a task is noted that begins in this context: its machine ends it."""


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
        """Requests that arrive when their sender expects them no more."""
        self.stack: list[Machine] = []
        """Machines whose broker is being called, the inner ones last."""
        self.interrupt_s: float | None = None
        self.left: list[Path] = []
        """Directories of machines that were killed."""

    @contextmanager
    def attached(self) -> Iterator[None]:
        """Have engines wait and sleep in this world."""

        def wait(futures: Sequence[Any], timeout: float | None = None) -> Any:
            futures[0].wait(timeout)
            return wait_really(futures, 0)

        time = SimpleNamespace(monotonic=self.loop.time, sleep=self.sleep)
        try:
            with (
                patch.object(engine_module, "wait", wait),
                patch.object(engine_module, "time", time),
                patch.object(silence_module, "random", self.rng),
            ):
                yield
        finally:
            self._close()

    def sleep(self, seconds: float) -> None:
        """Sleep, as a thread of the machine that is called last."""
        self.wait(lambda: False, seconds, self.stack[-1] if self.stack else None)

    def wait(self, is_done: Callable[[], bool], timeout_s: float | None, machine: Machine | None) -> bool:
        """Have time pass until ``is_done()``, or for ``timeout_s``; return whether it is done.

        Raises:
            Crash: ``machine``, which waits, was killed.
        """
        until_s = None if timeout_s is None else self.loop.time() + timeout_s
        while not is_done() and (until_s is None or self.loop.time() < until_s):
            if machine is not None and machine.way.is_dead:
                machine.kill()
                raise Crash("killed")
            self._drive(min((each for each in (until_s, self.interrupt_s) if each is not None), default=None))
            if self.interrupt_s is not None and self.loop.time() >= self.interrupt_s and not is_done():
                self.interrupt_s = None
                self._interrupt()
            if machine is not None and machine.is_dead:
                raise Crash("killed")
        return is_done()

    def interrupt_now(self) -> None:
        """Have something happen amid the call that waits."""
        self.interrupt_s = self.loop.time()
        self.loop.stop()

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

    def _close(self) -> None:
        for task in asyncio.all_tasks(self.loop):
            task.cancel()
        while asyncio.all_tasks(self.loop):
            self.turn()
        self.loop.close()


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
    task = asyncio.Task(work, loop=loop, **options)
    context = options.get("context")
    tasks = TASKS.get() if context is None else context.get(TASKS)
    if tasks is not None:
        tasks[task] = None
        task.add_done_callback(lambda task: tasks.pop(task, None))
    return task
