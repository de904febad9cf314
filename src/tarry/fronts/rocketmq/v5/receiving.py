"""ReceiveMessage: wait for messages of a group, and stream them to the client.

Source: ``ReceiveMessageActivity`` and ``ReceiveMessageResponseStreamWriter`` of apache/rocketmq's proxy.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import Any

import pyarrow as pa

from loopgrpc import Call, Promise, Responses, UnreadBytes, framed
from tarry.base.clock import Clock
from tarry.base.errors import TarryError, UnauthenticatedError
from tarry.fronts.kit.held_back import check_held_back, rest_s
from tarry.fronts.kit.last_look import holds_back, sendable
from tarry.fronts.kit.receiving import Received, ReceiveQueue, Waiter, give_back, leases_of
from tarry.fronts.kit.unread import Room
from tarry.fronts.rocketmq.common.callers import SigningCallers
from tarry.fronts.rocketmq.common.dead_letters import actual_topic
from tarry.fronts.rocketmq.common.groups import ClientGroups
from tarry.fronts.rocketmq.common.refusal import Code, Refusal
from tarry.fronts.rocketmq.common.rights import check_consume
from tarry.fronts.rocketmq.common.stubs import definition, service
from tarry.fronts.rocketmq.common.topics import TopicRegistry
from tarry.fronts.rocketmq.v5.authentication import CallingClient
from tarry.fronts.rocketmq.v5.clients import REQUEST_TIMEOUT_S, AttemptKey, ClientRegistry, ConnectedClient
from tarry.fronts.rocketmq.v5.drafting import ceil_ms
from tarry.fronts.rocketmq.v5.message_bytes import answers_of
from tarry.fronts.rocketmq.v5.resources import filter_of, group_of, topic_of
from tarry.fronts.rocketmq.v5.routes import QUEUES
from tarry.fronts.rocketmq.v5.statuses import OK, refused
from tarry.identity.principal import Principal

BATCH_MAX = 1024
CHUNK_ROWS, PIECE_BYTES_MAX = 32, 1 << 18
"""A batch within both is answered in one piece, a larger one in chunks of CHUNK_ROWS messages.

If the client leaves before it has taken a piece, all of its messages are for others; of a larger batch, those that its
stream has not taken.
"""
INVISIBLE_MS = (10_000, 12 * 3_600_000)
"""Shortest and longest invisible time of a simple consumer, as RocketMQ's (``ProxyConfig``)."""
POLL_S, POLL_S_MAX = 15.0, 60.0
"""Time that a receive waits for a message if it does not say so, and the longest time."""
ANSWER_S = 0.2
"""Time before the client's deadline at which it is told that there is nothing."""

_STARTED = service.ReceiveMessageResponse(status=OK).SerializeToString()
_EMPTY = definition.Status(code=Code.MESSAGE_NOT_FOUND, message="no new message")


@dataclass(slots=True)
class Receiver:
    """Begins receives. On the event loop's thread. ``host``: the broker's name for itself."""

    _clock: Clock
    _loop: asyncio.AbstractEventLoop
    _groups: ClientGroups
    _topics: TopicRegistry
    _clients: ClientRegistry
    _callers: SigningCallers
    _host: str
    _unread: UnreadBytes
    _preparations: set[asyncio.Task[ReceiveQueue]] = field(default_factory=set, init=False)
    """References to the tasks, since the event loop keeps none."""

    def receive(self, caller: CallingClient, request: Any, call: Call) -> Promise:
        """Return the answers of one ReceiveMessage, in RocketMQ's order: status, messages, delivery time.

        Raises:
            Refusal: nothing was handed out.
        """
        asked_topic = topic_of(request.message_queue.topic, caller.namespace)
        group = group_of(request.group, caller.namespace)
        topic = actual_topic(asked_topic, request.message_queue.broker.name)
        if not caller.principal.rights.is_unlimited:
            check_consume(caller.principal, topic, group, peer=caller.host)
        self._topics.check(asked_topic)
        lease_ms = 0 if request.auto_renew else _invisible_ms(request)
        filter = filter_of(self._groups, request.filter_expression)
        queue = self._groups.find_queue(topic, group, filter)
        client = self._clients.get_or_create(caller.id, caller.namespace)
        receive = ReceiveCall(
            self._clock,
            self._loop,
            self._host,
            self._clients,
            self._callers,
            caller.principal,
            client,
            request,
            asked_topic,
            lease_ms,
            call,
            Room(self._unread, call.host),
        )
        if queue is not None:
            receive.wait(queue)
        else:
            preparation = self._loop.create_task(self._groups.prepare_queue(topic, group, filter))
            self._preparations.add(preparation)
            preparation.add_done_callback(self._preparations.discard)
            preparation.add_done_callback(receive.on_prepared)
        return receive.answer


