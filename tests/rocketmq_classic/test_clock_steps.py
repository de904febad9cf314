"""A wall clock that is set back while consumers pull: nothing is handed out before its time by that clock, also not
what is in the queue already, or in memory.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from tarry.base.clock import SystemClock
from tarry.fronts.rocketmq.classic.codes import ResponseCode
from tests.rocketmq_classic.conftest import Place
from tests.rocketmq_classic.remoting import Remoting, messages_of
from tests.waiting import wait_until

STEP_MS = 1_500


class SteppedClock:
    """The machine's clock, and a step."""

    def __init__(self) -> None:
        self._clock = SystemClock()
        self.step_ms = 0

    def now_ms(self) -> int:
        return self._clock.now_ms() + self.step_ms

    def start_ms(self) -> int:
        return self._clock.start_ms() + self.step_ms

    def seconds_until(self, due_ms: int) -> float:
        return self._clock.seconds_until(due_ms - self.step_ms)

    def wait(self, condition: threading.Condition, timeout_s: float | None) -> None:
        self._clock.wait(condition, timeout_s)


@pytest.fixture
def clock() -> SteppedClock:
    return SteppedClock()


@pytest.fixture
def place(serve: Callable[..., Place], clock: SteppedClock, monkeypatch: pytest.MonkeyPatch) -> Place:
    monkeypatch.setattr(Place, "clock", clock)
    return serve()


def pull(client: Remoting, group: str, offset: int, wait_s: float = 0) -> list[dict[str, Any]]:
    answer = client.pull("orders", group, offset, wait_s)
    assert answer.code in (ResponseCode.SUCCESS, ResponseCode.PULL_NOT_FOUND), answer.remark
    return messages_of(answer.body)


@pytest.mark.parametrize("is_in_memory", [False, True])
def test_what_lies_ahead_after_a_step_back_is_not_handed_out(
    place: Place, clock: SteppedClock, is_in_memory: bool
) -> None:
    client = place.client()
    client.send("orders", b"before")
    assert [m["body"] for m in pull(client, "g", 0, 5)] == [b"before"]
    client.send("orders", b"ahead", TIMER_DELAY_MS="1")
    if is_in_memory:
        # Another group has it, rightly, and so it is at hand.
        assert [m["body"] for m in pull(client, "others", 1, 5)] == [b"ahead"]
    else:
        topic = place.broker.components.ready.topics["orders"]
        wait_until(lambda: topic.end == 2)
    clock.step_ms = -STEP_MS
    assert pull(client, "g", 1) == []
    waiting = client.begin_pull("orders", "g", 1, wait_s=30)
    [message] = messages_of(client.finish(waiting).body)
    assert message["body"] == b"ahead"
    assert message["stored_ms"] <= clock.now_ms()
    # What is not ahead is there at any time.
    assert [m["body"] for m in pull(client, "late", 0)][:1] == [b"before"]


def test_what_came_before_what_lies_ahead_is_handed_out(place: Place, clock: SteppedClock) -> None:
    client = place.client()
    client.send("orders", b"before")
    client.send("orders", b"ahead", TIMER_DELAY_MS="2000")
    topic = place.broker.components.ready
    wait_until(lambda: "orders" in topic.topics and topic.topics["orders"].end == 2)
    assert len(pull(client, "others", 0, 5)) == 2
    clock.step_ms = -1_000
    assert [m["body"] for m in pull(client, "g", 0, 5)] == [b"before"]
    clock.step_ms = 0
    assert [m["body"] for m in pull(client, "g", 1, 30)] == [b"ahead"]
