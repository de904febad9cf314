"""TEMPORARY: today's Broker as a :class:`tarry.api.local.LocalBroker`, until it is one itself.

To remove: delete this file, and put ``broker`` for ``local(broker)`` in ``conftest.py`` and ``test_receiving.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

from tarry.api import operations as ops
from tarry.api.groups import GroupSettings
from tarry.groups import Subscription


class LocalGroup:
    def __init__(self, group: Any) -> None:
        self.inner = group

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    @property
    def topic_name(self) -> str:
        return str(self.inner.topic.name)

    @property
    def settings(self) -> GroupSettings:
        return self.inner.settings  # type: ignore[no-any-return]

    def subscribe(self, *, prefetch: int, lease_ms: int) -> LocalSubscription:
        return LocalSubscription(self, Subscription(self.inner, prefetch=prefetch, lease_ms=lease_ms))

    def reject(self, *args: Any) -> Any:
        return self.inner.bury_now(*args)

    def change_lease(self, *args: Any) -> Any:
        return self.inner.relet(*args)


class LocalSubscription:
    def __init__(self, group: LocalGroup, subscription: Subscription) -> None:
        self.group = group
        self.inner = subscription

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def poll(self, rows_max: int) -> Any:
        return self.inner.group.poll(self.inner, rows_max)

    def renew(self, held_ms_max: int) -> int:
        return self.inner.group.renew(self.inner, held_ms_max)


CALLS: dict[type, Callable[[Any, Any], Any]] = {
    ops.Cancel: lambda b, o: b.cancel_many(o.handles),
    ops.CancelKeys: lambda b, o: b.cancel_keys(o.topic, o.keys),
    ops.SetGroup: lambda b, o: b.set_group(o.topic, o.group, start=o.start, **o.settings),
    ops.GetGroup: lambda b, o: b.group_info(o.topic, o.group),
    ops.ListGroups: lambda b, o: b.groups(o.topic),
    ops.SetTopic: lambda b, o: b.set_topic(o.topic, **o.settings),
    ops.GetTopic: lambda b, o: b.topic_info(o.topic),
    ops.HasTopic: lambda b, o: b.has_topic(o.topic),
    ops.GetQueues: lambda b, o: b.queue_state(o.topics),
    ops.ReadQueue: lambda b, o: b.read_queue(o.topic, o.start, o.end),
    ops.FindOffset: lambda b, o: b.offset_at(o.topic, o.due_ms),
    ops.FollowQueue: lambda b, o: b.follow_queue(o.topic, o.group, o.start),
    ops.AdvanceGroup: lambda b, o: b.advance_group(o.topic, o.group, o.offset),
}


class TemporaryLocalBroker:
    def __init__(self, broker: Any) -> None:
        self._broker = broker
        self._groups: WeakKeyDictionary[Any, LocalGroup] = WeakKeyDictionary()
        self.submit, self.submit_checked = broker.submit, broker.submit_checked
        self.replace_key = broker.replace_key

    @property
    def config(self) -> Any:
        return self._broker.config

    @property
    def clock(self) -> Any:
        return self._broker.clock

    def call(self, operation: Any) -> Any:
        return CALLS[type(operation)](self._broker, operation)

    def group(self, topic: str, name: str, **more: Any) -> LocalGroup:
        return self._wrap(self._broker.group(topic, name, **more))

    def find_group(self, topic: str, name: str) -> LocalGroup:
        return self._wrap(self._broker.find_group(topic, name))

    def _wrap(self, group: Any) -> LocalGroup:
        return self._groups.setdefault(group, LocalGroup(group))


def local(broker: Any) -> Any:
    return broker if hasattr(broker, "call") else TemporaryLocalBroker(broker)
