"""PullMessage and the calls about offsets. Consumers keep their own offsets; nothing is leased."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from loopgrpc import Call
from tarry.api.accounts import QuotaAccount, charge_handed
from tarry.api.consuming import ConsumerGroup
from tarry.api.local import AnyBroker
from tarry.api.operations import AdvanceGroup, FindOffset, FollowQueue, GetQueues, ReadQueue
from tarry.base.errors import InvalidArgumentError, NotFoundError
from tarry.fronts.kit.held_back import receivable_in_turn
from tarry.fronts.kit.receiving import wait_for_rows
from tarry.fronts.rocketmq.common.callers import SigningCallers
from tarry.fronts.rocketmq.common.groups import ClientGroups
from tarry.fronts.rocketmq.common.refusal import Code, Refusal
from tarry.fronts.rocketmq.common.rights import check_consume, check_look
from tarry.fronts.rocketmq.common.stubs import definition, service
from tarry.fronts.rocketmq.common.threads import RunInThread
from tarry.fronts.rocketmq.common.topics import TopicRegistry
from tarry.fronts.rocketmq.v5.authentication import CallingClient
from tarry.fronts.rocketmq.v5.message_bytes import answers_of
from tarry.fronts.rocketmq.v5.receiving import BATCH_MAX, poll_s
from tarry.fronts.rocketmq.v5.resources import filter_of, group_of, topic_of
from tarry.fronts.rocketmq.v5.statuses import OK

_POLICY = definition.QueryOffsetPolicy
_EMPTY = definition.Status(code=Code.MESSAGE_NOT_FOUND, message="no new message")


@dataclass(slots=True)
class Offsets:
    """Answers consumers that keep their own offsets. On the event loop's thread.

    ``host``: the broker's name for itself.
    """

    _broker: AnyBroker
    _loop: asyncio.AbstractEventLoop
    _groups: ClientGroups
    _topics: TopicRegistry
    _callers: SigningCallers
    _run_in_thread: RunInThread
    _host: str

    async def pull(self, caller: CallingClient, request: Any, call: Call) -> AsyncIterator[bytes]:
        """Answer PullMessage: the messages of a queue from an offset on, and the next offset.

        Raises:
            Refusal: ILLEGAL_OFFSET.
        """
        topic, name = self._names(caller, request)
        start, rows_max = request.offset, max(1, min(request.batch_size, BATCH_MAX))
        filter = filter_of(self._groups, request.filter_expression)
        group = (await self._groups.prepare_queue(topic, name, filter)).group
        wait_s, account = poll_s(request, call, self._loop.time()), caller.principal.account
        end_s = self._loop.time() + wait_s
        await wait_for_rows(self._loop, group, start, wait_s)
        if account is not None and account.limits_consuming:
            left_s = end_s - self._loop.time()
            rows_max = await receivable_in_turn(self._loop, group, account, rows_max, left_s)
        self._callers.check_known(caller.principal)  # it may have waited for a minute
        first, end = group.queue_ends
        messages: list[bytes] = []
        if 0 <= start < end:
            messages, behind = await self._run_in_thread(lambda: self._read(group, request, start, rows_max, account))
            if group.may_send:
                start = behind
            else:
                messages = []
        elif start != end:
            raise Refusal(Code.ILLEGAL_OFFSET, f"offset {start} of topic {topic!r}; allowed: {first} to {end}")
        yield service.PullMessageResponse(status=OK if messages else _EMPTY).SerializeToString()
        for message in messages:
            yield message
        yield service.PullMessageResponse(next_offset=start).SerializeToString()

    def _read(
        self, group: ConsumerGroup, request: Any, start: int, rows_max: int, account: QuotaAccount | None
    ) -> tuple[list[bytes], int]:
        """Return the messages from ``start`` on that the group wants, and the next offset.

        It may wait for the disk: a client may store an offset that it is told, so everything below has to be durable.
        """
        topic = group.topic_name
        first, end = self._ends(topic)
        begin = min(max(first, start), end)
        stop = min(end, begin + rows_max)
        batches = self._broker.call(ReadQueue(topic, begin, stop)) if begin < stop else iter(())
        # Messages that the group does not want are skipped, and count as pulled.
        wanted = [batch.filter(pa.array(group.wants(batch, account))) for batch in batches]
        for batch in wanted:
            charge_handed(account, batch.num_rows, batch.column("body").nbytes)
        return [m for batch in wanted for m in answers_of(batch, request.message_queue.topic, self._host)], stop

    def _ends(self, topic: str) -> tuple[int, int]:
        """Return a queue's first kept offset and its end, durable. It may wait for the disk."""
        return self._broker.call(GetQueues([topic]))[topic]

    async def update(self, caller: CallingClient, request: Any) -> Any:
        """Answer UpdateOffset: everything below the offset is done, durably. An offset never goes back.

        Raises:
            Refusal: ILLEGAL_OFFSET: the queue does not reach that far.
        """
        topic, group = self._names(caller, request)

        def advance() -> None:
            try:
                self._broker.call(AdvanceGroup(topic, group, request.offset))
            except InvalidArgumentError as error:
                raise Refusal(Code.ILLEGAL_OFFSET, str(error)) from error

        await self._run_in_thread(advance)
        return service.UpdateOffsetResponse(status=OK)

    async def get(self, caller: CallingClient, request: Any) -> Any:
        """Answer GetOffset with a group's offset.

        Raises:
            Refusal: OFFSET_NOT_FOUND: there is no such group.
        """
        topic, group = self._names(caller, request)

        def look_up() -> int:
            try:
                self._broker.find_group(topic, group)
            except NotFoundError as error:
                raise Refusal(Code.OFFSET_NOT_FOUND, str(error)) from error
            return self._broker.call(FollowQueue(topic, group))

        return service.GetOffsetResponse(status=OK, offset=await self._run_in_thread(look_up))

    async def query(self, caller: CallingClient, request: Any) -> Any:
        """Answer QueryOffset: the first kept offset, the next one, or the first one due at a time or later."""
        topic = topic_of(request.message_queue.topic, caller.namespace)
        check_look(caller.principal, topic, peer=caller.host)
        self._topics.check(topic)
        policy = request.query_offset_policy

        def look_up() -> int:
            first, end = self._ends(topic)
            if policy == _POLICY.TIMESTAMP:
                at = request.timestamp
                return self._broker.call(FindOffset(topic, at.seconds * 1000 + at.nanos // 1_000_000))
            return first if policy == _POLICY.BEGINNING else end

        return service.QueryOffsetResponse(status=OK, offset=await self._run_in_thread(look_up))

    def _names(self, caller: CallingClient, request: Any) -> tuple[str, str]:
        topic = topic_of(request.message_queue.topic, caller.namespace)
        group = group_of(request.group, caller.namespace)
        check_consume(caller.principal, topic, group, peer=caller.host)
        self._topics.check(topic)
        return topic, group
