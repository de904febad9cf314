"""Owners of one log on a store that fails in every way it can, by seed; all in one thread, on a clock of its own.

Lives of owners come and go, two or three at a time: each claims, reads, writes from several callers, and is taken over,
cut off, stopped for a while, or ended in the middle.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tarry.base.clock import TestClock
from tarry.base.errors import OwnershipLostError, TrimmedError, UnavailableError
from tarry.log.engine import Part
from tarry.log.frame import LogKind
from tarry.log.objects.bases import BaseSource, EpochBases
from tarry.log.objects.content import BaseFile
from tarry.log.objects.history import START, claim_epoch, follow_parts, reached
from tarry.log.objects.reading import LogReader
from tarry.log.objects.rounds import EpochRounds
from tests.engines.object_store import ArchivedObjects, FaultyWay, run_virtually
from tests.examples import examples


class Read:
    """What a claim reads: the values, in order."""

    def __init__(self) -> None:
        self.values: list[int] = []

    def clear(self) -> None:
        self.values.clear()

    def apply(self, parts: Sequence[Part]) -> None:
        self.values += [int(value) for part in parts for value in part.content.split()]

    def restore(self, file: BaseFile, offset: int, content: bytes) -> None:
        raise AssertionError("there is no base")

    def needs(self, file: BaseFile) -> bool:
        return not file.is_kept

    def remove(self, path: str) -> None:
        raise AssertionError("rounds have everything")


class Directory(Read):
    """The values as a file would have them: each round says where its own belong, and a base has the first of them."""

    def apply(self, parts: Sequence[Part]) -> None:
        for part in parts:
            value = int(part.content)
            assert part.position <= len(self.values), "a gap"
            if part.position == len(self.values):
                self.values.append(value)
            assert self.values[part.position] == value, "the base has what no round has"

    def restore(self, file: BaseFile, offset: int, content: bytes) -> None:
        assert (file.path, offset) == ("values", 0)
        self.values = [int(value) for value in content.split()]


class Simulation:
    """One run. Afterwards, what was answered is compared with what owners and followers have read."""

    def __init__(self, seed: int, rate: float) -> None:
        self.rng, self.rate = random.Random(seed), rate
        self.gaps_s = self.rng.choice([(0.0, 5.0, 40.0), (0.0, 0.0, 2.0)])
        self.objects = ArchivedObjects()
        self.late: set[asyncio.Task[Any]] = set()
        self.answered: dict[int, list[int]] = {}
        """By epoch."""
        self.read: dict[int, list[int]] = {}
        """By epoch: what an owner had read that could answer."""
        self.followed: list[list[int]] = []
        self.clocks: list[TestClock] = []
        self.next = 0
        self.base_s = self.rng.choice([1.0, 10.0, 1000.0])
        self.bases = 0

    async def run(self, lives: int) -> None:
        running: set[asyncio.Task[None]] = set()
        for _ in range(lives):
            while len(running) >= 3:
                ended, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                await asyncio.gather(*ended)
            running.add(asyncio.create_task(self.live()))
            await asyncio.sleep(self.rng.choice(self.gaps_s) * self.rng.random())
        await asyncio.gather(*running)
        while self.late:
            await asyncio.wait(self.late)

    async def live(self) -> None:
        way = FaultyWay(self.objects, self.rng, self.late, self.rate)
        work = asyncio.create_task(self.own(way))
        end_s = asyncio.get_running_loop().time() + 60 * self.rng.random()
        while asyncio.get_running_loop().time() < end_s and not work.done():
            await asyncio.sleep(3 * self.rng.random())
            now_s = asyncio.get_running_loop().time()
            event = self.rng.random()
            if event < 0.1:
                way.still_until_s = now_s + 10 * self.rng.random()
            elif event < 0.2:
                way.cut_until_s = now_s + 5 * self.rng.random()
            elif event < 0.3:
                await self.follow()
        work.cancel()
        await asyncio.wait([work])
        if not work.cancelled() and (error := work.exception()):
            raise error

    async def own(self, way: FaultyWay) -> None:
        try:
            claim = await claim_epoch(way, "simulated")
            read = Directory()
            history = await LogReader(way, read).read_former(claim.epoch)
            clock = TestClock(1_000_000 + self.rng.randint(-2000, 2000))
            rounds = EpochRounds(way, claim, history, clock, depth=self.rng.choice([1, 2, 4]))
            await rounds.first()
        except (OwnershipLostError, UnavailableError):
            return
        assert claim.epoch not in self.read, "an epoch that two have"
        self.read[claim.epoch] = list(read.values)
        self.answered[claim.epoch] = []
        values = read.values
        callers = [asyncio.create_task(self.call(claim.epoch, rounds, values)) for _ in range(self.rng.randint(1, 4))]
        callers.append(asyncio.create_task(self.keep_bases(rounds, EpochBases(way, claim.epoch), values)))
        try:
            await asyncio.gather(*callers)
        except OwnershipLostError:
            answered = len(self.answered[claim.epoch])
            await asyncio.wait(callers)
            assert len(self.answered[claim.epoch]) == answered, "an answer after the loss"
        finally:
            for task in callers:
                task.cancel()
            rounds.abandon()

    async def keep_bases(self, rounds: EpochRounds, bases: EpochBases, values: list[int]) -> None:
        while True:
            await asyncio.sleep(self.base_s * self.rng.random())
            at = await rounds.mark()
            await asyncio.sleep(self.rng.random())  # files grow while a base is made
            content = b" ".join(b"%d" % value for value in values)
            with suppress(UnavailableError):  # a base that the store does not answer is given up; another one comes
                manifest = await bases.put(at, [BaseSource.of("values", content)])
                await rounds.sync()
                await rounds.reach(manifest.position)
                await bases.complete(manifest)
                self.bases += 1
                await bases.trim(manifest)

    async def call(self, epoch: int, rounds: EpochRounds, values: list[int]) -> None:
        while True:
            self.next, value = self.next + 1, self.next
            rounds.add(Part(LogKind.INTAKE, 0, len(values), b"%d " % value))
            values.append(value)
            await rounds.sync()
            self.answered[epoch].append(value)
            await asyncio.sleep(0.2 * self.rng.random())

    async def follow(self) -> None:
        way = FaultyWay(self.objects, self.rng, self.late, self.rate / 4)
        values: list[int] = []
        with suppress(UnavailableError, TimeoutError, TrimmedError):
            async with asyncio.timeout(20):  # it may be slower than the owner
                async for _, part in follow_parts(way, START, None):
                    values += [int(each) for each in part.content.split()]
        self.followed.append(values)

    async def check(self) -> int:
        """Return how many values were answered."""
        final = Directory()
        last = await claim_epoch(self.objects, "last")
        await LogReader(self.objects, final).read_former(last.epoch)
        history = final.values
        archive, whole = self.objects.archive, Directory()
        archive.objects = {key: content for key, content in archive.objects.items() if not key.startswith("base/")}
        for key in [each for each in archive.objects if each.startswith(("epoch/", "end/"))]:
            assert self.objects.objects[key] == archive.objects[key]
        await LogReader(archive, whole).read_former(last.epoch)
        assert history == whole.values, "a base and the rounds behind it are another history than all rounds"
        assert len(set(history)) == len(history), "a round that counts twice"
        for epoch, values in self.answered.items():
            assert set(values) <= set(history), f"what epoch {epoch} answered is lost"
            assert sorted(values) == [each for each in history if each in set(values)], "in another order"
        for epoch, values in self.read.items():
            assert values == history[: len(values)], f"epoch {epoch} has read another history"
            before = {each for former in self.answered if former < epoch for each in self.answered[former]}
            assert before <= set(values), f"epoch {epoch} answers, and lacks what was answered before it"
        for values in self.followed:
            assert values == history[: len(values)], "a follower has what does not count"
        assert (await reached(self.objects)).epoch == last.epoch
        return sum(map(len, self.answered.values()))


def simulate(seed: int, lives: int, rate: float) -> int:
    """Return how many values were answered."""
    return simulated(seed, lives, rate)[0]


def simulated(seed: int, lives: int, rate: float) -> tuple[int, int]:
    """Return how many values were answered, and how many bases were made."""

    async def whole() -> tuple[int, int]:
        simulation = Simulation(seed, rate)
        await simulation.run(lives)
        return await simulation.check(), simulation.bases

    return run_virtually(whole())


@given(seed=st.integers(0, 1 << 32), rate=st.sampled_from([0.0, 0.02, 0.1, 0.3]))
@pytest.mark.parametrize("lives", [3, pytest.param(12, marks=pytest.mark.rest)])
def test_no_answered_round_is_lost(lives: int, seed: int, rate: float) -> None:
    simulate(seed, lives, rate)


@pytest.mark.rest
def test_owners_get_on() -> None:
    """Safety alone would be easy: nothing would have to be answered."""
    assert simulate(1, 20, 0.0) > 100
    assert simulate(1, 20, 0.1) > 50
    assert sum(simulated(seed, 20, 0.02)[1] for seed in range(8)) > 20


@pytest.mark.long
def test_thousands_of_rounds() -> None:
    seeds = examples(30)
    assert sum(simulate(seed, 40, 0.03) for seed in range(seeds)) > 100 * seeds
