"""Very many topics: what is written each second stays small, those that nobody needs are forgotten, and they are
bounded.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from tests.groups import ack, drained, put, take

from tarry.api.operations import FollowQueue
from tarry.base.clock import TestClock
from tarry.base.errors import CorruptError, InvalidArgumentError, InvalidMessageError
from tarry.broker import progress
from tarry.broker.directory import Checkpoint
from tarry.broker.topic_counts import CHANGES_MAX, path_of
from tarry.log.file_engine import FileLog
from tarry.log.files import OsFiles
from tarry.testing import TestBroker, open_broker

COUNT = 3_000
DAY_MS = 86_400_000


def schedule(broker: TestBroker, *names: str, delay_ms: int = DAY_MS) -> None:
    broker.schedule_batch(
        pa.table({"topic": names, "body": [b""] * len(names), "delay_ms": pa.array([delay_ms] * len(names))})
    )


def pending(broker: TestBroker) -> dict[str, int]:
    return {entry.topic: entry.pending for entry in broker.pending()}


def size_of(broker: TestBroker) -> int:
    return (broker.config.data / "checkpoint.json").stat().st_size


def test_a_checkpoint_says_only_what_has_changed(tmp_path: Path) -> None:
    clock = TestClock()
    names = [f"t{number}" for number in range(COUNT)]
    with open_broker(tmp_path, clock=clock) as broker:
        schedule(broker, *names)
        broker.step()
        assert path_of(tmp_path, 1).exists()
        size, inode = size_of(broker), path_of(tmp_path, 1).stat().st_ino
        assert size < 2_000
        put(broker, "t7", "one")
        assert size_of(broker) < 2_000
        assert path_of(tmp_path, 1).stat().st_ino == inode, "the file beside it is not written again"
        expected = dict.fromkeys(names, 1)
        assert pending(broker) == expected
    for _ in range(2):
        with open_broker(tmp_path, clock=clock) as broker:
            assert pending(broker) == expected
            broker.step()
    with open_broker(tmp_path, clock=clock) as broker:
        schedule(broker, *names)
        broker.step()
        assert (path_of(tmp_path, 1).exists(), path_of(tmp_path, 2).exists()) == (False, True)
        assert pending(broker) == dict.fromkeys(names, 2)


def test_a_crash_between_the_file_and_the_checkpoint_that_names_it(tmp_path: Path) -> None:
    few, many = ({f"t{k}": k for k in range(count)} for count in (CHANGES_MAX - 1, CHANGES_MAX + 1))
    Checkpoint(accepted=few).write(OsFiles(), tmp_path)
    path_of(tmp_path, 1).write_text("cut off")
    former, counts = Checkpoint.read_with_counts(tmp_path)
    assert (former.accepted, counts.number) == (few, None)
    Checkpoint(accepted=many, offsets={"t1": 1}).write(OsFiles(), tmp_path, counts)
    path_of(tmp_path, 2).write_text("of a crash later")
    found, counts = Checkpoint.read_with_counts(tmp_path)
    assert (found.accepted, found.offsets, counts.number) == (many, {"t1": 1}, 1)
    del many["t5"]
    Checkpoint(accepted=many | {"new": 3}).write(OsFiles(), tmp_path, counts)
    again = Checkpoint.read(tmp_path)
    assert (again.accepted, again.offsets) == (many | {"new": 3}, {})
    path_of(tmp_path, 1).unlink()
    with pytest.raises(CorruptError, match=r"topics-1\.json is missing"):
        Checkpoint.read(tmp_path)


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Topics are looked for at each checkpoint."""
    monkeypatch.setattr(progress, "FORGET_S", -1.0)


SMALL = {"segment_bytes_max": 4096, "ready_cache_bytes_max": 0, "retention_ms": 1000}


def pass_time(broker: TestBroker, clock: TestClock) -> None:
    """Let the segments of what was delivered be filled by others, and deleted."""
    for number in range(40):
        put(broker, "filler", f"f{number}-{clock.now_ms()}", properties={"x": "y" * 500})
        clock.advance_ms(DAY_MS)
    clock.advance_ms(3650 * DAY_MS)  # beyond the times of the files, which are the system's
    broker.step()
    broker.step()


def test_what_nobody_needs_is_forgotten(tmp_path: Path, soon: None) -> None:
    clock = TestClock()
    with open_broker(tmp_path, clock=clock, **SMALL) as broker:
        broker.set_topic("declared", declared=True)
        broker.set_group("grouped", "g")
        schedule(broker, "waiting", delay_ms=7300 * DAY_MS)
        schedule(broker, "gone", "grouped", "declared", delay_ms=0)
        broker.step()
        pass_time(broker, clock)
        assert pending(broker).keys() - {"filler"} == {"waiting", "grouped", "declared"}
        put(broker, "gone", "again")
        assert take(broker, "gone", "g").column("offset").to_pylist() == [0]
    with open_broker(tmp_path, clock=clock, **SMALL) as broker:
        assert pending(broker).keys() - {"filler"} == {"waiting", "grouped", "declared", "gone"}
        assert drained(broker, "gone", "g") == ["again"]


