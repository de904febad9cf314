"""Consuming without a thread of one's own: what is there now, and when to look again.

A front that serves many consumers from an event loop asks :meth:`Subscription.poll`, which never waits (or, for
those who keep their own offsets, :attr:`ConsumerGroup.queue_ends`), and has :meth:`ConsumerGroup.listen` say when
there may be something new. Whoever may wait uses :meth:`Subscription.fetch`.
A broker in the same process serves these; a test's fake may, too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import pyarrow as pa

from tarry.api.groups import GroupSettings
from tarry.base.errors import TarryError
from tarry.base.types import Int64s, Mask

OnResult = Callable[[TarryError | None], None]
"""Called once, from any thread: None when what was asked for is durable, else why it is not. Quick, and never
raises."""

OnSettled = Callable[[Mask | TarryError], None]
"""The same of several messages: which of them were settled, when that is durable."""

OnLease = Callable[[int | TarryError | None], None]
"""The same of a lease that is changed: the new one's number, or None where the former was stale."""


class Subscription(Protocol):
    """One consumer of a group: it holds up to ``prefetch`` unsettled messages, each for ``lease_ms``. Any thread."""

    @property
    def group(self) -> ConsumerGroup: ...
    @property
    def closed(self) -> bool: ...
    @property
    def lease_ms(self) -> int: ...
    @property
    def held(self) -> int:
        """How many messages are leased to it and not settled."""
        ...

    def poll(self, rows_max: int) -> tuple[pa.RecordBatch | None, float | None]:
        """Lease what there is now, up to ``rows_max`` messages (:data:`tarry.api.views.DELIVERY`).

        Returns:
            The messages and None; or None and in how many seconds to ask again (None: when a listener is called).

        Raises:
            InvalidArgumentError: the group's filter takes too long. CorruptError: a file of the queue is damaged.
        """
        ...

    def withdraw(self) -> None:
        """Whoever polled in vain waits no more: where a broker elsewhere was asked, it hands out nothing for that."""
        ...

    def fetch(self, rows_max: int = ..., wait_s: float | None = None) -> pa.RecordBatch | None:
        """:meth:`poll`, waiting up to ``wait_s`` seconds for the first message (None: for ever); raises as that does.
        None: there was none, it was closed, or it is :attr:`silent`.
        """
        ...

    def ack(self, leases: Int64s, offsets: Int64s, on_result: OnResult | None = None) -> int:
        """See :meth:`ConsumerGroup.ack`. Raises ClosedError when the group was deleted or the broker closed."""
        ...

    def nack(
        self,
        leases: Int64s,
        offsets: Int64s,
        delay_ms: int | None = None,
        on_result: OnResult | None = None,
        reason: str | None = None,
    ) -> int:
        """See :meth:`ConsumerGroup.nack`."""
        ...

    def give_back(self, leases: Int64s, offsets: Int64s, on_result: OnResult | None = None) -> int:
        """Nobody has looked at these: they are ready again at once, as the same try. Counts as :meth:`ack`."""
        ...

    def resize(self, window: int) -> None:
        """Hold up to so many unsettled messages from now on; ``prefetch`` stays the most. Whoever says this extends
        what it holds, and answers when it is asked: see :attr:`silent`.
        """
        ...

    @property
    def silent(self) -> bool:
        """Leases of a consumer with a window have ended, and nothing has been heard of it since: its process stands
        still, or is gone. It is handed nothing until it is heard of, for the tries of what it never sees would count.
        """
        ...

    def extend(self, leases: Int64s, offsets: Int64s, lease_ms: int) -> int:
        """See :meth:`ConsumerGroup.extend`."""
        ...

    def renew(self, held_ms_max: int) -> int:
        """Hold all that this consumer has for its ``lease_ms`` from now, but for what it has had for longer than
        ``held_ms_max``; how many leases were renewed.
        """
        ...

    def close(self) -> None:
        """Give back what is held, to be delivered to others at once. A fetch in another thread returns None."""
        ...


class ConsumerGroup(Protocol):
    """A consumer group of one topic. Any thread. Arrays of leases and offsets are of one length: what the columns
    ``lease`` and ``offset`` of a delivery say of a message.
    """

    @property
    def topic_name(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def settings(self) -> GroupSettings: ...
    @property
    def ordered(self) -> bool:
        """Whether messages of one order key are delivered one after the other: by its own settings, or its topic's."""
        ...

    @property
    def deleted(self) -> bool: ...
    @property
    def closed(self) -> bool:
        """It was deleted, or the broker is stopping: nothing is handed out any more."""
        ...

    @property
    def gathers(self) -> bool:
        """Whether messages gather before a poll gets them, so that whoever polls need not wait for more of them."""
        ...

    @property
    def is_filtering(self) -> bool:
        """Whether messages are being looked at in a thread of this process, before it is known whether they are handed
        out: who listens hears of the end.
        """
        ...

    @property
    def waits_for_acks(self) -> bool:
        """Whether an acknowledgement may let something else be handed out: order, or a limit of messages in flight."""
        ...

    @property
    def queue_ends(self) -> tuple[int, int]:
        """The first offset of its topic's queue that is kept, and its end, as they are now. What is below the end may
        not be durable yet (:class:`tarry.api.operations.GetQueues` waits for that).
        """
        ...

    def subscribe(self, *, prefetch: int, lease_ms: int) -> Subscription:
        """Add a consumer to the group."""
        ...

    def wants(self, batch: pa.RecordBatch) -> Mask:
        """Which of these rows of its topic's queue (:data:`tarry.api.views.QUEUED`) are for this group, and match its
        filter: for whoever reads the queue by offsets.

        Raises:
            InvalidArgumentError: the filter is a condition that takes too long.
        """
        ...

    def listen(self, on_news: Callable[[], None]) -> Callable[[], None]:
        """Have ``on_news`` called whenever there may be something to hand out: from any thread, the dispatcher's above
        all, so it must be quick and not raise. What is returned ends that.
        """
        ...

    def ack(self, leases: Int64s, offsets: Int64s, on_result: OnResult | None = None) -> int:
        """Settle messages for good.

        Returns:
            How many were settled, as far as this process knows (behind a gateway: how many were sent); if fewer than
            given, the others' leases were stale, and ``on_result`` gets a StaleLeaseError. It is called when the
            acknowledgement is durable; after a crash before, they come again.
        """
        ...

    def ack_each(self, leases: Int64s, offsets: Int64s, on_settled: OnSettled) -> None:
        """:meth:`ack`, and which of them were settled; of one that is given twice, the first. To be stale is no error
        here.
        """
        ...

    def nack(
        self,
        leases: Int64s,
        offsets: Int64s,
        delay_ms: int | None = None,
        on_result: OnResult | None = None,
        reason: str | None = None,
    ) -> int:
        """Give messages back, to come again after ``delay_ms`` (None: the group's back-off); counts as :meth:`ack`.
        ``reason``: why, for who looks at the message later.
        """
        ...

    def reject(self, leases: Int64s, offsets: Int64s, on_result: OnResult | None = None) -> int:
        """The consumer has no hope for these: to the dead letters, whatever tries are left; counts as :meth:`ack`."""
        ...

    def extend(self, leases: Int64s, offsets: Int64s, lease_ms: int) -> int:
        """Hold the whole batches that these came with for ``lease_ms`` from now; how many of them are held still."""
        ...

    def change_lease(self, lease: int, offset: int, lease_ms: int, on_lease: OnLease) -> None:
        """Hold one message for ``lease_ms`` from now under a lease of its own, which replaces the former one.
        ``on_lease`` may be called before this returns. Its attempt stays the same.
        """
        ...
