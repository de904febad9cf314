"""What every log engine is held to, tried on each of them.

A *machine* here is a directory and the disk under it. Lives of owners follow one another, on one machine or on two.
"""

from __future__ import annotations

import random
import shutil
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from tarry.base.clock import TestClock
from tarry.base.errors import LockedError, OwnershipLostError, TrimmedError
from tarry.log import frame
from tarry.log.engine import LogEngine, Part
from tarry.log.file_engine import DIRECTORIES, FileEngine
from tarry.log.files import Files
from tarry.log.frame import LogKind
from tarry.log.objects.engine import ObjectEngine
from tarry.log.objects.lease import LEASE_S, OwnerLease, boot_s
from tarry.log.objects.store import ObjectStore
from tarry.log.recover import recover_tail
from tarry.log.segment import SegmentReader, SegmentWriter, list_segments
from tests.engines.memory import MemoryEngine, SharedRounds, write_parts
from tests.engines.object_store import MemoryObjects
from tests.engines.versitygw import served, store_at
from tests.examples import examples
from tests.faults import FaultyFiles, fast_directory

KINDS = tuple(DIRECTORIES)


def one(number: int, size: int = 20, durable_to: int = 0) -> list[bytes | memoryview]:
    """A frame that says its number."""
    return frame.encode(frame.Serialized(b"x" * size, 1), base=number, durable_to=durable_to)


class Rig(Protocol):
    """An engine to be tried. ``is_shared``: machines share its logs, and a later owner takes them over."""

    is_shared: bool

    def engine(self) -> Any:
        """A new life, on the machine that is there."""
        ...

    def crash(self, rng: random.Random) -> None:
        """The process ends, and the power with it: of what was not synced, anything may be left."""
        ...

    def close(self) -> None:
        """Close what all lives have left open."""
        ...


@dataclass
class FileRig:
    """The engine ``files``: one machine."""

    directory: Path = field(default_factory=fast_directory)
    files: FaultyFiles = field(default_factory=FaultyFiles)
    is_shared: bool = False
    lives: list[FileEngine] = field(default_factory=list)

    def engine(self) -> FileEngine:
        self.lives.append(FileEngine(self.files, self.directory / "data"))
        return self.lives[-1]

    def crash(self, rng: random.Random) -> None:
        for engine in self.lives:
            engine.release()
        self.files.close_all()
        self.files.lose_unsynced(rng)

    def close(self) -> None:
        self.crash(random.Random(0))
        shutil.rmtree(self.directory)


@dataclass
class MemoryRig:
    """The engine in memory: each life has a machine of its own."""

    shared: SharedRounds = field(default_factory=SharedRounds)
    is_shared: bool = True
    machines: list[tuple[Path, FaultyFiles]] = field(default_factory=list)

    def engine(self) -> MemoryEngine:
        self.machines.append((fast_directory(), FaultyFiles()))
        directory, files = self.machines[-1]
        return MemoryEngine(self.shared, files, directory / "data")

    def crash(self, rng: random.Random) -> None:
        pass  # what is not synced is in the memory of that engine alone

    def close(self) -> None:
        for directory, files in self.machines:
            files.close_all()
            shutil.rmtree(directory)


class PatientEngine(ObjectEngine):
    """An engine whose claim takes so long that no lease of before has to be waited for."""

    def __init__(self, store: ObjectStore, files: Files, data: Path, clock: TestClock, look_s: float) -> None:
        self.waited_s = 0.0
        lease = OwnerLease(lambda: boot_s() + self.waited_s)
        super().__init__(store, files, data, clock, look_s, lease=lease)

    def claim(self) -> int:
        epoch = super().claim()
        self.waited_s = 2 * LEASE_S
        return epoch


@dataclass
class ObjectRig:
    """The engine ``objects``, on a store in memory: each life has a machine of its own."""

    store: ObjectStore = field(default_factory=MemoryObjects)
    is_shared: bool = True
    machines: list[tuple[Path, FaultyFiles]] = field(default_factory=list)
    lives: list[ObjectEngine] = field(default_factory=list)

    def engine(self) -> ObjectEngine:
        self.machines.append((fast_directory(), FaultyFiles()))
        directory, files = self.machines[-1]
        self.lives.append(PatientEngine(self.store, files, directory / "data", TestClock(), look_s=0.0))
        return self.lives[-1]

    def crash(self, rng: random.Random) -> None:
        for engine in self.lives:
            engine.release()  # which writes nothing

    def close(self) -> None:
        self.crash(random.Random(0))
        for directory, files in self.machines:
            files.close_all()
            shutil.rmtree(directory)


