"""A broker with threads whose clock stands until it is moved: what has been done when the move is answered."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.waiting import wait_until

from tarry.base.clock import TestClock
from tarry.base.errors import CorruptError, InvalidArgumentError, NotFoundError
from tarry.broker import Broker
from tarry.broker.series import Series
from tarry.fronts.registry import ServerConfig
from tarry.message.dead_topics import dead_topic
from tarry.wheel.loader import Loader

BEGIN = "2026-12-01T00:00:00Z"
BEGIN_MS = int(datetime(2026, 12, 1, tzinfo=UTC).timestamp() * 1000)
DAY_MS = 86_400_000


@contextmanager
def opened(directory: Path, test_clock: str | None = BEGIN, **settings: Any) -> Iterator[Broker]:
    config = ServerConfig(
        data=directory / "data", pipeline="off", disk_free_bytes_min=0, test_clock=test_clock, **settings
    )
    with Broker.open(config) as broker:
        yield broker


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    with opened(tmp_path) as broker:
        yield broker


def bodies(batch: pa.RecordBatch) -> list[bytes]:
    return [bytes(body) for body in batch["body"].to_pylist()]


def ack(broker: Broker, topic: str, group: str, batch: pa.RecordBatch) -> None:
    broker.ack(topic, group, batch["lease"].to_numpy(), batch["offset"].to_numpy())


def nack(broker: Broker, topic: str, group: str, batch: pa.RecordBatch) -> None:
    broker.nack(topic, group, batch["lease"].to_numpy(), batch["offset"].to_numpy())


def test_nothing_falls_due_by_itself_and_all_when_told(broker: Broker) -> None:
    due_ms = BEGIN_MS + 30 * DAY_MS
    assert broker.schedule("t", b"later", delay="30d").due_ms == due_ms
    broker.advance_clock(to=due_ms - 1)
    assert broker.receive("t", "g").num_rows == 0
    state = broker.advance_clock("1ms")
    assert (state.now_ms, state.now) == (due_ms, "2026-12-31T00:00:00.000Z")
    assert state == broker.test_clock()
    assert bodies(broker.receive("t", "g")) == [b"later"]


def test_what_is_far_comes_from_the_intake_in_order(broker: Broker) -> None:
    for day in (300, 2, 40, 1):
        broker.schedule("t", str(day), delay=f"{day}d")
    broker.advance_clock("299d")
    assert bodies(broker.receive("t", "g", max_messages=10)) == [b"1", b"2", b"40"]
    broker.advance_clock("1d")
    assert bodies(broker.receive("t", "g", max_messages=10))[-1] == b"300"


def test_a_lease_and_a_back_off_end_at_their_moments(broker: Broker) -> None:
    broker.set_group("t", "g", retry="fixed 1h", lease_ms=30_000)
    broker.schedule("t", b"x")
    broker.advance_clock("0s")  # what is due at once is handed over by another thread
    assert broker.receive("t", "g")["attempt"].to_pylist() == [1]
    broker.advance_clock("29999ms")
    assert broker.receive("t", "g").num_rows == 0
    broker.advance_clock("1ms")
    second = broker.receive("t", "g")
    assert second["attempt"].to_pylist() == [2]
    nack(broker, "t", "g", second)
    broker.advance_clock("59m")
    assert broker.receive("t", "g").num_rows == 0
    broker.advance_clock("1m")
    assert broker.receive("t", "g")["attempt"].to_pylist() == [3]


def test_a_dead_letter_is_there(broker: Broker) -> None:
    broker.set_group("t", "g", tries=1, lease_ms=30_000)
    broker.schedule("t", b"x", delay="1d")
    broker.advance_clock("1d")
    assert broker.receive("t", "g").num_rows == 1
    broker.advance_clock("30d")
    assert broker.dead_letters("t", "g").num_rows == 1
    assert broker.receive(dead_topic("t", "g"), "undertaker").num_rows == 1


def test_a_series_has_each_occurrence_at_its_moment(broker: Broker) -> None:
    broker.schedule("t", b"daily", repeat={"cron": "0 6 * * *"})
    broker.advance_clock("30d")
    batch = broker.receive("t", "g", max_messages=100)
    assert batch["due_ms"].to_pylist() == [BEGIN_MS + day * DAY_MS + DAY_MS // 4 for day in range(30)]
    assert sum(topic.pending for topic in broker.pending() if topic.topic == "t") == 1


def test_an_occurrence_is_not_overlooked_while_it_is_on_its_way(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is brought and taken right after a look at the series, and handed on late."""
    drain, hand_on, load = Series.drain, Series.step, Loader.step

    def drain_and_lag(self: Series) -> bool:
        is_drained = drain(self)
        time.sleep(0.03)
        return is_drained

    def lag_and_hand_on(self: Series) -> bool:
        time.sleep(0.06)
        return hand_on(self)

    def lag_and_load(self: Loader) -> None:
        time.sleep(0.01)
        load(self)

    monkeypatch.setattr(Series, "drain", drain_and_lag)
    monkeypatch.setattr(Series, "step", lag_and_hand_on)
    monkeypatch.setattr(Loader, "step", lag_and_load)
    broker.schedule("t", b"daily", repeat={"cron": "0 6 * * *"})
    broker.advance_clock("10d")
    assert broker.receive("t", "g", max_messages=100).num_rows == 10


