"""The due index, in memory and on disk, against a list that is searched from end to end."""

from __future__ import annotations

import errno
import os
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.examples import examples

from tarry.base.errors import CorruptError
from tarry.base.types import Key
from tarry.intake import sealed_index
from tarry.intake.index import ActiveIndex, Window
from tarry.intake.sealed_index import SealedIndex, write_index

BASE = 1000
DUE = st.integers(0, 12)
FRAMES = st.lists(st.lists(DUE, min_size=1, max_size=30), min_size=1, max_size=8)
SEQ = st.integers(BASE - 3, BASE + 130)
WINDOWS = st.builds(Window, st.builds(Key, DUE, SEQ), st.builds(Key, st.integers(0, 14), SEQ), SEQ, SEQ)


def filled(frames: list[list[int]]) -> tuple[ActiveIndex, list[Key]]:
    index, rows, seq = ActiveIndex(BASE), list[Key](), BASE
    for number, due in enumerate(frames):
        index.add(seq, 32 + 100 * number, np.array(due, np.int64), min(due), max(due))
        rows += [Key(d, seq + i) for i, d in enumerate(due)]
        seq += len(due)
    return index, rows


def sealed(index: ActiveIndex, directory: Path) -> SealedIndex:
    log = directory / f"{BASE:020d}.log"
    log.write_bytes(bytes(10))
    write_index(directory / f"{BASE:020d}.idx", index, 10)
    return SealedIndex(directory / f"{BASE:020d}.idx", log, _never)


def _never() -> ActiveIndex:
    raise AssertionError("the index is sound")


def brute(rows: list[Key], w: Window, limit: int) -> list[Key]:
    found = [r for r in rows if w.after <= r < w.until and w.seq_min <= r.seq < w.seq_max]
    return sorted(found)[:limit]


def found(index: ActiveIndex | SealedIndex, w: Window, limit: int) -> list[Key]:
    due, seq = index.select(w, limit)
    return [Key(*k) for k in zip(due.tolist(), seq.tolist(), strict=True)]


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a few rows are many blocks."""
    monkeypatch.setattr(sealed_index, "BLOCK_ROWS", 5)


@settings(max_examples=examples(300), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(FRAMES, WINDOWS, st.integers(1, 40))
def test_both_indexes_find_what_a_search_finds(frames: list[list[int]], window: Window, limit: int) -> None:
    active, rows = filled(frames)
    with tempfile.TemporaryDirectory() as name:
        on_disk = sealed(active, Path(name))
        expected = brute(rows, window, limit)
        assert found(active, window, limit) == expected
        assert found(on_disk, window, limit) == expected
        assert (on_disk.base, on_disk.end_seq) == (active.base, active.end_seq) == (BASE, BASE + len(rows))
        assert (on_disk.due_min_ms, on_disk.due_max_ms) == (active.due_min_ms, active.due_max_ms)
        for mine, theirs in zip(active.frames(), on_disk.frames(), strict=True):
            assert mine.tolist() == theirs.tolist()


def test_a_herd_in_one_millisecond_is_read_step_by_step(tmp_path: Path) -> None:
    active, rows = filled([[5] * 1000] * 4)
    on_disk = sealed(active, tmp_path)
    after, seen = Key(0, 0), list[Key]()
    while part := found(on_disk, Window(after, Key(6, 0), 0, 1 << 60), 70):
        assert part == found(active, Window(after, Key(6, 0), 0, 1 << 60), 70)
        assert len(part) <= 70
        seen += part
        after = Key(part[-1].due_ms, part[-1].seq + 1)
    assert seen == sorted(rows)


def test_a_reader_beside_the_writer_sees_a_prefix() -> None:
    index, rows = filled([[3, 1], [2]])
    index._first_seq.append(BASE + 3)  # noqa: SLF001 - a frame of which not everything is there yet
    index._position.append(999)  # noqa: SLF001 - a frame half added
    assert index.end_seq == BASE + 3
    assert len(index.frames().position) == 2
    assert found(index, Window(Key(0, 0), Key(99, 0), 0, 1 << 60), 99) == sorted(rows)


def test_an_empty_index() -> None:
    index = ActiveIndex(7)
    assert index.end_seq == 7
    assert found(index, Window(Key(0, 0), Key(99, 0), 0, 99), 5) == []


@pytest.mark.parametrize("damaged", [b"", b"TARRYIDX", b"x" * 500, None], ids=["empty", "cut", "garbage", "missing"])
def test_a_damaged_index_is_made_again(damaged: bytes | None, tmp_path: Path) -> None:
    active, rows = filled([[4, 2, 9]])
    sealed(active, tmp_path)
    path = tmp_path / f"{BASE:020d}.idx"
    path.unlink() if damaged is None else path.write_bytes(damaged)
    made: list[int] = []

    def again() -> ActiveIndex:
        made.append(1)
        return active

    index = SealedIndex(path, tmp_path / f"{BASE:020d}.log", again)
    assert made == [1]
    assert found(index, Window(Key(0, 0), Key(99, 0), 0, 1 << 60), 9) == sorted(rows)
    SealedIndex(path, tmp_path / f"{BASE:020d}.log", _never)


def test_an_index_of_a_log_that_has_changed_is_made_again(tmp_path: Path) -> None:
    active, _ = filled([[4]])
    sealed(active, tmp_path)
    (tmp_path / f"{BASE:020d}.log").write_bytes(bytes(11))
    with pytest.raises(AssertionError, match="sound"):
        SealedIndex(tmp_path / f"{BASE:020d}.idx", tmp_path / f"{BASE:020d}.log", _never)


ALL = Window(Key(0, 0), Key(99, 0), 0, 1 << 60)


def test_whatever_changes_after_it_was_opened_is_noticed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Each byte of it that is read: nothing is late, lost, or taken for another message."""
    active, rows = filled([[3, 1, 7, 7], [2, 9], [1, 1, 8, 4, 6]])
    sealed(active, tmp_path)
    path, log = tmp_path / f"{BASE:020d}.idx", tmp_path / f"{BASE:020d}.log"
    sound = path.read_bytes()
    for at in range(48, len(sound)):
        index = SealedIndex(path, log, lambda: active)
        path.write_bytes(sound[:at] + bytes([sound[at] ^ 0x04]) + sound[at + 1 :])
        caplog.clear()
        for due in range(10):
            one = Window(Key(due, 0), Key(due + 1, 0), 0, 1 << 60)
            assert found(index, one, 99) == brute(rows, one, 99)
        assert [column.tolist() for column in index.frames()] == [column.tolist() for column in active.frames()]
        [record] = caplog.records
        assert "the due index is damaged" in record.getMessage()
        assert path.read_bytes() == sound


