"""The four kinds of methods, and the way each is run.

A method that returns bytes, or a Promise of its response or responses, needs no Task: they are sent from where they
become known. Everything else is a coroutine and has a Task. An exception of a handler ends its call and nothing else:
GrpcError with its own status, all others with UNKNOWN; their traceback is logged, and none of it is sent.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass
from inspect import iscoroutinefunction
from typing import Any, ClassVar, Final

from loopgrpc.call import Call
from loopgrpc.promise import Promise, Responder, Responses

_MESSAGES_PER_TURN: Final = 64
_BYTES_PER_TURN: Final = 65_536
"""Bytes that a method may send before other calls have their turn of the event loop."""


@dataclass(frozen=True, slots=True)
class Unary:
    """One message in, one out.

    A Promise, or a plain Future, that ``fn`` returns is never cancelled, as it may belong to others too (a group
    commit). A Task and a coroutine are cancelled when nobody waits for the response any more.
    """

    fn: Callable[[bytes, Call], bytes | Promise | Awaitable[bytes]]
    streams_requests: ClassVar[bool] = False

    def start(self, responder: Responder, message: Any) -> None:
        """Run the handler; an exception passes to the caller."""
        result = self.fn(message, responder.call)
        if type(result) is bytes:
            responder.respond(result)
        elif isinstance(result, Promise):
            result.attach(responder)
        elif isinstance(result, asyncio.Future):
            responder.wait_for(result)
        elif isinstance(result, Awaitable):
            responder.run(_coroutine(result))
        else:
            responder.respond(result)


@dataclass(frozen=True, slots=True)
class ServerStream:
    """One message in, many out, singly or as :class:`loopgrpc.Framed`.

    A ``yield`` waits while the peer does not read. Responses that are known in one piece may be returned instead of an
    iterator; or a Promise of either; and ``async def`` may return either. A Promise is not told when nobody waits for
    it any more: see :meth:`loopgrpc.Call.on_done`.
    """

    fn: Callable[[bytes, Call], Responses | Promise | Awaitable[Responses]]
    streams_requests: ClassVar[bool] = False

    def start(self, responder: Responder, message: Any) -> None:
        """Run the handler; an exception passes to the caller."""
        if iscoroutinefunction(self.fn):
            responder.run(_send_later(responder, self.fn, message))
            return
        result: Any = self.fn(message, responder.call)
        if isinstance(result, Promise):
            result.attach(responder)
        else:
            responder.respond_all(result)


@dataclass(frozen=True, slots=True)
class ClientStream:
    """Many messages in, one out."""

    fn: Callable[[AsyncIterator[bytes], Call], Awaitable[bytes]]
    streams_requests: ClassVar[bool] = True

    def start(self, responder: Responder, messages: Any) -> None:
        """Run the handler; an exception passes to the caller."""
        responder.run(_coroutine(self.fn(messages, responder.call)))


@dataclass(frozen=True, slots=True)
class Bidi:
    """Many messages in, many out, in whichever order. ``async def`` may return them in one piece, too."""

    fn: Callable[[AsyncIterator[bytes], Call], AsyncIterator[bytes] | Awaitable[Responses]]
    streams_requests: ClassVar[bool] = True

    def start(self, responder: Responder, messages: Any) -> None:
        """Run the handler; an exception passes to the caller."""
        if iscoroutinefunction(self.fn):
            responder.run(_send_later(responder, self.fn, messages))
        else:
            responses: Any = self.fn(messages, responder.call)
            responder.run(send_all(responder, responses))


Handler = Unary | ServerStream | ClientStream | Bidi


def by_path(handlers: Mapping[str, Handler]) -> dict[bytes, Handler]:
    """Return handlers by their paths as the wire has them.

    Raises ValueError: an invalid path.
    """
    for path in handlers:
        if not path.startswith("/") or path.count("/") != 2 or not path.isascii():
            raise ValueError(f"method {path!r}; allowed: /package.Service/Method")
    return {path.encode("ascii"): handler for path, handler in handlers.items()}


def _coroutine(result: Awaitable[bytes]) -> Coroutine[Any, Any, bytes]:
    """Return ``result`` as a coroutine for a Task.

    A coroutine stays as it is: wrapped in another that is cancelled early, it would never be awaited.
    """
    return result if isinstance(result, Coroutine) else _await(result)


async def _await(result: Awaitable[bytes]) -> bytes:
    return await result


async def _send_later(responder: Responder, fn: Callable[[Any, Call], Awaitable[Responses]], asked: Any) -> None:
    """Send what a coroutine gives: all in one piece, or message by message."""
    responses = await fn(asked, responder.call)
    if isinstance(responses, bytes):
        responder.send(responses)
    else:
        await send_all(responder, responses)


async def send_all(responder: Responder, responses: AsyncIterator[bytes]) -> None:
    """Send each message of ``responses`` as the peer takes it."""
    messages_in_turn = 0
    try:
        async for message in responses:
            sent = responder.send(message)
            messages_in_turn += 1
            if sent is not None:
                await sent
                messages_in_turn = 0
            elif messages_in_turn >= _MESSAGES_PER_TURN or responder.unsent_bytes >= _BYTES_PER_TURN:
                # A generator that never waits would keep the loop from all others, and from writing its messages.
                await asyncio.sleep(0)
                messages_in_turn = 0
    finally:
        # Not left to the garbage collector: its ``finally`` is how a handler gives back what it holds.
        close = getattr(responses, "aclose", None)
        if close is not None:
            await close()
