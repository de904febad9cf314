"""Existing topics, and the preparation of a topic before a message may be accepted for it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

from tarry.api.group_info import TopicInfo
from tarry.api.local import AnyBroker
from tarry.api.operations import HasTopic, SetTopic
from tarry.fronts.rocketmq.common.names import DEAD_PREFIX, RETRY_PREFIX
from tarry.fronts.rocketmq.common.refusal import Code, Refusal
from tarry.fronts.rocketmq.common.threads import RunInThread


class TopicRegistry:
    """Checks and prepares topics. On the event loop's thread.

    ``create``: a topic is created when a client names it.
    """

    def __init__(self, broker: AnyBroker, run_in_thread: RunInThread, *, create: bool) -> None:
        self._broker = broker
        self._run_in_thread = run_in_thread
        self._create = create
        self._ordered: set[str] = set()
        """Topics whose groups this front has made keep the order of ordering keys."""
        self._being_ordered: dict[str, asyncio.Future[TopicInfo]] = {}

    def check(self, topic: str) -> None:
        """Check that a topic exists, or is made by being named.

        Raises:
            Refusal: TOPIC_NOT_FOUND: there is no such topic, and naming it does not make it.
        """
        # Topics of a group are asked for, and sent to, before they exist: RocketMQ makes them with the group.
        of_group = topic.startswith((DEAD_PREFIX, RETRY_PREFIX))
        if not self._create and not of_group and not self._broker.call(HasTopic(topic)):
            raise Refusal(
                Code.TOPIC_NOT_FOUND,
                f"topic {topic!r} does not exist, and topics are not made by being named (rocketmq_create_topics)",
            )

    def prepare(self, topic: str, *, ordered: bool) -> Awaitable[None] | None:
        """Return the preparation to await before a message may be accepted for the topic; None if none.

        ``ordered``: the message has an ordering key. The first such message makes all groups of the topic keep the
        order of those keys, durably and before it is accepted.

        Raises:
            Refusal: TOPIC_NOT_FOUND.
        """
        self.check(topic)
        return self._make_ordered(topic) if ordered and topic not in self._ordered else None

    async def _make_ordered(self, topic: str) -> None:
        if topic not in self._being_ordered:
            change = self._run_in_thread(lambda: self._broker.call(SetTopic.of(topic, ordered=True)))
            self._being_ordered[topic] = change
            change.add_done_callback(lambda _: self._being_ordered.pop(topic, None))
        # Others may wait for the same change: a cancelled waiter does not cancel it.
        await asyncio.shield(self._being_ordered[topic])
        self._ordered.add(topic)