@pytest.mark.parametrize("left", [None, 0, 30, 100])
def test_one_that_was_cut_or_deleted_is_made_again(left: int | None, tmp_path: Path) -> None:
    active, rows = filled([[3, 1, 7, 7], [2, 9]])
    sealed(active, tmp_path)
    path, log = tmp_path / f"{BASE:020d}.idx", tmp_path / f"{BASE:020d}.log"
    index = SealedIndex(path, log, lambda: active)
    path.unlink() if left is None else os.truncate(path, left)
    assert found(index, ALL, 99) == sorted(rows)


def test_one_that_the_disk_does_not_give_back_is_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    active, rows = filled([[3, 1, 7, 7], [2, 9]])
    sealed(active, tmp_path)
    index = SealedIndex(tmp_path / f"{BASE:020d}.idx", tmp_path / f"{BASE:020d}.log", lambda: active)
    pread, failures = os.pread, iter([True])

    def failing(fd: int, size: int, offset: int) -> bytes:
        if next(failures, False):
            raise OSError(errno.EIO, "Input/output error")
        return pread(fd, size, offset)

    monkeypatch.setattr(os, "pread", failing)
    assert found(index, ALL, 99) == sorted(rows)
    monkeypatch.setattr(sealed_index, "_read", lambda *_: bytes(4))
    with pytest.raises(CorruptError, match=r"idx: damaged.*made again"):
        index.select(ALL, 99)


def test_one_of_a_segment_that_was_deleted_meanwhile_is_not_made_again(tmp_path: Path) -> None:
    active, _ = filled([[3, 1]])
    sealed(active, tmp_path)
    path, log = tmp_path / f"{BASE:020d}.idx", tmp_path / f"{BASE:020d}.log"

    def again() -> ActiveIndex:
        log.unlink()
        return active

    index = SealedIndex(path, log, again)
    path.unlink()
    with pytest.raises(FileNotFoundError):
        index.select(ALL, 99)
    with pytest.raises(FileNotFoundError):
        index.frames()
    assert list(tmp_path.iterdir()) == []
