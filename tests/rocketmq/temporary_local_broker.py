"""TEMPORARY: today's groups as :class:`tarry.api.consuming.ConsumerGroup`, until they are that themselves.

To remove: delete this file, and put ``broker`` for ``local(broker)`` in ``conftest.py``, ``test_receiving.py`` and
``test_clients.py``.
"""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

from tarry.groups import Group, Subscription


class LocalGroup:
    def __init__(self, group: Any) -> None:
        self.inner = group

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    @property
    def topic_name(self) -> str:
        return str(self.inner.topic.name)

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


class TemporaryLocalBroker:
    def __init__(self, broker: Any) -> None:
        self._broker = broker
        self._groups: WeakKeyDictionary[Any, LocalGroup] = WeakKeyDictionary()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._broker, name)

    def group(self, topic: str, name: str, **more: Any) -> LocalGroup:
        return self._wrap(self._broker.group(topic, name, **more))

    def find_group(self, topic: str, name: str) -> LocalGroup:
        return self._wrap(self._broker.find_group(topic, name))

    def _wrap(self, group: Any) -> LocalGroup:
        return self._groups.setdefault(group, LocalGroup(group))


def local(broker: Any) -> Any:
    return broker if hasattr(Group, "subscribe") else TemporaryLocalBroker(broker)
