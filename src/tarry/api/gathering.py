"""What many tasks of an event loop cancel at the same time travels together.

One call is under way at a time; what is asked meanwhile gathers for the next one. Alone, a handle goes at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from tarry.api.outcome import Outcome
from tarry.base import handle
from tarry.base.errors import InvalidArgumentError, TarryError, from_wire

Entries = list[tuple[str, "asyncio.Future[Outcome]"]]


class Cancelling:
    """For the running event loop; ``call`` cancels many handles."""

    def __init__(self, call: Callable[[list[str]], Awaitable[list[Outcome]]]) -> None:
        self._call = call
        self._waiting: Entries = []
        self._running: asyncio.Task[None] | None = None

    async def cancel(self, text: str) -> Outcome:
        """The outcome of one handle.

        Raises:
            TarryError: what ``call`` raised.
        """
        handle.decode(text)  # a damaged one would refuse the others' too
        future: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        self._waiting.append((text, future))
        if self._running is None:
            # It begins after this turn of the loop: what other tasks ask in it comes along.
            self._running = asyncio.create_task(self._run())
        return await future

    async def _run(self) -> None:
        try:
            while self._waiting:
                entries, self._waiting = self._waiting, []
                await self._carry_out(entries)
        finally:
            self._running = None

    async def _carry_out(self, entries: Entries) -> None:
        try:
            outcomes = await self._call([text for text, _ in entries])
        except InvalidArgumentError as error:
            if len(entries) == 1:
                _fail(entries, error)
            # One is not the broker's, and so nothing was done: each on its own.
            for entry in entries if len(entries) > 1 else ():
                await self._carry_out([entry])
        except BaseException as error:
            _fail(entries, error)
            if not isinstance(error, Exception):
                raise
        else:
            for (_, future), outcome in zip(entries, outcomes, strict=True):
                if not future.done():
                    future.set_result(outcome)


def _fail(entries: Entries, error: BaseException) -> None:
    for _, future in entries:
        if not future.done():
            # Each gets its own: an exception that several tasks raise collects all their tracebacks.
            future.set_exception(from_wire(error.code, str(error)) if isinstance(error, TarryError) else error)
