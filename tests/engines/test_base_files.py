"""Bases of the engine ``objects``: directories that are made of one and of the rounds behind it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tarry.base.clock import TestClock
from tarry.base.errors import CorruptError, OwnershipLostError
from tarry.log.engine import Part
from tarry.log.files import AppendFile
from tarry.log.frame import LogKind
from tarry.log.objects import bases
from tarry.log.objects.cache import CacheDirectory
from tarry.log.objects.content import TRIMMED, BaseFile, decode_manifest, numbered, round_key
from tarry.log.objects.engine import ObjectEngine
from tarry.log.objects.kept_files import KeptFiles
from tarry.log.segment import SegmentWriter
from tests.engines.base_owner import keys, manifest_key, manifests
from tests.engines.object_store import MemoryObjects
from tests.engines.test_conformance import files_in, numbers, one, opened
from tests.faults import FaultyFiles


class Steps:
    """Parts as an owner's log makes them: bytes, new segments, such that are taken back, and trims."""

    def __init__(self, choices: Sequence[int]) -> None:
        self.parts: list[Part] = []
        kind, segments, size = LogKind.READY, [0], 0
        for number, choice in enumerate(choices):
            if choice < 5 or size == 0:
                content = b"%03d" % (number % 1000) * (1 + choice % 3)
                self.parts.append(Part(kind, segments[-1], size, content))
                size += len(content)
            elif choice == 5:
                segments.append(segments[-1] + 1)
                size = 0
            elif choice == 6:
                self.parts.append(Part(kind, segments[-1], 0, b""))
                size = 0
            elif len(segments) > 1:
                self.parts.append(Part(kind, segments.pop(0), TRIMMED, b""))


def cache_of(directory: Path) -> CacheDirectory:
    files = FaultyFiles()
    small = KeptFiles(files, directory, (), lambda _: None, lambda: None)
    return CacheDirectory(files, directory, small, "a store")


@given(choices=st.lists(st.integers(0, 7), max_size=30), cuts=st.tuples(st.integers(0, 30), st.integers(0, 30)))
def test_what_is_in_a_base_already_is_skipped(
    tmp_path_factory: pytest.TempPathFactory, choices: list[int], cuts: tuple[int, int]
) -> None:
    """Rounds from ``begun`` on, over a base that has all parts up to ``copied``, are the same as all parts."""
    parts = Steps(choices).parts
    begun, copied = sorted(min(cut, len(parts)) for cut in cuts)
    whole, base, again = (tmp_path_factory.mktemp(name) for name in ("whole", "base", "again"))
    for directory, some in (whole, parts), (base, parts[:copied]):
        cache = cache_of(directory)
        cache.apply(some)
        cache.finish()
    cache = cache_of(again)
    for path, content in files_in(base).items():
        cache.restore(BaseFile(path, len(content), False, ()), 0, content)
    for part in parts[begun:]:
        cache.apply([part])
    cache.finish()
    assert files_in(again) == files_in(whole)


def test_a_gap_is_damage_unless_the_segment_is_gone_later(tmp_path: Path) -> None:
    for gone in Part(LogKind.ACKS, 3, 0, b""), Part(LogKind.ACKS, 4, TRIMMED, b""):
        cache = cache_of(tmp_path)
        cache.clear()
        cache.apply([Part(LogKind.ACKS, 3, 10, b"abc"), Part(LogKind.ACKS, 3, 13, b"def")])
        with pytest.raises(CorruptError, match=r"goes on at 10, and it has 0 bytes"):
            cache.finish()
        cache.apply([gone])
        cache.finish()
        assert not files_in(tmp_path)


