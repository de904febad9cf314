"""Gathers cancellations of many tasks of an event loop into shared calls, one call at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from tarry.api.outcome import Outcome
from tarry.base.errors import TarryError
from tarry.batching.coalescing import fail_futures
from tarry.batching.submitting import Submitter
from tarry.message import handle

T = TypeVar("T", bound=TarryError)
Entry = tuple[str, "asyncio.Future[Outcome]"]


class Cancelling:
    """Gathers cancellations of one event loop, that of its first call; ``call`` cancels many handles."""

    def __init__(self, call: Callable[[list[str]], Awaitable[list[Outcome]]]) -> None:
        self._call = call
        self._submitter: Submitter[Entry, list[Outcome]] | None = None
        self._task: asyncio.Task[None] | None = None
        """The loop itself keeps no task alive."""

    async def cancel(self, text: str) -> Outcome:
        """Cancel the message of a handle, and return the outcome.

        Raises:
            TarryError: what ``call`` raised.
        """
        handle.decode(text)  # a damaged one would refuse the others' too
        loop = asyncio.get_running_loop()
        if self._submitter is None:
            self._submitter = Submitter(loop, self._submit, _accept, _refuse, batches_max=1)
        future: asyncio.Future[Outcome] = loop.create_future()
        self._submitter.add((text, future))
        self._submitter.plan()
        return await future

    def _submit(self, entries: list[Entry], on_result: Callable[[list[Outcome] | TarryError], None]) -> None:
        self._task = asyncio.get_running_loop().create_task(self._carry_out([text for text, _ in entries], on_result))

    async def _carry_out(self, texts: list[str], on_result: Callable[[list[Outcome] | TarryError], None]) -> None:
        try:
            on_result(await self._call(texts))
        except TarryError as error:
            # A handle that is not the broker's refuses all of them: then each goes on its own.
            on_result(error)
        except BaseException as error:
            on_result(TarryError(f"the call was given up: {error!r}"))
            if not isinstance(error, Exception):
                raise


def _accept(entries: list[Entry], outcomes: list[Outcome]) -> None:
    for (_, future), outcome in zip(entries, outcomes, strict=True):
        if not future.done():
            future.set_result(outcome)


def _refuse(entries: list[Entry], error: TarryError) -> None:
    fail_futures(entries, of_one(error))


def of_one(error: T) -> T:
    """``error`` without the place among many: one handle was given."""
    error.args = (str(error).removeprefix("handle 0: "),)
    return error
