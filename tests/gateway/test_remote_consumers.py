"""A consumer in a gateway: what reaches it too late is for others."""

from __future__ import annotations

from typing import Any

from tarry.api.groups import GroupSettings
from tarry.api.operation import data
from tarry.base.clock import TestClock
from tarry.fronts.gateway.remote.group import RemoteGroup
from tarry.fronts.gateway.remote.link import PollReceiver
from tarry.link.frames import FrameKind


class Link:
    """A link that keeps what was sent, and who receives."""

    def __init__(self) -> None:
        self.sent: list[tuple[FrameKind, int]] = []
        self.receivers: list[PollReceiver] = []

    def number(self) -> int:
        return 7

    def receive(self, number: int, receiver: PollReceiver) -> None:
        self.receivers.append(receiver)

    def send(self, kind: FrameKind, number: int, *payload: Any) -> None:
        self.sent.append((kind, number))

    send_from_anywhere = send

    def forget(self, number: int) -> None:
        pass


def test_a_batch_for_a_consumer_that_is_gone_is_for_others() -> None:
    """The collector may have taken the consumer, and not have said so on the link yet."""
    link: Any = Link()
    state = {"number": 1, "topic": "t", "group": "g", "settings": data(GroupSettings).encode(GroupSettings())}
    state |= dict.fromkeys(("ordered", "waits_for_acks", "deleted", "closed"), False)
    group = RemoteGroup(link, state, lambda _: (0, 0), TestClock(), lambda: True)
    subscription = group.subscribe(prefetch=10, lease_ms=1000)
    assert subscription.poll(10) == (None, None)
    [receiver] = link.receivers
    del subscription
    assert link.sent == [(FrameKind.POLL, 7), (FrameKind.DROP, 7)]
    receiver.on_batch(3, memoryview(b""))
    assert link.sent[2:] == [(FrameKind.UNTAKEN, 3)]