def test_rounds_with_parts_of_several_logs_open_each_segment_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To open one takes an fsync, and a start reads two minutes of rounds."""
    opened = []

    def open_append(files: FaultyFiles, path: Path) -> AppendFile:
        opened.append(path)
        return real(files, path)

    real = FaultyFiles.open_append
    monkeypatch.setattr(FaultyFiles, "open_append", open_append)
    cache = cache_of(tmp_path)
    kinds = (LogKind.INTAKE, LogKind.READY, LogKind.ACKS)
    for number in range(20):
        cache.apply([Part(kind, 3, 3 * number, b"abc") for kind in kinds])
    cache.apply([Part(LogKind.READY, 4, 0, b"next")])
    cache.apply([Part(LogKind.READY, 4, 4, b"more"), Part(LogKind.READY, 3, TRIMMED, b"")])
    cache.finish()
    assert sorted(files_in(tmp_path).values()) == sorted([b"abc" * 20, b"abc" * 20, b"nextmore"])
    assert len(opened) == 4


class Machine:
    """An engine on a machine of its own."""

    def __init__(self, store: MemoryObjects, directory: Path) -> None:
        self.data, self.files = directory / "data", FaultyFiles()
        self.engine = ObjectEngine(store, self.files, self.data, TestClock())
        self.engine.claim()

    def keep(self, **extra: Path) -> None:
        self.engine.keep_base(extra)
        trimming = self.engine._trimming  # noqa: SLF001 - its end shows nowhere else
        assert trimming is not None
        self.engine._requests.run(asyncio.wait_for(trimming, None))  # noqa: SLF001

    def end(self) -> None:
        self.engine.release()
        self.files.close_all()


def write(writer: SegmentWriter, *values: int) -> None:
    for value in values:
        writer.append(one(value))
    writer.sync()


def test_another_machine_has_the_same_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bases, "PIECE_BYTES", 50)  # several pieces a file
    store = MemoryObjects()
    first = Machine(store, tmp_path / "1")
    ready, acks = opened(first.engine, LogKind.READY), opened(first.engine, LogKind.ACKS)
    write(ready, *range(10))
    sealed, ready = ready, SegmentWriter(first.engine.log(LogKind.READY), 1)
    sealed.close()
    write(ready, 10, 11)
    extra = {"registry/000001.sst": tmp_path / "1.sst", "checkpoint.json": tmp_path / "point", "empty": tmp_path / "e"}
    for path, content in zip(extra.values(), (b"t" * 120, b"{}", b""), strict=True):
        path.write_bytes(content)
    first.engine.files.replace(first.data / "secret", b"s" * 70)
    first.keep(**extra)
    objects = set(keys(store, "base/"))
    write(acks, 5)
    again = SegmentWriter(first.engine.log(LogKind.READY), 2)
    again.append(one(30))
    first.keep(**extra)
    again.discard()
    again = SegmentWriter(first.engine.log(LogKind.READY), 2)
    write(again, 31)  # as many bytes, and others
    again.close()
    again = SegmentWriter(first.engine.log(LogKind.READY), 3)
    write(again, 32)
    again.close()
    extra["checkpoint.json"].write_bytes(b"{1}")
    first.keep(**extra)
    kept = objects & set(keys(store, "base/"))
    assert sum(len(store.objects[key]) for key in kept) == 120 + sealed.size, "what is sealed is put once"
    assert not keys(store, round_key(1, 0))
    write(SegmentWriter(first.engine.log(LogKind.READY), 4), 12)
    expected = files_in(first.data)
    first.end()
    stale = tmp_path / "2" / "data" / "registry" / "000007.sst"
    stale.parent.mkdir(parents=True)
    stale.write_bytes(b"of a former life")
    (tmp_path / "2" / "data" / "cache-of").touch()
    second = Machine(store, tmp_path / "2")
    assert files_in(second.data) == expected
    assert sorted(path.name for path in stale.parent.iterdir()) == ["000001.sst"]
    found = {name: (second.data / name).read_bytes() for name in (*extra, "secret")}
    assert list(found.values()) == [b"t" * 120, b"{1}", b"", b"s" * 70]
    opened(second.engine, LogKind.READY)
    assert numbers(second.engine, LogKind.READY) == [*range(12), 31, 32, 12]
    second.keep()  # the small files are in it without being written again
    assert all(key.startswith(numbered("base", 2)) for key in keys(store, "base/"))
    second.end()
    third = Machine(store, tmp_path / "3")
    assert (third.data / "secret").read_bytes() == b"s" * 70
    assert (third.data / "secret").stat().st_mode & 0o777 == 0o600
    third.end()


class ChangingObjects(MemoryObjects):
    """Objects in memory; before the first one of a base is created, something happens in another thread."""

    change: Callable[[], None] | None = None

    async def create(self, key: str, content: bytes) -> bool:
        if key.startswith("base/") and self.change is not None:
            change, self.change = self.change, None
            await asyncio.to_thread(change)
        return await super().create(key, content)


def test_segments_that_change_while_a_base_is_put(tmp_path: Path) -> None:
    """One grows, is sealed and trimmed; one grows; one grows, is taken back and begun again."""
    store = ChangingObjects()
    first = Machine(store, tmp_path / "1")
    engine = first.engine
    intake, ready, acks = (opened(engine, kind) for kind in (LogKind.INTAKE, LogKind.READY, LogKind.ACKS))
    for writer in intake, ready, acks:
        write(writer, 1, 2)
    fresh = SegmentWriter(engine.log(LogKind.ACKS), 1)
    fresh.append(one(3))

    def change() -> None:
        write(ready, 4)
        ready.close()
        write(SegmentWriter(engine.log(LogKind.READY), 1), 5)
        engine.log(LogKind.READY).trim(0)
        write(intake, 6)
        fresh.append(one(7))
        engine.sync()
        fresh.discard()
        write(SegmentWriter(engine.log(LogKind.ACKS), 1), 8)

    store.change = change
    first.keep()
    expected = files_in(first.data)
    assert [Path(name).parts[0] for name in expected] == ["acks", "acks", "intake", "ready"]
    first.end()
    second = Machine(store, tmp_path / "2")
    assert files_in(second.data) == expected
    opened(second.engine, LogKind.ACKS)
    assert numbers(second.engine, LogKind.ACKS) == [1, 2, 8]
    second.end()


@pytest.mark.parametrize("how", ["gone", "short"])
def test_a_file_that_lost_bytes_is_in_no_base(tmp_path: Path, how: str) -> None:
    store = ChangingObjects()
    first = Machine(store, tmp_path)
    intake, ready = opened(first.engine, LogKind.INTAKE), opened(first.engine, LogKind.READY)
    write(intake, 1)
    write(ready, 1)
    lose = ready.path.unlink if how == "gone" else lambda: ready.path.write_bytes(b"x")
    store.change = lose
    with pytest.raises((OSError, CorruptError)):
        first.keep()
    assert not manifests(store)
    first.end()


@pytest.mark.parametrize("is_added", [True, False])
def test_a_part_is_in_its_round_and_in_the_base_or_in_neither(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_added: bool
) -> None:
    """A base is begun between a writer's two steps."""
    store = MemoryObjects()
    first = Machine(store, tmp_path / "1")
    writer = opened(first.engine, LogKind.INTAKE)
    write(writer, 1)
    keeping = threading.Thread(target=first.keep)
    add = first.engine.add

    def then_keep(part: Part) -> None:
        if is_added:
            add(part)
        keeping.start()
        keeping.join(0.5)  # it ends by then, or waits for this write
        if not is_added:
            assert not manifests(store), "a base has what is in no round"
            add(part)

    monkeypatch.setattr(first.engine, "add", then_keep)
    writer.append(one(2))
    keeping.join()
    monkeypatch.undo()
    writer.sync()
    first.end()
    second = Machine(store, tmp_path / "2")
    opened(second.engine, LogKind.INTAKE)
    assert numbers(second.engine, LogKind.INTAKE) == [1, 2]
    second.end()


