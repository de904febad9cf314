"""The intake: numbering, reading by seq and by due time, deletion, reopening."""

from __future__ import annotations

import errno
import random
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.faults import FaultyFiles

from tarry.base.errors import CorruptError, DiskFullError, FatalError, KeyExistsError, OverloadedError, TarryError
from tarry.base.types import Key
from tarry.intake import Intake, IntakeWriter, Segments, Submission
from tarry.intake.index import Window
from tarry.log.file_engine import FileLog
from tarry.log.files import OsFiles
from tarry.log.frame import FrameHeader, LogKind
from tarry.log.segment import SegmentReader, list_segments, segment_path
from tarry.message import handle
from tarry.message.accepted import Accepted
from tarry.message.schema import UNNUMBERED

SECRET = b"s" * 32


def batch(due: list[int], topic: str = "a", body: int = 50) -> pa.RecordBatch:
    columns = {"topic": [topic] * len(due), "due_ms": due, "body": [b"x" * body] * len(due), "born_ms": due}
    rows = len(due)
    return pa.RecordBatch.from_arrays(
        [pa.array(columns[f.name], f.type) if f.name in columns else pa.nulls(rows, f.type) for f in UNNUMBERED],
        schema=UNNUMBERED,
    )


class Box:
    """An intake, and what it published and answered."""

    def __init__(self, directory: Path, files: OsFiles | None = None, segment_bytes_max: int = 8192) -> None:
        self.directory = directory
        self.files = files or OsFiles()
        self.segment_bytes_max = segment_bytes_max
        self.published: list[int] = []
        self.answers: list[object] = []
        self.due: dict[int, int] = {}
        self.open()

    def open(self, **known: object) -> None:
        at = {"next_seq": 0, "durable": None, **known}
        self.segments = Segments.open(FileLog(self.files, self.directory, LogKind.INTAKE), **at)  # type: ignore[arg-type]
        self.intake = Intake(self.segments)
        self.writer = IntakeWriter(
            self.segments,
            self.intake,
            segment_bytes_max=self.segment_bytes_max,
            secret=SECRET,
            publish=self.publish,
        )

    def publish(self, batches: list[tuple[pa.RecordBatch, int]], add: Callable[[], None]) -> None:
        add()
        for one, _ in batches:
            self.published += one["seq"].to_pylist()

    def commit(self, *dues: list[int], body: int = 50) -> None:
        first = self.intake.published_seq
        self.writer.commit([Submission(batch(d, body=body), self.answers.append) for d in dues])
        for seq, due in enumerate((d for part in dues for d in part), first):
            self.due[seq] = due


@pytest.fixture
def box(tmp_path: Path) -> Iterator[Box]:
    made = Box(tmp_path)
    yield made
    made.intake.close()


def test_submissions_share_a_frame_and_get_their_own_answers(box: Box) -> None:
    box.commit([5, 6], [7], [8, 9, 10])
    assert [(a.first_seq, a.due_ms.tolist()) for a in box.answers if isinstance(a, Accepted)] == [
        (0, [5, 6]),
        (2, [7]),
        (3, [8, 9, 10]),
    ]
    assert [len(s.frames.position) for s in box.segments.frames_between(0, 6)] == [1]
    third = box.answers[2]
    assert isinstance(third, Accepted)
    for row, text in enumerate(third.handles()):
        found = handle.decode(text)
        assert (found.seq, found.due_ms, found.first_seq, found.rows) == (3 + row, 8 + row, 3, 3)
        assert handle.verify(found, SECRET)
    assert box.published == list(range(6))


@pytest.mark.parametrize(("number", "error"), [(errno.ENOSPC, DiskFullError), (errno.EMFILE, OverloadedError)])
def test_what_lacks_for_now_refuses_all_and_changes_nothing(
    tmp_path: Path, number: int, error: type[TarryError]
) -> None:
    files = FaultyFiles()
    box = Box(tmp_path, files)
    box.commit([1])
    files.full, files.full_number = True, number
    box.writer.commit([Submission(batch([1]), box.answers.append)] * 2)
    assert [type(a) for a in box.answers[1:]] == [error] * 2
    files.full = False
    box.commit([2])
    assert box.intake.published_seq == 2
    assert [b["seq"].to_pylist() for b in box.intake.read(0, 2)] == [[0, 1]]
    box.intake.close()


