"""The way back to an event loop's thread, for what is answered from other threads."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from typing import TypeVar, TypeVarTuple

from tarry.base.errors import TarryError

A = TypeVar("A")
Ts = TypeVarTuple("Ts")


def post(loop: asyncio.AbstractEventLoop, function: Callable[[*Ts], object], *args: *Ts) -> None:
    """Call a function on the loop's thread: for callbacks of the broker, from any thread.

    If the loop is closed, nobody waits for it any more, and nothing is done.
    """
    with suppress(RuntimeError):  # the loop is closed
        loop.call_soon_threadsafe(function, *args)


def answer_future(loop: asyncio.AbstractEventLoop) -> tuple[asyncio.Future[A], Callable[[A | TarryError], None]]:
    """Return a future, and the callback that gives it its result or error, once, from any thread.

    The twin of :func:`tarry.base.waiting.answer_of` for callers that must not block.
    """
    future: asyncio.Future[A] = loop.create_future()
    return future, lambda answer: post(loop, settle_future, future, answer)


def settle_future(future: asyncio.Future[A], answer: A | Exception) -> None:
    """Give a future its result or error, unless it was cancelled. On its loop's thread."""
    if future.done():
        return  # nobody waits any more
    if isinstance(answer, Exception):
        future.set_exception(answer)
    else:
        future.set_result(answer)


def iterate(loop: asyncio.AbstractEventLoop, items: AsyncIterator[A]) -> Iterator[A]:
    """Yield the items of an asynchronous iterator of the loop. In another thread, which waits for each."""

    async def pull() -> tuple[A] | None:
        async for item in items:
            return (item,)
        return None

    while (found := asyncio.run_coroutine_threadsafe(pull(), loop).result()) is not None:
        yield from found
