"""A byte flipped under a running broker: what is sound goes on, what is not is neither lost nor passed over."""

from __future__ import annotations

import contextlib
import logging
import struct
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.groups import ack, drained, ids, put, take
from tests.unit.test_broker_threads import SteppedClock

from tarry.api.operations import GetOverview, ReadIntake
from tarry.api.outcome import Outcome
from tarry.base.clock import TestClock
from tarry.base.config import Config
from tarry.base.errors import CorruptError, FatalError
from tarry.broker import Broker
from tarry.broker.health import Health
from tarry.log.frame import HEADER_BYTES
from tarry.log.segment import SegmentReader, list_segments, segment_path
from tarry.testing import TestBroker, open_broker

SMALL: dict[str, Any] = {"segment_bytes_max": 4096, "ready_cache_bytes_max": 0, "horizon_ms": 2000, "lease_ms": 30_000}


def flip(path: Path, frame: int = 0) -> int:
    """Flip a byte in the body of a frame; again, and it is as before. The frame's offset."""
    with SegmentReader(path) as reader:
        at = list(reader.headers())[frame]
    with path.open("r+b") as file:
        file.seek(at.position + HEADER_BYTES + 40)
        byte = file.read(1)[0]
        file.seek(-1, 1)
        file.write(bytes([byte ^ 0xFF]))
    return at.position


def batch(names: list[str], due_ms: int, **columns: list[str]) -> pa.RecordBatch:
    return pa.record_batch(
        {
            "topic": ["a"] * len(names),
            "id": names,
            "due_ms": pa.array([due_ms] * len(names), pa.int64()),
            "body": [b"x" * 300] * len(names),
            **columns,
        }
    )


class Intake:
    """Twelve frames of five messages each, due 10, 11, … seconds from the start; the second frame is to be damaged."""

    def __init__(self, directory: Path) -> None:
        self.directory, self.clock = directory, TestClock()
        self.start_ms = self.clock.now_ms()
        self.frames = [[f"{frame}.{row}" for row in range(5)] for frame in range(12)]
        self.all = {name for names in self.frames for name in names}
        self.path = directory / "intake" / "none"
        self.offset = 0

    def fill(self, broker: TestBroker) -> None:
        for frame, names in enumerate(self.frames):
            broker.schedule_batch(batch(names, self.start_ms + 10_000 + 1000 * frame, key=[f"k{n}" for n in names]))
        broker.step()
        directory = self.directory / "intake"
        assert len(list_segments(directory)) > 3
        self.path = segment_path(directory, list_segments(directory)[0])
        self.offset = flip(self.path, 1)


