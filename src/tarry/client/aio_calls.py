"""Calls of the blocking client, awaited: each in a thread of a pool."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, TypeVar

from tarry.base.errors import ClosedError

if TYPE_CHECKING:
    from tarry.client.sync import Client

T = TypeVar("T")

WAITING_CALLS_MAX = 32
"""Calls other than schedule (long polls, above all) that one client has under way; more wait for their turn."""


class AsyncCalls:
    """What the parts of :class:`tarry.client.AsyncClient` have in common."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.address = client.address
        self._calls = ThreadPoolExecutor(WAITING_CALLS_MAX, thread_name_prefix="tarry-aio")
        self._closed = False

    def _check_open(self) -> None:
        if self._closed:
            raise ClosedError(f"the client of {self.address} is closed")

    async def _call(self, function: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        self._check_open()
        return await asyncio.get_running_loop().run_in_executor(
            self._calls, functools.partial(function, *args, **kwargs)
        )
