"""SEND_MESSAGE, its short form SEND_MESSAGE_V2, and SEND_BATCH_MESSAGE."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from tarry.api.local import AnyBroker
from tarry.fronts.rocketmq.classic.awaiting import await_reply
from tarry.fronts.rocketmq.classic.batches import BatchEntry, decode_batch
from tarry.fronts.rocketmq.classic.codes import RequestCode, RequestRefused, ResponseCode, code_of
from tarry.fronts.rocketmq.classic.connection import OpenRequest, Reply
from tarry.fronts.rocketmq.classic.drafting import Draftsman
from tarry.fronts.rocketmq.classic.fields import Fields
from tarry.fronts.rocketmq.classic.giving_up import DeadLetterWriter, Tried
from tarry.fronts.rocketmq.classic.lost_answers import LostAnswers, SendContent
from tarry.fronts.rocketmq.classic.message_bytes import address_bytes, decode_properties, offset_id
from tarry.fronts.rocketmq.classic.queues import TopicQueues
from tarry.fronts.rocketmq.classic.recalling import recall_handle
from tarry.fronts.rocketmq.common.broker_names import TRACE, BrokerNames
from tarry.fronts.rocketmq.common.delay_topics import refuse_delay_topic
from tarry.fronts.rocketmq.common.draft import Draft, DraftRules
from tarry.fronts.rocketmq.common.half_messages import HalfMessages
from tarry.fronts.rocketmq.common.names import DEAD_PREFIX, RETRY_PREFIX, topic_name
from tarry.fronts.rocketmq.common.properties import MESSAGE_ID, NUMBER, RECONSUME_TIMES, RETRY_TOPIC
from tarry.fronts.rocketmq.common.quotas import in_turn
from tarry.fronts.rocketmq.common.refusal import Refusal
from tarry.fronts.rocketmq.common.rights import check_consume
from tarry.fronts.rocketmq.common.send_queue import SendQueue
from tarry.fronts.rocketmq.common.threads import RunInThread
from tarry.fronts.rocketmq.common.topics import TopicRegistry
from tarry.fronts.rocketmq.common.unpacking import Unpacker, Unpacking
from tarry.message.reserved import FIRST

RETRIES = 16
"""Retries of a group that does not set them."""
_SHORT_NAMES = {
    "producerGroup": "a", "topic": "b", "defaultTopic": "c", "defaultTopicQueueNums": "d", "queueId": "e",
    "sysFlag": "f", "bornTimestamp": "g", "flag": "h", "properties": "i", "reconsumeTimes": "j", "unitMode": "k",
    "maxReconsumeTimes": "l", "batch": "m",
}  # fmt: skip
NUMBER_BASE = -1 << 62
"""Added to a message's number in its offset id, since it has no place in a queue until it is due."""


