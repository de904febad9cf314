"""Requests that stream: messages wait here for their handler, and give their window back when it takes them.

What a peer may send ahead is the stream's window. Bytes of an incomplete message are given back on arrival, as a
message may be larger than the window and nobody can take a part of it; those of a complete one when the handler has it.
So a stream holds at most a window of complete messages and one incomplete one.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from loopgrpc.stream import Stream


class Inbox:
    """The messages of one request, as the asynchronous iterator that its handler gets."""

    __slots__ = ("_ended", "_messages", "_stream", "_waiter")

    def __init__(self, stream: Stream) -> None:
        self._stream: Stream | None = stream
        self._messages: deque[bytes] = deque()
        self._ended = False
        self._waiter: asyncio.Future[None] | None = None

    def put(self, message: bytes) -> None:
        """One more message."""
        self._messages.append(message)
        self._wake()

    def end(self) -> None:
        """There will be no more."""
        self._ended = True
        self._wake()

    def close(self) -> None:
        """The call has ended: what was not taken is dropped."""
        self._stream = None
        self._messages.clear()
        self.end()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def __aiter__(self) -> Inbox:
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
        if self._stream is not None:
            self._stream.taken(message)
        return message
