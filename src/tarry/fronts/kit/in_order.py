"""Answers that become known in any order, on any thread, and leave in the order of their questions."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

from tarry.base.event_loop import post

K = TypeVar("K")
A = TypeVar("A")


@dataclass(slots=True)
class _Slot(Generic[K, A]):
    question: K
    answer: A | None = None
    is_known: bool = False


class InOrder(Generic[K, A]):
    """Questions of one stream, each with its answer. On the loop's thread, but for :meth:`add`.

    ``on_ready`` is called when there may be something to :meth:`take`.
    """

    def __init__(self, on_ready: Callable[[], object], most: int) -> None:
        """Take up to ``most`` questions at a time, for those who ask :meth:`room`."""
        self._on_ready, self._most = on_ready, most
        self._loop = asyncio.get_running_loop()
        self._slots: deque[_Slot[K, A]] = deque()
        self._has_room = asyncio.Event()

    def __len__(self) -> int:
        return len(self._slots)

    async def room(self) -> None:
        """Wait until there are fewer questions than may be."""
        while len(self._slots) >= self._most:
            self._has_room.clear()
            await self._has_room.wait()

    def add(self, question: K) -> Callable[[A], None]:
        """Add a question, also in another thread; return what is to be called with its answer, from any."""
        slot: _Slot[K, A] = _Slot(question)
        self._slots.append(slot)

        def answer(value: A) -> None:
            slot.answer, slot.is_known = value, True
            post(self._loop, self._on_ready)

        return answer

    def take(self) -> Iterator[tuple[K, A]]:
        """Yield, and forget, the questions at the front whose answers are known."""
        while self._slots and self._slots[0].is_known:
            slot = self._slots.popleft()
            self._has_room.set()
            yield slot.question, slot.answer  # type: ignore[misc]  # it is known