class ReceiveCall:
    """One receive in progress. It ends once: served, timed out, refused, or left by its client.

    ``asked_topic``: the topic that the client named; ``lease_ms``: the lease of a simple consumer.

    ``asked_topic``: the topic that the client named; ``lease_ms``: of a simple consumer.
    """

    __slots__ = (
        "_asked_topic", "_batch", "_callers", "_client", "_clients", "_clock", "_host", "_lease_ms", "_loop",
        "_principal", "_queue", "_request", "_room", "_sent_rows", "_timer", "_until_s", "_wait_s",
        "_waiter", "answer",
    )  # fmt: skip

    def __init__(
        self,
        clock: Clock,
        loop: asyncio.AbstractEventLoop,
        host: str,
        clients: ClientRegistry,
        callers: SigningCallers,
        principal: Principal,
        client: ConnectedClient,
        request: Any,
        asked_topic: str,
        lease_ms: int,
        call: Call,
        room: Room,
    ) -> None:
        self.answer = Promise()
        self._request = request
        self._clock = clock
        self._loop = loop
        self._host = host
        self._clients = clients
        self._callers = callers
        self._principal = principal
        self._client = client
        self._asked_topic = asked_topic
        self._lease_ms = lease_ms
        now_s = loop.time()
        self._until_s = now_s + poll_s(request, call, now_s, clients.request_timeout_s(client))
        self._wait_s = 0.0
        """Seconds for which it wants to wait in the queue."""
        self._queue: ReceiveQueue | None = None
        self._waiter: Waiter | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._batch: pa.RecordBatch | None = None
        """The batch handed out for it, until it is given back."""
        self._room = room
        self._sent_rows = 0
        """Rows of a large batch that are on the wire, or in the stream's hands."""
        client.waiting_receives += 1
        call.on_done(self._on_call_end)

    def on_prepared(self, preparation: asyncio.Task[ReceiveQueue]) -> None:
        """Go on after the group was looked up or made."""
        error = None if preparation.cancelled() else preparation.exception()
        if self.answer.done():
            return
        if preparation.cancelled():
            self._leave()  # the front stops
        elif error is not None:
            self._refuse(error)
        else:
            try:
                self._callers.check_known(self._principal)  # it may have taken long
            except TarryError as gone:
                self._refuse(gone)
                return
            self.wait(preparation.result())

    def wait(self, queue: ReceiveQueue) -> None:
        """Wait in the queue of its group; it may be answered before this returns."""
        try:
            self._wait(queue)
        except Exception as error:  # noqa: BLE001  whatever it is, the client gets an answer
            self._refuse(error)

    def _wait(self, queue: ReceiveQueue) -> None:
        self._queue = queue
        rows_max = max(1, min(self._request.batch_size, BATCH_MAX))
        if self._request.auto_renew:
            subscription = self._client.push_subscription(queue.group, self._principal.account)
            self._give_back_lost_attempt(queue)
        else:
            account = self._principal.account
            subscription = queue.group.subscribe(prefetch=rows_max, lease_ms=self._lease_ms, account=account)
        self._waiter = Waiter(subscription, rows_max, self._on_received, room=self._room)
        if self._request.auto_renew:
            self._waiter.is_full = partial(self._client.is_full, queue.group)
        queue.add(self._waiter)
        if not self.answer.done():
            self._wait_s = max(self._until_s - self._loop.time(), queue.least_wait_s)
            self._timer = self._loop.call_later(self._wait_s, self._on_time)
            self._callers.add(self, self._principal, self._on_gone)

    def _attempt_key(self, queue: ReceiveQueue) -> AttemptKey:
        """Return the key of the client's last attempt; the client asks for each of its queues separately."""
        return queue.group.topic_name, queue.group.name, self._request.message_queue.id % QUEUES

    def _give_back_lost_attempt(self, queue: ReceiveQueue) -> None:
        """Give back the messages of an attempt whose answer was lost.

        A push consumer that asks again with the same id did not get what was handed out for it, and would never settle
        it.
        """
        attempt_id = self._request.attempt_id
        attempt = self._clients.find_lost_attempt(self._client, self._attempt_key(queue), attempt_id)
        if attempt is not None:
            queue.group.nack(attempt[1], attempt[2], 0)

    def _on_received(self, received: Received) -> None:
        try:
            if isinstance(received, TarryError):
                raise received
            self._batch = received
            answers = None if received is None else self._answers(received)
            if self._queue is not None and sendable(self._queue.group, received) is None:
                self._batch = answers = None
            self._end(_nothing(self._clock.now_ms()) if answers is None else answers)
        except Exception as error:  # noqa: BLE001  as above
            self._give_back()
            self._refuse(error)

    def _refuse(self, error: BaseException) -> None:
        if not self.answer.done():
            self._end(refused(service.ReceiveMessageResponse, error, "ReceiveMessage"))

    def _answers(self, batch: pa.RecordBatch) -> Responses:
        request, queue = self._request, self._queue
        assert queue is not None
        if request.auto_renew and request.attempt_id:
            self._client.attempts[self._attempt_key(queue)] = request.attempt_id, *leases_of(batch)
        actual = queue.group.topic_name
        messages = answers_of(
            batch,
            request.message_queue.topic,
            self._host,
            "" if actual == self._asked_topic else actual,
            pushed=request.auto_renew,
        )
        if batch.num_rows > CHUNK_ROWS:
            return self._chunks(messages)
        # Written before their size is known: asking the columns for it takes as long as writing them.
        part = list(messages)
        if sum(map(len, part)) > PIECE_BYTES_MAX:
            return self._chunks(iter(part))
        return framed([_STARTED, *part, _moment(self._clock.now_ms())])

    async def _chunks(self, messages: Iterator[bytes]) -> AsyncIterator[bytes]:
        queue, batch = self._queue, self._batch
        while part := list(islice(messages, CHUNK_ROWS)):
            if queue is not None and batch is not None and holds_back(queue.group, batch.slice(self._sent_rows)):
                self._batch = None
                break
            yield framed([_STARTED, *part] if not self._sent_rows else part)
            self._sent_rows += len(part)
        yield _moment(self._clock.now_ms())

    def _on_gone(self, error: TarryError) -> None:
        """End the wait of a caller that is known no longer: it would be handed messages."""
        if not self.answer.done():
            self._leave_queue()
            self._refuse(UnauthenticatedError(str(error)))

    def _on_time(self) -> None:
        left_s = 0.0 if self._waiter is None else rest_s(self._waiter.subscription, self._wait_s)
        if left_s:
            self._timer = self._loop.call_later(left_s, self._on_timeout)
        else:
            self._on_timeout()

    def _on_timeout(self) -> None:
        self._leave_queue()
        try:
            if self._waiter is not None:
                check_held_back(self._waiter.subscription, self._wait_s)
        except TarryError as error:
            self._refuse(error)
        else:
            self._end(_nothing(self._clock.now_ms()))

    def _on_call_end(self, call: Call) -> None:
        self._room.release()
        if not call.cancelled:
            return
        if self.answer.done():
            self._give_back()
        else:
            self._leave()

    def _leave(self) -> None:
        self._leave_queue()
        self._end(b"")

    def _leave_queue(self) -> None:
        if self._queue is not None and self._waiter is not None:
            self._queue.remove(self._waiter)

    def _end(self, answer: Responses) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._callers.remove(self)
        # Waiter and timer refer to this object, too. Only the garbage collector frees a cycle: cycles would pile up
        # until a collection stops the process for long.
        self._timer = self._waiter = None
        self._client.waiting_receives -= 1
        self._client.last_call_s = self._loop.time()
        self.answer.set_result(answer)

    def _give_back(self) -> None:
        """Give back the messages that a client that went away did not get, or not whole."""
        batch, self._batch = self._batch, None
        if batch is not None and self._queue is not None:
            give_back(self._queue.group, batch.slice(self._sent_rows))


