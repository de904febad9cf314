"""The lease of hand-outs, in rounds held at their place, on a clock that a test moves."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from tarry.base.clock import TestClock
from tarry.base.errors import OwnershipLostError
from tarry.base.types import NEVER_MS
from tarry.log.engine import Part
from tarry.log.frame import LogKind
from tarry.log.objects.content import numbered, round_key
from tarry.log.objects.engine import ObjectEngine
from tarry.log.objects.history import claim_epoch
from tarry.log.objects.lease import LEASE_S, WAITED, OwnerLease
from tarry.log.objects.reading import LogReader
from tarry.log.objects.rounds import ROUND_BYTES, EpochRounds
from tests.engines.object_store import HeldWay, MemoryObjects
from tests.engines.test_objects import virtually
from tests.engines.test_objects_simulated import Read
from tests.faults import FaultyFiles

LEASE_MS = round(1000 * LEASE_S)


class Owner:
    """An owner whose lease runs by the loop's time."""

    def __init__(self, store: MemoryObjects, now_ms: int = 1000) -> None:
        self.way, self.clock = HeldWay(store), TestClock(now_ms)
        self.lease = OwnerLease(asyncio.get_running_loop().time)
        self.rounds: EpochRounds

    async def begin(self, gap_s: float = 0.0) -> Owner:
        claim = await claim_epoch(self.way, "test")
        history = await LogReader(self.way, Read()).read_former(claim.epoch)
        self.rounds = EpochRounds(self.way, claim, history, self.clock, lease=self.lease, gap_s=gap_s)
        await self.rounds.first()
        return self


@virtually
async def test_it_lasts_from_the_beginning_of_an_answered_put() -> None:
    owner = await Owner(MemoryObjects()).begin()
    assert owner.lease.lasts() and owner.lease.until_ms == 1000 + LEASE_MS
    held = owner.way.hold("before", "create", round_key(1, 1))
    owner.clock.set_ms(5000)
    began_s = owner.lease.now_s()
    renewed = asyncio.create_task(owner.rounds.renew())
    await asyncio.sleep(0.7 * LEASE_S)
    assert owner.lease.until_ms == 1000 + LEASE_MS, "an unanswered round moves nothing"
    held.set()
    await renewed
    assert owner.lease.until_ms == 5000 + LEASE_MS
    await asyncio.sleep(began_s + LEASE_S - owner.lease.now_s() - 0.01)
    assert owner.lease.lasts()
    await asyncio.sleep(0.02)
    assert not owner.lease.lasts() and owner.lease.until_ms == NEVER_MS


@virtually
async def test_there_is_none_before_a_round_of_ones_own_epoch_is_answered() -> None:
    store = MemoryObjects()
    await Owner(store).begin()
    second = Owner(store)
    held = second.way.hold("before", "exists", numbered("epoch", 3))
    begun = asyncio.create_task(second.begin())
    await second.way.until_waits("before", "exists", numbered("epoch", 3))
    assert not second.lease.lasts(), "its first round is in the store, and nobody may be told"
    held.set()
    await begun
    assert second.lease.lasts()


@virtually
async def test_beats_keep_it_until_the_store_gives_no_answer() -> None:
    owner = await Owner(MemoryObjects()).begin()
    beat = asyncio.create_task(owner.rounds.beat())
    for _ in range(30):
        await asyncio.sleep(LEASE_S / 3)
        assert owner.lease.lasts()
    written = owner.rounds.answered
    assert 18 <= written <= 22, "one round each half of a lease"
    owner.way.hold("before", "exists", numbered("epoch", 2))
    await asyncio.sleep(2 * LEASE_S)
    assert not owner.lease.lasts()
    beat.cancel()


@virtually
async def test_beats_find_out_that_another_has_claimed() -> None:
    store = MemoryObjects()
    owner = await Owner(store).begin()
    beat = asyncio.create_task(owner.rounds.beat())
    await Owner(store).begin()
    await asyncio.sleep(LEASE_S)
    assert isinstance(owner.rounds.lost, OwnershipLostError)
    await beat


@virtually
async def test_an_answer_without_a_round_of_its_own_needs_a_look() -> None:
    store = MemoryObjects()
    owner = await Owner(store).begin()
    await owner.rounds.confirm()
    await claim_epoch(store, "another")
    with pytest.raises(OwnershipLostError):
        await owner.rounds.confirm()


@virtually
async def test_a_round_that_goes_on_its_way_takes_what_was_added() -> None:
    owner = await Owner(MemoryObjects()).begin()
    owner.rounds.add(Part(LogKind.INTAKE, 0, 0, b"1"))
    await owner.rounds.renew()
    assert owner.rounds.answered == 2 and not owner.rounds.lost


@virtually
async def test_rounds_keep_their_distance() -> None:
    owner = await Owner(MemoryObjects()).begin(gap_s=0.2)
    loop = asyncio.get_running_loop()
    begun_s = loop.time()
    for value in range(5):
        owner.rounds.add(Part(LogKind.INTAKE, 0, value, b"1"))
        await owner.rounds.sync()
    assert 0.99 <= loop.time() - begun_s <= 1.01
    owner.rounds.add(Part(LogKind.INTAKE, 0, 5, b"1"))
    many = [asyncio.create_task(owner.rounds.sync()) for _ in range(20)]
    await asyncio.gather(*many)
    assert owner.rounds.answered == 7, "one round for all that wait"