RIGS: dict[str, Callable[[], Rig]] = {"files": FileRig, "memory": MemoryRig, "objects": ObjectRig}


S3 = pytest.param("s3", marks=[pytest.mark.rest, pytest.mark.timeout(1800)])


@pytest.fixture(params=[*RIGS, S3])
def rig(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Rig]:
    with ExitStack() as stack:
        if request.param == "s3":
            endpoint = stack.enter_context(served(tmp_path / "versitygw"))
            yield stack.enter_context(closing(ObjectRig(store_at(endpoint, "conformance"))))
        else:
            yield stack.enter_context(closing(RIGS[request.param]()))


def opened(engine: LogEngine, kind: LogKind) -> SegmentWriter:
    """The last segment of a log, as its owners open it: a torn tail is cut, and what is left is durable."""
    log = engine.log(kind)
    segments = list_segments(log.directory)
    if segments:
        recover_tail(log, segments[-1])
    writer = SegmentWriter(log, segments[-1] if segments else 0)
    writer.sync()
    return writer


def numbers(engine: LogEngine, kind: LogKind) -> list[int]:
    """The frames of a log on this machine."""
    found = []
    directory = engine.log(kind).directory
    for segment in list_segments(directory):
        with SegmentReader(directory / f"{segment:020d}.log") as reader:
            found += [at.header.base for at in reader.headers()]
    return found


def parts_of(followed: Iterable[tuple[Any, Part]]) -> list[Part]:
    return [part for _, part in followed]


def copied(parts: Iterable[Part], directory: Path) -> dict[str, bytes]:
    """The files that a follower has."""
    write_parts(parts, directory)
    return files_in(directory)


def files_in(directory: Path) -> dict[str, bytes]:
    return {str(path.relative_to(directory)): path.read_bytes() for path in sorted(directory.rglob("*.log"))}


def test_what_was_synced_is_there_for_the_next_owner(rig: Rig) -> None:
    first = rig.engine()
    first.claim()
    writers = {kind: opened(first, kind) for kind in KINDS}
    for number in range(12):
        writer = writers[KINDS[number % len(KINDS)]]
        writer.append(one(number))
        writer.sync()
    rig.crash(random.Random(0))
    second = rig.engine()
    second.claim()
    for at, kind in enumerate(KINDS):
        opened(second, kind)
        assert numbers(second, kind) == list(range(at, 12, len(KINDS)))


def test_each_epoch_has_a_higher_number(rig: Rig) -> None:
    found = []
    for seed in range(3):
        engine = rig.engine()
        found.append(engine.claim())
        assert engine.is_owner()
        rig.crash(random.Random(seed))
    assert found == sorted(set(found))


def test_syncs_that_are_begun_one_behind_the_other(rig: Rig) -> None:
    engine = rig.engine()
    engine.claim()
    writer = opened(engine, LogKind.INTAKE)
    ends, waits = [], []
    for number in range(9):
        writer.append(one(number, size=10 * number))
        ends.append(writer.size)
        waits.append(writer.begin_sync())
    for end, until_durable in zip(ends, waits, strict=True):
        until_durable()
        assert end <= writer.durable
    rig.crash(random.Random(0))
    later = rig.engine()
    later.claim()
    opened(later, LogKind.INTAKE)
    assert numbers(later, LogKind.INTAKE) == list(range(9))


def test_one_owner_at_a_time(rig: Rig) -> None:
    first = rig.engine()
    first.claim()
    writer = opened(first, LogKind.INTAKE)
    writer.append(one(1))
    writer.sync()
    second = rig.engine()
    if not rig.is_shared:
        with pytest.raises(LockedError):
            second.claim()
        writer.append(one(2))
        writer.sync()
        assert first.is_owner()
        return
    second.claim()
    writer.append(one(2))
    with pytest.raises(OwnershipLostError):
        writer.sync()
    assert not first.is_owner()
    opened(second, LogKind.INTAKE)
    assert numbers(second, LogKind.INTAKE) == [1]


def test_after_a_clean_end_the_next_owner_goes_on(rig: Rig) -> None:
    first = rig.engine()
    first.claim()
    writer = opened(first, LogKind.READY)
    writer.append(one(1))
    writer.sync()
    writer.close()
    first.release()
    second = rig.engine()
    second.claim()
    writer = opened(second, LogKind.READY)
    writer.append(one(2))
    writer.sync()
    assert numbers(second, LogKind.READY) == [1, 2]