def test_no_message_is_late_for_a_damaged_index(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A due time in the due index that has become later would pass its message over."""
    clock = TestClock()
    due_ms = clock.now_ms() + 10_000
    with open_broker(tmp_path, clock=clock, **SMALL) as broker:
        for frame in range(12):
            broker.schedule_batch(batch([f"{frame}.{row}" for row in range(5)], due_ms))
        broker.step()
        index = sorted((tmp_path / "intake").glob("*.idx"))[0]
        content = index.read_bytes()
        due = struct.pack("<q", due_ms)
        assert content.count(due) > 1
        later = struct.pack("<q", due_ms + (1 << 40))
        index.write_bytes(later.join(content.rsplit(due, 1)))
        broker.advance("11s")
        assert len(drained(broker)) == 60
        assert "the due index is damaged" in caplog.text
        assert broker.components.progress.last.fired_until_ms > due_ms
    with open_broker(tmp_path, clock=clock, **SMALL) as broker:
        broker.step()
        assert drained(broker) == []


def test_what_is_sound_in_a_damaged_intake_is_delivered_and_the_rest_after_a_repair(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR)
    intake = Intake(tmp_path)
    sound = intake.all - set(intake.frames[1])
    with open_broker(tmp_path, clock=intake.clock, **SMALL) as broker:
        intake.fill(broker)
        broker.advance("9s")
        last = broker.components.progress.last
        broker.advance("20s")
        put(broker, "b", "new")
        assert set(drained(broker)) == sound
        assert drained(broker, "b") == ["new"]
        where = f"{intake.path} at offset {intake.offset}"
        damage = broker.status()["damage"]
        assert damage["unreadable_messages"] == 5
        [place] = damage["places"]
        assert place.startswith(where)
        [record] = [r for r in caplog.records if where in r.getMessage()]
        assert record.levelno == logging.ERROR
        assert broker.status()["state"] == "serving"
        # No checkpoint may say that all of this has fired, and nothing is deleted that a restart needs.
        assert broker.components.progress.last.fired_until_ms <= intake.start_ms + 11_000
        assert broker.components.progress.last.fired_until_ms >= last.fired_until_ms
        with pytest.raises(CorruptError, match=where):
            broker.list_pending()
        assert broker.call(GetOverview(next_due=True))["topics"]["sums"]["pending"] == 5
    with open_broker(tmp_path, clock=intake.clock, **SMALL) as broker:  # it is damaged still
        broker.advance("10s")
        assert drained(broker) == []
        assert broker.status()["damage"]["unreadable_messages"] == 5
        put(broker, "b", "newer")
        assert drained(broker, "b") == ["newer"]
    flip(intake.path, 1)
    with open_broker(tmp_path, clock=intake.clock, **SMALL) as broker:
        broker.step()
        assert set(drained(broker)) == set(intake.frames[1])
        assert broker.status()["damage"] == {"places": [], "unreadable_messages": 0}
        assert broker.checkpoint()
        assert broker.components.progress.last.fired_until_ms > intake.start_ms + 30_000
        assert broker.pending()[0].pending == 0


def test_what_cannot_be_read_is_pending_for_who_cancels_it(tmp_path: Path) -> None:
    intake = Intake(tmp_path)
    with open_broker(tmp_path, clock=intake.clock, **SMALL) as broker:
        intake.fill(broker)
        broker.advance("30s")
        drained(broker)
        assert broker.cancel_keys("a", ["k1.0", "k1.1", "k2.0"]) == [Outcome.DONE, Outcome.DONE, Outcome.DELIVERED]
        assert broker.cancel_keys("a", ["k1.0"]) == [Outcome.CANCELLED]
    flip(intake.path, 1)
    with open_broker(tmp_path, clock=intake.clock, **SMALL) as broker:
        broker.step()
        assert set(drained(broker)) == {"1.2", "1.3", "1.4"}


def test_damage_in_what_was_cancelled_is_of_no_consequence(tmp_path: Path) -> None:
    intake = Intake(tmp_path)
    with open_broker(tmp_path, clock=intake.clock, **SMALL) as broker:
        intake.fill(broker)
        assert set(broker.cancel_keys("a", [f"k{name}" for name in intake.frames[1]])) == {Outcome.DONE}
        broker.advance("30s")
        assert set(drained(broker)) == intake.all - set(intake.frames[1])
        assert broker.status()["damage"]["unreadable_messages"] == 0
        assert broker.components.progress.last.fired_until_ms > intake.start_ms + 20_000


def test_the_pipeline_is_told_of_a_damaged_frame(tmp_path: Path) -> None:
    intake = Intake(tmp_path)
    with open_broker(tmp_path, clock=intake.clock, **SMALL) as broker:
        intake.fill(broker)
        with pytest.raises(CorruptError, match=f"{intake.path} at offset {intake.offset}"):
            list(broker.call(ReadIntake(0, 20)))
        assert len(broker.status()["damage"]["places"]) == 1


def test_a_broker_with_threads_serves_on(tmp_path: Path) -> None:
    config = Config(data=tmp_path, pipeline="off", disk_free_bytes_min=0, **SMALL)
    clock = SteppedClock()
    with Broker.open(config, clock=clock) as broker:
        due_ms = clock.now_ms() + 3_600_000
        frames = [[f"{frame}.{row}" for row in range(5)] for frame in range(8)]
        for names in frames:
            broker.schedule_batch(batch(names, due_ms))
        path = segment_path(tmp_path / "intake", 0)
        flip(path, 1)
        clock.offset_ms = 3_600_000
        sound = {name for names in frames for name in names} - set(frames[1])
        received: set[str] = set()
        with contextlib.closing(broker.subscribe("a", "g")) as consumer:
            while received != sound:
                rows = consumer.fetch(wait_s=60)
                assert rows is not None
                received |= set(ids(rows))
                consumer.ack(rows["lease"].to_numpy(), rows["offset"].to_numpy())
        assert not broker.wait_fatal(0)
        assert broker.status()["damage"]["unreadable_messages"] == 5


# -- the ready log -----------------------------------------------------------------------------------------------------


def test_a_damaged_ready_segment_stops_its_topic_and_says_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    with open_broker(tmp_path, **SMALL) as broker:
        names = [str(n) for n in range(30)]
        for name in names:
            put(broker, "a", name, properties={"x": "y" * 200})
        put(broker, "b", "other")
        path = segment_path(tmp_path / "ready", 0)
        assert len(list_segments(tmp_path / "ready")) > 2
        offset = flip(path, 1)
        where = f"{path} at offset {offset}"
        assert ids(take(broker)) == names[:1]
        for _ in range(3):
            with pytest.raises(CorruptError, match=where):
                take(broker)
            broker.step()
        assert drained(broker, "b") == ["other"]
        assert [where in r.getMessage() for r in caplog.records] == [True], "once, not at each try"
        status = broker.status()
        assert status["state"] == "serving"
        [place] = status["damage"]["places"]
        assert place.startswith(where)
        ack(broker, take(broker, group="at-the-end", start="latest"))
        # Figures are there for all groups: also of the one that stands at the damaged frame.
        broker.seek("a", "g", "earliest")
        ack(broker, take(broker))
        assert broker.group_info("a", "g").lag == 29
        assert broker.group_info("a", "g").oldest_due_ms is None
        assert broker.call(GetOverview())["groups"]["lag"] == 29
        broker.seek("a", "g", "latest")
        put(broker, "a", "new")
        assert drained(broker) == ["new"]


def test_a_dead_letter_in_a_damaged_frame_waits_and_is_not_said_each_second(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with open_broker(tmp_path, **SMALL) as broker:
        broker.set_group("a", "g", tries=1)
        put(broker, "a", *[str(n) for n in range(12)], properties={"x": "y" * 400})
        held = take(broker)
        flip(segment_path(tmp_path / "ready", 0), 0)
        caplog.set_level(logging.WARNING)
        broker.nack("a", "g", held["lease"].to_numpy(), held["offset"].to_numpy(), 0)
        for _ in range(5):
            broker.advance("2s")
        assert len(caplog.records) == 1
        assert broker.group_info("a", "g").burying == 12
        flip(segment_path(tmp_path / "ready", 0), 0)
        broker.advance("2s")
        broker.advance("2s")
        assert broker.group_info("a", "g").dead == 12


# -- what ends the broker ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "code", "raised"),
    [
        (CorruptError("x.log at offset 7: no"), "corrupt", CorruptError),
        (OSError(5, "input/output"), "fatal", FatalError),
    ],
)
def test_a_broker_that_ends_for_damage_says_so(error: Exception, code: str, raised: type[Exception]) -> None:
    health = Health()
    assert health.fatal_code is None
    health.fail(error)
    assert (health.state, health.fatal_code) == ("fatal", code)
    with pytest.raises(raised, match="the broker has failed"):
        health.check_serving()
