"""Reads one topic's queue for all pulls: one read at a time, in a thread, whose result serves all.

A pull that finds its messages in memory is answered at once. Others wait: for the next read if there is more, else for
news of the topic. While messages arrive steadily, they are gathered for ``GATHER_S`` before they are read: a read, its
fsync, and an answer to each queue's pull cost far more than a message.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import NamedTuple

import numpy as np

from tarry.api.accounts import QuotaAccount, charge_handed
from tarry.api.consuming import ConsumerGroup
from tarry.api.local import AnyBroker
from tarry.api.operations import GetQueues, ReadQueue
from tarry.base.event_loop import post
from tarry.fronts.rocketmq.classic.chunks import Chunk, ChunkCache, Shown
from tarry.fronts.rocketmq.classic.codes import ResponseCode
from tarry.fronts.rocketmq.classic.connection import OpenRequest, Reply
from tarry.fronts.rocketmq.classic.message_bytes import address_bytes
from tarry.fronts.rocketmq.classic.queues import TopicQueues
from tarry.fronts.rocketmq.classic.service import answer_of
from tarry.fronts.rocketmq.common.threads import RunInThread

ROWS = 1024
"""Rows of one read, at most."""
GATHER_S = 0.004
ANSWER_BYTES = 256 << 10
"""Size at which an answer ends: with the message that exceeds it.

RocketMQ's ``maxTransferBytesOnMessageInMemory``.
"""
LOOK_S = 1.0
"""Time for which a message is looked for before the client is told how far it was, in vain."""

UNLEASED_S = 0.05
"""Seconds between looks for the broker's lease, while it has none."""

EARLY_S = 0.001
"""Least time until it is checked again whether a message is due."""

PassOver = Callable[["Pull"], None]


class Pull:
    """A consumer's pull, until it is answered."""

    __slots__ = (
        "account",
        "at",
        "begun_s",
        "group",
        "host",
        "queue",
        "request",
        "rows_max",
        "start",
        "timer",
        "wait_s",
    )

    def __init__(
        self,
        request: OpenRequest,
        group: ConsumerGroup,
        queue: int,
        start: int,
        rows_max: int,
        wait_s: float,
        account: QuotaAccount | None = None,
    ) -> None:
        self.request = request
        self.account = account
        """The use of its identity; None: it has none."""
        self.group = group
        self.queue = queue
        self.start = start
        self.at = start
        """There is nothing for it below this offset."""
        self.rows_max = rows_max
        self.wait_s = wait_s
        self.begun_s = 0.0
        self.timer: asyncio.TimerHandle | None = None
        self.host = address_bytes(request.connection.local)


class _Read(NamedTuple):
    """The result of a read."""

    ends: tuple[int, int]
    """The first kept offset, and the end: everything below the end is durable, and due."""
    chunk: Chunk | None
    early_ms: int | None
    """Due time of the message at the end, if it is not due yet.

    This happens if the clock was set back since it was dispatched.
    """


