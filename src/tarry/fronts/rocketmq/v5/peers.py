"""Client state shared with the other processes of this front.

Posts are small, and in a broker that serves alone nobody reads them.
"""

from __future__ import annotations

import asyncio
import base64
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pyarrow as pa

from tarry.api.board import Member
from tarry.api.local import AnyBroker
from tarry.base.event_loop import post
from tarry.message.columns import stream_bytes

log = logging.getLogger(__name__)

FRONT = "rocketmq"
_TOPICS = "topics"
_TOPICS_S = 0.5
"""Time for which changes of the published topics are gathered."""


def _nothing(*_: Any) -> None:
    pass


class Colleagues:
    """Shares client state with the other processes. On the event loop's thread.

    ``on_goodbye`` gets namespace and id of a client that has left another process, ``on_attempt`` also which attempt it
    makes again there, ``on_question`` a half message whose producer is here.
    """

    def __init__(self, broker: AnyBroker, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._timer: asyncio.TimerHandle | None = None
        self.on_goodbye: Callable[[str, str], None] = _nothing
        self.on_attempt: Callable[[str, str, tuple[str, str, int], str], None] = _nothing
        self.on_question: Callable[[pa.RecordBatch], None] = _nothing
        self._member: Member = broker.join(FRONT, lambda _, message: post(loop, self._on_message, message))

    def close(self) -> None:
        """Stop telling the others anything."""
        if self._timer is not None:
            self._timer.cancel()
        self._member.leave()

    # -- clients -------------------------------------------------------------------------------------------------------

    def post_client(self, namespace: str, id: str, timeout_s: float) -> None:
        """Post that a client is here.

        ``timeout_s``: how long it waits for an answer; 0 if it has not said so.
        """
        self._member.post(_key(namespace, id), {"timeout_s": timeout_s})

    def withdraw_client(self, namespace: str, id: str) -> None:
        """Take back the post of a client that is no longer here, as far as this process knows."""
        self._member.post(_key(namespace, id), None)

    def has_client(self, namespace: str, id: str) -> bool:
        """Return whether a client is connected to another process."""
        return bool(self._member.others(_key(namespace, id)))

    def timeout_s(self, namespace: str, id: str) -> float:
        """Return how long a client waits for an answer, as told to another process; 0 if unknown."""
        return max((said["timeout_s"] for said in self._member.others(_key(namespace, id)).values()), default=0.0)

    def say_goodbye(self, namespace: str, id: str) -> None:
        """Tell the others that a client has left for good, so that they give back the messages it holds."""
        self._member.send({"goodbye": [namespace, id]})

    def announce_attempt(self, namespace: str, id: str, key: tuple[str, str, int], attempt_id: str) -> None:
        """Announce an attempt to the others: one of them may have answered it before, in vain."""
        if attempt_id and self.has_client(namespace, id):
            self._member.send({"attempt": [namespace, id, list(key), attempt_id]})

    # -- transactions --------------------------------------------------------------------------------------------------

    def plan_topics(self, topics: Callable[[], Iterable[str]]) -> None:
        """Plan to post the published topics, which have changed; ``topics`` is called for them soon."""
        if self._timer is None:
            self._timer = self._loop.call_later(_TOPICS_S, self._post_topics, topics)

    def _post_topics(self, topics: Callable[[], Iterable[str]]) -> None:
        self._timer = None
        published = sorted(topics())
        self._member.post(_TOPICS, {"topics": published} if published else None)

    def ask(self, topic: str, half: pa.RecordBatch) -> bool:
        """Have another process ask a producer of a topic about a half message; return whether there is one.

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