def test_what_was_trimmed_before_a_base_stays_noted(tmp_path: Path) -> None:
    store = MemoryObjects()
    first = Machine(store, tmp_path / "1")
    opened(first.engine, LogKind.READY).close()
    write(SegmentWriter(first.engine.log(LogKind.READY), 1), 2)
    first.engine.log(LogKind.READY).trim(0)
    first.keep()
    first.end()
    second = Machine(store, tmp_path / "2")
    second.keep()
    [key] = manifests(store)
    assert key == manifest_key(2, 2)
    assert decode_manifest(store.objects[key], key, 2, 2).trimmed == {LogKind.READY: 1}
    second.end()


@pytest.mark.parametrize("lives", [1, 2])
def test_a_write_that_failed_half_way_is_not_in_a_base(tmp_path: Path, lives: int) -> None:
    store = MemoryObjects()
    for life in range(lives):
        owner = Machine(store, tmp_path / str(life))
        writer = opened(owner.engine, LogKind.INTAKE)
        if life == 0:
            write(writer, 1)
            size = writer.size
        if life == lives - 1:
            with writer.path.open("ab") as file:  # a part of a frame, as a full disk leaves it before it is cut off
                file.write(b"torn")
            owner.keep()
        owner.end()
    last = Machine(store, tmp_path / "last")
    [content] = files_in(last.data).values()
    assert len(content) == size
    last.end()


def test_what_is_written_and_not_even_begun_is_answered_before_the_manifest(tmp_path: Path) -> None:
    store = MemoryObjects()
    first = Machine(store, tmp_path / "1")
    opened(first.engine, LogKind.INTAKE).append(one(1))
    second = Machine(store, tmp_path / "2")
    with pytest.raises(OwnershipLostError):
        first.engine.keep_base({})
    assert not manifests(store)
    first.end()
    second.end()
