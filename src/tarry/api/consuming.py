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

from tarry.api.accounts import HeldBack, QuotaAccount
from tarry.api.groups import GroupSettings
from tarry.base.errors import TarryError
from tarry.base.types import Int64s, Mask

OnResult = Callable[[TarryError | None], None]
"""Callback for a change of messages: None when it is durable, else the error.

Called once, from any thread; be quick, never raise.
"""

OnSettled = Callable[[Mask | TarryError], None]
"""Callback for several messages: a mask of the settled ones, when that is durable, or the error.

Called as :data:`OnResult`.
"""

OnLease = Callable[[int | TarryError | None], None]
"""Callback for a changed lease: the new lease's number, None if the former was stale, or the error.

Called as :data:`OnResult`.
"""


class Subscription(Protocol):
    """A consumer of a group: holds up to ``prefetch`` unsettled messages, each for ``lease_ms``.

    Any thread.
    """

    @property
    def group(self) -> ConsumerGroup: ...
    @property
    def closed(self) -> bool: ...
    @property
    def lease_ms(self) -> int: ...
    @property
    def held(self) -> int:
        """Number of messages that are leased to this consumer and not settled."""
        ...

    @property
    def account(self) -> QuotaAccount | None:
        """The use of the consumer's identity, held against its quotas; None: it has none."""
        ...

    @property
    def held_back(self) -> HeldBack | None:
        """The quota of its identity for which its last poll got nothing; None: there was none.

        The poll says so itself: a moment later something may be left of the quota, and the poll would seem to have
        found no messages. Behind a gateway it is always None: the broker knows.
        """
        ...

    @property
    def filters_first(self) -> bool:
        """True if its last poll got nothing since messages have to be filtered first.

        A thread of this process does it; listeners of its group are notified when that ends.
        """
        ...

    def poll(self, rows_max: int) -> tuple[pa.RecordBatch | None, float | None]:
        """Lease what there is now, up to ``rows_max`` messages (:data:`tarry.api.row_schemas.DELIVERY`).

        Returns:
            The messages and None; or None and in how many seconds to ask again (None: when a listener is called).

        Raises:
            InvalidArgumentError: the group's filter takes too long. CorruptError: a file of the queue is damaged.
        """
        ...

    def withdraw(self) -> None:
        """Stop waiting after a poll that found nothing.

        If a remote broker was asked for messages, it hands out none for that poll.
        """
        ...

    def fetch(self, rows_max: int = ..., wait_s: float | None = None) -> pa.RecordBatch | None:
        """Poll, waiting up to ``wait_s`` seconds for the first message (None: for ever).

        Returns None if there was no message, the consumer was closed, or it is :attr:`silent`. Raises as :meth:`poll`
        does.
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
        """Hold up to ``window`` unsettled messages from now on; ``prefetch`` remains the maximum.

        A caller that resizes must extend its leases itself, and answer when it is asked: see :attr:`silent`.
        """
        ...

    @property
    def silent(self) -> bool:
        """True if leases of this consumer, which has a window, ended and it has not been heard of since.

        Then its process stands still, or is gone. It is handed nothing until it is heard of: messages that it never
        sees would use up their tries.
        """
        ...

    def extend(self, leases: Int64s, offsets: Int64s, lease_ms: int) -> int:
        """See :meth:`ConsumerGroup.extend`."""
        ...

    def renew(self, held_ms_max: int) -> int:
        """Renew all leases of this consumer for its ``lease_ms`` from now; return how many were renewed.

        Messages that it has held for longer than ``held_ms_max`` are left out.
        """
        ...

    def close(self) -> None:
        """Give back what is held, to be delivered to others at once. A fetch in another thread returns None."""
        ...


OnPolled = Callable[[pa.RecordBatch | TarryError | None], None]
"""Callback for a poll: its messages, None if there are none, or an error.

