"""One consumer of a group: what it may hold, and what it can do with it."""

from __future__ import annotations

import pyarrow as pa

from tarry.api.consuming import ConsumerGroup, OnResult
from tarry.base.errors import ClosedError
from tarry.base.types import Int64s
from tarry.groups.delivery import Delivery
from tarry.groups.lease_manager import LeaseManager
from tarry.groups.leases import Holder

ROWS_MAX = 8192


class Subscription:
    """Implements :class:`tarry.api.consuming.Subscription`."""

    def __init__(self, group: ConsumerGroup, holder: Holder, delivery: Delivery, lease_manager: LeaseManager) -> None:
        self.group = group
        self._holder = holder
        self._delivery = delivery
        self._lease_manager = lease_manager

    @property
    def held(self) -> int:
        return self._holder.held

    @property
    def closed(self) -> bool:
        return self._holder.closed

    def poll(self, rows_max: int) -> tuple[pa.RecordBatch | None, float | None]:
        return self._delivery.poll(self._holder, rows_max)

    def fetch(self, rows_max: int = ROWS_MAX, wait_s: float | None = None) -> pa.RecordBatch | None:
        return self._delivery.fetch(self._holder, rows_max, wait_s)

    def ack(self, leases: Int64s, offsets: Int64s, on_result: OnResult | None = None) -> int:
        self._check_open()
        return self._lease_manager.ack(leases, offsets, on_result)

    def nack(
        self, leases: Int64s, offsets: Int64s, delay_ms: int | None = None, on_result: OnResult | None = None
    ) -> int:
        self._check_open()
        return self._lease_manager.nack(leases, offsets, delay_ms, on_result)

    def extend(self, leases: Int64s, offsets: Int64s, lease_ms: int) -> int:
        self._check_open()
        return self._lease_manager.extend(leases, offsets, lease_ms)

    def renew(self, held_ms_max: int) -> int:
        return self._lease_manager.renew(self._holder, held_ms_max)

    def close(self) -> None:
        self._lease_manager.release(self._holder)

    def _check_open(self) -> None:
        if self.group.closed:
            if self.group.deleted:
                raise ClosedError(f"group {self.group.name!r} of topic {self.group.topic_name!r} was deleted")
            raise ClosedError("the broker is closed")