class QueueReader:
    """Reads one topic, which clients know by its own name or as ``shown``. On the event loop's thread.

    ``pass_over`` is called for pulls that found nothing up to their current offset.
    """

    def __init__(
        self,
        broker: AnyBroker,
        loop: asyncio.AbstractEventLoop,
        topic: str,
        queues: TopicQueues,
        chunks: ChunkCache,
        run_in_thread: RunInThread,
        pass_over: PassOver,
        shown: Shown | None = None,
    ) -> None:
        self._broker = broker
        self._loop = loop
        self._topic = topic
        self._queues = queues
        self._chunks = chunks
        self._run_in_thread = run_in_thread
        self._pass_over = pass_over
        self._shown = shown
        self._waiting: dict[Pull, None] = {}
        """Pulls at the end of the queue, or whose connection does not take its answers."""
        self._hungry: dict[Pull, None] = {}
        """Pulls that need a read, first come, first served."""
        self._ends = (0, 0)
        self._reading: asyncio.Task[None] | None = None
        self._read_news_s = 0.0
        """Time at which the end of the queue was last read, in the loop's time."""
        self._not_before_s = 0.0
        """Time at which the message at the end is due, if it was not."""
        self._planned = False
        self._listening: dict[ConsumerGroup, Callable[[], None]] = {}

    def add(self, pull: Pull) -> None:
        """Answer a pull, now or later."""
        pull.begun_s = self._loop.time()
        if pull.group not in self._listening:
            self._forget_closed()
            # Before looking, so that later messages are noticed.
            self._listening[pull.group] = pull.group.listen(self._on_news)
        if pull.wait_s > 0:
            pull.timer = self._loop.call_later(pull.wait_s, self._expire, pull)
        pull.request.connection.hold(pull, self.remove)
        self._serve(pull)
        self._read_more()

    def remove(self, pull: Pull) -> None:
        """Forget a pull that no longer waits."""
        self._waiting.pop(pull, None)
        self._hungry.pop(pull, None)
        pull.request.connection.release(pull)
        if pull.timer is not None:
            pull.timer.cancel()

    def close(self) -> None:
        for stop_listening in self._listening.values():
            stop_listening()
        if self._reading is not None:
            self._reading.cancel()

    # -- one pull ------------------------------------------------------------------------------------------------------

    def _serve(self, pull: Pull) -> None:
        """Answer a pull from memory; otherwise it waits, for a read or for news."""
        group, connection = pull.group, pull.request.connection
        self._hungry.pop(pull, None)
        # It waits before we look: messages that come after that are announced to waiting pulls.
        self._waiting[pull] = None
        if not connection.is_writable:
            # A client that does not take its answers gets no more of them: they would be kept here.
            connection.run(self._serve_when_writable(pull))
            return None
        begun_at = pull.at
        parts = self._collect(pull)
        if parts and not group.may_send:
            pull.at = begun_at
            return self._hold_back(pull)
        if parts:
            body = b"".join(parts)
            charge_handed(pull.account, len(parts), len(body))
            return self._answer(pull, ResponseCode.SUCCESS, body)
        if pull.at < self._ends[1]:
            return self._need_read(pull)
        if group.queue_ends[1] != pull.at and self._loop.time() >= self._not_before_s:
            return self._need_read(pull)
        if pull.at > pull.start:
            self._pass_over(pull)
        if pull.wait_s <= 0 or group.closed:
            return self._answer(pull, ResponseCode.PULL_NOT_FOUND)
        return None

    def _hold_back(self, pull: Pull) -> None:
        """Have a pull wait whose messages may not be sent now; see :mod:`tarry.fronts.kit.last_look`."""
        if pull.wait_s <= 0:
            return self._answer(pull, ResponseCode.PULL_NOT_FOUND)
        if not self._planned:
            self._planned = True
            self._loop.call_later(UNLEASED_S, self._serve_all)
        return None

    def _collect(self, pull: Pull) -> list[bytes]:
        """Return the messages for a pull that are in memory, and move the pull behind them.

        If there are none, move it behind the messages that are not for it.
        """
        parts: list[bytes] = []
        size, after = 0, pull.at
        while pull.at < self._ends[1] and len(parts) < pull.rows_max and size < ANSWER_BYTES:
            chunk = self._find(pull.at)
            if chunk is None or not chunk.knows(pull.group):
                break
            found, behind, pull.at = chunk.collect(
                pull.group, pull.queue, pull.at, pull.host, pull.rows_max - len(parts), ANSWER_BYTES - size
            )
            if found:
                parts += found
                size += sum(map(len, found))
                after = behind
        if parts:
            # Not behind further messages that are not for it: a client that commits those it got stands where its next
            # pull begins.
            pull.at = after
        return parts

    def _find(self, offset: int) -> Chunk | None:
        """Return the chunk in memory that has an offset, if it is still valid.

        If the clock was set back since it was read, some of it may not be due any more; then it is read again, as far
        as it is due. It is divided anew when the topic's number of queues has changed.
        """
        chunk = self._chunks.find(self._topic, offset)
        if chunk is None or chunk.latest_due_ms > self._broker.clock.now_ms():
            return None
        return chunk if chunk.queues == self._queues.count(self._topic) else None

    def _need_read(self, pull: Pull) -> None:
        if pull.at > pull.start and self._loop.time() - pull.begun_s > LOOK_S:
            self._pass_over(pull)
            return self._answer(pull, ResponseCode.PULL_RETRY_IMMEDIATELY)
        del self._waiting[pull]
        self._hungry[pull] = None
        return None

    async def _serve_when_writable(self, pull: Pull) -> None:
        await pull.request.connection.wait_until_writable()
        if pull in self._waiting:
            self._serve(pull)
            self._read_more()

    def _expire(self, pull: Pull) -> None:
        pull.wait_s = 0.0
        if pull in self._waiting:
            self._answer(pull, ResponseCode.PULL_NOT_FOUND)

    def _answer(self, pull: Pull, code: int, body: bytes = b"") -> None:
        self.remove(pull)
        first, end = self._ends
        fields = {
            "suggestWhichBrokerId": "0", "nextBeginOffset": str(pull.at), "minOffset": str(first),
            "maxOffset": str(end),
        }  # fmt: skip
        pull.request.answer(Reply(code, fields, body))

    # -- reading -------------------------------------------------------------------------------------------------------

    def _on_news(self) -> None:
        # On any thread, often the dispatcher's, between two messages: do not look at anything here.
        if self._waiting and not self._planned:
            self._planned = True
            post(self._loop, self._serve_all)

    def _serve_all(self) -> None:
        self._planned = False
        self._serve_each(self._waiting)
        self._read_more()

    def _serve_each(self, pulls: Iterable[Pull]) -> None:
        for pull in list(pulls):
            self._serve(pull)

    def _read_more(self) -> None:
        if self._hungry and self._reading is None:
            self._reading = self._loop.create_task(self._read_while_hungry())

    async def _read_while_hungry(self) -> None:
        try:
            while self._hungry:
                # Existing messages need not wait for new ones.
                pull = next((pull for pull in self._hungry if pull.at < self._ends[1]), next(iter(self._hungry)))
                if pull.at >= self._ends[1] and (wait_s := self._read_news_s + GATHER_S - self._loop.time()) > 0:
                    await asyncio.sleep(wait_s)
                    continue  # the pull may have gone
                await self._read_for(pull)
        finally:
            self._reading = None

    async def _read_for(self, pull: Pull) -> None:
        chunk = self._find(pull.at)
        try:
            # If the pull is behind the known end, read that end.
            if chunk is not None and pull.at < self._ends[1]:
                await self._run_in_thread(lambda: chunk.choose(pull.group, pull.account))
                self._serve_each(self._hungry)
            else:
                next_first = self._chunks.next_first(self._topic, pull.at)
                self._on_read(pull, await self._run_in_thread(lambda: self._read(pull, next_first)))
        except Exception as error:  # noqa: BLE001  the client is answered whatever fails
            self.remove(pull)
            pull.request.answer(answer_of(error, pull.request))

    def _on_read(self, pull: Pull, read: _Read) -> None:
        is_news = read.ends[1] > self._ends[1]
        self._ends = first, end = read.ends
        if is_news:
            self._read_news_s = self._loop.time()
        if read.chunk is not None:
            self._chunks.add(self._topic, read.chunk)
        if read.early_ms is not None:
            early_s = max(EARLY_S, self._broker.clock.seconds_until(read.early_ms))
            self._not_before_s = self._loop.time() + early_s
            self._loop.call_later(early_s, self._on_due)
        if pull in self._hungry and (not first <= pull.at <= end or (read.chunk is None and pull.at < end)):
            pull.at = end if pull.at > end else first
            self._answer(pull, ResponseCode.PULL_OFFSET_MOVED)
        self._serve_each([*self._hungry, *self._waiting] if is_news else self._hungry)

    def _on_due(self) -> None:
        """Serve all pulls when a message that was early has become due."""
        # Loops round: the message may still be early by a fraction of a millisecond, and nothing else would wake the
        # pulls.
        self._not_before_s = 0.0
        self._serve_all()

    def _read(self, pull: Pull, next_first: int | None) -> _Read:
        """Read a queue's ends, and its messages from a pull's offset up to the next chunk. In a thread."""
        topic, start = self._topic, pull.at
        # A client may store the offsets of an answer: they have to be durable.
        first, end = self._broker.call(GetQueues([topic]))[topic]
        if not first <= start < end:
            return _Read((first, end), None, None)
        stop = min(end, start + ROWS, end if next_first is None else next_first)
        batches = self._broker.call(ReadQueue(topic, start, stop))
        batch = next(batches, None)
        if batch is None or not batch.num_rows:
            return _Read((first, end), None, None)
        early_ms = None
        due = batch.column("due_ms").to_numpy()
        early = np.flatnonzero(due > self._broker.clock.now_ms())
        if len(early):
            row, early_ms = int(early[0]), int(due[early[0]])
            end = batch.column("offset")[row].as_py()
            if not row:
                return _Read((first, end), None, early_ms)
            batch = batch.slice(0, row)
        chunk = Chunk(batch, start, batch.column("offset")[-1].as_py() + 1, topic, self._queues, self._shown)
        if not chunk.knows(pull.group):
            chunk.choose(pull.group, pull.account)
        return _Read((first, end), chunk, early_ms)

    def _forget_closed(self) -> None:
        for group in [group for group in self._listening if group.closed]:
            self._listening.pop(group)()
