"""Receiving messages of a group and settling them, without a thread for those who wait."""

from __future__ import annotations

import asyncio
from copy import deepcopy
from dataclasses import replace
from typing import Any

import pyarrow as pa

from tarry.api.consuming import ConsumerGroup
from tarry.api.operation import Operation
from tarry.api.operations import Ack, Extend, Nack, Receive
from tarry.api.operations.messages import HANDLES_MAX
from tarry.api.paths import Resource
from tarry.api.row_schemas import DELIVERY
from tarry.base.errors import InvalidArgumentError, NotFoundError, TarryError
from tarry.base.event_loop import answer_future
from tarry.fronts.http.rest import deliveries
from tarry.fronts.http.rest.answer import JSON
from tarry.fronts.http.rest.deliveries import columns_of
from tarry.fronts.http.rest.description import DescribedBody, Description
from tarry.fronts.http.rest.operations import OperationEndpoint, describe
from tarry.fronts.http.rest.request import ClientLeftError, RestRequest
from tarry.fronts.kit.last_look import holds_back
from tarry.fronts.kit.receiving import FILTERING_S, WAIT_S_MAX, give_back, lease_ms_of, poll_now, receive_within
from tarry.fronts.kit.unread import Room

LIST = {"type": "array", "items": deliveries.SCHEMA, "maxItems": HANDLES_MAX}


class ReceiveEndpoint(OperationEndpoint):
    """Waits in the queue of the group's receives. What was leased to a client that has left is given back."""

    async def carry_out(self, operation: Operation[Any], request: RestRequest) -> Any:
        assert isinstance(operation, Receive)
        services = request.desk
        queue = await services.receive_queue(
            operation.topic, operation.group, start=operation.start, broadcast=operation.broadcast
        )
        lease_ms = lease_ms_of(queue.group, services.broker, operation.lease_ms)
        room = request.room
        room.check()
        # Which also checks the lease.
        subscribe = operation.subscription
        account = services.principal.account
        subscription = queue.group.subscribe(prefetch=subscribe.prefetch, lease_ms=lease_ms, account=account)
        if not operation.wait_ms:
            batch = await poll_now(services.loop, subscription, operation.max_messages, FILTERING_S)
            return _some(queue.group, batch, room)
        left = request.watch()
        try:
            wait_s = min(operation.wait_ms / 1000, WAIT_S_MAX)
            batch = await receive_within(queue, subscription, operation.max_messages, wait_s, room, left)
            if batch is None and queue.group.deleted:
                # Nothing, it would ask again: that would make the group anew, and begin at its beginning.
                raise NotFoundError("the group was deleted")
            try:
                request.check_sender()
            except (TarryError, ClientLeftError):
                give_back(queue.group, batch)
                raise
            return _some(queue.group, batch)
        finally:
            left.cancel()


def _some(group: ConsumerGroup, batch: pa.RecordBatch | None, room: Room | None = None) -> pa.RecordBatch:
    """Return what is written next."""
    if batch is None or holds_back(group, batch):
        return pa.RecordBatch.from_pylist([], schema=DELIVERY)
    if room is not None:
        room.hold(batch.nbytes)
    return batch


class SettleEndpoint(OperationEndpoint):
    """Ack, nack or extend: messages are named by ``deliveries``, or by ``leases`` and ``offsets``."""

    LISTS = ("deliveries",)

    def adapt(self, values: dict[str, Any]) -> dict[str, Any]:
        given = values.pop("deliveries", None)
        if given is None:
            return values
        if "leases" in values or "offsets" in values:
            raise InvalidArgumentError("deliveries are given, and leases or offsets; allowed: deliveries alone")
        if not isinstance(given, list) or len(given) > HANDLES_MAX:
            raise InvalidArgumentError(f"deliveries are {given!r:.60}; allowed: a list of up to {HANDLES_MAX} texts")
        leases, offsets = columns_of(given)
        return {**values, "leases": leases.tolist(), "offsets": offsets.tolist()}

    async def carry_out(self, operation: Operation[Any], request: RestRequest) -> Any:
        assert isinstance(operation, Ack | Nack | Extend)
        group = request.desk.broker.find_group(operation.topic, operation.group)
        if isinstance(operation, Extend):
            if group.gathers:
                return await request.desk.call(operation)  # elsewhere, how many are still held is only asked
            return group.extend(operation.leases, operation.offsets, operation.lease_ms)
        done: asyncio.Future[None]
        done, on_result = answer_future(request.desk.loop)
        if isinstance(operation, Ack):
            settled = group.ack(operation.leases, operation.offsets, on_result)
        else:
            settled = group.nack(operation.leases, operation.offsets, operation.delay_ms, on_result, operation.reason)
        await done
        return settled


def describe_receive(resource: Resource) -> Description:
    """In JSON, a message has its ``delivery`` in the place of its lease."""
    said = describe(resource)
    return replace(said, answers={200: _with_delivery(said.answers[200])})


def _with_delivery(content: DescribedBody) -> DescribedBody:
    by_type = dict(content.by_type)
    answer = deepcopy(by_type[JSON])
    fields = answer["properties"]["messages"]["items"]["properties"]
    del fields["lease"]
    fields["delivery"] = deliveries.SCHEMA
    return replace(content, by_type={**by_type, JSON: answer})


def describe_settle(resource: Resource) -> Description:
    """In JSON, messages are named by their deliveries."""
    said = describe(resource)
    assert said.body is not None
    fields = deepcopy(said.body.by_type[JSON])
    del fields["properties"]["leases"], fields["properties"]["offsets"]
    fields["properties"] = {"deliveries": LIST, **fields["properties"]}
    fields["required"] = ["deliveries", *(name for name in fields["required"] if name not in ("leases", "offsets"))]
    return replace(said, body=replace(said.body, by_type={JSON: fields}), errors=(404, 409))
