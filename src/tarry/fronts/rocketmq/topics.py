"""Which topics there are, and what must be settled about one before a message may go into it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from tarry.fronts.rocketmq.core import Core
from tarry.fronts.rocketmq.refusal import Code, Refusal


class Topics:
    """On the loop's thread. ``create``: topics come into being by being named. ``aside`` runs what may wait for the
    disk in another thread.
    """

    def __init__(self, core: Core, aside: Callable[[Callable[[], Any]], asyncio.Future[Any]], *, create: bool) -> None:
        self._core = core
        self._aside = aside
        self._create = create
        self._ordered: set[str] = set()
        self._ordering: dict[str, asyncio.Future[Any]] = {}

    def check(self, topic: str) -> None:
        """
        Raises:
            Refusal: TOPIC_NOT_FOUND.
        """
        if not self._create and not self._core.has_topic(topic):
            raise Refusal(
                Code.TOPIC_NOT_FOUND,
                f"topic {topic!r} does not exist, and topics are not made by being named (rocketmq_create_topics)",
            )

    def wanting(self, topic: str, *, ordered: bool) -> Awaitable[None] | None:
        """What to wait for before a message may be accepted for the topic; None: nothing. ``ordered``: it has an
        ordering key; the first such one makes the topic one whose groups keep that order, durably and before it.

        Raises:
            Refusal: TOPIC_NOT_FOUND.
        """
        self.check(topic)
        return self._make_ordered(topic) if ordered and topic not in self._ordered else None

    async def _make_ordered(self, topic: str) -> None:
        if topic not in self._ordering:
            self._ordering[topic] = self._aside(lambda: self._core.set_topic(topic, ordered=True))
            self._ordering[topic].add_done_callback(lambda _: self._ordering.pop(topic, None))
        await asyncio.shield(self._ordering[topic])
        self._ordered.add(topic)
