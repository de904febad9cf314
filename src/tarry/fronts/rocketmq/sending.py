"""Sends: what arrives in one turn of the event loop is accepted as one batch, with one fsync.

While one batch is on its way to the disk, more gather; a second one goes beside it once it has ``SECOND_ROWS_MIN``
messages. So each batch is as large as the disk is slow, and a message alone does not wait.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Executor
from typing import Any

import pyarrow as pa

from loopgrpc import Promise
from tarry.api.admission import assembled
from tarry.api.receipt import Accepted
from tarry.base.errors import InvalidMessageError, TarryError
from tarry.base.message import ORDER_KEY
from tarry.fronts.rocketmq.caller import Caller
from tarry.fronts.rocketmq.core import Core
from tarry.fronts.rocketmq.draft import Draft, Rules, draft_of
from tarry.fronts.rocketmq.halves import Halves
from tarry.fronts.rocketmq.handles import recall_handle
from tarry.fronts.rocketmq.names import topic_of
from tarry.fronts.rocketmq.properties import map_of
from tarry.fronts.rocketmq.refusal import OK, Code, Refusal, overall
from tarry.fronts.rocketmq.stubs import service
from tarry.fronts.rocketmq.topics import Topics
from tarry.fronts.rocketmq.wire import sent

BATCHES_IN_FLIGHT = 2
SECOND_ROWS_MIN = 16
_TEXT = pa.string()
MESSAGES_MAX = 1024
"""Of one request."""


class Request:
    """One SendMessage on its way: its entries as they become known, and who waits."""

    __slots__ = ("answer", "entries", "left")

    def __init__(self, answer: Promise | asyncio.Future[bytes], rows: int) -> None:
        self.answer = answer
        self.entries: list[Any] = [None] * rows
        self.left = rows

    def entry(self, place: int, entry: Any) -> None:
        """One of its messages is accepted or refused."""
        self.entries[place] = entry
        self.left -= 1
        if not self.left and not self.answer.done():
            status = overall({e.status.code for e in self.entries})
            self.answer.set_result(service.SendMessageResponse(status=status, entries=self.entries).SerializeToString())

    def accepted(self, place: int, id: str, seq: int, recall: str, transaction: str) -> None:
        """One of its messages is accepted."""
        if len(self.entries) > 1:
            self.entry(
                place,
                service.SendResultEntry(
                    status=OK, message_id=id, offset=seq, recall_handle=recall, transaction_id=transaction
                ),
            )
        elif not self.answer.done():
            self.answer.set_result(sent(id, seq, recall, transaction))


Waiting = tuple[Draft, Request, int]
"""A message, the request that it came with, and its place there."""


class Sender:
    """On the loop's thread."""

    def __init__(
        self, core: Core, loop: asyncio.AbstractEventLoop, rules: Rules, topics: Topics, halves: Halves
    ) -> None:
        self._core = core
        self._loop = loop
        self._rules = rules
        self._topics = topics
        self._halves = halves
        self._waiting: list[Waiting] = []
        self._on_way = 0
        self._planned = False

    def send(self, caller: Caller, request: Any, peer: str) -> Promise | Awaitable[bytes]:
        """SendMessage.

        Raises:
            Refusal: nothing of the request was accepted.
        """
        messages = request.messages
        if not 1 <= len(messages) <= MESSAGES_MAX:
            raise Refusal(
                Code.MESSAGE_CORRUPTED, f"the request has {len(messages)} messages; allowed: 1 to {MESSAGES_MAX}"
            )
        now_ms = self._core.clock.now_ms()
        drafts = [
            draft_of(message, topic_of(message.topic, caller.space), now_ms, self._rules, peer) for message in messages
        ]
        if any(draft.topic != drafts[0].topic for draft in drafts):
            raise Refusal(Code.MESSAGE_CORRUPTED, "the messages of a request are for one topic; these are for several")
        topic = drafts[0].topic
        wanting = self._topics.wanting(topic, ordered=any(draft.order_key is not None for draft in drafts))
        if wanting is not None:
            return self._send_later(wanting, drafts)
        answer = Promise()
        self._queue(drafts, answer)
        return answer

    async def _send_later(self, wanting: Awaitable[None], drafts: list[Draft]) -> bytes:
        await wanting
        answer: asyncio.Future[bytes] = self._loop.create_future()
        self._queue(drafts, answer)
        return await answer

    def _queue(self, drafts: list[Draft], answer: Promise | asyncio.Future[bytes]) -> None:
        request = Request(answer, len(drafts))
        self._waiting += [(draft, request, place) for place, draft in enumerate(drafts)]
        self._plan()

    def _plan(self) -> None:
        waiting = len(self._waiting)
        room = self._on_way == 0 or (self._on_way < BATCHES_IN_FLIGHT and waiting >= SECOND_ROWS_MIN)
        if waiting and room and not self._planned:
            self._planned = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._planned = False
        waiting, self._waiting = self._waiting, []
        if waiting:
            self._submit(waiting)

    def _submit(self, waiting: list[Waiting]) -> None:
        self._on_way += 1

        def done(answer: Accepted | TarryError) -> None:
            self._loop.call_soon_threadsafe(self._answered, waiting, answer)

        drafts = [draft for draft, _, _ in waiting]
        try:
            if any(draft.half for draft in drafts):
                self._core.submit(self._halves.rows(drafts), done)
            else:
                self._core.submit_checked(rows_of(drafts, self._core.clock.now_ms()), done)
        except InvalidMessageError as error:
            self._on_way -= 1
            if len(waiting) == 1:
                self._refuse(waiting, Refusal.of(error))
                return
            # One of them is refused, and nobody else's shall suffer for it: each on its own.
            for one in waiting:
                self._submit([one])
        except TarryError as error:
            self._on_way -= 1
            self._refuse(waiting, Refusal.of(error))

    def _answered(self, waiting: list[Waiting], answer: Accepted | TarryError) -> None:
        self._on_way -= 1
        self._plan()
        if isinstance(answer, TarryError):
            self._refuse(waiting, Refusal.of(answer))
            return
        handles = answer.handles() if any(draft.delayed or draft.half for draft, _, _ in waiting) else None
        first, placed = answer.first_seq, answer.placed
        seqs = range(first, first + len(waiting)) if placed is None else placed["seq"].tolist()
        for row, (draft, request, place) in enumerate(waiting):
            recall = transaction = ""
            if draft.half:
                transaction = self._halves.transaction_id(draft)
            elif draft.delayed:
                assert handles is not None
                recall = recall_handle(handles[row], draft.topic, draft.id)
            request.accepted(place, draft.id, seqs[row], recall, transaction)

    def _refuse(self, waiting: list[Waiting], refusal: Refusal) -> None:
        status = refusal.status()
        for draft, request, place in waiting:
            request.entry(place, service.SendResultEntry(status=status, message_id=draft.id))


def rows_of(drafts: Sequence[Draft], now_ms: int) -> pa.RecordBatch:
    """Messages as the broker stores them (:data:`tarry.base.message.UNNUMBERED`); none of them a half."""
    properties = [[*d.properties, (ORDER_KEY, d.order_key)] if d.order_key else d.properties for d in drafts]
    columns = {
        "topic": pa.array([d.topic for d in drafts], _TEXT),
        "due_ms": pa.array([d.due_ms for d in drafts], pa.int64()),
        "body": pa.array([d.body for d in drafts], pa.binary()),
        "id": pa.array([d.id for d in drafts], _TEXT),
        "properties": map_of(properties),
    }
    tags = [d.tag for d in drafts]
    if any(tags):
        columns["tag"] = pa.array(tags, _TEXT)
    return assembled(columns, now_ms)


def in_thread(loop: asyncio.AbstractEventLoop, pool: Executor, work: Callable[[], Any]) -> asyncio.Future[Any]:
    """``work()``, which may wait for the disk, in another thread; a TarryError becomes a Refusal."""

    def run() -> Any:
        try:
            return work()
        except TarryError as error:
            raise Refusal.of(error) from error

    return loop.run_in_executor(pool, run)
