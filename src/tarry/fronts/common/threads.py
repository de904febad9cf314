"""The way back to an event loop's thread, for call-backs of the broker."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVarTuple

Ts = TypeVarTuple("Ts")


def post(loop: asyncio.AbstractEventLoop, function: Callable[[*Ts], object], *args: *Ts) -> None:
    """Have a function called on the loop's thread: for call-backs of the broker, in any thread. Where the front has
    stopped, nobody waits for it any more, and nothing is done.
    """
    with suppress(RuntimeError):  # the loop is closed
        loop.call_soon_threadsafe(function, *args)