def test_several_logs_are_written_at_once(rig: Rig) -> None:
    engine = rig.engine()
    engine.claim()
    writers = {kind: opened(engine, kind) for kind in KINDS}

    def write(kind: LogKind) -> None:
        for number in range(50):
            writers[kind].append(one(number))
            writers[kind].sync()

    with ThreadPoolExecutor() as pool:
        list(pool.map(write, KINDS))
    rig.crash(random.Random(0))
    later = rig.engine()
    later.claim()
    for kind in KINDS:
        opened(later, kind)
        assert numbers(later, kind) == list(range(50))


def test_a_follower_has_the_same_files(rig: Rig, tmp_path: Path) -> None:
    engine = rig.engine()
    engine.claim()
    writers = {kind: opened(engine, kind) for kind in KINDS}
    copies: list[Part] = []
    position = engine.end()
    copies += parts_of(engine.follow(None))
    for number in range(40):
        kind = KINDS[number % 3]
        writers[kind].append(one(number, size=10 * number))
        writers[kind].sync()
        if number % 10 == 9:
            former, writers[kind] = writers[kind], SegmentWriter(engine.log(kind), writers[kind].base + 1)
            writers[kind].sync()
            former.close()
        if number % 7 == 0:
            followed = list(engine.follow(position))
            copies += parts_of(followed)
            position = followed[-1][0]
    copies += parts_of(engine.follow(position))
    files = copied(copies, tmp_path / "followed")
    assert files == copied(parts_of(engine.follow(None)), tmp_path / "again")
    assert files == files_in(engine.log(LogKind.INTAKE).directory.parent)
    assert parts_of(engine.follow(engine.end())) == []


def test_a_follower_sees_nothing_that_is_not_durable(rig: Rig) -> None:
    engine = rig.engine()
    engine.claim()
    writer = opened(engine, LogKind.INTAKE)
    end = engine.end()
    writer.append(one(1))
    assert parts_of(engine.follow(end)) == []
    writer.sync()
    [part] = parts_of(engine.follow(end))
    assert part.content == b"".join(bytes(each) for each in one(1))


def test_what_one_log_refers_to_in_another_comes_before_it(rig: Rig, tmp_path: Path) -> None:
    engine = rig.engine()
    engine.claim()
    ready, acks = opened(engine, LogKind.READY), opened(engine, LogKind.ACKS)
    stop = threading.Event()

    def write() -> None:
        for number in range(2_000):
            if stop.is_set():
                return
            ready.append(one(number))
            ready.sync()
            acks.append(one(number))
            acks.sync()

    thread = threading.Thread(target=write)
    thread.start()
    try:
        for look in range(5):
            copied(parts_of(engine.follow(None)), tmp_path / str(look))
            there = {
                kind: last_number(tmp_path / str(look) / name)
                for kind, name in {LogKind.READY: "ready", LogKind.ACKS: "acks"}.items()
            }
            assert there[LogKind.ACKS] <= there[LogKind.READY]
    finally:
        stop.set()
        thread.join()


def last_number(directory: Path) -> int:
    with SegmentReader(directory / f"{list_segments(directory)[-1]:020d}.log") as reader:
        return max((at.header.base for at in reader.headers()), default=-1)


def test_what_was_trimmed_is_gone_and_said_to_be(rig: Rig) -> None:
    engine = rig.engine()
    engine.claim()
    writer = opened(engine, LogKind.READY)
    log = engine.log(LogKind.READY)
    writer.append(one(1))
    writer.sync()
    early = engine.end()
    writer.append(one(2))
    writer.sync()
    fresh = SegmentWriter(log, 1)
    fresh.append(one(3))
    fresh.sync()
    log.trim(0)
    log.trim(0)  # as after a crash between the deletion and its note
    assert list_segments(log.directory) == [1]
    assert {part.segment for part in parts_of(engine.follow(None))} == {1}
    with pytest.raises(TrimmedError):
        list(engine.follow(early))


def test_a_segment_that_is_taken_back_is_begun_again(rig: Rig, tmp_path: Path) -> None:
    engine = rig.engine()
    engine.claim()
    writer, other = opened(engine, LogKind.ACKS), opened(engine, LogKind.INTAKE)
    writer.append(one(1))
    writer.sync()
    fresh = SegmentWriter(engine.log(LogKind.ACKS), 1)
    fresh.append(one(2))
    other.append(one(7))
    other.sync()  # of another log: it may take along what was begun
    followed = list(engine.follow(None))
    fresh.discard()
    assert list_segments(engine.log(LogKind.ACKS).directory) == [0]
    again = SegmentWriter(engine.log(LogKind.ACKS), 1)
    again.append(one(3, size=5))
    again.sync()
    seen = parts_of([*followed, *engine.follow(followed[-1][0])])
    copied(seen, tmp_path / "followed")
    assert last_number(tmp_path / "followed" / "acks") == 3
    rig.crash(random.Random(0))
    later = rig.engine()
    later.claim()
    opened(later, LogKind.ACKS)
    assert numbers(later, LogKind.ACKS) == [1, 3]