def test_a_message_for_a_topic_that_is_being_forgotten(
    tmp_path: Path, soon: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The checkpoint has forgotten it, and the broker has not yet: its offsets go on, also after a crash."""
    clock = TestClock()
    with open_broker(tmp_path, clock=clock, **SMALL) as broker:
        schedule(broker, *["gone"] * 3, delay_ms=0)
        broker.step()
        with monkeypatch.context() as patch:
            patch.setattr(type(broker.components.groups), "forget_topics", lambda *_: None)
            pass_time(broker, clock)
            assert "gone" not in Checkpoint.read(tmp_path).offsets
            put(broker, "gone", "late")
            batch = take(broker, "gone", "g")
        assert batch.column("offset").to_pylist() == [3]
        ack(broker, batch, topic="gone")
        crashed = tmp_path.with_name("crashed")
        broker.components.ready.flush()
        _copy(tmp_path, crashed)
    with open_broker(crashed, clock=clock, **SMALL) as broker:
        schedule(broker, "gone")
        assert pending(broker)["gone"] == 1
        assert broker.components.ready.topics["gone"].end == 4


MANY = [f"m{number}" for number in range(9)]
SINCE: dict[str, tuple[Callable[[TestBroker], object], list[str]]] = {
    "nothing": (lambda broker: None, []),
    "a group": (lambda broker: broker.set_group("gone", "g"), []),
    "a message": (lambda broker: put(broker, "gone", "again"), ["again"]),
    "more messages than before": (lambda broker: put(broker, "gone", *MANY), MANY),
}


@pytest.mark.parametrize(("make", "delivered"), SINCE.values(), ids=SINCE)
def test_segments_that_the_disk_kept_of_a_topic_that_was_forgotten(
    make: Callable[[TestBroker], object],
    delivered: list[str],
    tmp_path: Path,
    soon: None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Deletions are not made durable one by one; a loss of power may undo them."""
    clock = TestClock()
    with monkeypatch.context() as patch, open_broker(tmp_path, clock=clock, **SMALL) as broker:
        patch.setattr(FileLog, "trim", lambda *_: None)
        for name in ("old0", "old1", "old2"):
            put(broker, "gone", name, properties={"x": "y" * 3000})
            broker.components.ready.flush()
        first = broker.components.ready.first_segment
        pass_time(broker, clock)
        assert broker.components.ready.first_segment > first + 2 and "gone" not in pending(broker)
        make(broker)
        broker.step()
    with open_broker(tmp_path, clock=clock, **SMALL) as broker:
        assert broker.components.ready.first_segment == first
        schedule(broker, "gone")
        assert pending(broker)["gone"] == 1
        broker.set_group("gone", "g", start="earliest")
        assert drained(broker, "gone", "g") == delivered
        clock.advance_ms(DAY_MS)
        broker.step()
        assert len(drained(broker, "gone", "g")) == 1
        assert pending(broker)["gone"] == 0


def _copy(source: Path, target: Path) -> None:
    import shutil

    shutil.copytree(source, target)


def test_topics_are_bounded(tmp_path: Path) -> None:
    with open_broker(tmp_path, topics_max=100) as broker:
        schedule(broker, *(f"t{number}" for number in range(99)))
        with pytest.raises(InvalidMessageError, match=r"of 2, and there are 99 topics; allowed: 100 \(topics_max"):
            schedule(broker, "t1", "new1", "new2")
        assert "new1" not in pending(broker)
        schedule(broker, *(f"t{number}" for number in range(99)), "new1")
        for name in ("one", "more"):
            with pytest.raises(InvalidMessageError, match="there are 100 topics; allowed: 100"):
                broker.schedule(name, b"x")
        with pytest.raises(InvalidMessageError, match="there are 100 topics"):
            broker.set_group("other", "g")
        with pytest.raises(InvalidMessageError, match="there are 100 topics"):
            broker.set_topic("other", declared=True)
        broker.schedule("t5", b"x")


def test_groups_are_bounded(tmp_path: Path) -> None:
    with open_broker(tmp_path, groups_max=3) as broker:
        for number in range(3):
            broker.set_group("a", f"g{number}")
        with pytest.raises(InvalidArgumentError, match=r"than the 3 that there are; allowed: 3 \(groups_max\)"):
            broker.set_group("a", "g3")
        broker.delete_group("a", "g1")
        broker.set_group("a", "g3")
        broker.set_group("a", "g2")


MORE: dict[str, Callable[[TestBroker], object]] = {
    "settings": lambda broker: broker.set_group("a", "more"),
    "consumer": lambda broker: broker.group("a", "more"),
    "receive": lambda broker: broker.receive("a", "more"),
    "broadcast": lambda broker: broker.receive("a", "g0", broadcast="me"),
    "follower": lambda broker: broker.call(FollowQueue("a", "more")),
    "push": lambda broker: broker.set_push("p", topic="a", url="https://example.org/"),
}


@pytest.mark.parametrize("make", MORE.values(), ids=MORE)
def test_no_way_to_make_a_group_goes_beyond_the_bound(make: Callable[[TestBroker], object], tmp_path: Path) -> None:
    with open_broker(tmp_path, groups_max=2) as broker:
        broker.set_group("a", "g0")
        broker.set_group("a", "g1")
        with pytest.raises(InvalidArgumentError, match=r"allowed: 2 \(groups_max\)"):
            make(broker)
        assert [each.group for each in broker.groups()] == ["g0", "g1"]
        assert broker.push_subscriptions() == []
        broker.delete_group("a", "g1")
        make(broker)


def test_groups_beyond_a_smaller_bound_stay(tmp_path: Path) -> None:
    with open_broker(tmp_path, groups_max=3) as broker:
        for number in range(3):
            broker.set_group("a", f"g{number}")
    with open_broker(tmp_path, groups_max=1) as broker:
        assert [each.group for each in broker.groups()] == ["g0", "g1", "g2"]
        broker.set_group("a", "g2", tries=3)
        put(broker, "a", "x")
        assert take(broker, "a", "g2").num_rows == 1
        broker.delete_group("a", "g0")
        with pytest.raises(InvalidArgumentError, match="the 2 that there are; allowed: 1"):
            broker.set_group("a", "g0")
