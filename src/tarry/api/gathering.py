"""Gathers cancellations of many tasks of an event loop into shared calls, one call at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from tarry.api.outcome import Outcome
from tarry.base.errors import TarryError
from tarry.batching.coalescing import Batch, Coalescer, EndOfTurn, fail_futures
from tarry.message import handle

T = TypeVar("T", bound=TarryError)
Entry = tuple[str, "asyncio.Future[Outcome]"]


class Cancelling:
    """Gathers cancellations of one event loop, that of its first call; ``call`` cancels many handles."""

    def __init__(self, call: Callable[[list[str]], Awaitable[list[Outcome]]]) -> None:
        self._call = call
        self._coalescer: Coalescer[Entry] = Coalescer(self._send, _refuse, batches_max=1)
        self._end_of_turn: EndOfTurn | None = None
        self._task: asyncio.Task[None] | None = None
        """The loop itself keeps no task alive."""

    async def cancel(self, text: str) -> Outcome:
        """Cancel the message of a handle, and return the outcome.

        Raises:
            TarryError: what ``call`` raised.
        """
        handle.decode(text)  # a damaged one would refuse the others' too
        loop = asyncio.get_running_loop()
        if self._end_of_turn is None:
            self._end_of_turn = EndOfTurn(loop, self._coalescer.pump)
        future: asyncio.Future[Outcome] = loop.create_future()
        self._coalescer.add((text, future))
        self._end_of_turn.plan()
        return await future

    def _send(self, batch: Batch[Entry]) -> None:
        self._task = asyncio.get_running_loop().create_task(self._carry_out(batch))

    async def _carry_out(self, batch: Batch[Entry]) -> None:
        try:
            outcomes = await self._call([text for text, _ in batch.entries])
        except TarryError as error:
            # A handle that is not the broker's refuses all of them: then each goes on its own.
            self._coalescer.on_refused(batch, error)
        except BaseException as error:
            self._coalescer.on_failed(batch, TarryError(f"the call was given up: {error!r}"))
            if not isinstance(error, Exception):
                raise
        else:
            for (_, future), outcome in zip(batch.entries, outcomes, strict=True):
                if not future.done():
                    future.set_result(outcome)
            self._coalescer.on_accepted(batch)
        self._coalescer.pump()


def _refuse(entries: list[Entry], error: TarryError) -> None:
    fail_futures(entries, of_one(error))


def of_one(error: T) -> T:
    """``error`` without the place among many: one handle was given."""
    error.args = (str(error).removeprefix("handle 0: "),)
    return error
