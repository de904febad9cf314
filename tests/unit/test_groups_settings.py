"""Settings of groups and topics: what is allowed, what survives, and what pause, limits, start and broadcast do."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.faults import FaultyFiles
from tests.groups import SMALL, ack, drained, ids, nack, put, take

from tarry.base.clock import TestClock
from tarry.base.errors import CorruptError, DiskFullError, InvalidArgumentError, NotFoundError
from tarry.log.segment import list_segments
from tarry.testing import open_broker

# -- settings --------------------------------------------------------------------------------------------------------

ALL: dict[str, Any] = {
    "retry": "list 1s 5s jitter 0.1",
    "tries": 5,
    "inflight_max": 7,
    "filter": "A || B",
    "ordered": True,
    "paused": True,
    "lease_ms": 4000,
    "start": "latest",
}


def test_settings_are_kept_and_told(tmp_path: Path) -> None:
    clock = TestClock()
    with open_broker(tmp_path, clock=clock, retry_ms=250, lease_ms=9000) as broker:
        info = broker.group_info("a", broker.group("a", "g").name)
        assert (info.retry, info.tries, info.inflight_max, info.filter) == ("fixed 250ms", 16, 0, "*")
        assert (info.ordered, info.paused, info.lease_ms, info.start) == (False, False, 9000, "earliest")
        info = broker.set_group("a", "h", **ALL)
        assert {name: getattr(info, name) for name in ALL} == ALL
        broker.set_group("a", "h", tries=6)
        broker.set_topic("a", late="dead", lateness_ms_max=5000)
    with open_broker(tmp_path, clock=clock) as broker:
        info = broker.group_info("a", "h")
        assert {name: getattr(info, name) for name in ALL} == {**ALL, "tries": 6}
        assert broker.group_info("a", "g").tries == 16
        topic = broker.topic_info("a")
        assert (topic.late, topic.lateness_ms_max) == ("dead", 5000)
        cleared = broker.set_group("a", "h", retry="", filter="", inflight_max=0, lease_ms=0, ordered=False)
        assert (cleared.retry, cleared.filter, cleared.inflight_max, cleared.lease_ms) == ("fixed 1s", "*", 0, 30_000)
        cleared = broker.set_topic("a", late="", lateness_ms_max=-1)
        assert (cleared.late, cleared.lateness_ms_max) == ("drop", None)
        assert json.loads((tmp_path / "policies.json").read_text())["topics"] == {}, "costs nothing"
    with open_broker(tmp_path, clock=clock) as broker:
        assert broker.topic_info("a") == cleared
        assert broker.group_info("a", "h").filter == "*"


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("retry", "sometimes"),
        ("retry", 5),
        ("tries", -1),
        ("tries", 1 << 31),
        ("tries", True),
        ("tries", 1.5),
        ("inflight_max", -1),
        ("lease_ms", -1),
        ("lease_ms", 1 << 50),
        ("filter", "sql: a ="),
        ("filter", "A || || *"),
        ("ordered", "yes"),
        ("paused", 1),
        ("start", "middle"),
    ],
)
def test_settings_that_are_not_allowed(setting: str, value: object, tmp_path: Path) -> None:
    with open_broker(tmp_path) as broker:
        before = broker.set_group("a", "g", tries=3)
        for group in ("g", "new"):
            with pytest.raises(InvalidArgumentError, match="allowed"):
                broker.set_group("a", group, **{"tries": 4, setting: value})
        assert broker.group_info("a", "g") == before
        assert [i.group for i in broker.groups("a")] == ["g"], "none was made"


@pytest.mark.parametrize(
    "call",
    [
        lambda b: b.set_topic("a", late="later"),
        lambda b: b.set_topic("a", lateness_ms_max=-2),
        lambda b: b.set_topic("a", lateness_ms_max=True),
        lambda b: b.set_topic("bad topic", late="drop"),
        lambda b: b.topic_info("bad topic"),
        lambda b: b.group("a", "tarry.x"),
        lambda b: b.group("a", "\ud800"),
        lambda b: b.group("a", "g", start="middle"),
        lambda b: b.group("a", "g", broadcast=""),
        lambda b: b.group("a", "g", broadcast="x@y"),
        lambda b: b.group("a", "g" * 200, broadcast="c" * 80),
        lambda b: b.seek("a", "there", "middle"),
        lambda b: b.seek("a", "there", True),
        lambda b: b.seek("a", "there", 1.5),
    ],
)
def test_arguments_that_are_not_allowed(call: Any, tmp_path: Path) -> None:
    with open_broker(tmp_path) as broker:
        broker.group("a", "there")
        with pytest.raises(InvalidArgumentError, match="allowed"):
            call(broker)
        assert [i.group for i in broker.groups()] == ["there"]


@pytest.mark.parametrize(
    "call",
    [
        lambda b: b.group_info("a", "g"),
        lambda b: b.group_info("none", "g"),
        lambda b: b.pause("a", "g"),
        lambda b: b.resume("a", "g"),
        lambda b: b.seek("a", "g", "earliest"),
        lambda b: b.delete_group("a", "g"),
        lambda b: b.ack("a", "g", [], []),
        lambda b: b.nack("a", "g", [], []),
        lambda b: b.extend("a", "g", [], [], 5),
    ],
)
def test_a_group_that_is_not_there(call: Any, tmp_path: Path) -> None:
    with open_broker(tmp_path) as broker:
        broker.group("a", "other")
        with pytest.raises(NotFoundError, match="has no group 'g'"):
            call(broker)
        assert [i.group for i in broker.groups()] == ["other"]


def test_a_full_disk_changes_nothing(tmp_path: Path) -> None:
    class Full(FaultyFiles):
        settings_refused = False

        def replace(self, path: Path, content: bytes) -> None:
            if path.name == "policies.json" and (self.full or self.settings_refused):
                raise OSError(28, "no space left (injected)")
            super().replace(path, content)

    files = Full()
    clock = TestClock()
    with open_broker(tmp_path, files=files, clock=clock) as broker:
        broker.set_group("a", "g", tries=3)
        files.full = True
        with pytest.raises(DiskFullError, match="nothing was changed"):
            broker.set_topic("a", late="dead")
        files.full = False
        files.settings_refused = True  # there is room for the journal, and none for the small file
        with pytest.raises(DiskFullError, match="nothing was changed"):
            broker.set_group("a", "g", tries=9, paused=True)
        files.settings_refused = False
        assert broker.group_info("a", "g").tries == 3
        assert broker.topic_info("a").late == "drop"
        put(broker, "a", "m")
        assert ids(take(broker)) == ["m"]
    with open_broker(tmp_path, clock=clock) as broker:
        assert broker.group_info("a", "g").tries == 3


def test_damaged_policies_are_refused(tmp_path: Path) -> None:
    with open_broker(tmp_path) as broker:
        broker.set_group("a", "g", tries=3)
    path = tmp_path / "policies.json"
    whole = path.read_text()
    fields = json.loads(whole)
    damaged = [
        whole.replace('"tries": 3', '"tries": 4'),
        whole[:-3],
        "[]",
        json.dumps({**fields, "version": 2}),
    ]
    for content in damaged:
        path.write_text(content)
        with pytest.raises(CorruptError, match=r"policies\.json"), open_broker(tmp_path):
            pass
    path.write_text(whole)
    with open_broker(tmp_path) as broker:
        assert broker.group_info("a", "g").tries == 3


def test_settings_of_a_deleted_group_are_not_those_of_its_successor(tmp_path: Path) -> None:
    clock = TestClock()
    with open_broker(tmp_path, clock=clock) as broker:
        broker.set_group("a", "g", tries=3)
        whole = (tmp_path / "policies.json").read_bytes()
        broker.delete_group("a", "g")
        assert broker.set_group("a", "g").tries == 16
        broker.delete_group("a", "g")
    (tmp_path / "policies.json").write_bytes(whole)  # as if a crash had come between the two
    with open_broker(tmp_path, clock=clock) as broker:
        assert broker.groups() == []
        broker.group("a", "g")
    with open_broker(tmp_path, clock=clock) as broker:
        assert broker.group_info("a", "g").tries == 16


def test_settings_of_a_group_that_is_not_durable_are_refused(tmp_path: Path) -> None:
    files = FaultyFiles()
    with open_broker(tmp_path, files=files) as broker:
        files.full = True  # for the journal; the small file of the settings finds room
        with pytest.raises(DiskFullError):
            broker.set_group("a", "g", tries=3)
        files.full = False
        assert not (tmp_path / "policies.json").exists()
        assert broker.set_group("a", "g", tries=3).tries == 3


def test_a_deleted_group_is_not_in_the_snapshot_that_follows(tmp_path: Path) -> None:
    clock = TestClock()
    # The deletion's own entry is the last of its file, which it makes larger than a segment.
    with open_broker(tmp_path, clock=clock, segment_bytes_max=4096) as broker:
        broker.group("a", "g")
        broker.group("a", "h")
        deleted = 0
        while list_segments(tmp_path / "acks") == [0]:
            broker.delete_group("a", "g")
            deleted += 1
            if list_segments(tmp_path / "acks") == [0]:
                broker.group("a", "g")
        assert deleted > 1
    with open_broker(tmp_path, clock=clock) as broker:
        assert [i.group for i in broker.groups()] == ["h"]


# -- deletion --------------------------------------------------------------------------------------------------------


def test_a_deleted_group_stays_so_and_begins_anew(tmp_path: Path) -> None:
    clock = TestClock()
    with open_broker(tmp_path, clock=clock) as broker:
        put(broker, "a", *"abc")
        ack(broker, take(broker), 0, 1)
        held = take(broker, group="h")
        broker.delete_group("a", "g")
        assert [i.group for i in broker.groups()] == ["h"]
        assert ack(broker, held, group="h") == 3
    with open_broker(tmp_path, clock=clock) as broker:
        assert [i.group for i in broker.groups()] == ["h"]
        assert drained(broker) == ["a", "b", "c"], "what the log still has"
        broker.delete_group("a", "g")
        put(broker, "a", "d")
        broker.set_group("a", "g", start="latest")
        put(broker, "a", "e")
        ack(broker, take(broker))
    with open_broker(tmp_path, clock=clock) as broker:
        put(broker, "a", "f")
        assert drained(broker) == ["f"]


def test_a_deleted_group_holds_up_no_deletion(tmp_path: Path) -> None:
    with open_broker(tmp_path, **SMALL) as broker:
        broker.group("a", "slow")
        for k in range(20):
            put(broker, "a", str(k), properties={"x": "y" * 900})
            drained(broker)
        broker.step()
        assert broker.components.ready.topic("a").first == 0
        broker.delete_group("a", "slow")
        broker.step()
        assert broker.components.ready.topic("a").first > 0


# -- pause, limits, leases -------------------------------------------------------------------------------------------


def test_a_paused_group_hands_out_nothing_and_settles(tmp_path: Path) -> None:
    clock = TestClock()
    with open_broker(tmp_path, clock=clock, lease_ms=1000) as broker:
        put(broker, "a", *"abc")
        batch = take(broker, limit=2)
        broker.pause("a", "g")
        assert take(broker).num_rows == 0
        assert ack(broker, batch, 0) == 1
        assert nack(broker, batch, 1) == 1
        broker.advance(5)
        assert take(broker).num_rows == 0
        assert take(broker, group="h").num_rows == 3
    with open_broker(tmp_path, clock=clock) as broker:
        assert broker.group_info("a", "g").paused
        assert take(broker).num_rows == 0
        broker.resume("a", "g")
        assert sorted(drained(broker)) == ["b", "c"]


def test_no_lease_ends_while_a_group_is_paused(tmp_path: Path) -> None:
    with open_broker(tmp_path, lease_ms=1000) as broker:
        put(broker, "a", "a")
        batch = take(broker)
        broker.pause("a", "g")
        broker.advance(5)
        assert broker.group_info("a", "g").leased == 1
        assert ack(broker, batch) == 1
        put(broker, "a", "b")
        broker.resume("a", "g")
        take(broker)
        broker.advance(5)
        assert broker.group_info("a", "g").leased == 0


def test_in_flight_is_bounded_over_all_consumers(tmp_path: Path) -> None:
    with open_broker(tmp_path, lease_ms=1000) as broker:
        broker.set_group("a", "g", inflight_max=3)
        put(broker, "a", *"abcdefg")
        one, two = broker.subscribe("a", "g"), broker.subscribe("a", "g")
        first, second = one.fetch(2, 0), two.fetch(5, 0)
        assert first is not None
        assert second is not None
        assert (ids(first), ids(second)) == (["a", "b"], ["c"])
        assert one.fetch(5, 0) is None
        info = broker.group_info("a", "g")
        assert (info.leased, info.ready, info.lag) == (3, 4, 7)
        ack(broker, first, 0)
        assert ids(take(broker)) == ["d"]
        nack(broker, second, delay_ms=60_000)
        assert ids(take(broker)) == ["e"]
        assert take(broker).num_rows == 0
        broker.advance(1)
        again = take(broker)
        assert ids(again) == ["b", "d", "e"], "those of consumers that died make room"
        assert broker.set_group("a", "g", inflight_max=0).leased == 3
        assert ids(take(broker)) == ["f", "g"]


def test_the_lease_is_the_consumers_or_the_groups_or_the_brokers(tmp_path: Path) -> None:
    with open_broker(tmp_path, lease_ms=3000) as broker:
        put(broker, "a", "m")
        for asked, of_group, expected in ((None, 0, 3), (None, 2000, 2), (1000, 2000, 1)):
            broker.set_group("a", "g", lease_ms=of_group, tries=0)
            assert ids(take(broker, lease_ms=asked)) == ["m"]
            broker.advance(expected - 0.001)
            assert take(broker).num_rows == 0
            broker.advance(0.001)


def test_back_off_is_the_groups(tmp_path: Path) -> None:
    with open_broker(tmp_path, retry_ms=700) as broker:
        put(broker, "a", "m")
        nack(broker, take(broker), delay_ms=None)
        broker.advance(0.699)
        assert take(broker).num_rows == 0
        broker.advance(0.001)
        broker.set_group("a", "g", retry="list 1s 4s 9s")
        for seconds in (4, 9, 9):
            nack(broker, take(broker), delay_ms=None)
            assert broker.group_info("a", "g").waiting == 1
            broker.advance(seconds - 0.001)
            assert take(broker).num_rows == 0
            broker.advance(0.001)
        nack(broker, take(broker), delay_ms=5)
        broker.advance(0.005)
        assert ids(take(broker)) == ["m"], "a delay that is given counts"


def test_jitter_spreads_what_failed_together(tmp_path: Path) -> None:
    with open_broker(tmp_path) as broker:
        broker.set_group("a", "g", retry="exponential 1s max 1h jitter 0.5")
        put(broker, "a", *[str(k) for k in range(200)])
        nack(broker, take(broker), delay_ms=None)
        broker.advance(0.499)
        assert take(broker).num_rows == 0
        broker.advance(0.25)
        early = take(broker)
        assert 0 < early.num_rows < 200
        broker.advance(0.251)
        assert early.num_rows + take(broker).num_rows == 200


# -- start and broadcast ---------------------------------------------------------------------------------------------


def test_a_group_may_start_at_the_latest(tmp_path: Path) -> None:
    clock = TestClock()
    with open_broker(tmp_path, clock=clock) as broker:
        put(broker, "a", "before")
        broker.schedule("a", b"", id="pending", delay=10)
        assert take(broker, group="late", start="latest").num_rows == 0
        assert ids(take(broker, group="early", start="earliest")) == ["before"]
        put(broker, "a", "after")
    with open_broker(tmp_path, clock=clock) as broker:
        assert drained(broker, group="late") == ["after"]
        broker.advance(10)
        assert drained(broker, group="late") == ["pending"], "what falls due later comes"
        assert take(broker, group="late", start="earliest").num_rows == 0, "it is only for a new group"


def test_broadcast_gives_each_consumer_all(tmp_path: Path) -> None:
    clock = TestClock()
    with open_broker(tmp_path, clock=clock) as broker:
        put(broker, "a", "before")
        for name in ("one", "two"):
            assert take(broker, broadcast=name).num_rows == 0
        put(broker, "a", "m", "n")
        batch = take(broker, broadcast="one")
        assert ids(batch) == ["m", "n"]
        assert ack(broker, batch, group="g@one") == 2
        assert broker.subscribe("a", "g", broadcast="three", start="earliest").fetch(9, 0).num_rows == 3  # type: ignore[union-attr]
    with open_broker(tmp_path, clock=clock) as broker:
        assert take(broker, broadcast="one").num_rows == 0
        assert ids(take(broker, broadcast="two")) == ["m", "n"]
        assert [i.group for i in broker.groups("a")] == ["g@one", "g@three", "g@two"]
        broker.delete_group("a", "g@three")
        assert [i.start for i in broker.groups("a")] == ["latest", "latest"]
