"""The lease of a broker whose logs another machine may take over, as its workers may count on it.

What a worker was handed may wait here: for a receiver that rests, or since the worker stood still. When the broker's
lease is over by then, the next owner hands out the same. So a worker asks how much of the lease is left, and counts
from the moment before it asked: never on more than there is.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable
from typing import Protocol

from tarry.api.wire import decode_json
from tarry.base.errors import TarryError
from tarry.link.frames import FrameKind
from tarry.link.peer import OnAnswer

ASK_S = 0.25
"""Time between two questions: an owner extends its lease of two seconds each second, at the least."""


class LeaseLink(Protocol):
    """The part of a link that asks the broker."""

    @property
    def lost(self) -> bool: ...
    def ask(self, kind: FrameKind, on_answer: OnAnswer) -> object: ...


def _boot_s() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)  # it passes while the machine sleeps


class RemoteLease:
    """A lease that is asked for from :meth:`begin` on.

    Before, it lasts for ever, as where nobody takes logs over.
    """

    def __init__(self, now_s: Callable[[], float] = _boot_s) -> None:
        self._now_s = now_s
        self._until_s = math.inf

    def lasts(self) -> bool:
        """Return whether messages may go to a socket now. Any thread."""
        until_s = self._until_s
        return until_s == math.inf or self._now_s() < until_s  # a look at the clock is a system call

    def end(self) -> None:
        """Have it last no longer: the link is lost.

        The broker has given back what was handed out, or has handed its logs over.
        """
        self._until_s = -math.inf

    async def begin(self, link: LeaseLink) -> None:
        """Ask now and then, on the running loop, until the link is lost; return after the first answer."""
        loop, self._until_s = asyncio.get_running_loop(), -math.inf
        answered = asyncio.Event()

        def ask() -> None:
            if link.lost:
                answered.set()
                return
            asked_s = self._now_s()

            def on_answer(answer: memoryview | TarryError) -> None:
                if not isinstance(answer, TarryError):
                    left_ms = decode_json(bytes(answer))
                    self._until_s = math.inf if left_ms is None else asked_s + left_ms / 1000
                answered.set()
                # After a slow answer at once: it has told of a lease that may be over by now.
                loop.call_later(max(0.0, asked_s + ASK_S - self._now_s()), ask)

            link.ask(FrameKind.LEASE, on_answer)

        ask()
        await answered.wait()
