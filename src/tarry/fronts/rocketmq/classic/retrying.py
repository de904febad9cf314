"""CONSUMER_SEND_MSG_BACK: a consumer could not handle a message.

The message goes to the topic ``%RETRY%GROUP``, which the group reads too. It is delayed by the level that the consumer
names, or by level 3 and one more each time. After the last try it goes to the group's dead letters. Source:
``AbstractSendMessageProcessor.consumerSendMsgBack`` of apache/rocketmq.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

from tarry.api.local import AnyBroker
from tarry.base.delay import DelayLevel, due_from_delay
from tarry.fronts.rocketmq.classic.codes import RequestRefused, ResponseCode, code_of
from tarry.fronts.rocketmq.classic.connection import OpenRequest, Reply
from tarry.fronts.rocketmq.classic.dead_queues import DeadQueues
from tarry.fronts.rocketmq.classic.giving_up import DeadLetterWriter, Tried
from tarry.fronts.rocketmq.classic.rows import find_row_at
from tarry.fronts.rocketmq.classic.sending import RETRIES
from tarry.fronts.rocketmq.common.dead_letters import is_alias
from tarry.fronts.rocketmq.common.draft import Draft, DraftRules
from tarry.fronts.rocketmq.common.names import DEAD_PREFIX, RETRY_PREFIX, group_name, topic_name
from tarry.fronts.rocketmq.common.properties import (
    DELAYS,
    LEVEL,
    MESSAGE_ID,
    ORIGIN_MESSAGE_ID,
    QUEUE,
    RECONSUME_TIMES,
    RETRY_TOPIC,
    SHARDING_KEY,
    START_DELIVER,
)
from tarry.fronts.rocketmq.common.refusal import Refusal
from tarry.fronts.rocketmq.common.rights import check_consume, check_produce, may_consume
from tarry.fronts.rocketmq.common.send_queue import SendQueue
from tarry.fronts.rocketmq.common.threads import RunInThread
from tarry.message.options import ORDER_KEY
from tarry.message.receipt import id_of
from tarry.message.reserved import FIRST
from tarry.message.topics import RESERVED

FIRST_LEVEL = 3
_NOT_COPIED = {QUEUE, *DELAYS} - {START_DELIVER}
"""Properties with a message's queue and delay, which are not copied: its next try has its own."""


@dataclass(eq=False)
class Retrier:
    """Answers CONSUMER_SEND_MSG_BACK. On the event loop's thread."""

    _broker: AnyBroker
    _rules: DraftRules
    _send_queue: SendQueue
    _dead_letters: DeadLetterWriter
    _dead_queues: DeadQueues
    _run_in_thread: RunInThread

    async def send_back(self, request: OpenRequest) -> Reply:
        """Answer CONSUMER_SEND_MSG_BACK; SUCCESS means that the copy or the dead letter is durable.

        The copy is for the next try. There is only one, however often it is asked for.

        Raises:
            Refusal, RequestRefused: SYSTEM_ERROR: there is no such message, or retention has deleted it.
        """
        fields = request.fields
        group = group_name(fields.text("group"), "")
        retry_topic = topic_name(RETRY_PREFIX + group, "")
        # For a retry, too, consumers name the first topic.
        origin = fields.text("originTopic", " ").strip()
        named = [retry_topic, *(self._dead_queues.topics(origin) if is_alias(origin) else [origin])]
        rights = request.principal.rights
        topics = [topic for topic in named if may_consume(rights, topic, group)]
        if not topics:
            check_consume(request.principal, origin, group, peer=request.peer_host)
        physical, level = fields.whole("offset"), fields.whole("delayLevel", 0)
        topic, row = await self._run_in_thread(lambda: self._find(topics, physical))
        stored, tried = dict(row["properties"] or ()), _tried(row)
        times, retries = _times(stored), fields.whole("maxReconsumeTimes", RETRIES)
        is_dead = times >= (RETRIES if retries < 0 else retries) or level < 0
        draft = self._draft(row, topic, group, level, is_dead)
        # Other topics of that group may be another identity's, whose consumers read its retries.
        check_produce(request.principal, draft.topic, peer=request.peer_host)
        if is_dead:
            # The first one is a property, which the message's producer may have made up.
            came_from = [each for each in (stored.get(RETRY_TOPIC, ""), topic) if may_consume(rights, each, group)]
            home = await self._run_in_thread(lambda: self._dead_letters.home(group, came_from))
            if home is not None:
                await self._dead_letters.write(draft, home, group, tried, times + 1)
                return Reply()
        answers = _Answer(asyncio.get_running_loop())
        self._send_queue.add([draft], answers)
        return await answers.future

    def _find(self, topics: list[str], physical: int) -> tuple[str, dict[str, Any]]:
        """Return the message at a physical offset, and its topic. In a thread."""
        for topic in filter(None, topics):
            if (row := find_row_at(self._broker, topic, physical)) is not None:
                return topic, row
        raise RequestRefused(ResponseCode.SYSTEM_ERROR, f"there is no message at physical offset {physical}")

    def _draft(self, row: dict[str, Any], topic: str, group: str, level: int, is_dead: bool) -> Draft:
        stored, tried = dict(row["properties"] or ()), _tried(row)
        times = _times(stored)
        clock = self._broker.clock
        now_ms = due_ms = clock.now_ms()
        delay = DelayLevel(level or FIRST_LEVEL + times)
        if not is_dead:
            due_ms = due_from_delay(delay, now_ms, self._rules.levels, start_ms=clock.start_ms())
        id = stored.get(MESSAGE_ID) or row["id"] or id_of(row["seq"])
        properties = {n: v for n, v in stored.items() if not n.startswith(RESERVED) and n not in _NOT_COPIED}
        if ORDER_KEY in stored:
            properties[SHARDING_KEY] = stored[ORDER_KEY]
        properties |= {MESSAGE_ID: id, RECONSUME_TIMES: str(times + 1)}
        if not topic.startswith(RETRY_PREFIX):
            properties[RETRY_TOPIC] = topic  # whatever its producer says: consumers take it for the message's topic
        properties.setdefault(RETRY_TOPIC, topic)
        properties.setdefault(ORIGIN_MESSAGE_ID, id)
        if not is_dead:
            properties[LEVEL] = str(min(delay.level, len(self._rules.levels)))
            properties[FIRST] = f"{tried.first_seq}:{tried.first_due_ms}"
        target = topic_name((DEAD_PREFIX if is_dead else RETRY_PREFIX) + group, "")
        return Draft(
            target, due_ms, row["body"], self._dead_letters.copy_id(group, tried), row["tag"],
            list(properties.items()), None, False, None, not is_dead,
        )  # fmt: skip


class _Answer:
    """The answer for one message."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.future: asyncio.Future[Reply] = loop.create_future()

    def on_accepted(self, place: int, draft: Draft, seq: int, handle: str) -> None:
        self._answer(Reply())

    def on_refused(self, place: int, draft: Draft, refusal: Refusal) -> None:
        self._answer(Reply(code_of(refusal), remark=refusal.text))

    def _answer(self, answer: Reply) -> None:
        if not self.future.done():
            self.future.set_result(answer)


def _tried(row: dict[str, Any]) -> Tried:
    first = Tried.read(f"{row['seq']}:{dict(row['properties'] or ()).get(FIRST, '')}")
    return first or Tried(row["seq"], row["seq"], row["due_ms"])


def _times(stored: dict[str, str]) -> int:
    """Return how often a message was tried again already."""
    text = stored.get(RECONSUME_TIMES, "")
    return int(text) if text.isdecimal() and text.isascii() and len(text) < 10 else 0
