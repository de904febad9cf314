"""Sends that were accepted while the producer's connection ended, so that it never got the answer.

The client sends the same once more, over a new connection, with all that it has of the message: its id, its properties
and its body. That gets the first one's answer, and makes no second message. The id alone does not tell a retry: a
program may send one object twice, or pass on what it received, and means another message each time. So each send whose
answer was lost is good for one retry, of the same content, within the window of deduplication; and what is on its way
over a connection that is open is no retry. A crash of the broker forgets them: a retry after that may be a second
message, as in RocketMQ.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import sha256
from typing import NamedTuple

from tarry.fronts.rocketmq.classic.codes import ResponseCode
from tarry.fronts.rocketmq.classic.connection import OpenRequest, Reply

LOST_MAX = 10_000
"""That are remembered; then the oldest is forgotten."""


class SendContent(NamedTuple):
    """What a retry has in common with the send that it repeats. The queue and the time of birth may be others."""

    topic: str
    properties: str
    flags: str
    body: bytes

    def digest(self) -> bytes:
        parts = sha256()
        for part in (self.topic.encode(), self.properties.encode(), self.flags.encode(), self.body):
            parts.update(len(part).to_bytes(8, "big") + part)
        return parts.digest()


@dataclass(slots=True, eq=False)
class PendingSend:
    """One that is on its way. ``followers``: who gets its answer, too."""

    content: SendContent
    request: OpenRequest
    followers: list[OpenRequest] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Lost:
    answer: Reply
    until_s: float
    """As the loop's time."""


class LostAnswers:
    """On the loop's thread. ``window_s``: how long a retry may take; 0: none is known for one."""

    def __init__(self, loop: asyncio.AbstractEventLoop, window_s: float) -> None:
        self._loop = loop
        self._window_s = window_s
        self._open: dict[SendContent, list[PendingSend]] = {}
        self._lost: dict[bytes, list[_Lost]] = {}

    def begin(self, content: SendContent, request: OpenRequest) -> Callable[[Reply], None] | None:
        """A send begins: what its answer is to be given to. None: it is a retry, and is answered, or will be."""
        if not self._window_s or request.command.is_oneway:
            return request.answer
        if (answer := self._take(content)) is not None:
            request.answer(answer)
            return None
        sends = self._open.setdefault(content, [])
        for send in sends:
            # One retry each: those whose own connections end meanwhile may be repeated, too.
            if send.request.connection.closed and all(f.connection.closed for f in send.followers):
                send.followers.append(request)
                return None
        send = PendingSend(content, request)
        sends.append(send)
        return lambda answer: self._end(send, answer)

    def _end(self, send: PendingSend, answer: Reply) -> None:
        sends = self._open[send.content]
        sends.remove(send)
        if not sends:
            del self._open[send.content]
        last = (send.followers or [send.request])[-1]
        if answer.code == ResponseCode.SUCCESS and last.connection.closed:
            self._keep(send.content.digest(), answer)
        for request in (send.request, *send.followers):
            request.answer(answer)

    def _keep(self, digest: bytes, answer: Reply) -> None:
        now_s = self._loop.time()
        if len(self._lost) >= LOST_MAX:
            self._lost = {key: kept for key, kept in self._lost.items() if kept[-1].until_s > now_s}
        if len(self._lost) >= LOST_MAX:
            del self._lost[next(iter(self._lost))]
        self._lost.setdefault(digest, []).append(_Lost(answer, now_s + self._window_s))

    def _take(self, content: SendContent) -> Reply | None:
        """The answer that a send of this content did not get, if there is one: it is for one retry."""
        if not self._lost:
            return None
        digest, now_s = content.digest(), self._loop.time()
        kept = [lost for lost in self._lost.pop(digest, []) if lost.until_s > now_s]
        if len(kept) > 1:
            self._lost[digest] = kept[1:]
        return kept[0].answer if kept else None
