"""The messages of a request that streams, as the asynchronous iterator that its handler gets."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable


class RequestMessages:
    """A queue of messages for one reader.

    ``on_read`` is called with each message that the reader takes, until :meth:`close`.
    """

    __slots__ = ("_ended", "_messages", "_on_read", "_waiter")

    def __init__(self, on_read: Callable[[bytes], None]) -> None:
        self._on_read: Callable[[bytes], None] | None = on_read
        self._messages: deque[bytes] = deque()
        self._ended = False
        self._waiter: asyncio.Future[None] | None = None

    def put(self, message: bytes) -> None:
        self._messages.append(message)
        self._wake()

    def end(self) -> None:
        """Note that there will be no more messages."""
        self._ended = True
        self._wake()

    def close(self) -> None:
        """Drop the messages that were not taken: the call has ended."""
        self._on_read = None
        self._messages.clear()
        self.end()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def __aiter__(self) -> RequestMessages:
        return self

    async def __anext__(self) -> bytes:
        while not self._messages:
            if self._ended:
                raise StopAsyncIteration
            if self._waiter is not None:
                raise RuntimeError("the messages of a call are for one reader at a time")
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        message = self._messages.popleft()
        if self._on_read is not None:
            self._on_read(message)
        return message
