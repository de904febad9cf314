"""Which of two equal messages are one: a program's second try is never dropped, and a lost answer doubles nothing."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tarry.base.errors import UnavailableError
from tarry.bridge.amqp_message import TOPIC
from tarry.bridge.once import Taken, schedule_once
from tarry.testing import TestBroker, open_broker

pytestmark = pytest.mark.asyncio


class Place:
    """A broker as a client for asyncio; answers of it may be lost."""

    def __init__(self, broker: TestBroker) -> None:
        self._broker = broker
        self.lost_answers = 0

    async def schedule(self, topic: str, body: bytes, **more: Any) -> Any:
        receipt = self._broker.schedule(topic, body, **more)
        if self.lost_answers:
            self.lost_answers -= 1
            self._broker.advance(1)
            raise UnavailableError("the answer was lost")
        return receipt

    async def find_key(self, topic: str, key: str) -> Any:
        return self._broker.find_key(topic, key)

    async def take(self, body: bytes, key: str | None = "k", on_key: str = "keep", delay_s: float = 60) -> None:
        """Schedule what RabbitMQ gives, until that is answered."""
        row: dict[str, Any] = {"topic": TOPIC, "body": body, "key": key, "delay": timedelta(seconds=delay_s)}
        if key is not None:
            row["on_key"] = on_key
        taken, client = Taken(row, f"says {body!r}", self._now_ms), self
        broker: Any = client
        while True:
            try:
                await schedule_once(broker, taken, (self._now_ms - taken.taken_ms) / 1000)
            except UnavailableError:
                continue
            return

    @property
    def _now_ms(self) -> int:
        return self._broker.clock.now_ms()

    def due_within(self, seconds: float) -> list[bytes]:
        """Return what falls due within so many seconds."""
        self._broker.advance(seconds)
        found: list[bytes] = []
        while (rows := self._broker.receive(TOPIC, "look", max_messages=100)).num_rows:
            self._broker.ack(TOPIC, "look", rows.column("lease"), rows.column("offset"))
            found += rows.column("body").to_pylist()
        return found


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    with open_broker(tmp_path) as broker:
        broker.set_group(TOPIC, "look")
        yield Place(broker)


async def test_what_comes_twice_while_it_waits_is_one(place: Place) -> None:
    await place.take(b"a")
    await place.take(b"a")
    assert place.due_within(61) == [b"a"]


async def test_what_was_delivered_may_be_published_once_more(place: Place) -> None:
    for delay_s in (60, 0, 0.01):
        await place.take(b"a", delay_s=delay_s)
        assert place.due_within(delay_s) == [b"a"]
        await place.take(b"a", delay_s=delay_s)
        assert place.due_within(delay_s) == [b"a"]


async def test_two_that_say_different_things_under_one_id_both_come(place: Place) -> None:
    await place.take(b"a", delay_s=600)
    await place.take(b"b")
    assert place.due_within(61) == [b"b"]
    await place.take(b"b")  # b was delivered: its second try is not what waits under the id
    assert place.due_within(61) == [b"b"]
    assert place.due_within(600) == [b"a"]


@pytest.mark.parametrize("key", ["k", None])
@pytest.mark.parametrize("lost_answers", [1, 3])
@pytest.mark.parametrize("delay_s", [0, 2, 60])
async def test_a_lost_answer_doubles_nothing(place: Place, key: str | None, lost_answers: int, delay_s: float) -> None:
    place.lost_answers = lost_answers
    await place.take(b"a", key, delay_s=delay_s)
    assert place.due_within(120) == [b"a"]


async def test_a_lost_answer_to_a_second_try_doubles_nothing(place: Place) -> None:
    await place.take(b"a")
    assert place.due_within(61) == [b"a"]
    place.lost_answers = 2
    await place.take(b"a")
    assert place.due_within(120) == [b"a"]


async def test_the_delay_counts_from_when_the_bridge_has_it(place: Place) -> None:
    place.lost_answers = 1  # a second each
    await place.take(b"first", "other", delay_s=10)
    assert place.due_within(8.5) == []
    assert place.due_within(0.5) == [b"first"]


async def test_what_replaces_takes_the_place_of_what_waits(place: Place) -> None:
    await place.take(b"a", on_key="replace")
    await place.take(b"b", on_key="replace")
    await place.take(b"a", on_key="replace")
    assert place.due_within(61) == [b"a"]
