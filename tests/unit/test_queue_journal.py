"""The journal of the groups: order, rolling, owed entries, and replays."""

from __future__ import annotations

import errno
import re
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.faults import FaultyFiles

from tarry.base.errors import CorruptError, DiskFullError, FatalError, OverloadedError, TarryError
from tarry.log.file_engine import FileLog
from tarry.log.frame import LogKind
from tarry.log.segment import list_segments, segment_path
from tarry.queue import journal as journal_module
from tarry.queue.entries import JournalEntry, JournalOp, from_batch, serialized_one, to_batch
from tarry.queue.journal import Journal

INT64 = st.integers(-(1 << 63), (1 << 63) - 1)


def ack(first: int, end: int | None = None) -> JournalEntry:
    return JournalEntry("t", "g", JournalOp.ACK, first, first + 1 if end is None else end)


class Box:
    def __init__(self, directory: Path, *, segment: int = 4096, threaded: bool = False) -> None:
        self.directory, self.segment, self.threaded = directory, segment, threaded
        self.files = FaultyFiles()
        self.synced: list[int | None] = []
        self.state: list[JournalEntry] = []
        self.fatal: list[BaseException] = []
        self.answers: list[TarryError | None] = []
        self.before_sync: Callable[[], None] = lambda: None

    def open(self, durable: tuple[int, int] = (0, 0)) -> list[JournalEntry]:
        self.journal = Journal(
            FileLog(self.files, self.directory, LogKind.ACKS),
            segment_bytes_max=self.segment,
            sync_ready=self.sync_ready,
            snapshot=self.snapshot,
            on_fatal=self.fatal.append,
            threaded=self.threaded,
            durable=durable,
        )
        return list(self.journal.entries())

    @property
    def size(self) -> int:
        """Bytes of the file that is being written."""
        return segment_path(self.directory, self.base).stat().st_size

    @property
    def base(self) -> int:
        return list_segments(self.directory)[-1]

    def sync_ready(self, ticket: int | None) -> None:
        self.before_sync()
        self.synced.append(ticket)

    def snapshot(self) -> Iterable[JournalEntry]:
        return list(self.state)

    def write(self, *entries: JournalEntry, ticket: int = 1) -> None:
        self.journal.write(list(entries), ticket, self.answers.append)

    def reopen(self) -> list[JournalEntry]:
        self.journal.close()
        return self.open()


@pytest.fixture
def box(tmp_path: Path) -> Iterator[Box]:
    made = Box(tmp_path / "acks")
    made.open()
    yield made
    with suppress(OSError, AttributeError):  # the test closed it, or it was never opened
        made.journal.close()


def test_entries_come_back_in_order(box: Box) -> None:
    box.write(JournalEntry("t", "g", JournalOp.GROUP, 5))
    box.write(ack(5, 9), JournalEntry("t", "ü", JournalOp.RETRY, 9, 10, 3, 1 << 60), ticket=7)
    assert box.answers == [None, None]
    assert box.synced == [1, 7], "the ready log first"
    assert box.reopen() == [
        JournalEntry("t", "g", JournalOp.GROUP, 5),
        ack(5, 9),
        JournalEntry("t", "ü", JournalOp.RETRY, 9, 10, 3, 1 << 60),
    ]


