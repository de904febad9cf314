"""ReceiveMessage: wait for messages of a group, and stream them to the client."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from itertools import islice
from typing import Any

import pyarrow as pa

from loopgrpc import Call, Promise, Responses, framed
from tarry.base.errors import TarryError
from tarry.fronts.rocketmq.caller import Caller
from tarry.fronts.rocketmq.clients import LEASE_MS, Client, Clients
from tarry.fronts.rocketmq.core import Core
from tarry.fronts.rocketmq.dead import actual_topic
from tarry.fronts.rocketmq.draft import ceil_ms
from tarry.fronts.rocketmq.encoding import deliveries
from tarry.fronts.rocketmq.groups import Groups
from tarry.fronts.rocketmq.lines import Line, Told, Waiter, give_back, leases_of
from tarry.fronts.rocketmq.names import group_of, topic_of
from tarry.fronts.rocketmq.refusal import OK, Code, Refusal, refused
from tarry.fronts.rocketmq.routes import QUEUES
from tarry.fronts.rocketmq.stubs import definition, service
from tarry.fronts.rocketmq.topics import Topics
from tarry.groups import Subscription

BATCH_MAX = 1024
CHUNK_ROWS, PIECE_BYTES_MAX = 32, 1 << 18
"""Up to so many messages are an answer in one piece, and are all for others when the client leaves before it has taken
that whole. Of more, so many are given to the stream at once, and what it has not taken then is for others.
"""
INVISIBLE_MS = (10_000, 12 * 3_600_000)
"""What a simple consumer may ask for; the original's."""
POLL_S, POLL_S_MAX = 15.0, 60.0
"""How long a receive waits for a message that does not say, and at most."""
ANSWER_S = 0.2
"""How long before the client's deadline it is told that there is nothing."""
HELD_MAX = 2048
"""Messages that a push consumer has and has not acknowledged: beyond that it gets more as it acknowledges. Java's keeps
them in a list through which each acknowledgement goes; with 65,536 in it, a herd takes it an eighth longer. Its own
bound is 1,024, if it is not told otherwise.
"""

_STARTED = service.ReceiveMessageResponse(status=OK).SerializeToString()
_EMPTY = definition.Status(code=Code.MESSAGE_NOT_FOUND, message="no new message")


class Receiver:
    """On the loop's thread."""

    def __init__(
        self, core: Core, loop: asyncio.AbstractEventLoop, groups: Groups, topics: Topics, clients: Clients, host: str
    ) -> None:
        self.core = core
        self.loop = loop
        self.host = host
        self._groups = groups
        self._topics = topics
        self._clients = clients
        self._making: set[asyncio.Task[Line]] = set()

    def receive(self, caller: Caller, request: Any, call: Call) -> Promise:
        """The answers of one ReceiveMessage, in the original's order: status, messages, the moment.

        Raises:
            Refusal: nothing was handed out.
        """
        asked = topic_of(request.message_queue.topic, caller.space)
        group = group_of(request.group, caller.space)
        self._topics.check(asked)
        topic = actual_topic(asked, request.message_queue.broker.name)
        push = request.auto_renew
        lease_ms = LEASE_MS if push else _invisible_ms(request)
        line = self._groups.known(topic, group, request.filter_expression)
        client = self._clients.heard(caller.id, caller.space)
        receive = Receive(self, client, request, asked, lease_ms, call)
        if line is not None:
            receive.wait(line)
        else:
            making = self.loop.create_task(self._groups.line(topic, group, request.filter_expression))
            self._making.add(making)
            making.add_done_callback(self._making.discard)
            making.add_done_callback(receive.made)
        return receive.answer


