"""Questions to the broker: asked on the connection's loop, waited for in threads and tasks.

Who gives a receive up (a time-out, a cancelled task, an exception of a signal's handler) has none of its messages: it
is withdrawn, and what was on its way goes back, as the same try.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from concurrent.futures import TimeoutError as FutureTimeoutError

from tarry.base.errors import TarryError, UnauthenticatedError, UnavailableError
from tarry.base.event_loop import post
from tarry.link.frames import FrameKind, Pairs, decode_rows
from tarry.link.peer import LinkPeer, OnAnswer

OnAsked = Callable[[LinkPeer, int], None]
"""Called on the loop's thread with the connection by which a frame went, and its number there."""
Ask = Callable[[FrameKind, bytes, OnAnswer, OnAsked], None]
"""Sends a frame from any thread; calls back on the loop's."""


def no_answer(address: str, timeout_s: float | None, of_it: str = "") -> UnavailableError:
    """Return the error that an answer did not come in time; ``of_it``: what that means for what was asked."""
    return UnavailableError(f"no answer from the broker at {address} within {timeout_s} s{of_it}")


class Question:
    """One question. Make it, then wait for it once, by :meth:`wait` or by :meth:`answer`."""

    def __init__(self, address: str, ask: Ask, kind: FrameKind, payload: bytes) -> None:
        """Ask.

        Raises:
            ClosedError: the connection is closed.
        """
        self._address = address
        self._future: Future[memoryview] = Future()
        ask(kind, payload, self._on_answer, self._on_asked)

    def wait(self, timeout_s: float | None) -> memoryview:
        """Wait for the answer, in a thread that may block.

        Raises:
            TarryError: what the broker said. UnavailableError: it said nothing for so long.
        """
        try:
            return self._future.result(timeout_s)
        except FutureTimeoutError:
            self._give_up()
            raise no_answer(self._address, timeout_s) from None
        except TarryError:
            raise
        except BaseException:  # of a signal's handler
            self._give_up()
            raise

    async def answer(self, timeout_s: float | None) -> memoryview:
        """Wait for the answer, in a task of any loop; raises as :meth:`wait` does."""
        try:
            async with asyncio.timeout(timeout_s):
                return await asyncio.wrap_future(self._future)
        except TimeoutError:
            self._give_up()
            raise no_answer(self._address, timeout_s) from None
        except asyncio.CancelledError:
            self._give_up()
            raise

    def _give_up(self) -> None:
        """Nobody waits for the answer any more, though it may be here already."""
        if not self._future.cancel() and not self._future.cancelled() and self._future.exception() is None:
            self._on_unwanted(self._future.result())

    def _on_answer(self, answer: memoryview | TarryError) -> None:
        """Take the answer. On the loop's thread."""
        try:
            if isinstance(answer, TarryError):
                self._future.set_exception(answer)
            else:
                self._future.set_result(answer)
        except InvalidStateError:  # it was given up
            if not isinstance(answer, TarryError):
                self._on_unwanted(answer)

    def _on_asked(self, peer: LinkPeer, number: int) -> None:
        """Note where it went. On the loop's thread."""

    def _on_unwanted(self, answer: memoryview) -> None:
        """Handle an answer that nobody waits for. Any thread."""


class ReceiveQuestion(Question):
    """A RECEIVE; what nobody waits for goes back."""

    def __init__(self, address: str, loop: asyncio.AbstractEventLoop, ask: Ask, payload: bytes) -> None:
        """Ask; raises as :class:`Question` does."""
        self._loop = loop
        self._asked: tuple[LinkPeer, int] | None = None
        """The connection that it went by, and its number there."""
        super().__init__(address, ask, FrameKind.RECEIVE, payload)
        self._future.add_done_callback(self._on_done)

    def _on_asked(self, peer: LinkPeer, number: int) -> None:
        self._asked = peer, number
        if self._future.cancelled():
            self._withdraw()

    def _on_answer(self, answer: memoryview | TarryError) -> None:
        # What a receive asks for is not half done: so it can say why the broker has ended the connection.
        if isinstance(answer, UnavailableError) and isinstance(answer.__cause__, UnauthenticatedError):
            answer = UnauthenticatedError(str(answer.__cause__))
        super()._on_answer(answer)

    def _on_done(self, future: Future[memoryview]) -> None:
        if future.cancelled():
            post(self._loop, self._withdraw)

    def _withdraw(self) -> None:
        if self._asked is not None:
            peer, number = self._asked
            peer.send(FrameKind.WITHDRAW, number)

    def _on_unwanted(self, answer: memoryview) -> None:
        post(self._loop, self._return, answer)

    def _return(self, answer: memoryview) -> None:
        rows = decode_rows(answer)
        if self._asked is not None and rows.num_rows:
            peer, number = self._asked
            leases, offsets = (rows[name].to_numpy() for name in ("lease", "offset"))
            peer.send(FrameKind.RETURN, number, Pairs(leases, offsets).encode())
