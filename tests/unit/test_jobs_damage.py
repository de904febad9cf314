"""``jobs.db`` damaged, cut, missing or older than it was: refused, for nothing else knows what was cancelled."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tarry.api.jobs import Job, JobState
from tarry.base.errors import CorruptError
from tarry.broker.jobs import Jobs
from tarry.message.bulk import JobRow
from tarry.message.schema import Kind
from tarry.testing import TestClock, open_broker

T0 = 1_795_264_000_000
ATTEMPTS = 40


def filled(directory: Path) -> Jobs:
    """Jobs of several states."""
    jobs = Jobs(directory)
    for i in range(ATTEMPTS):
        number = jobs.begin(f"job {i}", T0 + i).number
        jobs.reserve(number, 100)
        if i % 2:
            jobs.committing(number, {"orders": 70, "bills": i}, (T0 + 1000, T0 + 2000 + i), None)
            jobs.apply([JobRow(Kind.JOB, number, "orders", 70 + i, None)], T0 + 5)
            jobs.named(number, 3, registry_writes=i)
        if i % 4 == 3:
            jobs.apply([JobRow(Kind.JOB_CANCELLED, number, "orders", 70 + i, (T0 + 1500, 0))], T0 + 6)
    return jobs


def content(jobs: Jobs) -> tuple[list[Job], list[int]]:
    return [jobs.get(number) for number in range(ATTEMPTS)], jobs.cancelled.numbers()


@pytest.mark.rest
def test_no_flipped_byte_is_taken_for_truth(tmp_path: Path) -> None:
    """A byte of which nothing depends may be another one; else the file is refused."""
    jobs = filled(tmp_path)
    expected = content(jobs)
    path = tmp_path / "jobs.db"
    whole = path.read_bytes()
    refused = 0
    for at in range(0, len(whole), 23):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0x01]) + whole[at + 1 :])
        try:
            opened = Jobs(tmp_path, jobs.changes)
        except CorruptError as error:
            assert str(path) in str(error)
            refused += 1
            continue
        assert content(opened) == expected, at
    assert refused > 100


@pytest.mark.parametrize("size", [0, 50, 4096, -4096, -1])
def test_a_cut_file_is_refused(tmp_path: Path, size: int) -> None:
    jobs = filled(tmp_path)
    path = tmp_path / "jobs.db"
    path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(CorruptError, match=r"jobs\.db"):
        Jobs(tmp_path, jobs.changes)


def test_an_older_copy_and_none_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    jobs = filled(tmp_path)
    shutil.copy(path, tmp_path / "copy")
    copied_with = jobs.changes
    jobs.begin("another", T0)
    assert jobs.changes == copied_with + 1
    (tmp_path / "copy").replace(path)
    with pytest.raises(CorruptError, match=rf"is older than it was: change {jobs.changes} .* it has {copied_with};"):
        Jobs(tmp_path, jobs.changes)
    assert len(content(Jobs(tmp_path, copied_with))[0]) == ATTEMPTS
    path.unlink()
    with pytest.raises(CorruptError, match=rf"is missing: change {copied_with} .* it has 0;"):
        Jobs(tmp_path, copied_with)
    Jobs(tmp_path)


def test_a_file_that_was_never_written_counts_as_none(tmp_path: Path) -> None:
    (tmp_path / "jobs.db").touch()  # the process died while it began the first job
    assert Jobs(tmp_path).begin("a", T0).state is JobState.OPEN


def test_a_file_of_the_first_version_is_taken_over(tmp_path: Path) -> None:
    expected = content(filled(tmp_path))
    path = tmp_path / "jobs.db"
    with closing(sqlite3.connect(path)) as db:
        db.executescript(
            "alter table attempt drop column crc; alter table attempt drop column registry_writes;"
            "pragma user_version = 1"
        )
    jobs = Jobs(tmp_path)
    assert (content(jobs), jobs.registry_writes) == (expected, 0)
    jobs.named(3, 3, registry_writes=17)
    again = Jobs(tmp_path, jobs.changes)
    assert (content(again), again.registry_writes) == (expected, 17)
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("select count(*) from attempt where crc is null").fetchone() == (0,)
        db.execute("update attempt set cancelled = 7 where number = 3")
        db.commit()
    with pytest.raises(CorruptError, match="the checksum of attempt 3 does not hold"):
        Jobs(tmp_path)


def test_a_broker_refuses_what_is_older_than_its_checkpoint(tmp_path: Path) -> None:
    clock = TestClock(T0)
    with open_broker(tmp_path, clock=clock) as broker:
        broker.components.bulk.begin("a")
        shutil.copy(tmp_path / "jobs.db", tmp_path / "copy")
        broker.components.bulk.begin("b")
    (tmp_path / "copy").replace(tmp_path / "jobs.db")
    with pytest.raises(CorruptError, match=r"jobs\.db is older than it was"), open_broker(tmp_path, clock=clock):
        pass


def test_a_copy_of_a_file_without_a_job_is_that_of_nothing(tmp_path: Path) -> None:
    # SQLite's copy of an empty file has a page, as the one has that the scrub makes while the first job is written.
    with closing(sqlite3.connect(":memory:")) as empty, closing(sqlite3.connect(tmp_path / "jobs.db")) as copy:
        empty.backup(copy)
    assert (tmp_path / "jobs.db").stat().st_size > 0
    jobs = Jobs(tmp_path)
    assert jobs.recent(10) == []
    assert jobs.begin("a", 1).job == "a"
    assert [job.job for job in Jobs(tmp_path).recent(10)] == ["a"]
