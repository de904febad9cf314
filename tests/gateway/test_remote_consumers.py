"""A consumer in a gateway: what reaches it too late is for others."""

from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from tarry.api.groups import GroupSettings
from tarry.api.operation import data
from tarry.base.clock import TestClock
from tarry.fronts.gateway.remote.group import RemoteGroup
from tarry.fronts.gateway.remote.groups import RemoteGroups
from tarry.fronts.gateway.remote.link import PollReceiver
from tarry.link.frames import FrameKind
from tests.waiting import TIMEOUT_S


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


def state_of_group() -> dict[str, Any]:
    state = {"number": 1, "topic": "t", "group": "g", "settings": data(GroupSettings).encode(GroupSettings())}
    return state | dict.fromkeys(("ordered", "waits_for_acks", "deleted", "closed"), False)


class Control:
    """A broker that answers when several have asked."""

    def __init__(self, askers: int) -> None:
        self._all_have_asked = threading.Barrier(askers)

    def ask(self, kind: FrameKind, payload: bytes) -> tuple[FrameKind, bytes]:
        self._all_have_asked.wait(TIMEOUT_S)
        return FrameKind.RESULT, json.dumps(state_of_group()).encode()


def test_threads_that_ask_at_once_for_a_new_group_have_one() -> None:
    """The other would hear of no change of its settings."""
    control: Any = Control(askers=8)
    groups = RemoteGroups(control, TestClock(), lambda: True)
    link: Any = Link()
    groups.link = link
    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(lambda _: groups.ask("t", "g"), range(8)))
    assert {id(each) for each in found} == {id(groups.find("t", "g"))}
    groups.on_state(1, {**state_of_group(), "closed": True})
    assert all(each.closed for each in found)


def test_a_batch_for_a_consumer_that_is_gone_is_for_others() -> None:
    """The collector may have taken the consumer, and not have said so on the link yet."""
    link: Any = Link()
    group = RemoteGroup(link, state_of_group(), lambda _: (0, 0), TestClock(), lambda: True)
    subscription = group.subscribe(prefetch=10, lease_ms=1000)
    assert subscription.poll(10) == (None, None)
    [receiver] = link.receivers
    del subscription
    assert link.sent == [(FrameKind.POLL, 7), (FrameKind.DROP, 7)]
    receiver.on_batch(3, memoryview(b""))
    assert link.sent[2:] == [(FrameKind.UNTAKEN, 3)]
