"""Results that come later without a Task (:class:`Promise`), and their receiver (:class:`Responder`)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from typing import Any, Protocol

from loopgrpc.call import Call

Responses = AsyncIterator[bytes] | bytes
"""All responses of a method: message by message, or in one piece."""


class Responder(Protocol):
    """The stream of a call, as the four kinds of handlers see it.

    Methods that send raise TypeError for a message that is not bytes, and ConnectionFault when too many responses wait.
    """

    @property
    def call(self) -> Call:
        """The call, as the handler gets it."""

    @property
    def unsent_bytes(self) -> int:
        """DATA of the connection that waits for the event loop's next turn."""

    def respond(self, message: bytes) -> None:
        """Send the one response, and end the call."""

    def respond_all(self, responses: Responses) -> None:
        """Send all responses, and end the call."""

    def send(self, message: bytes) -> asyncio.Future[None] | None:
        """Send one of many responses.

        A Future means that it waits for the peer, and that the next should wait for the Future.
        """

    def run(self, work: Coroutine[Any, Any, bytes | None]) -> None:
        """Run a coroutine as this call's handler in a Task, which is cancelled with the call."""

    def wait_for(self, future: asyncio.Future[Any]) -> None:
        """Respond with the result of ``future``; None from a handler that has sent its responses itself."""

    def wait_for_promise(self, promise: Promise) -> None:
        """Wait until ``promise`` calls :meth:`on_promise_kept`."""

    def on_promise_kept(self, responses: Responses) -> None:
        """Send the promised responses."""


class Promise:
    """A response, or responses, to come.

    It differs from a Future in two ways. The call gets the responses at once, where a Future's callbacks wait for the
    loop's next turn, which under load is milliseconds away. And it has no exceptions.
    """

    __slots__ = ("_responder", "_responses")

    def __init__(self) -> None:
        self._responses: Responses | None = None
        self._responder: Responder | None = None

    def done(self) -> bool:
        """Return whether the responses were set."""
        return self._responses is not None

    def set_result(self, responses: Responses) -> None:
        """Set the responses, once."""
        assert self._responses is None
        self._responses = responses
        responder, self._responder = self._responder, None
        if responder is not None:
            responder.on_promise_kept(responses)

    def attach(self, responder: Responder) -> None:
        """For the server alone: deliver the responses to ``responder``, now or when they come."""
        if self._responses is not None:
            responder.respond_all(self._responses)
        else:
            self._responder = responder
            responder.wait_for_promise(self)
