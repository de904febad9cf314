"""Consuming by calls: adding a consumer to a group, and receiving messages."""

from __future__ import annotations

import pyarrow as pa

from tarry.api.accounts import QuotaAccount
from tarry.api.operations import Receive
from tarry.api.operations.delivery import Subscribe
from tarry.api.row_schemas import DELIVERY
from tarry.groups import ConsumerGroups, GroupSubscription


class Consumers:
    """Adds consumers and receives messages. Any thread.

    ``lease_ms`` is the lease of groups that set none of their own.
    """

    def __init__(self, groups: ConsumerGroups, lease_ms: int) -> None:
        self._groups = groups
        self._lease_ms = lease_ms

    def subscribe(self, request: Subscribe, account: QuotaAccount | None = None) -> GroupSubscription:
        """Add a consumer to a group, which is created (durably) when it is new."""
        group = self._groups.get_or_create(
            request.topic, request.group, start=request.start, broadcast=request.broadcast
        )
        lease_ms = request.lease_ms or group.settings.lease_ms or self._lease_ms
        return group.subscribe(prefetch=request.prefetch, lease_ms=lease_ms, account=account)

    def receive(self, request: Receive) -> pa.RecordBatch:
        """Lease ready messages, waiting for the first."""
        subscription = self.subscribe(request.subscription)
        batch = subscription.fetch(request.max_messages, request.wait_ms / 1000)
        return pa.RecordBatch.from_pylist([], schema=DELIVERY) if batch is None else batch
