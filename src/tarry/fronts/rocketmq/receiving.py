"""ReceiveMessage: wait for messages of a group, and stream them to the client."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from itertools import islice
from typing import Any

import pyarrow as pa

from tarry.errors import TarryError
from tarry.fronts.grpc import Call, framed
from tarry.fronts.rocketmq.caller import Caller
from tarry.fronts.rocketmq.clients import LEASE_MS, Client, Clients
from tarry.fronts.rocketmq.core import Core
from tarry.fronts.rocketmq.dead import actual_topic
from tarry.fronts.rocketmq.draft import ceil_ms
from tarry.fronts.rocketmq.encoding import deliveries
from tarry.fronts.rocketmq.groups import Groups
from tarry.fronts.rocketmq.lines import Line
from tarry.fronts.rocketmq.names import group_of, topic_of
from tarry.fronts.rocketmq.refusal import OK, Code, Refusal
from tarry.fronts.rocketmq.routes import QUEUES
from tarry.fronts.rocketmq.stubs import definition, service
from tarry.fronts.rocketmq.topics import Topics
from tarry.intake.index import Int64s
from tarry.ready import Subscription

BATCH_MAX = 1024
CHUNK_ROWS = 32
"""Messages that are given to the stream at once; what it has not taken when the client leaves is for others."""
INVISIBLE_MS = (10_000, 12 * 3_600_000)
"""What a simple consumer may ask for; the original's."""
POLL_S, POLL_S_MAX = 15.0, 60.0
"""How long a receive waits for a message that does not say, and at most."""
ANSWER_S = 0.2
"""How long before the client's deadline it is told that there is nothing."""
_HELD_MAX = 1 << 30

_STARTED = service.ReceiveMessageResponse(status=OK).SerializeToString()
_EMPTY = definition.Status(code=Code.MESSAGE_NOT_FOUND, message="no new message")


class Receiver:
    """On the loop's thread."""

    def __init__(
        self, core: Core, loop: asyncio.AbstractEventLoop, groups: Groups, topics: Topics, clients: Clients, host: str
    ) -> None:
        self._core = core
        self._loop = loop
        self._groups = groups
        self._topics = topics
        self._clients = clients
        self._host = host

    async def receive(self, caller: Caller, request: Any, call: Call) -> AsyncIterator[bytes]:
        """The answers of one ReceiveMessage, in the original's order: status, messages, the moment.

        Raises:
            Refusal: nothing was handed out.
        """
        topic = topic_of(request.message_queue.topic, caller.space)
        batch, line = await self._wait(caller, request, topic, call)
        if batch is None:
            yield service.ReceiveMessageResponse(status=_EMPTY).SerializeToString()
        else:
            sent = 0
            try:
                other = "" if line.group.topic.name == topic else line.group.topic.name
                found = deliveries(batch, request.message_queue.topic, self._host, other)
                while part := list(islice(found, CHUNK_ROWS)):
                    yield framed([_STARTED, *part] if not sent else part)
                    sent += len(part)
            finally:
                # The client went away in the middle: what it did not get is for others.
                if sent < batch.num_rows:
                    _give_back(line, batch.slice(sent))
        moment = service.ReceiveMessageResponse()
        moment.delivery_timestamp.FromMilliseconds(self._core.clock.now_ms())
        yield moment.SerializeToString()

    async def _wait(self, caller: Caller, request: Any, asked: str, call: Call) -> tuple[pa.RecordBatch | None, Line]:
        group = group_of(request.group, caller.space)
        self._topics.check(asked)
        topic = actual_topic(asked, request.message_queue.broker.name)
        rows_max = max(1, min(request.batch_size, BATCH_MAX))
        push, queue = request.auto_renew, request.message_queue.id % QUEUES
        lease_ms = LEASE_MS if push else _invisible_ms(request)
        client = self._clients.heard(caller.id, caller.space)
        until_s = self._loop.time() + poll_s(request, call, self._loop.time())
        client.calls += 1
        try:
            line = await self._groups.line(topic, group, request.filter_expression)
            holder = (
                _push_holder(client, line) if push else Subscription(line.group, prefetch=rows_max, lease_ms=lease_ms)
            )
            if push:
                _forget_attempt(client, line, queue, request.attempt_id)
            batch = await self._from(line, holder, rows_max, until_s)
            if batch is not None and push and request.attempt_id:
                leases, offsets = _leases(batch)
                client.attempts[line.group.topic.name, group, queue] = request.attempt_id, leases, offsets
            return batch, line
        finally:
            client.calls -= 1
            client.heard_s = self._loop.time()

    async def _from(self, line: Line, holder: Subscription, rows_max: int, until_s: float) -> pa.RecordBatch | None:
        waiting = line.receive(holder, rows_max)
        try:
            async with asyncio.timeout_at(until_s):
                return await waiting
        except TimeoutError:
            return _given(waiting)
        except asyncio.CancelledError:
            # The client has gone, and what it was given in the same moment is for others.
            if (batch := _given(waiting)) is not None:
                _give_back(line, batch)
            raise
        except TarryError as error:
            raise Refusal.of(error) from error


def _given(waiting: asyncio.Future[pa.RecordBatch | None]) -> pa.RecordBatch | None:
    done = waiting.done() and not waiting.cancelled() and waiting.exception() is None
    return waiting.result() if done else None


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
    key = (line.group.topic.name, line.group.name)
    holder = client.subscriptions.get(key)
    if holder is None or holder.group is not line.group or holder.closed:
        holder = client.subscriptions[key] = Subscription(line.group, prefetch=_HELD_MAX, lease_ms=LEASE_MS)
    return holder


def _forget_attempt(client: Client, line: Line, queue: int, attempt_id: str) -> None:
    """A push consumer asks once more with the same id: it did not get what was handed out for that, and would never
    settle it. It asks for each of its queues by itself.
    """
    last = client.attempts.pop((line.group.topic.name, line.group.name, queue), None)
    if last is not None and last[0] == attempt_id:
        line.group.nack(last[1], last[2], 0)


def _give_back(line: Line, batch: pa.RecordBatch) -> None:
    line.group.nack(*_leases(batch), 0)


def _leases(batch: pa.RecordBatch) -> tuple[Int64s, Int64s]:
    leases, offsets = (batch.column(name).to_numpy() for name in ("lease", "offset"))
    return leases, offsets
