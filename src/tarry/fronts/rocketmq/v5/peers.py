"""The other processes of this front: which clients they have, and what they are told of ours.

What is posted is small, and in a broker that serves alone nobody reads it.
"""

from __future__ import annotations

import asyncio
import base64
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pyarrow as pa

from tarry.api.board import Member
from tarry.api.local import LocalBroker
from tarry.base.event_loop import post
from tarry.message.columns import stream_bytes

log = logging.getLogger(__name__)

FRONT = "rocketmq"
_TOPICS = "topics"
_TOPICS_S = 0.5
"""How long changes of who publishes what gather."""


def _nothing(*_: Any) -> None:
    pass


class Colleagues:
    """On the loop's thread. ``on_goodbye`` gets namespace and id of a client that has left elsewhere, ``on_attempt``
    also which attempt it makes again there, ``on_question`` a half message whose producer is here.
    """

    def __init__(self, broker: LocalBroker, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._timer: asyncio.TimerHandle | None = None
        self.on_goodbye: Callable[[str, str], None] = _nothing
        self.on_attempt: Callable[[str, str, tuple[str, str, int], str], None] = _nothing
        self.on_question: Callable[[pa.RecordBatch], None] = _nothing
        self._member: Member = broker.join(FRONT, lambda _, message: post(loop, self._on_message, message))

    def close(self) -> None:
        """Tell the others nothing any more."""
        if self._timer is not None:
            self._timer.cancel()
        self._member.leave()

    # -- clients -------------------------------------------------------------------------------------------------------

    def post_client(self, namespace: str, id: str, timeout_s: float) -> None:
        """A client is here; ``timeout_s``: how long it waits for an answer, 0: it has not said."""
        self._member.post(_key(namespace, id), {"timeout_s": timeout_s})

    def withdraw_client(self, namespace: str, id: str) -> None:
        """It is not here any more, as far as is known here."""
        self._member.post(_key(namespace, id), None)

    def has_client(self, namespace: str, id: str) -> bool:
        """Whether it is with another process."""
        return bool(self._member.others(_key(namespace, id)))

    def timeout_s(self, namespace: str, id: str) -> float:
        """How long a client waits for an answer, by what it said elsewhere; 0: nothing is known."""
        return max((said["timeout_s"] for said in self._member.others(_key(namespace, id)).values()), default=0.0)

    def say_goodbye(self, namespace: str, id: str) -> None:
        """A client has left for good: the others give back what it holds of theirs."""
        self._member.send({"goodbye": [namespace, id]})

    def announce_attempt(self, namespace: str, id: str, key: tuple[str, str, int], attempt_id: str) -> None:
        """A client makes an attempt that may have been made with another process, and answered in vain."""
        if attempt_id and self.has_client(namespace, id):
            self._member.send({"attempt": [namespace, id, list(key), attempt_id]})

    # -- transactions --------------------------------------------------------------------------------------------------

    def plan_topics(self, topics: Callable[[], Iterable[str]]) -> None:
        """Who publishes what has changed: ``topics`` says it, soon."""
        if self._timer is None:
            self._timer = self._loop.call_later(_TOPICS_S, self._post_topics, topics)

    def _post_topics(self, topics: Callable[[], Iterable[str]]) -> None:
        self._timer = None
        published = sorted(topics())
        self._member.post(_TOPICS, {"topics": published} if published else None)

    def ask(self, topic: str, half: pa.RecordBatch) -> bool:
        """Have a producer of a topic that is connected elsewhere be asked about a half message; False: there is none.
        A question that is lost is asked again when it falls due again.
        """
        for number, said in self._member.others(_TOPICS).items():
            if topic in said["topics"]:
                self._member.send(
                    {"question": base64.b64encode(stream_bytes(half.schema, [half])).decode("ascii")}, number
                )
                return True
        return False

    def _on_message(self, message: Mapping[str, Any]) -> None:
        if "goodbye" in message:
            self.on_goodbye(*message["goodbye"])
        elif "attempt" in message:
            namespace, id, (topic, group, queue), attempt_id = message["attempt"]
            self.on_attempt(namespace, id, (topic, group, queue), attempt_id)
        elif "question" in message:
            self.on_question(pa.ipc.open_stream(base64.b64decode(message["question"])).read_next_batch())


def _key(namespace: str, id: str) -> str:
    return f"client {namespace}\0{id}"
