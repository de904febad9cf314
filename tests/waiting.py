"""Waiting for what happens by itself: until a condition holds, with a deadline, never for a fixed time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

TIMEOUT_S = 60.0
"""Far beyond what anything takes, on a machine that has other things to do, too."""


def wait_until(condition: Callable[[], object], timeout_s: float = TIMEOUT_S, what: object = "") -> None:
    """Return when the condition holds.

    Args:
        condition: is called again and again; its result counts as true or false.
        timeout_s: fail after so many seconds.
        what: for the text of that failure; a function is called for it then.

    Raises:
        AssertionError: it did not hold in time.
    """
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"waited {timeout_s:g} s in vain: {what() if callable(what) else what}"
        time.sleep(0.01)


async def wait_until_async(condition: Callable[[], object], timeout_s: float = TIMEOUT_S) -> None:
    """The same on a loop, whose other tasks run meanwhile."""
    async with asyncio.timeout(timeout_s):
        while not condition():
            await asyncio.sleep(0.001)
