"""A byte flipped in a file of the store under a running broker: what is sound comes on time, what is not is neither
lost nor passed over, and comes once the file is put back, with or without a restart.
"""

from __future__ import annotations

import importlib
import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.crash.tools import World
from tests.groups import drained, put
from tests.unit.test_bulk import T0, Bench

from tarry.api.operations import GetOverview
from tarry.api.outcome import Outcome
from tarry.base.errors import CorruptError
from tarry.testing import TestBroker

store_stage = importlib.import_module("tarry.store.stage")  # the package's attribute of that name is the function
GROUP_ROWS = 10
SECOND = 1000


def flip(path: Path, group: int, column: str = "body") -> None:
    """Flip a byte of a column of a row group; again, and it is as before."""
    chunks = pq.read_metadata(path).row_group(group)
    [chunk] = [c for i in range(chunks.num_columns) if (c := chunks.column(i)).path_in_schema == column]
    with path.open("r+b") as file:
        file.seek(chunk.data_page_offset + chunk.total_compressed_size - 3)
        byte = file.read(1)[0]
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte ^ 0xFF]))


class Stored:
    """60 messages in one file of the store, one due each second from the tenth on, in row groups of ten."""

    def __init__(self, directory: Path, **settings: Any) -> None:
        self.world = World(directory, settings={"horizon_ms": 4000, "retention_ms": 10**9, **settings})
        broker = self.world.open()
        self.start_ms = self.world.clock.now_ms()
        self.ids = self.world.schedule("a", [10_000 + SECOND * n for n in range(60)])
        self.world.pipeline_commits()
        broker.step()
        [self.path] = (directory / "store").rglob("*.parquet")
        assert pq.read_metadata(self.path).num_row_groups == 6
        self.sound = self.ids[:20] + self.ids[30:]
        self.missing = self.ids[20:30]

    @property
    def b(self) -> TestBroker:
        return self.world.b

    def pass_seconds(self, seconds: int) -> list[str]:
        """What came in that time, none of it late by more than the second in which it is looked for."""
        got: list[str] = []
        for _ in range(seconds):
            self.b.advance(1)
            new = drained(self.b)
            assert all(self.world.due_ms[i] == self.b.clock.now_ms() for i in new if i not in self.missing)
            got += new
        return got


@pytest.fixture
def make_stored(tmp_path: Path) -> Iterator[Callable[..., Stored]]:
    made: list[Stored] = []

    def make(**settings: Any) -> Stored:
        made.append(Stored(tmp_path, **settings))
        return made[-1]

    yield make
    for stored in made:
        stored.b.close()


@pytest.fixture
def stored(make_stored: Callable[..., Stored]) -> Stored:
    return make_stored()


@pytest.fixture(autouse=True)
def small_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_stage, "GROUP_ROWS_MAX", GROUP_ROWS)


@pytest.mark.parametrize("column", ["body", "due_ms"])
def test_what_is_sound_in_a_damaged_file_comes_on_time_and_the_rest_after_a_repair(column: str, stored: Stored) -> None:
    assert stored.pass_seconds(5) == []
    flip(stored.path, 2, column)
    assert stored.pass_seconds(80) == stored.sound
    damage = stored.b.status()["damage"]
    assert damage["unreadable_messages"] == 10
    [place] = damage["places"]
    assert str(stored.path) in place
    assert "row group 2, 10 messages" in place
    assert stored.b.status()["state"] == "serving"
    # No checkpoint says that all of this has fired: what a restart or an expiry goes by.
    last = stored.b.components.progress
    assert last.last.fired_until_ms <= stored.start_ms + 30_000
    assert last.expire_until_ms <= stored.start_ms + 30_000
    with pytest.raises(CorruptError, match=stored.path.name):
        stored.b.list_pending()
    put(stored.b, "b", "new")
    assert drained(stored.b, "b") == ["new"]

    stored.world.reopen()  # it is damaged still
    assert stored.pass_seconds(3) == []
    assert stored.b.status()["damage"]["unreadable_messages"] == 10
    flip(stored.path, 2, column)
    stored.b.step()
    assert drained(stored.b) == stored.missing, "without a restart"
    assert stored.b.status()["damage"]["unreadable_messages"] == 0
    assert stored.b.checkpoint()
    assert stored.b.components.progress.last.fired_until_ms > stored.start_ms + 60_000
    assert [entry.pending for entry in stored.b.pending() if entry.topic == "a"] == [0]
    stored.world.reopen()
    assert stored.pass_seconds(3) == []


