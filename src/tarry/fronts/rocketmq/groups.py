"""Consumer groups, made when a client first names them: how they begin, and what their clients are told of them.

In RocketMQ a group reads several topics; here each topic has its own group of that name.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import numpy as np

from tarry.api.filter import EVERYTHING, parse_filter
from tarry.api.groups import GroupInfo
from tarry.api.retry import parse_retry
from tarry.base.dead_topics import is_dead_topic
from tarry.base.errors import InvalidArgumentError, NotFoundError
from tarry.fronts.rocketmq.core import Core
from tarry.fronts.rocketmq.lines import Line
from tarry.fronts.rocketmq.refusal import Code, Refusal
from tarry.fronts.rocketmq.stubs import definition

TRIES = 17
"""Of a group that is made here: RocketMQ's 16 retries after the first try."""
RETRY = "rocketmq"
STEPS_MAX = 64
"""Steps of the back-off that a client is told."""
_FILTERS_MAX = 4096


class Groups:
    """On the loop's thread. ``aside`` runs what may wait for the disk in another."""

    def __init__(
        self,
        core: Core,
        loop: asyncio.AbstractEventLoop,
        aside: Callable[[Callable[[], Any]], asyncio.Future[Any]],
    ) -> None:
        self._core = core
        self._loop = loop
        self._aside = aside
        self.lines: dict[tuple[str, str], Line] = {}
        """By topic and group."""
        self._making: dict[tuple[str, str], asyncio.Future[Any]] = {}
        self._filters: dict[tuple[int, str], str] = {}

    def known(self, topic: str, group: str, wanted: Any) -> Line | None:
        """What :meth:`line` would give, if there is nothing to be made or changed for it.

        Raises:
            Refusal: ILLEGAL_FILTER_EXPRESSION.
        """
        filter = self._filter(wanted)
        line = self._open(topic, group)
        return line if line is not None and filter == _filter_of(line) else None

    def _open(self, topic: str, group: str) -> Line | None:
        line = self.lines.get((topic, group))
        return None if line is None or line.group.closed else line

    async def line(self, topic: str, group: str, wanted: Any) -> Line:
        """The line of a group, which is made if there is none, and which wants from now on what ``wanted`` (a
        ``FilterExpression``) says: as in the original, that of the last consumer counts for all.

        Raises:
            Refusal: ILLEGAL_FILTER_EXPRESSION.
        """
        filter = self._filter(wanted)
        line = self._open(topic, group)
        if line is None:
            await self.make(topic, group)
            line = self._open(topic, group)
            if line is None:
                line = self.lines[topic, group] = Line(self._loop, self._core.group(topic, group))
        if filter != _filter_of(line):
            await self._aside(lambda: self._core.set_group(topic, group, filter=filter))
        return line

    async def make(self, topic: str, group: str) -> None:
        """See to it that there is such a group."""
        key = (topic, group)
        if key not in self._making:
            self._making[key] = self._aside(lambda: self._make(topic, group))
            self._making[key].add_done_callback(lambda _: self._making.pop(key, None))
        await asyncio.shield(self._making[key])

    def _make(self, topic: str, group: str) -> None:
        try:
            self._core.group_info(topic, group)
        except NotFoundError:
            # A dead letter is tried for ever.
            self._core.set_group(topic, group, retry=RETRY, tries=None if is_dead_topic(topic) else TRIES)

    def _filter(self, wanted: Any) -> str:
        key = (wanted.type, wanted.expression)
        found = self._filters.get(key)
        if found is None:
            text = wanted.expression.strip() or EVERYTHING
            if wanted.type == definition.FilterType.SQL and text != EVERYTHING:
                text = f"sql:{text}"
            try:
                found = parse_filter(text).text
            except InvalidArgumentError as error:
                raise Refusal(Code.ILLEGAL_FILTER_EXPRESSION, str(error)) from error
            if len(self._filters) >= _FILTERS_MAX:
                self._filters.clear()
            self._filters[key] = found
        return found

    async def policy(self, topics: list[str], group: str) -> tuple[Any, bool]:
        """What a consumer is told: the back-off as a ``RetryPolicy``, and whether its group keeps an order. Of a group
        that is not there: what it will be made with.
        """
        infos = await self._aside(lambda: [i for t in topics if (i := self._info(t, group)) is not None])
        retry, tries = (infos[0].retry, infos[0].tries) if infos else (RETRY, TRIES)
        ordered = any(info.ordered for info in infos) or any(self._core.topic_info(t).ordered for t in topics)
        return retry_policy(retry, tries), ordered

    def _info(self, topic: str, group: str) -> GroupInfo | None:
        try:
            return self._core.group_info(topic, group)
        except NotFoundError:
            return None

    def close(self) -> None:
        """Nobody is served any more."""
        for line in self.lines.values():
            line.close()


def _filter_of(line: Line) -> str:
    return line.group.settings.filter or EVERYTHING


def retry_policy(retry: str, tries: int) -> Any:
    """A group's back-off as clients read it: always as a list, for Java's client takes no other from some versions."""
    steps = max(1, min(tries - 1 if tries else STEPS_MAX, STEPS_MAX))
    policy = parse_retry(retry)
    delays = policy.delays_ms(np.arange(1, steps + 1, dtype=np.int32), np.random.default_rng(0))
    found = definition.RetryPolicy(max_attempts=tries or 2**31 - 1)
    for delay_ms in delays.tolist():
        step = found.customized_backoff.next.add()
        step.FromMilliseconds(delay_ms)
    return found
