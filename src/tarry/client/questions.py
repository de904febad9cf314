"""Questions to the broker: asked on the connection's loop, waited for in threads and tasks.

Who gives a receive up (a time-out, a cancelled task, an exception of a signal's handler) has none of its messages: it
is withdrawn, and what was on its way goes back, as the same try.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, InvalidStateError
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import Any

from tarry.base.errors import ClosedError, TarryError, UnauthenticatedError, UnavailableError
from tarry.base.event_loop import post
from tarry.client.encoding import encoded
from tarry.link.frames import FrameKind, Pairs, decode_rows
from tarry.link.peer import LinkPeer, OnAnswer

OnAsked = Callable[[LinkPeer, int], None]
"""Called on the loop's thread with the connection by which a frame went, and its number there."""
Ask = Callable[[FrameKind, bytes, OnAnswer, OnAsked], None]
"""Sends a frame from any thread; calls back on the loop's."""


PAUSE_S = 0.05
"""Before a receive that came to nothing is asked again."""


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
    """A RECEIVE; what nobody waits for goes back.

    ``again``: one that waits still is asked again when its connection is lost, or its broker stops, for the rest of its
    wait. What was on its way comes again by its lease, to whoever asks then.
    """

    def __init__(
        self, address: str, loop: asyncio.AbstractEventLoop, ask: Ask, request: Mapping[str, Any], *, again: bool
    ) -> None:
        """Ask; raises as :class:`Question` does."""
        self._loop = loop
        self._asked: tuple[LinkPeer, int] | None = None
        """The connection that it went by, and its number there."""
        self._request, self._ask, self._again = request, ask, again
        self._until_s = time.monotonic() + request["wait_ms"] / 1000
        super().__init__(address, ask, FrameKind.RECEIVE, encoded(request))
        self._future.add_done_callback(self._on_done)

    def _on_asked(self, peer: LinkPeer, number: int) -> None:
        self._asked = peer, number
        if self._future.cancelled():
            self._withdraw()

    def _on_answer(self, answer: memoryview | TarryError) -> None:
        # What a receive asks for is not half done: so it can say why the broker has ended the connection.
        if isinstance(answer, UnavailableError) and isinstance(answer.__cause__, UnauthenticatedError):
            answer = UnauthenticatedError(str(answer.__cause__))
        rest_ms = round((self._until_s - time.monotonic()) * 1000)
        if self._again and rest_ms > 0 and not self._future.done() and _came_to_nothing(answer):
            # A broker that stops says so of the connection just after this. It is to be known by then.
            self._loop.call_later(PAUSE_S, self._ask_again)
        else:
            super()._on_answer(answer)

    def _ask_again(self) -> None:
        self._asked = None
        rest_ms = max(0, round((self._until_s - time.monotonic()) * 1000))
        payload = encoded({**self._request, "wait_ms": rest_ms})
        try:
            self._ask(FrameKind.RECEIVE, payload, self._on_answer, self._on_asked)
        except TarryError as error:  # the client is closed
            super()._on_answer(error)

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


def _came_to_nothing(answer: memoryview | TarryError) -> bool:
    """Return whether a receive ended with the link or the broker, and not for a reason of its own."""
    if isinstance(answer, TarryError):
        # Closed is the group, or the client; and where nothing was sent, an owner was looked for in vain.
        is_away = isinstance(answer, UnavailableError) and not isinstance(answer, ClosedError)
        return is_away and not getattr(answer, "nothing_sent", False)
    return not decode_rows(answer).num_rows
