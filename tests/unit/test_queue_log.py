"""The ready log: reading from memory, from the file being written, and from sealed ones; deletion; many threads."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.faults import FaultyFiles, LimitedFiles
from tests.unit.test_wheel_wheel import batch

from tarry.base.errors import CorruptError
from tarry.base.types import Key
from tarry.log.file_engine import FileLog
from tarry.log.files import OsFiles
from tarry.log.frame import LogKind
from tarry.queue import ReadyLog, room
from tarry.queue.topic import Topic
from tarry.wheel.wheel import Due

NOW = 1_000_000_000
ALL = 1 << 60
"""Above every segment."""


def due(topics: list[str], first_seq: int, *, body: int = 50, stored: int = 0, due_ms: int = NOW) -> Due:
    keys = [Key(due_ms, first_seq + i) for i in range(len(topics))]
    rows = batch(keys, body)
    rows = rows.set_column(rows.schema.get_field_index("topic"), "topic", pa.array(topics))
    return Due(rows, rows["due_ms"].to_numpy(), stored, rows.nbytes)


class Box:
    """A ready log, and the seqs that each topic got, in order."""

    def __init__(
        self, directory: Path, files: OsFiles | None = None, *, segment: int = 8192, cache: int = 4096
    ) -> None:
        self.directory, self.files, self.segment, self.cache = directory, files or OsFiles(), segment, cache
        self.seqs: dict[str, list[int]] = {}
        self.next_seq = 0
        self.open((0, 0), {})

    def open(self, place: tuple[int, int], ends: dict[str, int]) -> None:
        self.log = ReadyLog(
            FileLog(self.files, self.directory, LogKind.READY),
            self.files,
            segment_bytes_max=self.segment,
            cache_bytes_max=self.cache,
            place=place,
            ends=ends,
        )

    def append(self, *topics: str, body: int = 50, stored: int = 0, due_ms: int = NOW) -> None:
        self.log.append(due(list(topics), self.next_seq, body=body, stored=stored, due_ms=due_ms))
        for name in topics:
            self.seqs.setdefault(name, []).append(self.next_seq)
            self.next_seq += 1

    def check(self, name: str, rows_max: int = 1000, start: int = 0) -> None:
        assert read_all(self.log.topic(name), rows_max, start) == list(enumerate(self.seqs.get(name, [])))[start:]


def read_all(topic: Topic, rows_max: int, start: int = 0) -> list[tuple[int, int]]:
    got: list[tuple[int, int]] = []
    while (found := topic.read(start, rows_max)) is not None:
        base, rows = found
        assert 0 < rows.num_rows <= rows_max
        assert base >= start
        assert rows["topic"].unique().to_pylist() == [topic.name]
        got += list(zip(range(base, base + rows.num_rows), rows["seq"].to_pylist(), strict=True))
        start = base + rows.num_rows
    return got


@pytest.fixture
def box(tmp_path: Path) -> Iterator[Box]:
    made = Box(tmp_path)
    yield made
    made.log.close()


STEPS = st.lists(
    st.one_of(
        st.lists(st.sampled_from(["a", "b", "c"]), min_size=1, max_size=40),
        st.sampled_from(["flush", "sync", "reopen"]),
    ),
    max_size=25,
)


@settings(max_examples=examples(60))
@given(STEPS, st.sampled_from([1, 7, 1000]), st.sampled_from([0, 3000, 1 << 20]), st.sampled_from([20, 400]))
def test_every_reader_sees_every_row_wherever_it_is(steps: list[object], rows_max: int, cache: int, body: int) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as name:
        box = Box(Path(name), cache=cache)
        for step in steps:
            if isinstance(step, list):
                box.append(*step, body=body)
            elif step == "flush":
                box.log.flush()
            elif step == "sync":
                box.log.sync(box.log.ticket())
            else:
                box.log.flush()
                box.log.close()
                box.open((0, 0), {})
            for topic in "abc":
                box.check(topic, rows_max)
                assert box.log.topic(topic).end == len(box.seqs.get(topic, []))
        for topic in "abc":
            for start in range(0, len(box.seqs.get(topic, [])), 3):
                box.check(topic, rows_max, start)
        box.log.flush()
        assert box.log.unwritten_bytes == 0
        if cache == 0:
            assert all(t.evicted == len(t.tails) for t in box.log.topics.values()), "nothing stays in memory"
        box.log.close()


@pytest.mark.parametrize("cache", [0, 1 << 20], ids=["file", "memory"])
def test_one_read_has_about_its_bytes_however_large_a_batch_was(cache: int, tmp_path: Path) -> None:
    box = Box(tmp_path, segment=1 << 20, cache=cache)
    for rows in (3, 40, 2, 1):
        box.append(*["a"] * rows, body=1000)
        box.log.flush()
    for bytes_max, rows_max in ((10_000, 10), (100, 1), (1 << 20, 46)):
        got: list[int] = []
        while (found := box.log.topic("a").read(len(got), 1000, bytes_max)) is not None:
            assert found[0] == len(got)
            assert 0 < found[1].num_rows <= rows_max
            got += found[1]["seq"].to_pylist()
        assert got == box.seqs["a"]
    box.log.close()


@pytest.mark.rest
def test_a_group_that_lags_reads_through_many_segments(box: Box) -> None:
    names = [f"t{i}" for i in range(30)]
    for _ in range(60):
        box.append(*names, body=100)
        box.log.flush()
    assert len(box.log.segments) > 20
    for name in names:
        box.check(name, 5)


def test_two_logs_of_one_name_are_not_mixed_up(tmp_path: Path) -> None:
    # A directory is emptied and used again in the same process.
    for body in (400, 150):
        box = Box(tmp_path / "x")
        for _ in range(6):
            box.append("a", "b", "a", "a", body=body)
            box.append("a", body=2 * body)
            box.append("a", "a", body=2000)
            box.log.flush()
        box.check("a", 2)
        box.log.close()
        for path in (tmp_path / "x").iterdir():
            path.unlink()


def test_rows_from_the_store_are_counted_and_survive(box: Box) -> None:
    box.append("a", "b", "a", "b", stored=3)
    box.append("a", stored=0)
    box.append("b", "b", stored=2)
    box.log.flush()
    assert box.log.stored_rows == 5
    box.log.close()
    box.open((0, 0), {})
    assert box.log.stored_rows == 5


def test_a_mark_divides_what_was_appended_from_what_will_be(box: Box) -> None:
    for _ in range(5):
        box.append("a", "b", body=1500)
    segment, position, ticket = box.log.mark()
    ends = box.log.ends()
    box.log.sync(ticket)
    box.append("b", "b", "a")
    box.log.flush()
    box.log.close()
    box.open((segment, position), ends)
    assert [s for b in box.log.rows_after(segment, position) for s in b["seq"].to_pylist()] == [12, 10, 11] or [
        s for b in box.log.rows_after(segment, position) for s in sorted(b["seq"].to_pylist())
    ] == [10, 11, 12]
    box.check("a")
    box.check("b")


class Guard:
    """Readers of topics, by how far each has come; what is deleted for its age is theirs to know."""

    def __init__(self, **floors: dict[str, int]) -> None:
        self.floors = floors
        self.deleted: list[tuple[str, int]] = []

    def floor_of(self, topic: str) -> int | None:
        return min(self.floors.get(topic, {}).values(), default=None)

    def make_way(self, segment: int, topics: list[Topic]) -> bool:
        return True

    def on_deleted(self, topic: Topic) -> None:
        self.deleted.append((topic.name, topic.first))


def test_segments_go_when_every_group_has_acknowledged_them(box: Box) -> None:
    for _ in range(12):
        box.append("a", "b", body=1500)
        box.log.flush()
    topic_a, topic_b = box.log.topic("a"), box.log.topic("b")
    count = len(box.log.segments)
    assert count > 3
    assert box.log.delete_consumed(NOW, 1 << 50, Guard(), lambda _: None, below=ALL) == 0, (
        "nobody has acknowledged anything"
    )
    guard = Guard(a={"g": 12}, b={"g": 12, "slow": topic_b.extents[1].first})
    assert box.log.delete_consumed(NOW, 1 << 50, guard, lambda _: None, below=ALL) == 1, "up to where the slow group is"
    assert topic_b.first == topic_b.extents[0].first > 0
    box.check("b", start=topic_b.first)
    guard.floors["b"]["slow"] = 12
    box.log.delete_consumed(NOW, 1 << 50, guard, lambda _: None, below=ALL)
    assert len(box.log.segments) == 1, "the one that is being written stays"
    assert [p.name for p in sorted(box.directory.glob("*.idx"))] == []
    assert topic_a.end == 12
    assert guard.deleted == [], "they were done with it"


def test_retention_deletes_by_age_whoever_has_not_acknowledged(box: Box) -> None:
    for _ in range(8):
        box.append("a", "a", body=1500)
        box.log.flush()
    old = box.log.segments[0]
    path = box.directory / f"{old:020d}.log"
    os.utime(path, (1, 1))
    topic = box.log.topic("a")
    first = topic.extents[1].first
    guard = Guard()
    assert box.log.delete_consumed(NOW + 5000, 10_000, guard, lambda _: None, below=ALL) == 0, (
        "the messages became due less than the retention ago"
    )
    os.utime(path, (1, 1))
    assert box.log.delete_consumed(NOW + 10_001, 10_000, guard, lambda _: None, below=ALL) == 1
    assert topic.first == first
    assert guard.deleted == [("a", first)]
    found = topic.read(0, 10)
    assert found is not None
    assert found[0] == first, "a reader goes on at what is left"


def test_a_segment_deleted_while_it_is_read(box: Box) -> None:
    for _ in range(8):
        box.append("a", "a", body=1500)
        box.log.flush()
    topic = box.log.topic("a")
    read_frame = topic.read_frame

    def deleted_meanwhile(name: str, segment: int, offset: int, rows: int) -> tuple[int, pa.RecordBatch]:
        if segment == 0 and box.log.segments[0] == 0:
            os.utime(box.directory / f"{0:020d}.log", (1, 1))
            assert box.log.delete_consumed(NOW + 10_001, 10_000, Guard(), lambda _: None, below=ALL) == 1
        return read_frame(name, segment, offset, rows)

    topic.read_frame = deleted_meanwhile
    found = topic.read(0, 10)
    assert found is not None
    assert found[0] == topic.first > 0


def test_a_file_that_somebody_took_away_is_an_error(box: Box) -> None:
    for _ in range(8):
        box.append("a", "a", body=1500)
        box.log.flush()
    (box.directory / f"{0:020d}.log").unlink()
    with pytest.raises(FileNotFoundError):
        box.log.topic("a").read(0, 10)


def test_a_full_disk_leaves_rows_queued_and_readable(tmp_path: Path) -> None:
    files = FaultyFiles()
    box = Box(tmp_path, files, cache=0)
    box.append("a", "b")
    box.log.flush()
    files.full = True
    box.append("a", "a")
    for _ in range(3):
        with pytest.raises(OSError, match="No space"):
            box.log.flush()
        with pytest.raises(OSError, match="No space"):
            box.log.sync(box.log.ticket())
    box.check("a")
    files.full = False
    box.log.sync(box.log.ticket())
    box.check("a")
    box.log.close()
    box.open((0, 0), {})
    box.check("a")
    assert len([1 for _ in box.log.rows_after(0, 0)]) == 3, "each row once"
    box.log.close()


def test_what_fits_is_written_and_the_rest_stays_queued(tmp_path: Path) -> None:
    files, kept = LimitedFiles(tmp_path), 20_000
    log = ReadyLog(
        FileLog(files, tmp_path, LogKind.READY), files, segment_bytes_max=1 << 20, cache_bytes_max=0, kept_bytes=kept
    )
    files.limit(200_000)
    for k in range(30):
        log.append(due(["a"], k, body=10_000))
    for _ in range(3):
        with pytest.raises(OSError, match="No space"):
            log.flush()
        assert kept <= files.free_bytes(tmp_path) < kept + 40_000
    topic = log.topic("a")
    assert 10 <= topic.written < 30
    assert read_all(topic, 7) == [(k, k) for k in range(30)]
    files.limit(1 << 20)
    log.sync(log.ticket())
    assert log.unwritten_bytes == 0
    assert read_all(topic, 7) == [(k, k) for k in range(30)]
    assert sum(batch.num_rows for batch in log.rows_after(0, 0)) == 30, "each row once"
    log.close()


def test_the_disk_is_not_asked_for_each_of_many_small_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Counted(OsFiles):
        asked = 0

        def free_bytes(self, path: Path) -> int:
            self.asked += 1
            return 4 * room.PLENTY_BYTES

    monkeypatch.setattr(room, "ASK_S", 3600.0)
    files = Counted()
    log = ReadyLog(FileLog(files, tmp_path, LogKind.READY), files, segment_bytes_max=1 << 20, cache_bytes_max=0)
    for k in range(50):
        log.append(due(["a"], k))
        log.flush()
    assert files.asked == 1
    log.close()


def test_only_segments_before_a_place_are_deleted(box: Box) -> None:
    for _ in range(12):
        box.append("a", body=3000)
        box.log.flush()
    guard = Guard(a={"g": 12})
    assert box.log.delete_consumed(NOW, 1 << 50, guard, lambda _: None, below=2) == 2
    assert box.log.delete_consumed(NOW, 1 << 50, guard, lambda _: None, below=2) == 0
    assert box.log.first_segment == 2


def test_damage_before_the_checkpoint_is_not_silently_cut(box: Box) -> None:
    box.log.close()
    box.segment = 1 << 20
    box.open((0, 0), {})
    for _ in range(4):
        box.append("a", "b")
        box.log.flush()
    place = box.log.mark()
    box.log.sync(place[2])
    ends = box.log.ends()
    path = box.directory / f"{0:020d}.log"
    content = bytearray(path.read_bytes())
    content[32 + 20] ^= 1
    path.write_bytes(content)
    with pytest.raises(CorruptError, match=f"{path} at offset 32: no valid frame header"):
        box.open(place[:2], ends)


@pytest.mark.rest
def test_many_threads_write_read_and_evict(tmp_path: Path) -> None:
    """The dispatcher appends; the checkpoint, the journal and the dispatcher write; consumers read. Nobody stumbles."""
    box = Box(tmp_path, cache=2000)
    errors: list[BaseException] = []
    stop = threading.Event()

    def guarded(work: object) -> None:
        try:
            while not stop.is_set():
                work()  # type: ignore[operator]
        except BaseException as error:  # noqa: BLE001  told to the main thread
            errors.append(error)
            stop.set()

    def sync() -> None:
        box.log.sync(box.log.ticket())

    cursor = {"a": 0}
    seen: list[int] = []

    def consume() -> None:
        found = box.log.topic("a").read(cursor["a"], 50)
        if found is not None:
            assert found[0] == cursor["a"]
            seen.extend(found[1]["seq"].to_pylist())
            cursor["a"] += found[1].num_rows

    threads = [threading.Thread(target=guarded, args=(w,)) for w in (box.log.flush, box.log.flush, sync, consume)]
    for thread in threads:
        thread.start()
    for _ in range(400):
        box.append(*["a", "b", "a"], body=200)
        if errors:
            break
    stop.set()
    for thread in threads:
        thread.join()
    assert not errors, errors
    while cursor["a"] < box.log.topic("a").end:
        consume()
    assert seen == box.seqs["a"]
    box.log.sync(box.log.ticket())
    box.check("a", 13)
    box.check("b", 13)
    box.log.close()
    box.open((0, 0), {})
    box.check("a")
    box.log.close()


def test_a_ticket_covers_every_row_that_can_be_read(tmp_path: Path) -> None:
    # A consumer that polls may acknowledge a row while the dispatcher is still appending the rest of its batch. If its
    # ticket did not cover the row, the acknowledgement could outlive the row, and another message get its offset.
    files = FaultyFiles()
    box = Box(tmp_path, files, segment=1 << 20)
    box.append("a")
    box.log.sync(box.log.ticket())
    topic = box.log.topic("z")
    appended, durable = topic.append, list[bool]()
    polls: list[threading.Thread] = []

    def append(rows: pa.RecordBatch, size: int) -> object:
        tail = appended(rows, size)

        def acknowledge() -> None:
            assert topic.read(0, 1) is not None
            box.log.sync(box.log.ticket())
            path = box.directory / f"{0:020d}.log"
            durable.append(files.durable[path] == path.stat().st_size and not box.log.unwritten_bytes)

        polls.append(threading.Thread(target=acknowledge))
        polls[-1].start()
        polls[-1].join(0.2)  # it has to wait for us, so this is as long as we give it to go wrong
        return tail

    Topic.append, original = lambda self, *a: append(*a) if self is topic else original(self, *a), Topic.append  # type: ignore[method-assign,assignment]
    try:
        box.append("y", "z", "x")
    finally:
        Topic.append = original  # type: ignore[method-assign]
    for poll in polls:
        poll.join()
    assert durable == [True]
    box.log.close()


def test_memory_of_a_batch_is_given_back(box: Box) -> None:
    before = pa.total_allocated_bytes()
    for _ in range(50):
        box.append(*["a", "b"] * 50, body=2000)
        box.log.flush()
    assert pa.total_allocated_bytes() - before < 2 << 20, "10 MB went through, a cache of 4 KB is kept"


def test_offsets_are_kept_when_everything_else_is_gone(box: Box) -> None:
    box.append("a", "a")
    place = box.log.mark()
    box.log.sync(place[2])
    box.log.close()
    box.open(place[:2], {"a": 2, "gone": 17})
    assert box.log.ends() == {"a": 2, "gone": 17}
    topic = box.log.topic("gone")
    assert topic.first == 17
    assert topic.read(0, 10) is None
    box.append("gone")
    found = topic.read(0, 10)
    assert found is not None
    assert found[0] == 17
    assert np.array_equal(found[1]["seq"].to_numpy(), [2])
