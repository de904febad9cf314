"""A directory that a standby made by following is the one that a cold start makes: by seed, and each race held.

An owner writes segments, small files and bases; bases have files that no round has, as a registry has. Everything runs
in one thread, on a clock of its own, with faults on the standby's way.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tarry.base.clock import TestClock
from tarry.base.errors import OwnershipLostError, UnavailableError
from tarry.log.engine import Part
from tarry.log.file_engine import DIRECTORIES
from tarry.log.frame import LogKind
from tarry.log.objects.bases import BaseSource, EpochBases, newest_base
from tarry.log.objects.cache import CacheDirectory
from tarry.log.objects.content import TRIMMED, Manifest, encode_end, numbered, round_key
from tarry.log.objects.history import RoundHistory, claim_epoch
from tarry.log.objects.kept_files import KeptFiles
from tarry.log.objects.reading import LogReader
from tarry.log.objects.rounds import EpochRounds
from tarry.log.objects.standby import Standby
from tarry.log.objects.store import CountedObjects, ObjectStore
from tests.engines.base_owner import manifest_key
from tests.engines.object_store import FaultyWay, HeldWay, MemoryObjects, run_virtually
from tests.faults import FaultyFiles

KINDS = (LogKind.INTAKE, LogKind.READY)


class Machine:
    """A directory, a way to the store, and what was read."""

    rounds: EpochRounds

    def __init__(self, store: ObjectStore, directory: Path) -> None:
        self.way, self.data, self.files = store, directory, FaultyFiles()
        directory.mkdir(parents=True, exist_ok=True)
        self.small = KeptFiles(self.files, directory, (), self._add_to_round, lambda: None)
        self.cache = CacheDirectory(self.files, directory, self.small, "a store")
        self.reader = LogReader(store, self.cache)

    def _add_to_round(self, part: Part) -> None:
        self.rounds.add(part)

    async def claim(self) -> RoundHistory:
        self.epoch = await claim_epoch(self.way, "test")
        history = await self.reader.read_former(self.epoch.epoch)
        self.cache.finish()
        self.cache.close()
        return history

    def tree(self) -> dict[str, bytes]:
        paths = [path for path in self.data.rglob("*") if path.is_file()]
        return {path.relative_to(self.data).as_posix(): path.read_bytes() for path in paths}


class Owner(Machine):
    """An owner that writes whatever a broker may, by chance."""

    def __init__(self, store: ObjectStore, directory: Path, rng: random.Random) -> None:
        super().__init__(store, directory)
        self.rng, self.beside = rng, directory.with_name(f"{directory.name}-beside")
        self.beside.mkdir(parents=True)
        self.tables: set[int] = set()
        self.number = 0

    async def begin(self) -> Owner:
        history = await self.claim()
        self.rounds = EpochRounds(self.way, self.epoch, history, TestClock(1000), depth=self.rng.choice([1, 4]))
        await self.rounds.first()
        self.bases = EpochBases(self.way, self.epoch.epoch)
        registry = self.data / "registry"
        self.tables = {int(path.stem) for path in registry.glob("*.sst")}
        for path in registry.glob("*"):  # what its registry opens, and writes on
            (self.beside / path.name).write_bytes(path.read_bytes())
        self.number = max(self.tables, default=0)
        return self

    def add(self, part: Part) -> None:
        self.cache.add(part, self._add_to_round)
        self.cache.apply([part])

    def keep(self, name: str, content: bytes) -> None:
        path = self.data / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content)
        self.small.keep(path)

    def segments(self, kind: LogKind) -> list[int]:
        return sorted(int(path.stem) for path in (self.data / DIRECTORIES[kind]).glob("*.log"))

    def write(self) -> None:
        """Write a part of any kind."""
        choice, kind = self.rng.random(), self.rng.choice(KINDS)
        segments = self.segments(kind)
        last = segments[-1] if segments else 0
        path = self.data / DIRECTORIES[kind] / f"{last:020d}.log"
        size = path.stat().st_size if path.exists() else 0
        if choice < 0.1:
            name = self.rng.choice(["secret", "fronts/state", "jobs.db"])
            self.keep(name, b"%d" % self.rng.randrange(10**6))
        elif choice < 0.2 and size:
            if self.rng.random() < 0.7:
                path.with_suffix(".idx").write_bytes(b"index %d of %d" % (last, size))
            self.add(Part(kind, last + 1, 0, self._bytes()))
        elif choice < 0.25 and len(segments) > 1:
            self.add(Part(kind, last, 0, b""))
            self.add(Part(kind, last, 0, self._bytes()))
        else:
            self.add(Part(kind, last, size, self._bytes()))

    def _bytes(self) -> bytes:
        return self.rng.randbytes(self.rng.randint(1, 20))

    async def base(self) -> Manifest:
        """Make a base, with a registry, and trim what it makes superfluous, in the logs and in the store."""
        for _ in range(self.rng.randint(0, 2)):
            self.number += 1
            self.tables.add(self.number)
            (self.beside / f"{self.number:06d}.sst").write_bytes(self.rng.randbytes(10))
        for table in [table for table in self.tables if self.rng.random() < 0.2]:
            self.tables.remove(table)
        for name in ("CURRENT", "MANIFEST", "checkpoint.json"):
            (self.beside / name).write_bytes(b"%s %d" % (name.encode(), self.rng.randrange(10**6)))
        files = {f"registry/{table:06d}.sst": self.beside / f"{table:06d}.sst" for table in self.tables}
        files |= {f"registry/{name}": self.beside / name for name in ("CURRENT", "MANIFEST")}
        files |= dict.fromkeys(("checkpoint.json", "topics-1.json"), self.beside / "checkpoint.json")
        at = await self.rounds.mark()
        sources = [
            each if each.is_kept else _read_here(each, files.get(each.path, self.data / each.path))
            for each in self.cache.sources(files)
        ]
        manifest = await self.bases.put(at, sources)
        await self.rounds.sync()
        await self.rounds.reach(manifest.position)
        await self.bases.complete(manifest)
        if self.rng.random() < 0.7:
            with suppress(UnavailableError):
                await self.bases.trim(manifest)
        for kind in KINDS:
            segments = self.segments(kind)
            if len(segments) > 1 and self.rng.random() < 0.7:
                self.add(Part(kind, segments[self.rng.randrange(len(segments) - 1)], TRIMMED, b""))
        if self.rng.random() < 0.4:  # an announcement, that more may be gone
            self.keep("checkpoint.json", b"announced %d" % self.rng.randrange(10**6))
        return manifest

    async def live(self, for_s: float, base_s: float) -> None:
        loop = asyncio.get_running_loop()
        end_s, base_at_s = loop.time() + for_s, loop.time() + base_s * self.rng.random()
        with suppress(OwnershipLostError), closing_owner(self):
            while loop.time() < end_s:
                for _ in range(self.rng.choice([0, 1, 1, 4])):
                    self.write()
                await self.rounds.sync()
                await asyncio.sleep(self.rng.random())
                if loop.time() >= base_at_s:
                    await self.base()
                    base_at_s = loop.time() + base_s * self.rng.random()

    def end(self) -> None:
        self.rounds.abandon()
        self.cache.close()


@contextmanager
def closing_owner(owner: Owner) -> Iterator[None]:
    try:
        yield
    finally:
        owner.end()


def _read_here(source: BaseSource, path: Path) -> BaseSource:
    """Read it in this thread: others would have a time of their own."""

    async def read(at: int, size: int) -> bytes:
        await asyncio.sleep(0.1)
        return path.read_bytes()[at : at + size]

    return source._replace(read=read)


def copied(store: MemoryObjects) -> MemoryObjects:
    copy = MemoryObjects()
    copy.objects = dict(store.objects)
    return copy


async def follow_for(machine: Machine, seconds: float) -> None:
    """Stand by, and be stopped in the midst of anything."""
    counted = CountedObjects(machine.way)
    following = asyncio.create_task(Standby(counted, machine.reader, TestClock(), by_itself=False).wait())
    await asyncio.sleep(seconds)
    assert not following.done(), following.exception()
    following.cancel()
    await asyncio.wait([following])


async def check_same(store: MemoryObjects, warm: Machine, directory: Path) -> None:
    """Claim with what was followed and with nothing, each of a copy of the store of its own, and compare."""
    cold = Machine(copied(store), directory / "cold")
    expected = await cold.claim()
    warm.reader._store = copied(store)  # noqa: SLF001 - the last requests of the same reader, of a store that nobody changes
    warm.way = warm.reader._store  # noqa: SLF001
    history = await warm.claim()
    assert (history, warm.reader.place) == (expected, cold.reader.place)
    assert warm.tree() == cold.tree()


async def begun(way: Callable[[], ObjectStore], directory: Path, rng: random.Random) -> Owner:
    """An owner; its store may be away for as long as a claim asks it."""
    for attempt in range(100):
        with suppress(UnavailableError, OwnershipLostError):
            return await Owner(way(), directory / f"{attempt}", rng).begin()
    raise AssertionError("no claim")


async def simulate(seed: int, rate: float, directory: Path) -> bool:
    """Return whether what was followed was used, in a run of some owners and one standby."""
    rng, store, late = random.Random(seed), MemoryObjects(), set[asyncio.Task[Any]]()
    warm = Machine(FaultyWay(store, rng, late, rate), directory / "warm")
    base_s = rng.choice([3.0, 30.0])
    lives = rng.randint(1, 3)
    used, living = False, set[asyncio.Task[None]]()
    for number in range(lives):
        # The one before may live, and write beyond its end: it does not know yet.
        owner = await begun(lambda: FaultyWay(store, rng, late, rate / 2), directory / f"owner-{number}", rng)
        for_s = 60 * rng.random()
        living.add(asyncio.create_task(owner.live(for_s + 5, base_s)))
        await asyncio.sleep(for_s * rng.random() / 2)
        await follow_for(warm, for_s * rng.random())
        used = warm.reader.stands and warm.reader.place > (1, 1)
    if rng.random() < 0.5:
        await asyncio.wait(living)
    for task in living:
        task.cancel()
    await asyncio.wait(living)
    while late:
        await asyncio.wait(late)
    await check_same(store, warm, directory)
    return used


class Race:
    """An owner, and a standby that has read its base and one round behind it."""

    def __init__(self, directory: Path) -> None:
        self.directory, self.store = directory, MemoryObjects()

    async def begin(self) -> Race:
        self.held = HeldWay(self.store)
        self.owner = await Owner(self.held, self.directory / "owner", random.Random(1)).begin()
        self.first = await self.make_base()
        await self.write(LogKind.INTAKE, 0, 0)
        self.way = HeldWay(self.store)
        self.warm = Machine(self.way, self.directory / "warm")
        await self.warm.reader.begin()
        assert await self.warm.reader.follow(16) > 0
        return self

    async def write(self, kind: LogKind, segment: int, position: int) -> None:
        self.owner.add(Part(kind, segment, position, b"12345678"))
        await self.owner.rounds.sync()

    async def make_base(self) -> Manifest:
        """Make a base, of which nothing is trimmed."""
        rng, self.owner.rng = self.owner.rng, _Never()
        try:
            return await self.owner.base()
        finally:
            self.owner.rng = rng

    async def check(self) -> None:
        self.owner.cache.close()
        await check_same(self.store, self.warm, self.directory)


class _Never(random.Random):
    def random(self) -> float:
        return 0.99


def raced(case: Callable[[Race], Coroutine[Any, Any, None]]) -> Callable[[Path], None]:
    def run(tmp_path: Path) -> None:
        async def whole() -> None:
            race = await Race(tmp_path).begin()
            await case(race)
            await race.check()

        run_virtually(whole())

    run.__name__ = case.__name__
    return run


@raced
async def test_what_was_read_is_not_read_again(race: Race) -> None:
    await race.write(LogKind.INTAKE, 0, 8)
    race.way.passed.clear()
    await race.warm.claim()
    assert ("get", round_key(1, race.first.position)) not in race.way.passed
    assert not [key for what, key in race.way.passed if what == "get" and key.startswith("base/")]
    assert race.warm.tree()["intake/00000000000000000000.log"] == b"12345678" * 2


@raced
async def test_what_was_read_beyond_an_end_is_given_up(race: Race) -> None:
    """The round was never answered: a former claim did not find it."""
    race.store.objects[numbered("end", 1)] = encode_end(race.first.position)
    await claim_epoch(race.store, "a claim that made the end")
    await race.warm.claim()
    assert "intake/00000000000000000000.log" not in race.warm.tree()


@raced
async def test_what_an_owner_wrote_beyond_its_end_is_not_followed(race: Race) -> None:
    """It stood still before its PUT; reading that again each time, no standby would come to the next epoch."""
    await race.write(LogKind.INTAKE, 0, 8)
    race.store.objects[numbered("end", 1)] = encode_end(race.first.position + 1)
    second = await Owner(race.store, race.directory / "second", random.Random(2)).begin()
    await follow_for(race.warm, 20)
    assert race.warm.reader.place == (2, second.rounds.answered)
    assert race.warm.tree()["intake/00000000000000000000.log"] == b"12345678"
    second.cache.close()


@raced
async def test_a_base_that_overtook_the_standby_is_begun_from(race: Race) -> None:
    await race.write(LogKind.INTAKE, 0, 8)
    await race.owner.bases.trim(await race.make_base())
    assert not await race.warm.reader.settle()
    await race.warm.reader.begin()
    await race.write(LogKind.INTAKE, 0, 16)


@raced
async def test_a_base_beyond_an_end_is_given_up(race: Race) -> None:
    await race.write(LogKind.INTAKE, 0, 8)
    beyond = await race.make_base()
    await race.warm.reader.follow(16)
    assert await race.warm.reader.settle()
    assert race.warm.reader.base == beyond
    race.store.objects[numbered("end", 1)] = encode_end(beyond.position - 1)
    await claim_epoch(race.store, "a claim that made the end")


@raced
async def test_a_newer_base_that_is_replaced_meanwhile(race: Race) -> None:
    await race.make_base()
    await race.warm.reader.follow(16)
    settling, held = await race_held(race, "checkpoint.json", race.warm.reader.settle())
    await race.owner.bases.trim(await race.make_base())
    held.set()
    assert await race.warm.reader.follow(16) >= 0
    assert await settling or not race.warm.reader.stands


@raced
async def test_a_file_that_was_about_to_be_replaced_goes_with_a_base_that_lacks_it(race: Race) -> None:
    """Another object of the same name could not be read: a newer base, without that file, was there by then."""
    race.owner.bases = EpochBases(race.held, 1)  # its objects get other names, as those of another owner do
    await race.make_base()
    await race.warm.reader.follow(16)
    settling, held = await race_held(race, "registry/000001.sst", race.warm.reader.settle())
    race.owner.tables.remove(1)
    newest = await race.make_base()
    await race.warm.reader.follow(16)
    await race.owner.bases.trim(newest)
    held.set()
    assert await settling
    assert race.warm.reader.base == newest
    assert "registry/000001.sst" not in race.warm.tree()


@raced
async def test_a_newer_base_of_which_not_all_could_be_read(race: Race) -> None:
    """What is here is of two bases then, and is of none until all of one is here."""
    await race.make_base()
    await race.warm.reader.follow(16)
    settling, _ = await race_held(race, "topics-1.json", race.warm.reader.settle())
    settling.cancel()
    await asyncio.wait([settling])
    assert race.warm.reader.base == race.first
    race.way.release()


@raced
async def test_a_base_that_counts_while_a_claim_reads(race: Race) -> None:
    """What the owner trims because of it, the claim reads: so it has to have what the base has instead."""
    for segment in (1, 2):
        await race.write(LogKind.INTAKE, segment, 0)
    manifest = manifest_key(1, race.owner.rounds.answered + 1)
    counts = race.held.hold("before", "create", manifest)
    making = asyncio.create_task(race.make_base())
    await race.held.until_waits("before", "create", manifest)
    race.warm.reader.give_up()  # a cold one does so as well
    claiming, held = await race_held(race, "checkpoint.json", race.warm.claim())
    counts.set()
    await making
    race.owner.add(Part(LogKind.INTAKE, 1, TRIMMED, b""))
    with pytest.raises(OwnershipLostError):
        await race.owner.rounds.sync()
    held.set()
    await claiming
    assert race.warm.reader.base == await making != race.first
    assert "intake/00000000000000000001.log" not in race.warm.tree()


async def race_held(race: Race, path: str, work: Coroutine[Any, Any, Any]) -> tuple[asyncio.Task[Any], asyncio.Event]:
    """Begin work that reads a file of the newest base, and return when it waits there."""
    newest = await newest_base(race.store)
    assert newest is not None
    [key] = [piece.key for each in newest.files if each.path == path for piece in each.pieces]
    held, task = race.way.hold("before", "get", key), asyncio.create_task(work)
    await race.way.until_waits("before", "get", key)
    return task, held


@pytest.mark.rest
@given(seed=st.integers(0, 1 << 32), rate=st.sampled_from([0.0, 0.02, 0.1]))
def test_a_followed_directory_is_that_of_a_cold_start(
    tmp_path_factory: pytest.TempPathFactory, seed: int, rate: float
) -> None:
    run_virtually(simulate(seed, rate, tmp_path_factory.mktemp("run")))


def test_following_is_of_use(tmp_path: Path) -> None:
    """To begin again each time would be right as well."""
    assert sum(run_virtually(simulate(seed, 0.02, tmp_path / str(seed))) for seed in range(12)) > 6
