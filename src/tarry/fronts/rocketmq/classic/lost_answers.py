"""Sends that were accepted while the producer's connection ended, so that it never got the answer.

The client sends the same once more, over a new connection, with the same id, properties and body. Such a retry gets the
first send's answer, and makes no second message.

The id alone does not identify a retry: a program may send one object twice, or pass on a message that it received, and
means another message each time. So each send whose answer was lost allows for one retry, of the same content, within
the window of deduplication; and a send over a connection that is still open is never repeated. A crash of the broker
forgets them: a retry after that may be a second message, as in RocketMQ.

A retry may come to another worker. So the front's processes tell each other of lost answers, and which were taken. A
worker that is killed forgets those of its sends that were under way, as a broker does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, NamedTuple

from tarry.api.local import AnyBroker
from tarry.base.event_loop import post
from tarry.fronts.rocketmq.classic.codes import ResponseCode
from tarry.fronts.rocketmq.classic.connection import OpenRequest, Reply

FRONT = "remoting"
_LOST, _TAKEN = "lost", "taken"
LOST_MAX = 10_000
"""Lost answers that are remembered; beyond that, the oldest is forgotten."""


class SendContent(NamedTuple):
    """The parts of a send that a retry repeats. Its queue and its time of birth may differ."""

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
    """A send in progress. ``followers``: further requests that get its answer."""

    content: SendContent
    request: OpenRequest
    followers: list[OpenRequest] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Lost:
    answer: Reply
    until_s: float
    """In the loop's time."""


class LostAnswers:
    """Remembers lost answers, also of the front's other processes. On the event loop's thread.

    ``window_s``: time for a retry; with 0 none is recognised.
    """

    def __init__(self, broker: AnyBroker, loop: asyncio.AbstractEventLoop, window_s: float) -> None:
        self._loop = loop
        self._member = broker.join(FRONT, lambda _, message: post(loop, self._on_message, message))
        self.close = self._member.leave
        """Tells and hears nothing any more."""
        self._window_s = window_s
        self._open: dict[SendContent, list[PendingSend]] = {}
        self._lost: dict[bytes, list[_Lost]] = {}

    def begin(self, content: SendContent, request: OpenRequest) -> Callable[[Reply], None] | None:
        """Begin a send; return the callback for its answer, or None if it is a retry.

        A retry is answered here, now or later.
        """
        if not self._window_s or request.command.is_oneway:
            return request.answer
        if (answer := self._take(content)) is not None:
            request.answer(answer)
            return None
        sends = self._open.setdefault(content, [])
        for send in sends:
            # One retry each. A retry whose own connection ends meanwhile may be repeated, too.
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
            digest = send.content.digest()
            self._keep(digest, answer)
            self._member.send({_LOST: digest.hex(), "fields": dict(answer.fields)})
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
        """Return an answer that a send of this content did not get; each serves one retry."""
        if not self._lost:
            return None
        digest = content.digest()
        answer = self._take_one(digest)
        if answer is not None:
            self._member.send({_TAKEN: digest.hex()})
        return answer

    def _take_one(self, digest: bytes) -> Reply | None:
        now_s = self._loop.time()
        kept = [lost for lost in self._lost.pop(digest, []) if lost.until_s > now_s]
        if len(kept) > 1:
            self._lost[digest] = kept[1:]
        return kept[0].answer if kept else None

    def _on_message(self, message: Mapping[str, Any]) -> None:
        if _LOST in message:
            self._keep(bytes.fromhex(message[_LOST]), Reply(fields=message["fields"]))
        elif _TAKEN in message:
            self._take_one(bytes.fromhex(message[_TAKEN]))