@virtually
async def test_much_is_written_in_several_rounds() -> None:
    owner = await Owner(MemoryObjects()).begin()
    each = bytes(ROUND_BYTES * 2 // 5)
    for number in range(7):
        owner.rounds.add(Part(LogKind.INTAKE, 0, number * len(each), each))
    await owner.rounds.sync()
    assert owner.rounds.answered == 1 + 4, "two of them fit into a round"
    owner.rounds.add(Part(LogKind.INTAKE, 1, 0, bytes(2 * ROUND_BYTES)))
    await owner.rounds.sync()
    assert owner.rounds.answered == 6, "one part is never cut: a frame is there, or is not"
    for number in range(3):
        owner.rounds.add(Part(LogKind.INTAKE, 2, number * len(each), each))
    assert (await owner.rounds.mark()).position == 8, "all of it is before the mark"


class Machines:
    """Engines on machines of their own; boot clocks that a test moves, all by as much."""

    def __init__(self, directory: Path) -> None:
        self.directory, self.store, self.now_s, self.engines = directory, MemoryObjects(), 100.0, list[ObjectEngine]()

    def claim(self, now_ms: int) -> ObjectEngine:
        data = self.directory / str(len(self.engines))
        lease = OwnerLease(lambda: self.now_s)
        self.engines.append(ObjectEngine(self.store, FaultyFiles(), data, TestClock(now_ms), lease=lease))
        self.engines[-1].claim()
        return self.engines[-1]

    def close(self) -> None:
        for engine in self.engines:
            engine.release()


@pytest.fixture
def machines(tmp_path: Path) -> Machines:
    return Machines(tmp_path)


def test_the_first_owner_waits_for_nobody(machines: Machines) -> None:
    first = machines.claim(1000)
    assert first.may_hand_out() and first.left_ms == NEVER_MS
    machines.close()


def test_the_next_owner_waits_for_a_lease_that_may_last(machines: Machines) -> None:
    first = machines.claim(1000)
    second = machines.claim(1500)
    assert first.may_hand_out(), "it cannot know yet"
    assert not second.may_hand_out() and second.until_ms == NEVER_MS
    assert second.left_ms == 1000 + LEASE_MS, "by the log's clock: this machine's is behind"
    machines.now_s += LEASE_S
    assert not first.may_hand_out() and not second.may_hand_out()
    machines.now_s += LEASE_S * (WAITED - 1)
    second.renew()
    assert second.may_hand_out() and second.until_ms == 1500 + LEASE_MS
    with pytest.raises(OwnershipLostError):
        first.renew()
    machines.close()


def test_a_machine_whose_clock_is_behind_goes_on_from_the_logs(machines: Machines) -> None:
    machines.claim(3_600_000)
    second = machines.claim(1000)
    assert second.left_ms == 3_600_000 + LEASE_MS
    machines.now_s += LEASE_S * WAITED
    second.renew()
    assert second.until_ms == 3_600_000 + LEASE_MS
    machines.close()


def test_a_machine_whose_clock_is_ahead_counts_what_is_due_by_it_as_handed_out(machines: Machines) -> None:
    machines.claim(1000)
    assert machines.claim(50_000).left_ms == 50_000
    machines.close()


def test_an_owner_that_handed_over_is_not_waited_for(machines: Machines) -> None:
    machines.claim(1000).hand_over(NEVER_MS)
    second = machines.claim(1000)
    assert second.may_hand_out() and second.left_ms == NEVER_MS
    second.hand_over(1234)
    third = machines.claim(1000)
    assert third.may_hand_out() and third.left_ms == 1234
    fourth = machines.claim(1000)
    assert not fourth.may_hand_out(), "the third wrote a round, and did not hand over"
    machines.close()


def test_nothing_is_handed_over_while_former_leases_may_last(machines: Machines) -> None:
    machines.claim(1000)
    machines.claim(1000).hand_over(NEVER_MS)
    third = machines.claim(1000)
    assert not third.may_hand_out() and third.left_ms == 1000 + LEASE_MS
    machines.close()


def test_acknowledgements_wait_for_former_leases(machines: Machines, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the former owner could hand out once more what a consumer was told to be settled."""
    first, second = machines.claim(1000), machines.claim(1000)
    intake, acks = (second.log(kind).open(0) for kind in (LogKind.INTAKE, LogKind.ACKS))
    slept_s = []

    def sleep(seconds: float) -> None:
        slept_s.append(seconds)
        machines.now_s += seconds

    monkeypatch.setattr("tarry.log.objects.engine.time", SimpleNamespace(sleep=sleep, monotonic=time.monotonic))
    intake.write([b"entry"])
    intake.sync()
    assert first.may_hand_out() and not slept_s, "what is accepted or cancelled need not wait"
    acks.write([b"entry"])
    acks.sync()
    assert not first.may_hand_out() and sum(slept_s) == pytest.approx(LEASE_S * WAITED)
    for segment in (intake, acks):
        segment.close()
    machines.close()