class Sender:
    """Answers sends. On the event loop's thread.

    ``dead_letters``: None in a worker, which is given nothing that was tried before.
    """

    def __init__(
        self,
        broker: AnyBroker,
        names: BrokerNames,
        rules: DraftRules,
        topics: TopicRegistry,
        queues: TopicQueues,
        send_queue: SendQueue,
        lost_answers: LostAnswers,
        dead_letters: DeadLetterWriter | None,
        run_in_thread: RunInThread,
    ) -> None:
        self._names = names
        self._lost_answers = lost_answers
        self._dead_letters = dead_letters
        self._run_in_thread = run_in_thread
        self._unpacking = Unpacking(rules.body_bytes_max, run_in_thread)
        self._clock = broker.clock
        self._queues = queues
        self._rules = rules
        self._topics = topics
        self._send_queue = send_queue

    def send(self, request: OpenRequest) -> Reply | Awaitable[Reply | None] | None:
        """Accept a request's messages, all or none; it is answered when they are durable.

        Raises:
            Refusal, RequestRefused: MESSAGE_ILLEGAL, TOPIC_NOT_EXIST and others.
        """
        fields, body = sent_fields(request), request.command.body
        name = fields.text("topic")
        refuse_delay_topic(name)
        if name == TRACE:
            return Reply(fields=_place(request, None, 0))
        batch = request.code == RequestCode.SEND_BATCH_MESSAGE or fields.truth("batch")
        topic = _topic_of(name, fields, batch)
        queue = self._queue_of(topic, fields)
        draftsman = Draftsman(
            topic, queue, fields, request.connection.peer, self._clock, self._rules, self._names.cluster
        )
        entries = decode_batch(body) if batch else [_entry(fields, body)]
        make = partial(draftsman.drafts, entries)
        drafts = self._unpacking.try_here(make)
        if drafts is None:
            return self._send_unpacked(make, request, queue, topic, entries)
        return self._send_drafts(drafts, request, queue, topic, entries)

    async def _send_unpacked(
        self,
        make: Callable[[Unpacker], list[Draft]],
        request: OpenRequest,
        queue: int | None,
        topic: str,
        entries: Sequence[BatchEntry],
    ) -> Reply | None:
        drafts, release = await self._unpacking.in_thread(make, request.peer_host)
        request.on_answered = release
        try:
            answer = self._send_drafts(drafts, request, queue, topic, entries)
            return await answer if isinstance(answer, Awaitable) else answer
        except BaseException:
            release()  # if the connection is gone, nothing else releases it
            raise

    def _send_drafts(
        self,
        drafts: list[Draft],
        request: OpenRequest,
        queue: int | None,
        topic: str,
        entries: Sequence[BatchEntry],
    ) -> Reply | Awaitable[Reply | None] | None:
        fields = sent_fields(request)
        name = fields.text("topic")
        if name.startswith(RETRY_PREFIX) and (tried := Tried.read(entries[0].properties.get(NUMBER, ""))) is not None:
            group = name.removeprefix(RETRY_PREFIX)
            assert self._dead_letters is not None, "a worker passes it on"
            # It may have been sent back already, with only the answer lost.
            drafts = [drafts[0]._replace(id=self._dead_letters.copy_id(group, tried))]
            if topic.startswith(DEAD_PREFIX):
                return self._give_up(self._dead_letters, drafts[0], group, tried, request)
            if tried.first_due_ms:
                drafts[0].properties.append((FIRST, f"{tried.first_seq}:{tried.first_due_ms}"))
        if not request.principal.is_local:
            for entry in entries:
                await_reply(request.connection, entry.properties)
        if request.principal.is_bounded:
            return self._send_in_turn(drafts, request, queue, topic, fields)
        return self._send_counted(drafts, request, queue, topic, fields)

    async def _send_in_turn(
        self, drafts: Sequence[Draft], request: OpenRequest, queue: int | None, topic: str, fields: Fields
    ) -> Reply | None:
        await in_turn(request.principal, drafts)
        answer = self._send_counted(drafts, request, queue, topic, fields)
        return None if answer is None else await answer

    def _send_counted(
        self, drafts: Sequence[Draft], request: OpenRequest, queue: int | None, topic: str, fields: Fields
    ) -> Awaitable[Reply] | None:
        preparation = self._topics.prepare(topic, ordered=any(draft.order_key for draft in drafts))
        if preparation is not None:
            return self._send_when(preparation, drafts, request, queue)
        self._send(drafts, request, queue, topic, fields)
        return None

    def _send(
        self, drafts: Sequence[Draft], request: OpenRequest, queue: int | None, topic: str, fields: Fields
    ) -> None:
        # Another caller's send of the same content is another message.
        flags = f"{fields.whole('flag', 0)} {fields.whole('sysFlag', 0)} {request.principal.name}"
        content = SendContent(topic, fields.text("properties", " "), flags, request.command.body)
        if (answer := self._lost_answers.begin(content, request)) is not None:
            self._send_queue.add(drafts, _Answers(self._names.broker, request, queue, len(drafts), answer))

    async def _send_when(
        self, preparation: Awaitable[None], drafts: Sequence[Draft], request: OpenRequest, queue: int | None
    ) -> Reply:
        await preparation
        return await self._sent(drafts, request, queue)

    async def _sent(self, drafts: Sequence[Draft], request: OpenRequest, queue: int | None) -> Reply:
        result: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()

        def answer(answer: Reply) -> None:
            if not result.done():
                result.set_result(answer)

        self._send_queue.add(drafts, _Answers(self._names.broker, request, queue, len(drafts), answer))
        return await result

    async def _give_up(
        self, dead_letters: DeadLetterWriter, draft: Draft, group: str, tried: Tried, request: OpenRequest
    ) -> Reply:
        """Make a message that a consumer sends itself, and that was tried often enough, a dead letter."""
        properties = dict(draft.properties)
        came_from = properties.get(RETRY_TOPIC, "")
        if came_from:
            check_consume(request.principal, came_from, group, peer=request.peer_host)
        home = await self._run_in_thread(lambda: dead_letters.home(group, [came_from]))
        if home is None:
            return await self._sent([draft], request, None)
        attempts = int(properties.get(RECONSUME_TIMES, "1"))
        return Reply(fields=_place(request, None, await dead_letters.write(draft, home, group, tried, attempts)))

    def _queue_of(self, topic: str, fields: Fields) -> int | None:
        """Return the queue that the producer chose; None if it chose none, or there is only one."""
        if self._queues.count(topic) == 1 or fields.whole("queueId") < 0:
            return None
        return self._queues.check(topic, fields.whole("queueId"))


