"""Messages wait a moment for one another on their way to Tarry, so that they travel together.

A batch costs Tarry nearly the same with one message as with twenty. So while one is under way, the next gathers: the
busier the machine, the larger they are.
"""

from __future__ import annotations

import asyncio

GATHER_S = 0.01
"""Shortest wait."""
GATHER_S_MAX = 0.1
"""Longest: then one batch that has no answer holds up no other."""


class Gathering:
    """Of one direction of a bridge: ``async with`` does its block with others, as one of a batch."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._under_way = 0
        self._next: list[asyncio.Future[None]] = []

    async def __aenter__(self) -> None:
        if not self._next:
            self._plan(GATHER_S)
        turn = self._loop.create_future()  # of its own: who is cancelled takes no other along
        self._next.append(turn)
        await turn
        self._under_way += 1

    async def __aexit__(self, *_: object) -> None:
        self._under_way -= 1

    def _plan(self, waited_s: float) -> None:
        self._loop.call_later(GATHER_S, self._go, waited_s)

    def _go(self, waited_s: float) -> None:
        if self._under_way and waited_s < GATHER_S_MAX:
            self._plan(waited_s + GATHER_S)
            return
        gathered, self._next = self._next, []
        for turn in gathered:
            if not turn.done():
                turn.set_result(None)