class Receive:
    """One call on its way. It ends once: served, late, refused, or left by its client."""

    __slots__ = (
        "_asked", "_batch", "_client", "_lease_ms", "_line", "_room", "_sent", "_timer", "_until_s", "_waiter",
        "answer", "request",
    )  # fmt: skip

    def __init__(self, room: Receiver, client: Client, request: Any, asked: str, lease_ms: int, call: Call) -> None:
        self.answer = Promise()
        self.request = request
        self._room = room
        self._client = client
        self._asked = asked
        self._lease_ms = lease_ms
        now_s = room.loop.time()
        self._until_s = now_s + poll_s(request, call, now_s)
        self._line: Line
        self._waiter: Waiter | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._batch: pa.RecordBatch | None = None
        self._sent = 0
        """How many of a large batch are on the wire, or in the stream's hands."""
        client.calls += 1
        call.on_done(self._left)

    def made(self, making: asyncio.Task[Line]) -> None:
        """Its group was looked up, or made."""
        error = None if making.cancelled() else making.exception()
        if self.answer.done():
            return
        if making.cancelled():
            self._left_early()  # the front stops
        elif error is not None:
            self._refuse(error)
        else:
            self.wait(making.result())

    def wait(self, line: Line) -> None:
        """Stand in line."""
        try:
            self._wait(line)
        except Exception as error:  # noqa: BLE001  whatever it is, the client is told
            self._refuse(error)

    def _wait(self, line: Line) -> None:
        self._line = line
        rows_max = max(1, min(self.request.batch_size, BATCH_MAX))
        if self.request.auto_renew:
            holder = _push_holder(self._client, line)
            self._forget_attempt()
        else:
            holder = line.group.subscribe(prefetch=rows_max, lease_ms=self._lease_ms)
        self._waiter = Waiter(holder, rows_max, self._told)
        line.wait(self._waiter)
        if not self.answer.done():
            self._timer = self._room.loop.call_at(self._until_s, self._late)

    @property
    def _attempt(self) -> tuple[str, str, int]:
        """Where the client's last attempt is kept: it asks for each of its queues by itself."""
        group = self._line.group
        return group.topic_name, group.name, self.request.message_queue.id % QUEUES

    def _forget_attempt(self) -> None:
        """A push consumer asks once more with the same id: it did not get what was handed out for that, and would
        never settle it.
        """
        last = self._client.attempts.pop(self._attempt, None)
        if last is not None and last[0] == self.request.attempt_id:
            self._line.group.nack(last[1], last[2], 0)

    def _told(self, told: Told) -> None:
        try:
            if isinstance(told, TarryError):
                raise told
            self._batch = told
            self._end(_nothing(self._room.core.clock.now_ms()) if told is None else self._answers(told))
        except Exception as error:  # noqa: BLE001  as above
            self._give_back()
            self._refuse(error)

    def _refuse(self, error: BaseException) -> None:
        if not self.answer.done():
            self._end(refused(service.ReceiveMessageResponse, error, "ReceiveMessage"))

    def _answers(self, batch: pa.RecordBatch) -> Responses:
        request, line = self.request, self._line
        if request.auto_renew and request.attempt_id:
            self._client.attempts[self._attempt] = request.attempt_id, *leases_of(batch)
        other = "" if line.group.topic_name == self._asked else line.group.topic_name
        found = deliveries(batch, request.message_queue.topic, self._room.host, other)
        if batch.num_rows <= CHUNK_ROWS and batch.nbytes <= PIECE_BYTES_MAX:
            return framed([_STARTED, *found, _moment(self._room.core.clock.now_ms())])
        return self._chunks(found)

    async def _chunks(self, found: Iterator[bytes]) -> AsyncIterator[bytes]:
        while part := list(islice(found, CHUNK_ROWS)):
            yield framed([_STARTED, *part] if not self._sent else part)
            self._sent += len(part)
        yield _moment(self._room.core.clock.now_ms())

    def _late(self) -> None:
        assert self._waiter is not None
        self._line.leave(self._waiter)
        self._end(_nothing(self._room.core.clock.now_ms()))

    def _left(self, call: Call) -> None:
        if not call.cancelled:
            return
        if self.answer.done():
            self._give_back()
        else:
            self._left_early()

    def _left_early(self) -> None:
        if self._waiter is not None:
            self._line.leave(self._waiter)
        self._end(b"")

    def _end(self, answer: Responses) -> None:
        if self._timer is not None:
            self._timer.cancel()
        # They know this object, too. What only the collector can free gathers until it stops the process for long.
        self._timer = self._waiter = None
        self._client.calls -= 1
        self._client.heard_s = self._room.loop.time()
        self.answer.set_result(answer)

    def _give_back(self) -> None:
        """The client went away: what it did not get, or not whole, is for others."""
        batch, self._batch = self._batch, None
        if batch is not None:
            give_back(self._line.group, batch.slice(self._sent))


def _nothing(now_ms: int) -> Responses:
    return framed([service.ReceiveMessageResponse(status=_EMPTY).SerializeToString(), _moment(now_ms)])


def _moment(now_ms: int) -> bytes:
    """When that was, as the last of the answers."""
    moment = service.ReceiveMessageResponse()
    moment.delivery_timestamp.FromMilliseconds(now_ms)
    found: bytes = moment.SerializeToString()
    return found


def poll_s(request: Any, call: Call, now_s: float) -> float:
    """How long a request that polls may wait."""
    wanted = request.long_polling_timeout
    wait_s = wanted.seconds + wanted.nanos / 1e9 if request.HasField("long_polling_timeout") else POLL_S
    wait_s = max(0.0, min(wait_s, POLL_S_MAX))
    return wait_s if call.deadline is None else max(0.0, min(wait_s, call.deadline - now_s - ANSWER_S))


def _invisible_ms(request: Any) -> int:
    low, high = INVISIBLE_MS
    found = ceil_ms(request.invisible_duration)
    if not low <= found <= high:
        raise Refusal(Code.ILLEGAL_INVISIBLE_TIME, f"invisible_duration is {found} ms; allowed: {low} to {high}")
    return found


def _push_holder(client: Client, line: Line) -> Subscription:
    key = (line.group.topic_name, line.group.name)
    holder = client.subscriptions.get(key)
    if holder is None or holder.group is not line.group or holder.closed:
        holder = client.subscriptions[key] = line.group.subscribe(prefetch=HELD_MAX, lease_ms=LEASE_MS)
    return holder