class _Answers:
    """Collects the answers for one request's messages, and gives the request's answer to ``answer``."""

    def __init__(
        self, broker: str, request: OpenRequest, queue: int | None, count: int, answer: Callable[[Reply], None]
    ) -> None:
        self._broker = broker
        self._request = request
        self._queue = queue
        self._answer = answer
        self._missing = count
        self._seqs = [0] * count
        self._last: dict[str, str] = {}
        self._refusal: Refusal | None = None

    def on_accepted(self, place: int, draft: Draft, seq: int, handle: str) -> None:
        self._seqs[place] = seq
        if draft.half:
            self._last["transactionId"] = HalfMessages.transaction_id(draft)
        if handle:
            self._last["recallHandle"] = recall_handle(
                self._broker, draft.topic, handle, dict(draft.properties).get(MESSAGE_ID, "")
            )
        self._on_one()

    def on_refused(self, place: int, draft: Draft, refusal: Refusal) -> None:
        self._refusal = refusal
        self._on_one()

    def _on_one(self) -> None:
        self._missing -= 1
        if self._missing:
            return
        if self._refusal is not None:
            self._answer(Reply(code_of(self._refusal), remark=self._refusal.text))
        else:
            self._answer(Reply(fields={**_place(self._request, self._queue, *self._seqs), **self._last}))


def _place(request: OpenRequest, queue: int | None, *seqs: int) -> dict[str, str]:
    """Return the fields that name the messages: by number, since they have no offset until they are due."""
    host = address_bytes(request.connection.local)
    ids = ",".join(offset_id(host, seq + NUMBER_BASE) for seq in seqs)
    return {"msgId": ids, "queueId": str(queue or 0), "queueOffset": str(seqs[0])}


def sent_fields(request: OpenRequest) -> Fields:
    """Return the fields of a request that sends something, under their long names."""
    if request.code in (RequestCode.SEND_MESSAGE, RequestCode.SEND_REPLY_MESSAGE):
        return request.fields
    return Fields(request.command.fields, _SHORT_NAMES)


def _entry(fields: Fields, body: bytes) -> BatchEntry:
    return BatchEntry(body, decode_properties(fields.text("properties", " ")), fields.whole("flag", 0))


def _topic_of(name: str, fields: Fields, batch: bool) -> str:
    """Return the topic that a message goes to.

    A message for a group's retries that has been tried often enough goes to its dead letters.
    """
    if name.startswith(RETRY_PREFIX):
        if batch:
            raise RequestRefused(ResponseCode.MESSAGE_ILLEGAL, f"a batch for {name!r:.300}; allowed: single messages")
        retries = fields.whole("maxReconsumeTimes", RETRIES)
        if fields.whole("reconsumeTimes", 0) > (RETRIES if retries < 0 else retries):
            name = DEAD_PREFIX + name.removeprefix(RETRY_PREFIX)
    return topic_name(name, "")
