"""Sends single calls of an event loop as batches, at the end of a turn, and answers on its thread.

The owner says how a batch is sent, and what its acceptance and its refusal mean for those who wait; when it goes, what
comes along, and what goes again after a refusal is decided here and in :mod:`tarry.batching.coalescing`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Generic, TypeVar

from tarry.base.errors import TarryError
from tarry.base.event_loop import post
from tarry.batching.coalescing import BATCHES_MAX, Batch, Coalescer, EndOfTurn, Refuse
from tarry.batching.pacing import Pace, PacedTurns

E = TypeVar("E")
A = TypeVar("A")


class Submitter(Generic[E, A]):
    """The coalescer of one event loop. On the loop's thread; answers come from any."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        submit: Callable[[list[E], Callable[[A | TarryError], None]], None],
        accept: Callable[[list[E], A], None],
        refuse: Refuse[E],
        *,
        batches_max: int = BATCHES_MAX,
        rows_beside_min: int = 1,
        size_of: Callable[[E], int] | None = None,
        bytes_max: int = 0,
        pace: Pace | None = None,
    ) -> None:
        """Make a submitter.

        Args:
            submit: sends a batch, and calls back once with its answer, from any thread. What it raises is the answer.
            accept: tells the callers of a batch that it was accepted, on the loop's thread.
            refuse: tells callers that their entries were not accepted, on the loop's thread.
            batches_max, rows_beside_min, size_of, bytes_max, pace: as for :class:`Coalescer`.
        """
        self._loop = loop
        self._submit = submit
        self._accept = accept
        self._coalescer: Coalescer[E] = Coalescer(
            self._send,
            refuse,
            batches_max=batches_max,
            rows_beside_min=rows_beside_min,
            size_of=size_of,
            bytes_max=bytes_max,
            pace=pace,
        )
        self._is_paced = pace is not None
        turns = EndOfTurn(loop, self._coalescer.pump) if pace is None else PacedTurns(loop, self._coalescer)
        # Each of the two is called for each message: no call of ours in between.
        self.add = self._coalescer.add
        """Queue an entry (see :meth:`Coalescer.add`); :attr:`plan` has it sent."""
        self.plan = turns.plan
        """Send what was added, at the end of this turn or once it is no longer held back."""

    def close(self, why: str) -> None:
        """Refuse what is not sent yet."""
        self._coalescer.close(why)

    def _send(self, batch: Batch[E]) -> None:
        # The answer is the last argument, which mypy misses.
        on_result = partial(post, self._loop, self._on_result, batch)  # type: ignore[arg-type]
        self._submit(batch.entries, on_result)

    def _on_result(self, batch: Batch[E], result: A | TarryError) -> None:
        if isinstance(result, TarryError):
            self._coalescer.on_refused(batch, result)
        else:
            self._coalescer.on_accepted(batch)
            self._accept(batch.entries, result)
        # What the batch left behind may be held back by its pace, and has no timer yet.
        if self._is_paced or self._coalescer.is_ready:
            self.plan()
