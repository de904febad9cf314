"""Messages wait a moment for one another on their way to Tarry, so that they travel together.

A batch costs Tarry nearly the same with one message as with twenty. So while one is under way, the next gathers: the
busier the machine, the larger they are.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

GATHER_S = 0.01
"""Shortest wait."""
GATHER_S_MAX = 0.1
"""Longest: then one batch that has no answer holds up no other."""


class Gathering:
    """Of one direction of a bridge."""

    def __init__(self) -> None:
        self._under_way = 0
        self._next: asyncio.Future[None] | None = None

    @asynccontextmanager
    async def together(self) -> AsyncIterator[None]:
        """Do the block with others, as one of a batch."""
        if self._next is None:
            self._next = asyncio.get_running_loop().create_future()
            self._plan(GATHER_S)
        await asyncio.shield(self._next)
        self._under_way += 1
        try:
            yield
        finally:
            self._under_way -= 1

    def _plan(self, waited_s: float) -> None:
        asyncio.get_running_loop().call_later(GATHER_S, self._go, waited_s)

    def _go(self, waited_s: float) -> None:
        if self._under_way and waited_s < GATHER_S_MAX:
            self._plan(waited_s + GATHER_S)
            return
        gathered, self._next = self._next, None
        if gathered is not None:
            gathered.set_result(None)
