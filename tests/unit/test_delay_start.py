"""A delay that is asked for in the midst of a millisecond ends in the midst of one: a message is not due before."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tarry.base.clock import SystemClock, TestClock
from tarry.base.delay import DelayLevel, parse_levels
from tarry.base.errors import DelayTooLongError
from tarry.broker import Broker
from tarry.fronts.rocketmq.common.draft import DraftRules, due_ms_of
from tarry.testing import open_broker

NOW = 1_767_225_600_000
NEXT = NOW + 1
DAY_MS = 86_400_000


class BetweenClock(TestClock):
    """Stands in the midst of a millisecond."""

    def start_ms(self) -> int:
        return self.now_ms() + 1


def rows(**columns: pa.Array) -> pa.RecordBatch:
    count = len(next(iter(columns.values())))
    given = {"topic": pa.array(["t"] * count), "body": pa.array([b"x"] * count), **columns}
    return pa.RecordBatch.from_pydict(given)


@pytest.fixture
def broker(tmp_path: Path) -> Any:
    with open_broker(tmp_path, clock=BetweenClock(NOW), delay_ms_max=DAY_MS) as opened:
        yield opened


def test_the_system_clock_stands_between_its_readings() -> None:
    clock = SystemClock()
    before = clock.now_ms()
    start_ms = clock.start_ms()
    assert before <= start_ms <= clock.now_ms() + 1


@pytest.mark.parametrize(
    ("columns", "dues"),
    [
        ({"delay_ms": pa.array([0, 1, DAY_MS])}, [NOW, NEXT + 1, NEXT + DAY_MS]),
        ({"delay": pa.array([0, 1], pa.duration("s"))}, [NOW, NEXT + 1000]),
        ({"delay_level": pa.array([0, 1])}, [NOW, NEXT + 1000]),
        ({"due_ms": pa.array([NOW, NOW + 1])}, [NOW, NOW + 1]),
        (
            {"due_ms": pa.array([NOW + 5, None, None], pa.int64()), "delay_ms": pa.array([None, 0, 5], pa.int64())},
            [NOW + 5, NOW, NEXT + 5],
        ),
    ],
)
def test_batches(broker: Broker, columns: dict[str, pa.Array], dues: list[int]) -> None:
    assert broker.schedule_batch(rows(**columns)).due_ms.tolist() == dues


def test_the_limit_is_for_the_delay_that_was_asked_for(broker: Broker) -> None:
    with pytest.raises(DelayTooLongError):
        broker.schedule_batch(rows(delay_ms=pa.array([DAY_MS + 1])))


@pytest.mark.parametrize(
    ("delay", "due"), [(0, NOW), (1, NEXT + 1000), ("5ms", NEXT + 5), (DelayLevel(1), NEXT + 1000)]
)
def test_singles(broker: Broker, delay: Any, due: int) -> None:
    assert broker.schedule("t", b"x", delay=delay).due_ms == due


def test_what_is_given_back_waits_as_long_as_was_asked(broker: Broker) -> None:
    clock = broker.clock
    assert isinstance(clock, TestClock)
    broker.schedule("t", b"x", delay=0)
    broker.step()
    consumer = broker.subscribe("t", "g")
    batch, _ = consumer.poll(1)
    assert batch is not None
    consumer.nack(batch["lease"].to_numpy(), batch["offset"].to_numpy(), 10)
    clock.set_ms(NOW + 10)
    broker.step()
    assert consumer.poll(1)[0] is None
    clock.set_ms(NEXT + 10)
    broker.step()
    assert consumer.poll(1)[0] is not None


@pytest.mark.parametrize(
    ("properties", "due"),
    [
        ({"DELAY": "1"}, NEXT + 1000),
        ({"TIMER_DELAY_SEC": "2"}, NEXT + 2000),
        ({"TIMER_DELAY_MS": "7"}, NEXT + 7),
        ({"TIMER_DELAY_MS": "0"}, NOW),
        ({"TIMER_DELIVER_MS": str(NOW + 7)}, NOW + 7),
        ({"__STARTDELIVERTIME": str(NOW + 7)}, NOW + 7),
        ({"__STARTDELIVERTIME": "0"}, NOW),
    ],
)
def test_rocketmq_properties(properties: dict[str, str], due: int) -> None:
    rules = DraftRules(1000, 1000, DAY_MS, parse_levels("1s 5s"))
    assert due_ms_of(properties, None, BetweenClock(NOW), rules) == due
