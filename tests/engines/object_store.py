"""An object store in memory, ways to it that fail, and an event loop whose time nobody waits for."""

from __future__ import annotations

import asyncio
import random
import selectors
import threading
from collections import defaultdict
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, TypeVar

from tarry.base.errors import UnavailableError
from tarry.log.objects.store import ObjectStore

A = TypeVar("A")


class MemoryObjects:
    """Objects in memory, each created once. From any loop and thread; each request is carried out at once."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self._lock = threading.Lock()

    async def create(self, key: str, content: bytes) -> bool:
        with self._lock:
            if key in self.objects:
                return False
            self.objects[key] = bytes(content)
            return True

    async def get(self, key: str) -> bytes | None:
        return self.objects.get(key)

    async def exists(self, key: str) -> bool:
        return key in self.objects

    async def list(self, prefix: str) -> list[str]:
        with self._lock:
            return [key for key in self.objects if key.startswith(prefix)]

    async def delete(self, keys: Sequence[str]) -> None:
        for key in keys:
            self.objects.pop(key, None)


class ArchivedObjects(MemoryObjects):
    """Objects in memory; ``archive`` has all that were ever there, too."""

    def __init__(self) -> None:
        super().__init__()
        self.archive = MemoryObjects()

    async def create(self, key: str, content: bytes) -> bool:
        await self.archive.create(key, content)
        return await super().create(key, content)


class _Way:
    """A way to a store: every request passes :meth:`_pass`."""

    def __init__(self, store: ObjectStore) -> None:
        self.store = store

    async def create(self, key: str, content: bytes) -> bool:
        return await self._pass("create", key, lambda: self.store.create(key, content))

    async def get(self, key: str) -> bytes | None:
        return await self._pass("get", key, lambda: self.store.get(key))

    async def exists(self, key: str) -> bool:
        return await self._pass("exists", key, lambda: self.store.exists(key))

    async def list(self, prefix: str) -> list[str]:
        return await self._pass("list", prefix, lambda: self.store.list(prefix))

    async def delete(self, keys: Sequence[str]) -> None:
        await self._pass("delete", keys[0], lambda: self.store.delete(keys))

    async def _pass(self, what: str, key: str, request: Callable[[], Awaitable[A]]) -> A:
        raise NotImplementedError


class CutWay(_Way):
    """A way that a test cuts: no request arrives then, and none is answered. Of threads, too."""

    def __init__(self, store: ObjectStore) -> None:
        super().__init__(store)
        self.is_cut = False
        self.cut_keys: str | None = None
        """Where it is cut for keys alone that begin like this."""
        self.refused: list[tuple[str, str]] = []

    async def _pass(self, what: str, key: str, request: Callable[[], Awaitable[A]]) -> A:
        if self.is_cut or (self.cut_keys is not None and key.startswith(self.cut_keys)):
            self.refused.append((what, key))
            raise UnavailableError("cut off")
        return await request()


class HeldWay(_Way):
    """A way on which a test holds up what it names: requests before they are carried out, or their answers."""

    def __init__(self, store: ObjectStore) -> None:
        super().__init__(store)
        self.passed: list[tuple[str, str]] = []
        self.waiting: list[tuple[str, str, str]] = []
        self.deletions: list[int] = []
        """Objects of each request to delete."""
        self._held: dict[tuple[str, str, str], asyncio.Event] = {}
        self._failing: dict[tuple[str, str, str], int] = defaultdict(int)

    def hold(self, when: str, what: str, key: str) -> asyncio.Event:
        """Hold up ``what`` of ``key`` (``before`` it is carried out, or its answer ``after``) until it is set."""
        event = self._held[when, what, key] = asyncio.Event()
        return event

    def release(self) -> None:
        """Hold nothing up any more."""
        for held in self._held.values():
            held.set()

    def fail(self, when: str, what: str, key: str, times: int = 1) -> None:
        """Answer nothing, ``before`` or ``after`` it is carried out, so many times."""
        self._failing[when, what, key] = times

    async def until_waits(self, when: str, what: str, key: str) -> None:
        """Return when a request is held up there."""
        while (when, what, key) not in self.waiting:
            await asyncio.sleep(0.001)

    async def delete(self, keys: Sequence[str]) -> None:
        self.deletions.append(len(keys))
        for key in keys:  # each can be held up
            await super().delete([key])

    async def _pass(self, what: str, key: str, request: Callable[[], Awaitable[A]]) -> A:
        await self._stop("before", what, key)
        self.passed.append((what, key))
        answer = await request()
        await self._stop("after", what, key)
        return answer

    async def _stop(self, when: str, what: str, key: str) -> None:
        place = when, what, key
        if place in self._held:
            self.waiting.append(place)
            await self._held[place].wait()
        if self._failing[place] > 0:
            self._failing[place] -= 1
            raise UnavailableError(f"{what} of {key} failed (injected)")


class FaultyWay(_Way):
    """One owner's way, with delays, failures, lost answers, conflicts, and PUTs that arrive much later; by seed."""

    def __init__(self, store: ObjectStore, rng: random.Random, late: set[asyncio.Task[Any]], rate: float) -> None:
        super().__init__(store)
        self._rng, self._rate, self._late = rng, rate, late
        self._delays_s: tuple[float, ...] = rng.choice([(0.01, 0.06), (0.001, 0.01, 0.1, 1.0), (0.0, 0.0, 1.0)])
        self.cut_until_s = self.still_until_s = 0.0

    async def create(self, key: str, content: bytes) -> bool:
        if self._chance(self._rate):
            # It arrives later, also where its sender is gone by then; and its sender hears nothing.
            self._arrive_later(key, content)
            await self._travel()
            raise UnavailableError("timeout (injected)")
        if self._chance(self._rate):
            return False  # a conflict (409), which is reported like this
        try:
            return await super().create(key, content)
        except asyncio.CancelledError:
            self._arrive_later(key, content)
            raise

    async def delete(self, keys: Sequence[str]) -> None:
        if self._chance(self._rate):
            self._later(lambda: self.store.delete(keys))
            await self._travel()
            raise UnavailableError("timeout (injected)")
        if self._chance(self._rate):
            await super().delete(self._rng.sample(keys, len(keys) // 2) or keys)
            raise UnavailableError("some of them could not be deleted (injected)")
        try:
            await super().delete(keys)
        except asyncio.CancelledError:
            self._later(lambda: self.store.delete(keys))
            raise

    def _arrive_later(self, key: str, content: bytes) -> None:
        self._later(lambda: self.store.create(key, content))

    def _later(self, request: Callable[[], Coroutine[Any, Any, object]]) -> None:
        async def arrive() -> None:
            await asyncio.sleep(self._rng.choice([0.01, 0.3, 3, 60]) * self._rng.random())
            await request()

        task = asyncio.get_running_loop().create_task(arrive())
        self._late.add(task)
        task.add_done_callback(self._late.discard)

    async def _pass(self, what: str, key: str, request: Callable[[], Awaitable[A]]) -> A:
        await self._travel()
        if self._chance(self._rate):
            raise UnavailableError("503 (injected)")
        answer = await request()
        await self._travel()
        if self._chance(self._rate):
            raise UnavailableError("503 after success, or a lost answer (injected)")
        return answer

    async def _travel(self) -> None:
        now_s = asyncio.get_running_loop().time()
        if now_s < self.cut_until_s:
            await asyncio.sleep(self._rng.random())
            raise UnavailableError("cut off (injected)")
        # From nothing to a second: what matters is that anything may overtake anything.
        slow_s = self._rng.choice(self._delays_s)
        await asyncio.sleep(max(0.0, self.still_until_s - now_s) + slow_s * self._rng.random())

    def _chance(self, rate: float) -> bool:
        return self._rng.random() < rate


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop on which time passes at once when there is nothing to do."""

    def __init__(self) -> None:
        self.now_s = 0.0
        super().__init__(_Selector(self))
        self._clock_resolution = 1e-6

    def time(self) -> float:
        return self.now_s


class _Selector(selectors.SelectSelector):
    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        assert timeout is not None, "everything waits, and for nothing"
        self._loop.now_s += max(1e-9, timeout)  # never nothing: a sleep that is rounded to nothing ends
        return super().select(0)


def run_virtually(work: Coroutine[Any, Any, A]) -> A:
    """Run on a loop of its own whose time nobody waits for."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(work)