@pytest.mark.rest
def test_a_repair_before_the_next_start_brings_just_what_is_missing(stored: Stored) -> None:
    flip(stored.path, 2)
    assert stored.pass_seconds(80) == stored.sound
    stored.b.close()
    flip(stored.path, 2)
    stored.world.open().step()
    assert drained(stored.b) == stored.missing


def test_what_cannot_be_read_is_pending_for_who_cancels_it(stored: Stored) -> None:
    flip(stored.path, 2)
    stored.pass_seconds(80)
    handles = stored.world.handles
    outcomes = stored.b.cancel_many([handles[stored.missing[0]], handles[stored.sound[0]], handles[stored.missing[0]]])
    assert outcomes == [Outcome.DONE, Outcome.DELIVERED, Outcome.CANCELLED]
    flip(stored.path, 2)
    stored.b.step()
    assert drained(stored.b) == stored.missing[1:]


@pytest.mark.rest
def test_damage_in_what_was_cancelled_is_of_no_consequence(stored: Stored) -> None:
    assert set(stored.b.cancel_many([stored.world.handles[i] for i in stored.missing])) == {Outcome.DONE}
    flip(stored.path, 2)
    assert stored.pass_seconds(80) == stored.sound
    damage = stored.b.status()["damage"]
    assert damage["unreadable_messages"] == 0
    assert len(damage["places"]) == 1
    assert stored.b.components.progress.last.fired_until_ms > stored.start_ms + 60_000


@pytest.mark.rest
def test_damage_that_begins_in_the_middle_of_a_row_group_leaves_what_came_before(stored: Stored) -> None:
    came = stored.pass_seconds(33)
    assert came == stored.ids[:24]
    flip(stored.path, 2)
    late = stored.pass_seconds(60)
    loaded = [i for i in late if i in stored.missing]
    assert late == loaded + stored.ids[30:], "what was in memory comes"
    assert 0 < len(loaded) < 6
    flip(stored.path, 2)
    stored.b.step()
    assert drained(stored.b) == [i for i in stored.missing if i not in came + loaded]


@pytest.mark.parametrize("put_back", [shutil.copy2, shutil.move], ids=["copied", "moved"])
def test_a_missing_file_is_set_aside_as_a_whole(put_back: Callable[[Path, Path], Any], stored: Stored) -> None:
    stored.world.schedule("a", [15_000])
    kept = stored.world.directory / "kept"
    shutil.move(stored.path, kept)
    stored.missing = stored.ids
    assert stored.pass_seconds(80) == ["a60"]
    assert stored.b.status()["damage"]["unreadable_messages"] == 60
    put_back(kept, stored.path)
    flip(stored.path, 2)
    stored.b.step()
    assert drained(stored.b) == stored.sound, "row group by row group"
    flip(stored.path, 2)
    stored.b.step()
    assert drained(stored.b) == stored.ids[20:30]


def test_a_wheel_that_is_full_has_no_message_twice_and_none_missing(make_stored: Callable[..., Stored]) -> None:
    stored = make_stored(wheel_bytes_max=2000, horizon_ms=40_000)
    flip(stored.path, 2)
    got = stored.pass_seconds(80)
    assert sorted(got) == sorted(stored.sound)
    flip(stored.path, 2)
    for _ in range(20):
        stored.b.step()
        got += drained(stored.b)
    assert sorted(got) == sorted(stored.ids)


def test_a_bulk_job_with_a_damaged_file_for_what_is_due_already(tmp_path: Path) -> None:
    bench = Bench(tmp_path, horizon_ms=60_000)
    try:
        bench.run(T0 + SECOND)
        jobs = bench.broker.components.bulk
        attempt = jobs.begin("j")
        bodies = [b"%d" % n for n in range(40)]
        rows = pa.record_batch({"topic": ["a"] * 40, "due_ms": [T0 + SECOND * n for n in range(40)], "body": bodies})
        files, topics = jobs.stage(attempt.number, [rows])
        [path] = (tmp_path / "store").rglob("*.parquet")
        flip(path, 2)
        jobs.commit(attempt.number, files, topics)
        bench.run(T0 + 100 * SECOND, step_ms=SECOND)
        assert bench.got == Counter(bodies[:20] + bodies[30:])
        assert bench.broker.status()["damage"]["unreadable_messages"] == 10
        assert bench.broker.call(GetOverview())["topics"]["sums"]["pending"] == 10
        flip(path, 2)
        bench.take()
        assert bench.got == Counter(bodies)
        assert bench.broker.checkpoint()
    finally:
        bench.broker.close()
