"""How messages are consumed, by the broker's methods: :class:`tarry.broker.Broker` has them from here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from tarry.api.groups import GroupInfo, TopicInfo
from tarry.api.views import DELIVERY
from tarry.base.config import Config
from tarry.base.errors import InvalidArgumentError
from tarry.base.types import Int64s
from tarry.base.waiting import wait_for
from tarry.groups import Group, Subscription

if TYPE_CHECKING:
    from tarry.broker.recovery import Rooms


class Consuming:
    """Thread-safe."""

    _rooms: Rooms
    config: Config

    def _check_open(self) -> None:
        raise NotImplementedError

    def group(self, topic: str, name: str, *, start: str | None = None, broadcast: str | None = None) -> Group:
        """The group of that name, made (durably) when it is new: from the earliest message that is kept, or the latest.

        ``broadcast``: a consumer's name; then it is that consumer's own group, ``name@consumer``, from the latest.
        """
        self._check_open()
        return self._rooms.groups.get_or_create(topic, name, start=start, broadcast=broadcast)

    def subscribe(
        self,
        topic: str,
        group: str,
        *,
        prefetch: int = 1000,
        lease_ms: int | None = None,
        start: str | None = None,
        broadcast: str | None = None,
    ) -> Subscription:
        """A consumer of ``group`` that may hold up to ``prefetch`` unsettled messages; see :meth:`group`."""
        if prefetch < 1:
            raise InvalidArgumentError(f"prefetch is {prefetch}; allowed: 1 or more")
        if lease_ms is not None and lease_ms < 1:
            raise InvalidArgumentError(f"lease_ms is {lease_ms}; allowed: 1 or more")
        found = self.group(topic, group, start=start, broadcast=broadcast)
        lease = lease_ms or found.settings.lease_ms or self.config.lease_ms
        return found.subscribe(prefetch=prefetch, lease_ms=lease)

    def receive(
        self,
        topic: str,
        group: str,
        *,
        max_messages: int = 1,
        wait_ms: int = 0,
        lease_ms: int | None = None,
        start: str | None = None,
        broadcast: str | None = None,
    ) -> pa.RecordBatch:
        """Up to ``max_messages`` ready messages (:data:`DELIVERY`), waiting up to ``wait_ms`` for the first; maybe
        none. Those of a broadcast are settled under the consumer's own group (:meth:`group`).
        """
        if max_messages < 1 or wait_ms < 0:
            raise InvalidArgumentError(
                f"max_messages is {max_messages}, wait_ms {wait_ms}; allowed: 1 or more, 0 or more"
            )
        holder = self.subscribe(
            topic, group, prefetch=max_messages, lease_ms=lease_ms, start=start, broadcast=broadcast
        )
        batch = holder.fetch(max_messages, wait_ms / 1000)
        return pa.RecordBatch.from_pylist([], schema=DELIVERY) if batch is None else batch

    # -- settling ----------------------------------------------------------------------------------------------------

    def ack(self, topic: str, group: str, leases: Int64s, offsets: Int64s) -> int:
        """Settle messages for good; durable when it returns. How many.

        Raises:
            StaleLeaseError: when some leases were stale; the others are settled all the same.
            NotFoundError: there is no such group.
        """
        found = self.find_group(topic, group)
        return wait_for(lambda done: found.ack(leases, offsets, done))

    def nack(self, topic: str, group: str, leases: Int64s, offsets: Int64s, delay_ms: int | None = None) -> int:
        """Give messages back, to come again after ``delay_ms`` (default: the group's back-off); as :meth:`ack`
        otherwise. When that was a message's last try, it goes to the dead letters.
        """
        if delay_ms is not None and delay_ms < 0:
            raise InvalidArgumentError(f"delay_ms is {delay_ms}; allowed: 0 or more")
        found = self.find_group(topic, group)
        return wait_for(lambda done: found.nack(leases, offsets, delay_ms, done))

    def extend(self, topic: str, group: str, leases: Int64s, offsets: Int64s, lease_ms: int) -> int:
        """Hold messages for ``lease_ms`` more from now; how many are still held. Extends whole batches as handed
        out.
        """
        if lease_ms < 1:
            raise InvalidArgumentError(f"lease_ms is {lease_ms}; allowed: 1 or more")
        return self.find_group(topic, group).extend(leases, offsets, lease_ms)

    def find_group(self, topic: str, group: str) -> Group:
        """A group that is there.

        Raises:
            NotFoundError: there is none of that name.
        """
        self._check_open()
        return self._rooms.groups.find(topic, group)

    # -- groups and topics -------------------------------------------------------------------------------------------

    def set_group(
        self,
        topic: str,
        group: str,
        *,
        retry: str | None = None,
        tries: int | None = None,
        inflight_max: int | None = None,
        filter: str | None = None,
        ordered: bool | None = None,
        paused: bool | None = None,
        lease_ms: int | None = None,
        start: str | None = None,
    ) -> GroupInfo:
        """Change a group's settings (None: as it is), durably; a group that is new is made. What they mean, and which
        values are allowed: ``docs/delivery-groups.md``.

        Args:
            retry: back-off after a nack (:mod:`tarry.api.retry`); empty: the broker's default.
            tries: how often a message is handed out before it goes to the dead letters; 0: no limit.
            inflight_max: messages leased at a time over all consumers; 0: no limit.
            filter: which messages it wants (:mod:`tarry.api.filter`); empty: all.
            ordered: of each ordering key, one message at a time.
            paused: nothing is handed out.
            lease_ms: of consumers that ask for none; 0: the broker's default.
            start: "earliest" or "latest", where a new group begins; nothing for one that there is.

        Raises:
            InvalidArgumentError: a value is not allowed. DiskFullError: nothing was changed.
        """
        self._check_open()
        return self._rooms.groups.set(
            topic,
            group,
            start,
            retry=retry,
            tries=tries,
            inflight_max=inflight_max,
            filter=filter,
            ordered=ordered,
            paused=paused,
            lease_ms=lease_ms,
        )

    def group_info(self, topic: str, group: str) -> GroupInfo:
        """A group's settings and where its messages are.

        Raises:
            NotFoundError: there is no such group; so for all that follow here.
        """
        return self._rooms.groups.info(self.find_group(topic, group))

    def groups(self, topic: str | None = None) -> list[GroupInfo]:
        """All groups, of one topic or of every one, by name."""
        self._check_open()
        return [self._rooms.groups.info(group) for group in self._rooms.groups.all(topic)]

    def delete_group(self, topic: str, group: str) -> None:
        """Durably; its consumers get nothing more, and it holds up no deletion. Its dead letters stay."""
        self._check_open()
        self._rooms.groups.delete(topic, group)

    def pause(self, topic: str, group: str) -> None:
        """Hand out nothing, durably, until :meth:`resume`. What is leased can be settled."""
        self.find_group(topic, group)
        self.set_group(topic, group, paused=True)

    def resume(self, topic: str, group: str) -> None:
        """Hand out again."""
        self.find_group(topic, group)
        self.set_group(topic, group, paused=False)

    def seek(self, topic: str, group: str, to: int | str) -> int:
        """Go on from the first message due at ``to`` (UTC milliseconds) or later, the "earliest" that is kept, or the
        "latest": what lies before is skipped, from there on all is delivered again. Durably; leases from before are
        stale.

        Returns:
            How many ready messages are ahead of the group then.
        """
        self._check_open()
        return self._rooms.groups.seek(topic, group, to)

    def set_topic(
        self,
        topic: str,
        *,
        late: str | None = None,
        lateness_ms_max: int | None = None,
        ordered: bool | None = None,
        declared: bool | None = None,
    ) -> TopicInfo:
        """Change a topic's settings (None: as it is), durably; a topic that is new is made.

        Args:
            late: what becomes of late messages that do not say it: "deliver", "drop" or "dead"; empty: drop.
            lateness_ms_max: how late a message without an expiry may be; -1: any.
            ordered: all groups of the topic keep the order of ordering keys, whatever their own settings.
            declared: the topic is there before it has a message: fronts may be told not to make topics themselves.
        """
        self._check_open()
        return self._rooms.groups.set_topic(
            topic, late=late, lateness_ms_max=lateness_ms_max, ordered=ordered, declared=declared
        )

    def has_topic(self, topic: str) -> bool:
        """Whether there is such a topic: it was declared, or has messages, groups or settings."""
        self._check_open()
        return topic in self._rooms.intake.accepted or self._rooms.groups.has_topic(topic)

    def topic_info(self, topic: str) -> TopicInfo:
        """A topic's settings."""
        self._check_open()
        return self._rooms.groups.topic_info(topic)

    # -- dead letters ------------------------------------------------------------------------------------------------

    def dead_letters(self, topic: str, group: str, *, limit: int = 100, after: int | None = None) -> pa.RecordBatch:
        """Up to ``limit`` dead letters of a group, oldest first (:data:`tarry.groups.dead_letters.DEAD_LETTER`),
        behind the one at offset ``after``: to turn the page, give the last one's. Why each is there: its "tarry.dead"
        properties.
        """
        self._check_open()
        return self._rooms.groups.dead_letters(topic, group, limit, after)

    def respawn(
        self,
        topic: str,
        group: str,
        *,
        offsets: Sequence[int] | Int64s | None = None,
        limit: int | None = None,
        per_second: float | None = None,
    ) -> int:
        """Schedule dead letters in their topic again, for this group alone, as first tries: those at ``offsets``, or
        the oldest ``limit``, or all; at a pace of ``per_second``, or at once. How many, durably.
        """
        self._check_open()
        return self._rooms.groups.respawn(topic, group, offsets, limit, per_second)

    def purge(self, topic: str, group: str, *, offsets: Sequence[int] | Int64s | None = None) -> int:
        """Let go of dead letters, durably: those at ``offsets``, or all. How many."""
        self._check_open()
        return self._rooms.groups.purge(topic, group, offsets)