def test_many_small_frames_are_read_together(box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a start takes grows with them: what a batch costs in Python is paid once for many."""
    asked = 0

    def counted(batch: pa.RecordBatch) -> Iterator[JournalEntry]:
        nonlocal asked
        asked += 1
        return from_batch(batch)

    monkeypatch.setattr(journal_module, "from_batch", counted)
    box.segment = 1 << 20
    box.reopen()
    for number in range(50):
        box.write(ack(number))
    assert box.reopen() == [ack(number) for number in range(50)]
    assert asked == 1
    monkeypatch.setattr(journal_module, "BATCHES_READ", 7)
    assert box.reopen() == [ack(number) for number in range(50)]


def test_the_ready_log_is_durable_before_the_entry_is_written(box: Box) -> None:
    sizes: list[int] = []
    box.before_sync = lambda: sizes.append(box.size)
    before = box.size
    box.write(ack(1))
    assert sizes == [before]


def test_a_new_file_begins_with_a_snapshot(box: Box) -> None:
    box.state = [JournalEntry("t", "g", JournalOp.GROUP, 0), ack(0, 50)]
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
        written = box.base
    assert 1 <= written < 20, f"{written} snapshots for 200 entries"


@pytest.mark.parametrize("kept", [0, 10, 32, 40, 100, -70, -1])
def test_a_snapshot_that_is_not_whole_is_not_used(box: Box, kept: int) -> None:
    for n in range(5):
        box.write(ack(n))
    box.journal.close()
    old = box.directory / f"{0:020d}.log"
    content = old.read_bytes()
    other = Box(box.directory.parent / "other", segment=1)
    other.open()
    other.state = [ack(n) for n in range(100)]
    other.write(ack(0))  # a file is full with anything
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


@pytest.mark.parametrize(
    ("number", "error", "text"),
    [
        (errno.ENOSPC, DiskFullError, r"is full \(No space left"),
        (errno.EDQUOT, DiskFullError, r"is full \(Disk quota"),
        (errno.EMFILE, OverloadedError, r"no descriptor is free \(Too many open files"),
        (errno.ENFILE, OverloadedError, r"no descriptor is free \(Too many open files in system"),
    ],
)
def test_what_lacks_for_now_owes_entries_that_are_paid_with_the_next(
    box: Box, number: int, error: type[TarryError], text: str
) -> None:
    box.write(ack(0))
    box.files.full, box.files.full_number = True, number
    box.write(ack(1))
    box.write(ack(2))
    assert [type(a) for a in box.answers[1:]] == [error, error]
    assert all(isinstance(a, TarryError) and a.retryable and re.search(text, str(a)) for a in box.answers[1:])
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
    calls = []

    def fill() -> None:
        calls.append(1)
        # The entry itself is written, and the snapshot is not: for that, the ready log is synced once more.
        box.files.full = len(calls) % 2 == 0

    while box.size < 4096 - 500:
        box.write(ack(1))
    box.before_sync = fill
    for n in range(10, 30):
        calls.clear()
        box.write(ack(n))
        box.files.full = False
    assert len(calls) == 2, "it tried"
    assert set(box.answers) == {None}
    assert list_segments(box.directory) == [0]
    box.before_sync = lambda: None
    box.journal.close()
    box.segment = 1 << 30
    assert box.open()[-4:] == [ack(n) for n in range(26, 30)]


def test_more_than_may_be_owed_to_a_full_disk_is_owed_as_a_snapshot(box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_module, "ENTRIES_MAX", 5)
    box.write(ack(0))
    box.files.full = True
    for n in range(1, 9):
        box.write(ack(n))
    assert {type(a) for a in box.answers[1:]} == {DiskFullError}
    box.files.full = False
    box.state = [JournalEntry("t", "g", JournalOp.GROUP, 0), ack(0, 10)]
    box.write(ack(9))
    assert box.answers[-1] is None
    assert list_segments(box.directory) == [1], "nothing was appended behind what is missing"
    box.write(ack(11))
    assert box.reopen() == [*box.state, ack(11)]


def test_a_snapshot_that_is_owed_is_paid_at_the_end(box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_module, "ENTRIES_MAX", 1)
    box.files.full = True
    box.write(ack(1), ack(2))
    box.state = [ack(1, 3)]
    box.files.full = False
    assert box.reopen() == box.state


def test_who_asks_is_refused_while_too_much_waits_and_what_has_happened_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_module, "ENTRIES_MAX", 3)
    box = Box(tmp_path / "acks", threaded=True)
    box.open()
    hold, held = threading.Event(), threading.Event()

    def wait() -> None:
        held.set()
        assert hold.wait(20)

    box.before_sync = wait
    box.write(ack(0))
    assert held.wait(20)
    box.journal.check_room()
    box.write(ack(1), ack(2))
    assert box.journal.is_full
    with pytest.raises(OverloadedError, match="3 entries wait to be written"):
        box.journal.check_room()
    box.write(ack(3))
    hold.set()
    box.journal.close()
    assert box.answers == [None] * 3
    box.journal.check_room()
    box.threaded = False
    assert box.open() == [ack(n) for n in range(4)]
    box.journal.close()


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


def rolled(box: Box) -> tuple[int, int]:
    """Let it begin its second file, with a snapshot; where it stands then."""
    box.state = [ack(0, 1000)]
    while box.base == 0:
        box.write(*[ack(i) for i in range(20)])
    box.write(ack(2000))
    return box.journal.position


def test_a_snapshot_that_is_not_whole_is_damage_once_the_file_before_it_is_gone(box: Box) -> None:
    rolled(box)
    box.journal.close()
    path = segment_path(box.directory, box.base)
    whole = path.read_bytes()
    for size in (0, 20, 32, 40, 100, 32 + 64):
        path.write_bytes(whole[:size])
        for durable in ((0, 0), (0, 500)):
            with pytest.raises(CorruptError, match=r"the snapshot of the groups .* is not whole"):
                box.open(durable)
            assert path.read_bytes() == whole[:size], "refused, and changed all the same"
    path.write_bytes(whole)
    assert ack(2000) in box.open()


def test_what_the_checkpoint_says_was_durable_must_be_there(box: Box) -> None:
    number, position = rolled(box)
    box.journal.close()
    path = segment_path(box.directory, number)
    whole = path.read_bytes()
    assert len(whole) == position
    flipped = whole[:-100] + bytes([whole[-100] ^ 1]) + whole[-99:]
    for content in (whole[:-8], whole[:-200] + bytes(200), flipped):
        path.write_bytes(content)
        with pytest.raises(CorruptError, match=r"a frame that was durable is damaged"):
            box.open((number, position))
        assert path.read_bytes() == content
    path.write_bytes(whole + b"torn")
    assert ack(2000) in box.open((number, position)), "a torn tail behind it is cut off"
    box.journal.close()
    path.unlink()
    with pytest.raises(CorruptError, match=r"is missing; .* bytes of it had been durable"):
        box.open((number, position))
    # An older checkpoint: the file that it names was deleted since.
    path.write_bytes(whole)
    assert ack(2000) in box.open((0, 4096))


def test_a_file_that_died_while_rolling_does_not_count(box: Box) -> None:
    box.write(ack(1), ack(2))
    number, position = box.journal.position
    box.journal.close()
    second = segment_path(box.directory, 1)
    for content in (b"", b"TARRYLOG"):
        second.write_bytes(content)
        assert box.open((number, position)) == [ack(1), ack(2)]
        box.journal.close()
        assert not second.exists()


@given(
    st.builds(
        JournalEntry,
        st.text(max_size=20),
        st.text(max_size=20),
        st.sampled_from(JournalOp),
        INT64,
        INT64,
        st.integers(-(1 << 31), (1 << 31) - 1),
        INT64,
    )
)
def test_one_entry_is_the_same_bytes_without_arrow(entry: JournalEntry) -> None:
    assert serialized_one(entry) == (bytes(memoryview(to_batch([entry]).serialize())), 1)