def test_who_waits_is_handed_what_falls_due(broker: Broker) -> None:
    got: list[bytes] = []
    waiting = threading.Thread(target=lambda: got.extend(bodies(broker.receive("t", "g", wait_ms=60_000))))
    broker.schedule("t", b"x", delay="7d")
    waiting.start()
    broker.advance_clock("7d")
    waiting.join(60)
    assert got == [b"x"]


def test_consumers_have_the_time_that_they_are_given(broker: Broker) -> None:
    """Without it, the lease of the first day's message would end before a consumer in another process had it."""
    seen: list[tuple[int, int]] = []

    def consume() -> None:
        while len(seen) < 5:
            batch = broker.receive("t", "g", wait_ms=1000)
            if batch.num_rows:
                seen.append((broker.test_clock().now_ms - BEGIN_MS, batch["attempt"][0].as_py()))
                broker.schedule("t", b"next", delay="1d")
                ack(broker, "t", "g", batch)

    broker.schedule("t", b"first", delay="1d")
    consumer = threading.Thread(target=consume)
    consumer.start()
    wait_until(lambda: any(group.group == "g" for group in broker.groups("t")))  # nothing waits for who never came
    broker.advance_clock("5d", wait_ms=60_000)
    consumer.join(60)
    assert seen == [(day * DAY_MS, 1) for day in range(1, 6)]


def test_a_restart_goes_on_from_where_it_stood(tmp_path: Path) -> None:
    with opened(tmp_path, "now") as broker:
        start_ms = broker.test_clock().now_ms
        broker.schedule("t", b"x", delay="2d")
        broker.advance_clock("1d")
    with opened(tmp_path, "now") as broker:
        assert broker.test_clock().now_ms == start_ms + DAY_MS
        broker.advance_clock("1d")
        assert broker.receive("t", "g").num_rows == 1
    with pytest.raises(InvalidArgumentError, match="stands at"), opened(tmp_path, str(start_ms)):
        pass
    later_ms = start_ms + 90 * DAY_MS
    with opened(tmp_path, str(later_ms)) as broker:
        assert broker.test_clock().now_ms == later_ms


def test_a_directory_is_of_one_kind_of_clock(tmp_path: Path) -> None:
    with opened(tmp_path / "moved"):
        pass
    with pytest.raises(InvalidArgumentError, match="used with a test clock"), opened(tmp_path / "moved", None):
        pass
    with opened(tmp_path / "real", None):
        pass
    with pytest.raises(InvalidArgumentError, match="used with the real clock"), opened(tmp_path / "real"):
        pass
    with opened(tmp_path / "real", None) as broker:  # it was left as it was
        assert broker.status()["test_clock"] is None


def test_a_damaged_mark_is_told(tmp_path: Path) -> None:
    with opened(tmp_path):
        pass
    (tmp_path / "data/clock.json").write_text("{}")
    for test_clock in (BEGIN, None):
        with pytest.raises(CorruptError, match=r"clock\.json"), opened(tmp_path, test_clock):
            pass


@pytest.mark.parametrize(
    "settings",
    [
        *({"test_clock": "tomorrow"}, {"test_clock": "2026-12-01T00:00:00"}, {"workers": 1}),
        *({"log": "s3://b/log", "store": "s3://b/store"}, {"store": "elsewhere"}),
    ],
)
def test_what_does_not_go_with_it_is_refused(settings: dict[str, Any], tmp_path: Path) -> None:
    settings = {"test_clock": BEGIN, **settings}
    with pytest.raises(InvalidArgumentError, match="test_clock is"), opened(tmp_path, **settings):
        pass
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize(
    "request_",
    [
        *({}, {"by": "1d", "to": BEGIN_MS}, {"to": BEGIN_MS - 1}, {"by": "-1d"}),
        *({"by": "5"}, {"to": "soon"}, {"to": "1d"}, {"to": 1 << 62}),
    ],
)
def test_a_move_that_means_nothing_is_refused(request_: dict[str, Any], broker: Broker) -> None:
    with pytest.raises(InvalidArgumentError):
        broker.advance_clock(**request_)
    assert broker.test_clock().now_ms == BEGIN_MS


@pytest.mark.parametrize("clock", [None, TestClock()])
def test_a_real_clock_is_not_moved(clock: TestClock | None, tmp_path: Path) -> None:
    config = ServerConfig(data=tmp_path, pipeline="off", disk_free_bytes_min=0)
    with Broker.open(config, clock=clock) as broker:
        for ask in (broker.test_clock, lambda: broker.advance_clock("1d")):
            with pytest.raises(NotFoundError, match="tarry serve --test-clock"):
                ask()


def test_the_status_shows_it(broker: Broker, caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    assert broker.status()["test_clock"] == "2026-12-01T00:00:00.000Z"
    with opened(tmp_path / "other"):
        pass
    assert "A TEST CLOCK: it stands at 2026-12-01T00:00:00.000Z" in caplog.text
    wait_until(broker.checkpoint)
