"""SendMessage: check the messages of a request, have them accepted, and answer for each.

Source: ``SendMessageActivity`` of apache/rocketmq's proxy.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from loopgrpc import Promise
from tarry.base.clock import Clock
from tarry.fronts.rocketmq.common.draft import Draft, DraftRules
from tarry.fronts.rocketmq.common.half_messages import HalfMessages
from tarry.fronts.rocketmq.common.quotas import in_turn
from tarry.fronts.rocketmq.common.refusal import Code, Refusal
from tarry.fronts.rocketmq.common.rights import check_produce
from tarry.fronts.rocketmq.common.send_queue import SendQueue
from tarry.fronts.rocketmq.common.stubs import service
from tarry.fronts.rocketmq.common.topics import TopicRegistry
from tarry.fronts.rocketmq.common.unpacking import Unpacker, Unpacking
from tarry.fronts.rocketmq.v5.answer_bytes import send_answer
from tarry.fronts.rocketmq.v5.authentication import CallingClient
from tarry.fronts.rocketmq.v5.drafting import draft_of
from tarry.fronts.rocketmq.v5.handles import recall_handle
from tarry.fronts.rocketmq.v5.resources import topic_of
from tarry.fronts.rocketmq.v5.statuses import OK, overall, status_of
from tarry.identity.principal import Principal

MESSAGES_MAX = 1024
"""Messages of one request."""


class SendCall:
    """One SendMessage in progress: its answer, and the answer's entries as they come in."""

    __slots__ = ("_answer", "_entries", "_missing")

    def __init__(self, answer: Promise | asyncio.Future[bytes], rows: int) -> None:
        self._answer = answer
        self._entries: list[Any] = [None] * rows
        self._missing = rows

    def on_accepted(self, place: int, draft: Draft, seq: int, handle: str) -> None:
        """Implement :meth:`tarry.fronts.rocketmq.common.send_queue.SendRequest.on_accepted`."""
        recall = transaction = ""
        if draft.half:
            transaction = HalfMessages.transaction_id(draft)
        elif handle:
            recall = recall_handle(handle, draft.topic, draft.id)
        if len(self._entries) > 1:
            self._add_entry(
                place,
                service.SendResultEntry(
                    status=OK, message_id=draft.id, offset=seq, recall_handle=recall, transaction_id=transaction
                ),
            )
        elif not self._answer.done():
            self._answer.set_result(send_answer(draft.id, seq, recall, transaction))

    def on_refused(self, place: int, draft: Draft, refusal: Refusal) -> None:
        """Implement :meth:`tarry.fronts.rocketmq.common.send_queue.SendRequest.on_refused`."""
        self._add_entry(place, service.SendResultEntry(status=status_of(refusal), message_id=draft.id))

    def _add_entry(self, place: int, entry: Any) -> None:
        self._entries[place] = entry
        self._missing -= 1
        if not self._missing and not self._answer.done():
            status = overall({e.status.code for e in self._entries})
            answer = service.SendMessageResponse(status=status, entries=self._entries)
            self._answer.set_result(answer.SerializeToString())


@dataclass(slots=True)
class Sender:
    """Answers SendMessage. On the loop's thread."""

    _clock: Clock
    _loop: asyncio.AbstractEventLoop
    _rules: DraftRules
    _topics: TopicRegistry
    _queue: SendQueue
    _unpacking: Unpacking

    def send(self, caller: CallingClient, request: Any, peer: str) -> Promise | Awaitable[bytes]:
        """Answer SendMessage; ``peer`` is the client's address.

        Raises:
            Refusal: nothing of the request was accepted.
        """
        messages = request.messages
        if not 1 <= len(messages) <= MESSAGES_MAX:
            raise Refusal(
                Code.MESSAGE_CORRUPTED, f"the request has {len(messages)} messages; allowed: 1 to {MESSAGES_MAX}"
            )
        rules, space = self._rules, caller.namespace
        if not caller.principal.rights.is_unlimited:
            for topic in {topic_of(message.topic, space) for message in messages}:
                check_produce(caller.principal, topic, peer=caller.host)

        def make(unpacker: Unpacker) -> list[Draft]:
            return [draft_of(m, topic_of(m.topic, space), self._clock, rules, peer, unpacker) for m in messages]

        drafts = self._unpacking.try_here(make)
        if drafts is None:
            return self._send_unpacked(make, peer, caller.principal)
        return self._send_drafts(drafts, caller.principal)

    async def _send_unpacked(self, make: Callable[[Unpacker], list[Draft]], peer: str, principal: Principal) -> bytes:
        drafts, release = await self._unpacking.in_thread(make, peer.rpartition(":")[0])
        try:
            preparation = self._topics.prepare(_topic_of(drafts), ordered=_are_ordered(drafts))
            return await self._send_after(preparation, drafts, principal)
        finally:
            release()

    def _send_drafts(self, drafts: list[Draft], principal: Principal) -> Promise | Awaitable[bytes]:
        preparation = self._topics.prepare(_topic_of(drafts), ordered=_are_ordered(drafts))
        if preparation is not None or principal.is_bounded:
            return self._send_after(preparation, drafts, principal)
        answer = Promise()
        self._queue.add(drafts, SendCall(answer, len(drafts)))
        return answer

    async def _send_after(
        self, preparation: Awaitable[None] | None, drafts: list[Draft], principal: Principal
    ) -> bytes:
        await in_turn(principal, drafts)
        if preparation is not None:
            await preparation
        answer: asyncio.Future[bytes] = self._loop.create_future()
        self._queue.add(drafts, SendCall(answer, len(drafts)))
        return await answer


def _are_ordered(drafts: list[Draft]) -> bool:
    return any(draft.order_key is not None for draft in drafts)


def _topic_of(drafts: list[Draft]) -> str:
    topic = drafts[0].topic
    if len(drafts) > 1 and any(draft.topic != topic for draft in drafts):
        raise Refusal(Code.MESSAGE_CORRUPTED, "the messages of a request are for one topic; these are for several")
    return topic
