"""One consumer of a group: what it may hold, and what it can do with it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from tarry.base.errors import ClosedError
from tarry.base.types import Int64s
from tarry.groups.ledger import Done

if TYPE_CHECKING:
    from tarry.groups.group import Group


class Subscription:
    """Any thread may call; ``held`` counts what is leased to it and not settled."""

    def __init__(self, group: Group, *, prefetch: int, lease_ms: int) -> None:
        self.group = group
        self.prefetch = prefetch
        self.lease_ms = lease_ms
        self.held = 0
        self.closed = False
        self._since_ms = group.now_ms()
        self._full = False

    def handed(self, now_ms: int) -> int:
        """From the group, with its lock held, when it has handed something out: since when this consumer had been
        waiting, with room for it.
        """
        if self._full:
            self._since_ms = now_ms  # it got room some time since; what was due before may have waited for that
        self._full = self.held >= self.prefetch
        return self._since_ms

    def fetch(self, max_rows: int = 8192, wait_s: float | None = None) -> pa.RecordBatch | None:
        """Messages (:data:`DELIVERY`), as soon as there are any; None when there were none within ``wait_s``, or after
        :meth:`close`.
        """
        return self.group.fetch(self, max_rows, wait_s)

    def ack(self, leases: Int64s, offsets: Int64s, done: Done | None = None) -> int:
        """See :meth:`Group.ack`."""
        self._check()
        return self.group.ack(leases, offsets, done)

    def nack(self, leases: Int64s, offsets: Int64s, delay_ms: int | None = None, done: Done | None = None) -> int:
        """See :meth:`Group.nack`; without a delay, the group's back-off."""
        self._check()
        return self.group.nack(leases, offsets, delay_ms, done)

    def extend(self, leases: Int64s, offsets: Int64s, lease_ms: int) -> int:
        """See :meth:`Group.extend`."""
        self._check()
        return self.group.extend(leases, offsets, lease_ms)

    def close(self) -> None:
        """Give back what is held, to be delivered to others at once. A fetch in another thread returns None."""
        with self.group.lock:
            if self.closed:
                return
            self.closed = True
        self.group.release(self)

    def _check(self) -> None:
        if self.group.deleted:
            raise ClosedError(f"group {self.group.name!r} of topic {self.group.topic.name!r} was deleted")
        if self.group.closed:
            raise ClosedError("the broker is closed")