class Commit:
    """Decisions of one commit, as the writer sees them."""

    def __init__(self, next_seq: int) -> None:
        self.next_seq = next_seq

    def register(self, rows: int) -> bool:
        return True

    def on_durable(self) -> None: ...

    def on_refused(self) -> None: ...


class Command:
    """One that writes a message, or is refused for another of its commit."""

    def __init__(self, told: list[str], rows: pa.RecordBatch | None) -> None:
        self.told, self.rows = told, rows

    def decide(self, batch: Commit) -> pa.RecordBatch:
        if self.rows is None:
            raise KeyExistsError("key k is pending in its topic")
        return self.rows

    def on_durable(self, first_seq: int) -> None:
        self.told.append("scheduled")

    def on_refused(self, error: TarryError) -> None:
        self.told.append(error.code)


def with_commands(
    box: Box, monkeypatch: pytest.MonkeyPatch, told: list[str], sync: Callable[[], object], confirm: object = None
) -> Callable[..., None]:
    """Commit commands, each with its row or None."""
    writer = IntakeWriter(
        box.segments, box.intake, segment_bytes_max=8192, secret=SECRET, publish=box.publish, begin_batch=Commit,
        confirm=confirm,  # type: ignore[arg-type]
    )  # fmt: skip
    monkeypatch.setattr(box.segments, "sync", sync)

    def commit(*rows: pa.RecordBatch | None) -> None:
        writer.commit([Submission(batch([]), box.answers.append, Command(told, each)) for each in rows])

    return commit