def _nothing(now_ms: int) -> Responses:
    return framed([service.ReceiveMessageResponse(status=_EMPTY).SerializeToString(), _moment(now_ms)])


def _moment(now_ms: int) -> bytes:
    """Encode the last of the answers: the time of the delivery."""
    moment = service.ReceiveMessageResponse()
    moment.delivery_timestamp.FromMilliseconds(now_ms)
    answer: bytes = moment.SerializeToString()
    return answer


def poll_s(request: Any, call: Call, now_s: float, request_timeout_s: float = REQUEST_TIMEOUT_S) -> float:
    """Compute for how many seconds a request that polls may wait; ``now_s`` is the loop's time.

    Clients that do not say so, as Java's before 5.0.4, add their ``request_timeout_s`` to the time for their deadline.
    """
    left_s = POLL_S_MAX if call.deadline is None else call.deadline - now_s - ANSWER_S
    if request.HasField("long_polling_timeout"):
        timeout = request.long_polling_timeout
        wait_s: float = timeout.seconds + timeout.nanos / 1e9
    elif call.deadline is None:
        wait_s = POLL_S
    else:
        wait_s = call.deadline - now_s - request_timeout_s / 2
    wait_s = min(wait_s, left_s)
    return max(0.0, min(wait_s, POLL_S_MAX))


def _invisible_ms(request: Any) -> int:
    low, high = INVISIBLE_MS
    invisible_ms = ceil_ms(request.invisible_duration)
    if not low <= invisible_ms <= high:
        # RocketMQ's words first: programs search for them.
        wrong = f"the invisibleTime is too {'small' if invisible_ms < low else 'large'}"
        raise Refusal(
            Code.ILLEGAL_INVISIBLE_TIME, f"{wrong}: invisible_duration is {invisible_ms} ms; allowed: {low} to {high}"
        )
    return invisible_ms