class Lives(RuleBasedStateMachine):
    """Owners that write, end, crash and follow one another; a model says what has to be there."""

    make: Callable[[], Rig]

    def __init__(self) -> None:
        super().__init__()
        self.rig = type(self).make()
        self.next = 0
        self.synced: dict[LogKind, list[int]] = {kind: [] for kind in KINDS}
        self.written: dict[LogKind, list[int]] = {kind: [] for kind in KINDS}
        self.begin()

    def begin(self) -> None:
        self.engine = self.rig.engine()
        self.engine.claim()
        self.writers = {kind: opened(self.engine, kind) for kind in KINDS}
        for kind in KINDS:
            there = numbers(self.engine, kind)
            assert there[: len(self.synced[kind])] == self.synced[kind], "a synced round is lost"
            assert there == self.written[kind][: len(there)], "something is missing in between"
            self.synced[kind], self.written[kind] = list(there), list(there)

    @rule(kind=st.sampled_from(KINDS), size=st.integers(0, 500))
    def write(self, kind: LogKind, size: int) -> None:
        self.writers[kind].append(one(self.next, size))
        self.written[kind].append(self.next)
        self.next += 1

    @rule(kind=st.sampled_from(KINDS))
    def sync(self, kind: LogKind) -> None:
        self.writers[kind].sync()
        self.synced[kind] = list(self.written[kind])

    @rule(kind=st.sampled_from(KINDS))
    def roll(self, kind: LogKind) -> None:
        self.sync(kind)
        former = self.writers[kind]
        self.writers[kind] = SegmentWriter(self.engine.log(kind), former.base + 1)
        former.close()

    @rule(seed=st.integers(0, 1 << 20))
    def crash(self, seed: int) -> None:
        self.rig.crash(random.Random(seed))
        self.begin()

    @invariant()
    def is_owner(self) -> None:
        assert self.engine.is_owner()

    def teardown(self) -> None:
        self.rig.crash(random.Random(0))
        self.begin()
        self.rig.close()


class FileLives(Lives):
    make = FileRig


class MemoryLives(Lives):
    make = MemoryRig


class ObjectLives(Lives):
    make = ObjectRig


@pytest.mark.parametrize("machine", [FileLives, MemoryLives, ObjectLives])
def test_lives(machine: type[Lives]) -> None:
    case = machine.TestCase
    case.settings = settings(max_examples=examples(40), stateful_step_count=30, deadline=None)
    case("runTest").runTest()


@pytest.fixture
def memory() -> Iterator[MemoryRig]:
    with closing(MemoryRig()) as rig:
        yield rig


def test_rounds_under_way_are_answered_in_order_at_their_time(memory: MemoryRig) -> None:
    shared, engine = memory.shared, memory.engine()
    engine.claim()
    writer = opened(engine, LogKind.INTAKE)
    shared.latency_ms = 60
    answered: list[int] = []
    threads = []
    for number in range(3):
        writer.append(one(number))
        begun = threading.Event()

        def sync(number: int = number, begun: threading.Event = begun) -> None:
            begun.set()
            writer.sync()
            answered.append(number)

        threads.append(threading.Thread(target=sync))
        threads[-1].start()
        while len(shared.epochs[-1].rounds) < number + 2:
            pass
        shared.move(20)
    assert answered == [] or answered == [0]
    shared.move(60)
    for thread in threads:
        thread.join()
    assert sorted(answered) == [0, 1, 2]


def test_an_owner_that_stood_still_before_its_write_gets_no_answer(memory: MemoryRig) -> None:
    """The case that others missed: all of its epoch is over when its write arrives, and is trimmed."""
    shared, first = memory.shared, memory.engine()
    first.claim()
    writer = opened(first, LogKind.INTAKE)
    writer.append(one(1))
    writer.sync()
    shared.hold(first.epoch)
    second = memory.engine()
    second.claim()
    taken = opened(second, LogKind.INTAKE)
    taken.append(one(2))
    taken.sync()
    fresh = SegmentWriter(second.log(LogKind.INTAKE), 1)
    fresh.append(one(3))
    fresh.sync()
    second.log(LogKind.INTAKE).trim(0)
    writer.append(one(99))
    shared.hold(first.epoch, held=False)
    with pytest.raises(OwnershipLostError):
        writer.sync()
    third = memory.engine()
    third.claim()
    assert numbers(third, LogKind.INTAKE) == [3]
