"""Context managers that are open while a worker runs: entered in order, left in reverse."""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    AsyncExitStack,
    asynccontextmanager,
    contextmanager,
)
from typing import Any

from tarry.base.errors import InvalidArgumentError

Lifespan = Callable[[], Any]
"""A function that yields once, async or not; or one that returns a context manager."""


def checked(lifespan: Lifespan) -> Lifespan:
    """Return a function that makes a context manager.

    Raises:
        InvalidArgumentError: it takes arguments.
    """
    needed = [each.name for each in inspect.signature(lifespan).parameters.values() if each.default is each.empty]
    if needed:
        raise InvalidArgumentError(f"the lifespan takes {', '.join(needed)}; allowed: no arguments")
    if inspect.isasyncgenfunction(lifespan):
        make_async: Callable[[], AsyncGenerator[Any, None]] = lifespan
        return asynccontextmanager(make_async)
    if inspect.isgeneratorfunction(lifespan):
        make: Callable[[], Generator[Any, None, None]] = lifespan
        return contextmanager(make)
    return lifespan


async def enter(stack: AsyncExitStack, lifespan: Lifespan) -> None:
    """Enter one, until the stack is left.

    Raises:
        InvalidArgumentError: it is none.
    """
    made = lifespan()
    if isinstance(made, AbstractAsyncContextManager):
        await stack.enter_async_context(made)
    elif isinstance(made, AbstractContextManager):
        stack.enter_context(made)
    else:
        if inspect.iscoroutine(made):
            made.close()
        raise InvalidArgumentError(f"the lifespan returned {made!r}; allowed: to yield once, or a context manager")
