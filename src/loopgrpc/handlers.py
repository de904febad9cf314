"""The four kinds of methods, and how each is run.

A method that returns bytes, or a Promise of its answer or answers, costs no Task: they go out where they are known.
Everything else is a coroutine and has one. What a handler raises ends its call and nothing else: GrpcError as it says,
all other things as UNKNOWN, with the traceback in the log and none of it on the wire.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final

from loopgrpc.call import Call

if TYPE_CHECKING:
    from loopgrpc.stream import Stream

_BREATH_MESSAGES: Final = 64
_BREATH_BYTES: Final = 65_536


Answers = AsyncIterator[bytes] | bytes
"""All that a method answers with: one by one, or in one piece."""


class Promise:
    """An answer, or answers, to come. A Future, but for two things: it is told to the call at once, where a Future's
    callbacks wait for the loop's next turn, which under load is milliseconds away; and it has no exceptions."""

    __slots__ = ("_answer", "_stream")

    def __init__(self) -> None:
        self._answer: Answers | None = None
        self._stream: Stream | None = None

    def done(self) -> bool:
        """Whether it was kept."""
        return self._answer is not None

    def set_result(self, answer: Answers) -> None:
        """Keep it, once."""
        assert self._answer is None
        self._answer = answer
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.told(answer)

    def attach(self, stream: Stream) -> None:
        """For the server alone: who waits."""
        if self._answer is not None:
            stream.answers(self._answer)
        else:
            self._stream = stream
            stream.promised(self)


@dataclass(frozen=True, slots=True)
class Unary:
    """One message in, one out. A Promise, or a plain Future, that ``fn`` returns is never cancelled, as it may belong
    to others too (a group commit); a Task and a coroutine are, when nobody waits for the answer any more."""

    fn: Callable[[bytes, Call], bytes | Promise | Awaitable[bytes]]
    streams_in: ClassVar[bool] = False

    def start(self, stream: Stream, message: Any) -> None:
        """Run it; what it raises goes to the caller."""
        result = self.fn(message, stream.call)
        if type(result) is bytes:
            stream.answer(result)
        elif isinstance(result, Promise):
            result.attach(stream)
        elif isinstance(result, asyncio.Future):
            stream.wait_for(result)
        elif isinstance(result, Awaitable):
            stream.run(_coroutine(result))
        else:
            stream.answer(result)


def _coroutine(result: Awaitable[bytes]) -> Coroutine[Any, Any, bytes]:
    """``result`` for a Task. A coroutine goes as it is: within another, cancelled early, it would never be awaited."""
    return result if isinstance(result, Coroutine) else _awaited(result)


async def _awaited(result: Awaitable[bytes]) -> bytes:
    return await result


@dataclass(frozen=True, slots=True)
class ServerStream:
    """One message in, many out, singly or :class:`loopgrpc.Framed`. A ``yield`` waits while the peer does not
    read. What is known in one piece may be returned instead of an iterator; or a Promise of either. Nobody tells a
    Promise that nobody waits any more: see :meth:`loopgrpc.Call.on_done`."""

    fn: Callable[[bytes, Call], Answers | Promise]
    streams_in: ClassVar[bool] = False

    def start(self, stream: Stream, message: Any) -> None:
        """Run it."""
        result = self.fn(message, stream.call)
        if isinstance(result, Promise):
            result.attach(stream)
        else:
            stream.answers(result)


@dataclass(frozen=True, slots=True)
class ClientStream:
    """Many messages in, one out."""

    fn: Callable[[AsyncIterator[bytes], Call], Awaitable[bytes]]
    streams_in: ClassVar[bool] = True

    def start(self, stream: Stream, messages: Any) -> None:
        """Run it."""
        stream.run(_coroutine(self.fn(messages, stream.call)))


@dataclass(frozen=True, slots=True)
class Bidi:
    """Many messages in, many out, in whichever order."""

    fn: Callable[[AsyncIterator[bytes], Call], AsyncIterator[bytes]]
    streams_in: ClassVar[bool] = True

    def start(self, stream: Stream, messages: Any) -> None:
        """Run it."""
        stream.run(send_all(stream, self.fn(messages, stream.call)))


Handler = Unary | ServerStream | ClientStream | Bidi


async def send_all(stream: Stream, answers: AsyncIterator[bytes]) -> None:
    """Send what ``answers`` yields, one by one, as the peer takes it."""
    count = 0
    try:
        async for message in answers:
            waiter = stream.send(message)
            count += 1
            if waiter is not None:
                await waiter
                count = 0
            elif count >= _BREATH_MESSAGES or stream.unsent_bytes >= _BREATH_BYTES:
                # A generator that never waits would keep the loop from all others, and from writing what it yields.
                await asyncio.sleep(0)
                count = 0
    finally:
        # Not left to the collector: its ``finally`` is how a handler gives back what it holds.
        close = getattr(answers, "aclose", None)
        if close is not None:
            await close()
