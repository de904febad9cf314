"""What is pushed while a test clock is moved: each try at its moment, and answered when the move is."""

from __future__ import annotations

import pytest

from tarry.broker import Broker
from tests.push.conftest import MakeBroker
from tests.push.receiver import Got, Receiver, Reply

BEGIN_MS = 1_796_083_200_000
HOUR_MS = 3_600_000


@pytest.fixture
def broker(make_broker: MakeBroker) -> Broker:
    return make_broker(test_clock=str(BEGIN_MS))


def test_all_that_is_due_was_pushed_when_the_move_is_answered(broker: Broker) -> None:
    with Receiver() as receiver:
        broker.set_push("s", topic="t", url=receiver.url)
        for number in range(50):
            broker.schedule("t", str(number), delay=f"{number + 1}h")
        broker.advance_clock("25h")
        assert [got.body for got in receiver.got] == [str(number).encode() for number in range(25)]
        broker.advance_clock("30d")
        assert len(receiver.got) == 50
        assert broker.group_info("t", "push-s").lag == 0


def test_each_try_comes_at_its_moment_until_it_is_a_dead_letter(broker: Broker) -> None:
    at_ms: list[int] = []

    def refuse(got: Got) -> Reply:
        at_ms.append(int(got.headers["webhook-timestamp"]) * 1000 - BEGIN_MS)
        return Reply(500)

    with Receiver(refuse) as receiver:
        broker.set_push("s", topic="t", url=receiver.url, retry="fixed 1h", tries=5)
        broker.schedule("t", b"x", delay="1h")
        broker.advance_clock("30d")
    assert at_ms == [hour * HOUR_MS for hour in range(1, 6)]
    assert broker.dead_letters("t", "push-s").num_rows == 1


def test_the_breaker_and_what_the_receiver_asked_for_go_by_the_clock(broker: Broker) -> None:
    replies = [Reply(500), Reply(500), Reply(429, {"retry-after": "7200"})]
    with Receiver(lambda _: replies.pop(0) if replies else Reply()) as receiver:
        broker.set_push("s", topic="t", url=receiver.url, retry="fixed 1ms", breaker_failures=2)
        broker.schedule("t", b"x", delay="1h")
        broker.advance_clock("1h")
        broker.advance_clock("1ms")
        assert (len(receiver.got), broker.push_info("s").state) == (2, "open")
        broker.advance_clock("1m")
        assert (len(receiver.got), broker.push_info("s").state) == (3, "waiting")
        broker.advance_clock("2h")
        assert (len(receiver.got), broker.push_info("s").state) == (4, "running")
