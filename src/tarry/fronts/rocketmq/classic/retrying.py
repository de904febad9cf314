"""CONSUMER_SEND_MSG_BACK: a consumer could not handle a message. It goes to the topic ``%RETRY%GROUP``, which the group
reads too, delayed by the level that the consumer says, or by 3 and one more each time; and after the last try to
``%DLQ%GROUP``. Source: ``AbstractSendMessageProcessor.consumerSendMsgBack`` of apache/rocketmq.
"""

from __future__ import annotations

import asyncio
from typing import Any

from tarry.api.local import LocalBroker
from tarry.api.receipt import id_of
from tarry.base.delay import DelayLevel, due_from_delay
from tarry.base.message import ORDER_KEY, RESERVED
from tarry.fronts.rocketmq.classic.codes import RequestRefused, ResponseCode, code_of
from tarry.fronts.rocketmq.classic.connection import Answer, Request
from tarry.fronts.rocketmq.classic.message_bytes import queue_offset
from tarry.fronts.rocketmq.classic.queues import RETRY_PREFIX
from tarry.fronts.rocketmq.classic.rows import find_row
from tarry.fronts.rocketmq.classic.sending import RETRIES
from tarry.fronts.rocketmq.common.draft import Draft, Rules
from tarry.fronts.rocketmq.common.names import DEAD_PREFIX, group_name, topic_name
from tarry.fronts.rocketmq.common.properties import (
    MESSAGE_ID,
    ORIGIN_MESSAGE_ID,
    QUEUE,
    RECONSUME_TIMES,
    RETRY_TOPIC,
    SHARDING_KEY,
)
from tarry.fronts.rocketmq.common.refusal import Refusal
from tarry.fronts.rocketmq.common.send_queue import SendQueue
from tarry.fronts.rocketmq.common.threads import RunInThread

FIRST_LEVEL = 3


class Retrier:
    """On the loop's thread."""

    def __init__(self, broker: LocalBroker, rules: Rules, send_queue: SendQueue, run_in_thread: RunInThread) -> None:
        self._broker = broker
        self._rules = rules
        self._send_queue = send_queue
        self._run_in_thread = run_in_thread

    async def send_back(self, request: Request) -> Answer:
        """SUCCESS: the copy for the next try, or of the dead letter, is durable.

        Raises:
            Refusal, RequestRefused: SYSTEM_ERROR: there is no such message, or retention has deleted it.
        """
        fields = request.fields
        group = group_name(fields.text("group"), "")
        retry_topic = topic_name(RETRY_PREFIX + group, "")
        # Consumers name the first topic also of what comes from their group's retries.
        topics = [retry_topic, fields.text("originTopic", " ").strip()]
        physical = fields.whole("offset")
        topic, row = await self._run_in_thread(lambda: self._find(topics, physical))
        draft = self._draft(
            row, topic, group, fields.whole("delayLevel", 0), fields.whole("maxReconsumeTimes", RETRIES)
        )
        answers = _Answer(asyncio.get_running_loop())
        self._send_queue.add([draft], answers)
        return await answers.future

    def _find(self, topics: list[str], physical: int) -> tuple[str, dict[str, Any]]:
        """In a thread: the message at a physical offset, and its topic."""
        for topic in filter(None, topics):
            offset = queue_offset(topic, physical)
            if offset is not None and (row := find_row(self._broker, topic, offset)) is not None:
                return topic, row
        raise RequestRefused(ResponseCode.SYSTEM_ERROR, f"there is no message at physical offset {physical}")

    def _draft(self, row: dict[str, Any], topic: str, group: str, level: int, retries: int) -> Draft:
        stored = dict(row["properties"] or ())
        times = _times(stored)
        is_dead = times >= (RETRIES if retries < 0 else retries) or level < 0
        now_ms = self._broker.clock.now_ms()
        due_ms = now_ms
        if not is_dead:
            due_ms = due_from_delay(DelayLevel(level or FIRST_LEVEL + times), now_ms, self._rules.levels)
        id = stored.get(MESSAGE_ID) or row["id"] or id_of(row["seq"])
        properties = {name: value for name, value in stored.items() if not name.startswith(RESERVED) and name != QUEUE}
        if ORDER_KEY in stored:
            properties[SHARDING_KEY] = stored[ORDER_KEY]
        properties |= {MESSAGE_ID: id, RECONSUME_TIMES: str(times + 1)}
        properties.setdefault(RETRY_TOPIC, topic)
        properties.setdefault(ORIGIN_MESSAGE_ID, id)
        # Its own id makes a request that is sent twice one copy.
        copy_id = f"{id_of(row['seq'])}.{times + 1}"
        target = (DEAD_PREFIX if is_dead else RETRY_PREFIX) + group
        return Draft(
            topic_name(target, ""), due_ms, row["body"], copy_id, row["tag"], list(properties.items()), None, False,
            None, not is_dead,
        )  # fmt: skip


class _Answer:
    """The answer to one message."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.future: asyncio.Future[Answer] = loop.create_future()

    def on_accepted(self, place: int, draft: Draft, seq: int, handle: str) -> None:
        self._answer(Answer())

    def on_refused(self, place: int, draft: Draft, refusal: Refusal) -> None:
        self._answer(Answer(code_of(refusal), remark=refusal.text))

    def _answer(self, answer: Answer) -> None:
        if not self.future.done():
            self.future.set_result(answer)


def _times(stored: dict[str, str]) -> int:
    """How often it was tried again already."""
    text = stored.get(RECONSUME_TIMES, "")
    return int(text) if text.isdecimal() and text.isascii() and len(text) < 10 else 0