Called once; be quick, never raise.
"""


class DistantSubscription(Subscription, Protocol):
    """A consumer of a group of a broker elsewhere: one whose :attr:`ConsumerGroup.gathers` is true.

    :meth:`Subscription.poll` finds only what the broker has sent already.
    """

    def poll_now(self, rows_max: int, on_polled: OnPolled) -> None:
        """Have the broker lease what there is now, up to ``rows_max`` messages, and not wait for more."""
        ...


class ConsumerGroup(Protocol):
    """A consumer group of one topic. Any thread.

    Arrays of leases and offsets are of one length; the values are those of the columns ``lease`` and ``offset`` of a
    delivery.
    """

    @property
    def topic_name(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def settings(self) -> GroupSettings: ...
    @property
    def ordered(self) -> bool:
        """True if messages of one order key are delivered one after the other.

        Either the group's settings or those of its topic say so.
        """
        ...

    @property
    def deleted(self) -> bool: ...
    @property
    def closed(self) -> bool:
        """True if the group was deleted, or the broker is stopping: nothing is handed out any more."""
        ...

    @property
    def gathers(self) -> bool:
        """True if messages gather before a poll gets them, so that pollers need not wait for more."""
        ...

    @property
    def is_filtering(self) -> bool:
        """True if a thread of this process is filtering messages and may yet find some to hand out.

        Listeners are notified when it ends.
        """
        ...

    @property
    def waits_for_acks(self) -> bool:
        """True if an acknowledgement may free other messages: the group is ordered, or limits those in flight."""
        ...

    @property
    def may_send(self) -> bool:
        """False while another broker may hand out the same: nothing that was leased may go to a consumer now.

        Always true where nobody can take the logs over, and behind a gateway, whose broker looks before it sends.
        """
        ...

    @property
    def queue_ends(self) -> tuple[int, int]:
        """Return the first kept offset of the topic's queue, and its end, as they are now.

        Messages below the end may not be durable yet (:class:`tarry.api.operations.GetQueues` waits for that).
        """
        ...

    def subscribe(self, *, prefetch: int, lease_ms: int, account: QuotaAccount | None = None) -> Subscription:
        """Add a consumer to the group; ``account``: the use of its identity."""
        ...

    def wants(self, batch: pa.RecordBatch, account: QuotaAccount | None = None) -> Mask:
        """Return which rows of the topic's queue are for this group, and match its filter.

        The columns are :data:`tarry.api.row_schemas.QUEUED`. For readers of the queue by offsets; ``account``: that of
        the reader, which pays for a condition's CPU time.

        Raises:
            InvalidArgumentError: the filter is a condition that takes too long.
        """
        ...

    def listen(self, on_news: Callable[[], None]) -> Callable[[], None]:
        """Call ``on_news`` whenever there may be a message to hand out; return a function that ends this.

        ``on_news`` is called from any thread, usually the dispatcher's: it must be quick, and not raise.
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
        """Acknowledge as :meth:`ack`, and report which messages were settled.

        Of a message that is given twice, the first counts. A stale lease is no error here.
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
        """Give messages back, to come again after ``delay_ms`` (None: the group's back-off).

        Returns a count as :meth:`ack`. ``reason``: shown to people who look at the message later.
        """
        ...

    def reject(
        self, leases: Int64s, offsets: Int64s, on_result: OnResult | None = None, reason: str | None = None
    ) -> int:
        """Move messages to the dead letters, whatever tries are left; counts as :meth:`ack`.

        For messages that the consumer will never be able to process. ``reason``: as of :meth:`nack`.
        """
        ...

    def give_back(self, leases: Int64s, offsets: Int64s) -> int:
        """Have messages that nobody has looked at ready again at once, as the same try; counts as :meth:`ack`."""
        ...

    def extend(self, leases: Int64s, offsets: Int64s, lease_ms: int) -> int:
        """Extend the whole batches of these messages to ``lease_ms`` from now; return how many are still held."""
        ...

    def change_lease(self, lease: int, offset: int, lease_ms: int, on_lease: OnLease) -> None:
        """Hold one message for ``lease_ms`` from now under a new lease of its own.

        The new lease replaces the former one. The message's attempt stays the same. ``on_lease`` may be called before
        this returns.
        """
        ...