def test_a_refusal_is_told_when_what_it_rests_on_is_durable(box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    commit = with_commands(box, monkeypatch, told, lambda: told.append("durable"), lambda: told.append("confirmed"))
    commit(batch([1]), None)
    assert told[0] == "durable" and sorted(told[1:]) == ["key_exists", "scheduled"]
    told.clear()
    commit(None)
    assert told == ["confirmed", "key_exists"]


def test_a_refusal_is_not_told_when_that_is_not_durable(box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []

    def fail() -> None:
        raise FatalError("ended")

    commit = with_commands(box, monkeypatch, told, fail)
    with pytest.raises(FatalError):
        commit(batch([1]), None)
    assert told == []


def test_a_full_disk_refuses_what_would_have_been_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files, told = FaultyFiles(), list[str]()
    box = Box(tmp_path, files)
    commit = with_commands(box, monkeypatch, told, box.segments.sync)
    files.full = True
    commit(batch([1]), None)
    assert told == ["disk_full", "disk_full"]
    box.intake.close()


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(0, 1 << 30))
def test_reading_by_seq_and_by_due_time(tmp_path_factory: pytest.TempPathFactory, seed: int) -> None:
    rng = random.Random(seed)
    box = Box(tmp_path_factory.mktemp("intake"))
    for _ in range(rng.randint(1, 25)):
        box.commit(
            *[[rng.randint(0, 40) for _ in range(rng.randint(1, 12))] for _ in range(rng.randint(1, 3))], body=200
        )
        if rng.random() < 0.3:
            box.intake.seal()
        if rng.random() < 0.1:
            box.intake.close()
            box.open()
    intake, end = box.intake, box.intake.published_seq
    start = rng.randint(0, end)
    stop = rng.randint(start, end)
    read = [s for b in intake.read(start, stop) for s in b["seq"].to_pylist()]
    assert read == list(range(start, stop))
    wanted = rng.sample(range(end), rng.randint(1, end))
    rows = intake.read_rows(np.array(wanted, np.int64))
    assert rows is not None
    assert rows["seq"].to_pylist() == sorted(wanted)
    assert rows["due_ms"].to_pylist() == [box.due[s] for s in sorted(wanted)]
    assert intake.read_rows(np.empty(0, np.int64)) is None
    window = Window(Key(rng.randint(0, 20), rng.randint(0, end)), Key(rng.randint(0, 45), 3), start, stop)
    expected = sorted(
        Key(d, s) for s, d in box.due.items() if window.after <= (d, s) < window.until and start <= s < stop
    )
    due, seq, complete = intake.select(window, 4096)
    assert complete
    assert [Key(*k) for k in zip(due.tolist(), seq.tolist(), strict=True)] == expected
    assert intake.next_due(window.after, start) == min(
        (d for s, d in box.due.items() if window.after <= (d, s) and s >= start), default=None
    )
    assert intake.born_ms(start) == box.due[start] if start < end else True
    intake.close()


def test_opening_reads_no_rows_where_the_headers_say_it(box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    """Messages that were sent alone have a frame each: what a start takes grows with them."""
    for due in (7, 5, 9):
        box.commit([due])
    box.commit([4, 8, 6])
    box.commit([3, 3])
    read, real = [], SegmentReader.read

    def noted(reader: SegmentReader, position: int, schema: pa.Schema) -> tuple[FrameHeader, str, pa.RecordBatch]:
        header, topic, rows = real(reader, position, schema)
        read.append(header.base)
        return header, topic, rows

    monkeypatch.setattr(SegmentReader, "read", noted)
    box.intake.close()
    box.open()
    assert read == [3], "the one whose messages are due at different times"
    due, seq, _ = box.intake.select(Window(Key(0, 0), Key(10, 0), 0, 100), 100)
    assert list(zip(due.tolist(), seq.tolist(), strict=True)) == [
        *((3, 6), (3, 7), (4, 3), (5, 1)),
        *((6, 5), (7, 0), (8, 4), (9, 2)),
    ]


def test_select_gives_nothing_beyond_what_a_cut_segment_may_still_have(box: Box) -> None:
    # Two segments: the first has many early rows, the second later ones. Asked for little, the second's must wait.
    rng = random.Random(1)
    for low in (0, 3000):
        for _ in range(4):
            box.commit([low + rng.randint(0, 5000) for _ in range(1500)], body=2)
        box.segments.roll(box.intake.published_seq)
    box.intake.seal()
    window, got = Window(Key(0, 0), Key(1 << 40, 0), 0, 1 << 40), list[Key]()
    rounds = 0
    while True:
        due, seq, complete = box.intake.select(window, 2048)
        got += [Key(*k) for k in zip(due.tolist(), seq.tolist(), strict=True)]
        rounds += 1
        if complete:
            break
        assert len(due), "no progress"
        window = Window(Key(got[-1].due_ms, got[-1].seq + 1), window.until, 0, 1 << 40)
    assert rounds >= 3
    assert got == sorted(Key(d, s) for s, d in box.due.items())


def test_a_range_that_is_not_here_is_refused(box: Box) -> None:
    box.commit([1])
    with pytest.raises(CorruptError, match=r"intake range \[0, 2\) is not all here; here: \[0, 1\)"):
        list(box.intake.read(0, 2))


def deleted(box: Box, committed_seq: int, fired_seq: int, fired_until_ms: int) -> int:
    return box.intake.delete_below(box.intake.deletable_until(committed_seq, fired_seq, fired_until_ms))


def test_deletion_takes_what_is_in_the_store_or_fired(box: Box) -> None:
    for due in (10, 20, 30, 40):
        box.commit([due] * 3, body=4000)
        assert box.intake.seal()
    assert len(list_segments(box.directory)) == 5
    delete = partial(deleted, box)
    assert delete(0, 12, 10) == 0, "neither committed nor fired"
    assert delete(3, 2, 0) == 0, "committed, but recovery would read from 2 on"
    assert delete(3, 3, 0) == 1, "committed"
    assert delete(3, 12, 20) == 0, "due at 20, and only what is due before has fired"
    assert delete(3, 12, 21) == 1, "fired"
    assert box.intake.first_seq == 6
    assert delete(99, 99, 1 << 40) == 2, "never the one that is being written"
    assert box.intake.first_seq == box.intake.published_seq == 12
    assert sorted(p.suffix for p in box.directory.iterdir()) == [".log"]
    box.intake.close()
    box.open(durable=(12, 32))
    assert box.intake.published_seq == 12


def test_an_unsealed_segment_is_not_deleted(box: Box) -> None:
    box.commit([10], body=9000)
    assert deleted(box, 99, 99, 1 << 40) == 0
    assert box.intake.seal()
    assert not box.intake.seal()
    assert deleted(box, 99, 99, 1 << 40) == 1


def test_nothing_is_deleted_while_somebody_keeps_it(box: Box) -> None:
    for _ in range(2):
        box.commit([10], body=9000)
        assert box.intake.seal()
    with box.intake.kept():
        with box.intake.kept():
            assert deleted(box, 99, 99, 1 << 40) == 0
        assert deleted(box, 99, 99, 1 << 40) == 0, "one of two has ended"
        assert box.intake.first_seq == 0
    assert deleted(box, 99, 99, 1 << 40) == 2


def six_segments(box: Box) -> list[Path]:
    """Of three messages each; the last is empty, and being written."""
    for _ in range(5):
        box.commit([10] * 3, body=4000)
        assert box.intake.seal()
    box.intake.close()
    return [segment_path(box.directory, base) for base in list_segments(box.directory)]


@pytest.mark.parametrize("gone", [(), (0,), (1,), (0, 2), (1, 2), (0, 1, 2)])
def test_deletions_of_which_a_crash_has_kept_any(box: Box, gone: tuple[int, ...]) -> None:
    paths = six_segments(box)
    for number in gone:
        paths[number].unlink()
    box.open(durable=(15, 32), first_seq=9)
    assert (box.intake.first_seq, box.intake.published_seq) == (9, 15)
    assert [seq for rows in box.intake.read(9, 15) for seq in rows.column("seq").to_pylist()] == list(range(9, 15))
    assert box.intake.deletable_until(0, 0, 0) == 9
    assert box.intake.delete_below(9) == 0
    assert sorted(path.stem for path in box.directory.glob("*.idx")) == [path.stem for path in paths[3:5]]
    assert list_segments(box.directory) == [9, 12, 15]


@pytest.mark.parametrize("gone", [(3,), (4,), (0, 3), (0, 1, 2, 3), (0, 4), (4, 5)])
def test_a_segment_that_was_not_to_be_deleted_is_missed(box: Box, gone: tuple[int, ...]) -> None:
    paths = six_segments(box)
    for number in gone:
        paths[number].unlink()
    names = sorted(box.directory.iterdir())
    with pytest.raises(CorruptError, match="missing"):
        box.open(durable=(15, 40) if 5 in gone else (15, 32), first_seq=9)
    assert sorted(box.directory.iterdir()) == names, "nothing is changed"


def test_bytes_from(box: Box) -> None:
    for _ in range(6):
        box.commit([5] * 4, body=1000)
    total = box.intake.bytes_from(0)
    assert abs(total - sum(p.stat().st_size for p in box.directory.glob("*.log"))) <= 32
    parts = [box.intake.bytes_from(s) for s in range(25)]
    assert parts == sorted(parts, reverse=True)
    assert parts[24] == 0


def test_an_empty_directory_begins_where_it_is_told(tmp_path: Path) -> None:
    box = Box(tmp_path / "x")
    box.intake.close()
    box.directory = tmp_path / "y"
    box.open(next_seq=77)
    assert (box.intake.first_seq, box.intake.published_seq) == (77, 77)
    box.intake.close()
    box.directory = tmp_path / "z"
    with pytest.raises(CorruptError, match="is missing; 500 bytes"):
        box.open(durable=(0, 500))


@pytest.mark.parametrize("gone", ["all", "last"])
def test_a_lost_segment_is_noticed_where_the_last_one_had_no_frame_yet(box: Box, gone: str) -> None:
    """What was accepted behind the checkpoint may have been in it; and those before it are gone as well."""
    for _ in range(3):
        box.commit([5] * 4, body=1000)
    box.intake.close()
    paths = sorted(box.directory.glob("*.log"))
    first, last = int(paths[0].stem), int(paths[-1].stem)
    for path in paths if gone == "all" else paths[-1:]:
        path.unlink()
    for position in (0, 32):
        with pytest.raises(CorruptError, match="is missing"):
            box.open(durable=(last, position), first_seq=first)
