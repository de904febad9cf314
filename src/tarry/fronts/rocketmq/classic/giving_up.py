"""Messages that consumers gave up by their own count become dead letters of their group.

They are in the same place as those of consumers that lease. So the messages that classic consumers find in
``%DLQ%GROUP`` (:mod:`tarry.fronts.rocketmq.classic.dead_queues`) are those that ``tarry dead`` lists, respawns and
purges.

A message that was tried before is in the topic ``%RETRY%GROUP`` then, but belongs to the topic that it came from first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import pyarrow as pa

from tarry.api.local import LocalBroker
from tarry.base.errors import NotFoundError, TarryError
from tarry.base.event_loop import answer_future
from tarry.fronts.rocketmq.classic.positions import Positions
from tarry.fronts.rocketmq.common.draft import Draft
from tarry.fronts.rocketmq.common.names import RETRY_PREFIX
from tarry.fronts.rocketmq.common.properties import RECONSUME_TIMES
from tarry.fronts.rocketmq.common.refusal import Refusal
from tarry.fronts.rocketmq.common.send_queue import rows_of
from tarry.fronts.rocketmq.common.threads import RunInThread
from tarry.message.accepted import Accepted
from tarry.message.receipt import id_of
from tarry.message.schema import SCHEMA

_DIGITS_MAX = 19


class Tried(NamedTuple):
    """A message that a consumer could not handle: its number, and its first number and due time."""

    seq: int
    first_seq: int
    first_due_ms: int

    @classmethod
    def read(cls, text: str) -> Tried | None:
        """Parse the property by which a consumer names a message; None if it is none of Tarry's.

        See :data:`tarry.fronts.rocketmq.common.properties.NUMBER`.
        """
        parts = text.split(":")
        if len(parts) not in (1, 3) or not all(map(_is_whole, parts)):
            return None
        numbers = [int(part) for part in parts]
        return cls(numbers[0], *numbers[1:]) if len(numbers) == 3 else cls(numbers[0], numbers[0], 0)


@dataclass(eq=False)
class DeadLetterWriter:
    """Makes messages dead letters. On the event loop's thread."""

    _broker: LocalBroker
    _positions: Positions
    _run_in_thread: RunInThread

    def copy_id(self, group: str, tried: Tried) -> str:
        """Return the id of the only copy of a message that a group's consumers could not handle.

        The copy is made for the next try, or as a dead letter. A consumer that sends it twice, as after a lost answer
        or a crash of the broker, gets the first one's answer. After a reset of the group the message may fail once
        more, which makes another copy.
        """
        return f"{id_of(tried.seq)}.{self._positions.resets(group)}"

    def home(self, group: str, topics: Iterable[str]) -> str | None:
        """Return the topic, of those it may have come from, in which a message is a dead letter.

        It is the first topic that the group reads, or None. In a thread.
        """
        for topic in topics:
            if topic and not topic.startswith(RETRY_PREFIX):
                try:
                    self._broker.find_group(topic, group)
                except NotFoundError:
                    continue
                return topic
        return None

    async def write(self, draft: Draft, topic: str, group: str, tried: Tried, attempts: int) -> int:
        """Make a message a dead letter of a group, durably; return its number.

        ``attempts``: the number of times that it was handed out.

        Raises:
            Refusal: it was not accepted.
        """
        written: asyncio.Future[Accepted]
        written, on_result = answer_future(asyncio.get_running_loop())
        batch = _row(draft, topic, tried, self._broker.clock.now_ms())
        await self._run_in_thread(
            lambda: self._broker.submit_dead(batch, on_result, topic=topic, group=group, attempts=[attempts])
        )
        try:
            result = await written
        except TarryError as error:
            raise Refusal.of(error) from error
        return result.first_seq if result.placed is None else int(result.placed["seq"][0])


def _row(draft: Draft, topic: str, tried: Tried, now_ms: int) -> pa.RecordBatch:
    # Tries are counted in Tarry's own way: a dead letter that is respawned begins with its first try.
    properties = [(name, value) for name, value in draft.properties if name != RECONSUME_TIMES]
    due_ms = tried.first_due_ms or now_ms
    row = rows_of([draft._replace(topic=topic, properties=properties, due_ms=due_ms)], now_ms)
    return row.add_column(0, SCHEMA.field(0), pa.array([tried.first_seq], pa.int64()))


def _is_whole(text: str) -> bool:
    digits = text.removeprefix("-")
    return digits.isdecimal() and digits.isascii() and len(digits) < _DIGITS_MAX + 1 and abs(int(text)) < 1 << 63
