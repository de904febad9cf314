"""A consumer group of a topic, as its consumers see it, and questions about where its messages are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from tarry.api.consuming import OnResult
from tarry.api.groups import GroupSettings
from tarry.api.settings import Start
from tarry.base.clock import Clock
from tarry.base.types import Int64s, Mask
from tarry.groups import inspection
from tarry.groups.delivery import Delivery
from tarry.groups.group_state import GroupState
from tarry.groups.lease_manager import LeaseManager
from tarry.groups.leases import Holder
from tarry.groups.news import News
from tarry.groups.policy import Policy
from tarry.groups.selection import Selection
from tarry.groups.subscription import Subscription


class Group:
    """Implements :class:`tarry.api.consuming.ConsumerGroup` over its parts. Any thread."""

    def __init__(
        self,
        state: GroupState,
        policy: Policy,
        news: News,
        selection: Selection,
        lease_manager: LeaseManager,
        delivery: Delivery,
        clock: Clock,
    ) -> None:
        self.name = state.name
        self.topic_name = state.topic.name
        self._state = state
        self._policy = policy
        self._news = news
        self._selection = selection
        self._lease_manager = lease_manager
        self._delivery = delivery
        self._clock = clock

    # -- for consumers: see tarry.api.consuming ----------------------------------------------------------------------

    @property
    def settings(self) -> GroupSettings:
        return self._policy.settings

    @property
    def ordered(self) -> bool:
        return self._policy.ordered

    @property
    def deleted(self) -> bool:
        return self._state.deleted

    @property
    def closed(self) -> bool:
        return self._state.closed

    @property
    def waits_for_acks(self) -> bool:
        return self._lease_manager.waits_for_acks

    @property
    def queue_ends(self) -> tuple[int, int]:
        topic = self._state.topic
        return topic.first, topic.end

    def subscribe(self, *, prefetch: int, lease_ms: int) -> Subscription:
        holder = Holder(prefetch, lease_ms, since_ms=self._clock.now_ms())
        return Subscription(self, holder, self._delivery, self._lease_manager)

    def listen(self, on_news: Callable[[], None]) -> Callable[[], None]:
        return self._news.listen(on_news)

    def ack(self, leases: Int64s, offsets: Int64s, on_result: OnResult | None = None) -> int:
        return self._lease_manager.ack(leases, offsets, on_result)

    def ack_each(self, leases: Int64s, offsets: Int64s, on_result: OnResult) -> Mask:
        return self._lease_manager.ack_each(leases, offsets, on_result)

    def nack(
        self, leases: Int64s, offsets: Int64s, delay_ms: int | None = None, on_result: OnResult | None = None
    ) -> int:
        return self._lease_manager.nack(leases, offsets, delay_ms, on_result)

    def reject(self, leases: Int64s, offsets: Int64s, on_result: OnResult | None = None) -> int:
        return self._lease_manager.reject(leases, offsets, on_result)

    def extend(self, leases: Int64s, offsets: Int64s, lease_ms: int) -> int:
        return self._lease_manager.extend(leases, offsets, lease_ms)

    def change_lease(self, lease: int, offset: int, lease_ms: int) -> int | None:
        return self._lease_manager.change_lease(lease, offset, lease_ms)

    # -- where its messages are --------------------------------------------------------------------------------------

    @property
    def start(self) -> Start:
        """Where it began when it was made."""
        return self._state.start

    @property
    def floor(self) -> int:
        """All offsets below are settled."""
        return self._state.floor

    @property
    def unsettled(self) -> int:
        """How many ready messages are not settled."""
        with self._state.lock:
            return inspection.unsettled(self._state)

    def unsettled_offsets(self, first: int, end: int, limit: int | None = None) -> Int64s:
        """The offsets from ``first`` to before ``end`` that are not settled, ascending; up to ``limit`` of them."""
        with self._state.lock:
            return inspection.unsettled_offsets(self._state, first, end, limit)

    def oldest_due_ms(self) -> int | None:
        """Due time of the first message in the queue that is not settled (it may be read from disk)."""
        first = self._state.topic.read(self._state.floor, 1)
        return None if first is None else int(first[1].column("due_ms")[0].as_py())

    def counts(self) -> dict[str, int]:
        """How many messages are ready, leased, waiting (for their next try), blocked (by the order) and burying (being
        copied to the dead letters); their sum is what is not settled (lag). And lost: deleted by retention before they
        were settled.
        """
        with self._state.lock:
            return inspection.counts(self._state, self._clock.now_ms())

    def state_of(self, offset: int) -> dict[str, Any]:
        """The message's state in the group, as plain data. ``state`` is one of

        - ``settled``: acknowledged, dropped, in the dead letters, passed by in a seek, or ready before the group began
        - ``leased``: with a consumer, as try ``attempt``, until ``until_ms``
        - ``waiting``: to be handed out at ``again_ms`` (0: at once), as try ``attempt``
        - ``burying``: on its way to the dead letters, for ``cause``
        - ``blocked``: behind another message of its ordering key
        - ``ready``: not handed out
        """
        with self._state.lock:
            return inspection.state_of(self._state, offset)

    def wants(self, batch: pa.RecordBatch) -> Mask:
        """Which of these rows of its topic are for this group, and match its filter.

        Raises:
            InvalidArgumentError: the filter is a condition that takes too long.
        """
        with self._state.lock:
            return ~self._selection.unwanted(batch)
