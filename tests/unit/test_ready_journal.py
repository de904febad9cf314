"""The journal of the groups: order, rolling, owed entries, and replays."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from tests.faults import FaultyFiles

from tarry.base.errors import CorruptError, DiskFullError, FatalError, TarryError
from tarry.log.segment import list_segments
from tarry.queue.journal import Entry, Journal, Op


def ack(first: int, end: int | None = None) -> Entry:
    return Entry("t", "g", Op.ACK, first, first + 1 if end is None else end)


class Box:
    def __init__(self, directory: Path, *, segment: int = 4096) -> None:
        self.directory, self.segment = directory, segment
        self.files = FaultyFiles()
        self.synced: list[int | None] = []
        self.state: list[Entry] = []
        self.fatal: list[BaseException] = []
        self.answers: list[TarryError | None] = []
        self.before_sync: Callable[[], None] = lambda: None

    def open(self) -> list[Entry]:
        self.journal = Journal(
            self.files,
            self.directory,
            segment_bytes_max=self.segment,
            sync_ready=self.sync_ready,
            snapshot=self.snapshot,
            on_fatal=self.fatal.append,
            threaded=False,
        )
        found = list(self.journal.recover())
        self.journal.start()
        return found

    def sync_ready(self, ticket: int | None) -> None:
        self.before_sync()
        self.synced.append(ticket)

    def snapshot(self) -> Iterable[Entry]:
        return list(self.state)

    def write(self, *entries: Entry, ticket: int = 1) -> None:
        self.journal.write(list(entries), ticket, self.answers.append)

    def reopen(self) -> list[Entry]:
        self.journal.close()
        return self.open()


@pytest.fixture
def box(tmp_path: Path) -> Iterator[Box]:
    made = Box(tmp_path / "acks")
    made.open()
    yield made
    with suppress(OSError, AttributeError):  # the test closed it, or it was never opened
        made.journal._writer.close()


def test_entries_come_back_in_order(box: Box) -> None:
    box.write(Entry("t", "g", Op.GROUP, 5))
    box.write(ack(5, 9), Entry("t", "ü", Op.RETRY, 9, 10, 3, 1 << 60), ticket=7)
    assert box.answers == [None, None]
    assert box.synced == [1, 7], "the ready log first"
    assert box.reopen() == [Entry("t", "g", Op.GROUP, 5), ack(5, 9), Entry("t", "ü", Op.RETRY, 9, 10, 3, 1 << 60)]


def test_the_ready_log_is_durable_before_the_entry_is_written(box: Box) -> None:
    sizes: list[int] = []
    box.before_sync = lambda: sizes.append(box.journal._writer.size)
    before = box.journal._writer.size
    box.write(ack(1))
    assert sizes == [before]


def test_a_new_file_begins_with_a_snapshot(box: Box) -> None:
    box.state = [Entry("t", "g", Op.GROUP, 0), ack(0, 50)]
    for n in range(50):
        box.write(ack(n))
    [base] = list_segments(box.directory)
    assert base >= 1
    found = box.reopen()
    assert found[:2] == box.state
    assert len(found) < 52


def test_a_snapshot_larger_than_a_segment_is_not_written_each_time(box: Box) -> None:
    box.state = [ack(10 * n) for n in range(1000)]
    written = 0
    for n in range(200):
        box.write(ack(n))
        written = box.journal._writer.base
    assert 1 <= written < 20, f"{written} snapshots for 200 entries"


@pytest.mark.parametrize("kept", [0, 10, 32, 40, 100, -70, -1])
def test_a_snapshot_that_is_not_whole_is_not_used(box: Box, kept: int) -> None:
    for n in range(5):
        box.write(ack(n))
    box.journal.close()
    old = box.directory / f"{0:020d}.log"
    content = old.read_bytes()
    other = Box(box.directory.parent / "other")
    other.open()
    other.state = [ack(n) for n in range(100)]
    other.journal._roll()
    other.journal.close()
    whole = (other.directory / f"{1:020d}.log").read_bytes()
    (box.directory / f"{1:020d}.log").write_bytes(whole[:kept])
    assert box.open() == [ack(n) for n in range(5)]
    assert list_segments(box.directory) == [0]
    assert old.read_bytes() == content
    box.journal.close()
    (box.directory / f"{1:020d}.log").write_bytes(whole)
    assert box.open() == other.state
    assert list_segments(box.directory) == [1]


def test_a_torn_tail_behind_a_roll_that_failed(box: Box) -> None:
    # The roll failed and was taken back, entries went on into the old file, and then the power failed: neither the
    # removal nor the end of the old file was durable.
    for n in range(3):
        box.write(ack(n))
    box.journal.close()
    with (box.directory / f"{0:020d}.log").open("ab") as file:
        file.write(b"TFRM torn")
    (box.directory / f"{1:020d}.log").write_bytes(b"")
    assert box.open() == [ack(n) for n in range(3)]


def test_a_full_disk_owes_entries_and_pays_them_with_the_next(box: Box) -> None:
    box.write(ack(0))
    box.files.full = True
    box.write(ack(1))
    box.write(ack(2))
    assert [type(a) for a in box.answers[1:]] == [DiskFullError, DiskFullError]
    box.files.full = False
    box.write(ack(3))
    assert box.answers[3] is None
    assert box.reopen() == [ack(n) for n in range(4)]


def test_a_full_disk_owes_entries_and_pays_them_at_the_end(box: Box) -> None:
    box.files.full = True
    box.write(ack(1))
    box.files.full = False
    assert box.reopen() == [ack(1)]


def test_closing_with_a_disk_that_is_still_full(box: Box) -> None:
    box.files.full = True
    box.write(ack(1))
    box.journal.close()
    box.files.full = False
    assert box.open() == []


def test_a_full_disk_while_rolling_goes_on_in_the_old_file(box: Box) -> None:
    box.state = [ack(n) for n in range(300)]
    while box.journal._writer.size < 3000:
        box.write(ack(1))
    calls = []

    def fill() -> None:
        calls.append(1)
        box.files.full = len(calls) % 2 == 0  # the entry itself is written, the snapshot is not

    box.before_sync = fill
    box.journal._roll_bytes = 1
    for n in range(10, 14):
        box.write(ack(n))
    assert set(box.answers) == {None}
    assert list_segments(box.directory) == [0]
    box.files.full = False
    box.before_sync = lambda: None
    box.journal._roll_bytes = 1 << 30
    assert box.reopen()[-4:] == [ack(n) for n in range(10, 14)]


def test_a_failed_fsync_is_fatal_and_nothing_is_answered_well_after_it(box: Box) -> None:
    box.write(ack(0))
    box.files.broken_sync = True
    box.write(ack(1))
    assert isinstance(box.answers[1], FatalError)
    assert len(box.fatal) == 1
    box.files.broken_sync = False
    with pytest.raises(TarryError, match="the log has failed"):
        box.write(ack(2))
    box.journal.close()


def test_damage_is_refused(box: Box) -> None:
    for n in range(5):
        box.write(ack(n))
    box.journal.close()
    path = box.directory / f"{0:020d}.log"
    content = bytearray(path.read_bytes())
    content[32 + 70] ^= 1
    path.write_bytes(content)
    with pytest.raises(CorruptError, match=f"{path} at offset 32"):
        box.open()
