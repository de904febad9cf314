"""Looks whether an owner lives, on a clock of their own."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tarry.base.clock import TestClock
from tarry.base.errors import ClosedError, LockedError, UnavailableError
from tarry.base.types import NEVER_MS
from tarry.log.engine import Part
from tarry.log.frame import LogKind
from tarry.log.objects.bases import EpochBases
from tarry.log.objects.content import HANDED_OVER, LEFT, numbered
from tarry.log.objects.engine import ObjectEngine
from tarry.log.objects.history import claim_epoch
from tarry.log.objects.reading import LogReader
from tarry.log.objects.silence import EMPTY_S, SILENCE_S, wait_for_silence
from tarry.log.objects.standby import Standby
from tarry.log.objects.store import CountedObjects, ObjectStore
from tests.engines.object_store import CutWay, HeldWay, MemoryObjects, run_virtually
from tests.engines.test_lease import Owner
from tests.engines.test_objects import virtually
from tests.engines.test_objects_simulated import Read
from tests.faults import FaultyFiles


class Nothing(Read):
    """A cache that keeps nothing."""

    def apply(self, parts: Sequence[Part]) -> None:
        pass


def standing_by(store: ObjectStore, **options: Any) -> Standby:
    counted = CountedObjects(store)
    return Standby(counted, LogReader(counted, Nothing()), TestClock(), **options)


@virtually
async def test_nobody_is_waited_for_where_there_is_no_owner() -> None:
    await wait_for_silence(MemoryObjects())
    assert asyncio.get_running_loop().time() < 0.001


@virtually
async def test_an_owner_that_lives_is_named() -> None:
    store = MemoryObjects()
    owner = await Owner(store).begin()
    beat = asyncio.create_task(owner.rounds.beat())
    with pytest.raises(LockedError, match=r"owned by test, which is alive \(epoch 1\); allowed: stop it first"):
        await wait_for_silence(store)
    beat.cancel()
    before_s = owner.lease.now_s()
    await wait_for_silence(store)
    assert owner.lease.now_s() - before_s >= SILENCE_S


@virtually
async def test_a_standby_waits_for_each_owner_in_turn() -> None:
    store = MemoryObjects()
    first = await Owner(store).begin()
    beats = [asyncio.create_task(first.rounds.beat())]
    standby = asyncio.create_task(standing_by(store).wait())
    await asyncio.sleep(10 * SILENCE_S)
    beats.append(asyncio.create_task((await Owner(store).begin()).rounds.beat()))
    await asyncio.sleep(10 * SILENCE_S)
    assert not standby.done() and beats[0].done()
    beats[1].cancel()
    await asyncio.wait_for(standby, 2 * SILENCE_S)


@virtually
async def test_a_standby_that_waits_to_be_told_follows_the_next_owner_of_a_silent_one() -> None:
    store = MemoryObjects()
    first = await Owner(store).begin()
    standby = standing_by(store, by_itself=False)
    waiting = asyncio.create_task(standby.wait())
    await asyncio.sleep(5 * SILENCE_S)
    assert standby.state["position"] == {"epoch": 1, "round": first.rounds.answered}
    second = await Owner(store).begin()
    await asyncio.sleep(SILENCE_S)
    assert standby.state["position"] == {"epoch": 2, "round": second.rounds.answered}
    waiting.cancel()


@virtually
async def test_an_owner_that_has_handed_over_is_not_waited_for() -> None:
    store = MemoryObjects()
    owner = await Owner(store).begin()
    await owner.rounds.hand_over(Part(LogKind.FILES, 0, HANDED_OVER, LEFT.pack(NEVER_MS)))
    owner.rounds.add(Part(LogKind.AUDIT, 0, 0, b"stopped"))
    await owner.rounds.sync()
    before_s = owner.lease.now_s()
    await wait_for_silence(store)
    assert owner.lease.now_s() == before_s


@virtually
async def test_a_store_that_gives_no_answer_is_no_silence() -> None:
    store = MemoryObjects()
    owner = await Owner(store).begin()
    beat = asyncio.create_task(owner.rounds.beat())

    class Cut(HeldWay):
        is_cut = False

        async def get(self, key: str) -> bytes | None:
            if self.is_cut:
                raise UnavailableError("cut off (injected)")
            return await super().get(key)

    way = Cut(store)
    standby = asyncio.create_task(standing_by(way).wait())
    await asyncio.sleep(SILENCE_S)
    way.is_cut = True
    await asyncio.sleep(10 * SILENCE_S)
    assert not standby.done()
    way.is_cut = False
    await asyncio.sleep(10 * SILENCE_S)
    assert not standby.done()
    beat.cancel()
    await asyncio.wait_for(standby, 2 * SILENCE_S)
    assert numbered("epoch", 2) not in store.objects


def test_a_standby_can_be_stopped(tmp_path: Path) -> None:
    store = MemoryObjects()
    owner = ObjectEngine(store, FaultyFiles(), tmp_path / "1", TestClock())
    owner.claim()
    standby = ObjectEngine(store, FaultyFiles(), tmp_path / "2", TestClock(), takeover="auto", is_stopped=lambda: True)
    with pytest.raises(ClosedError, match="stopped before the logs were its own"):
        standby.claim()
    refused = ObjectEngine(store, FaultyFiles(), tmp_path / "2", TestClock(), takeover="silent")
    with pytest.raises(LockedError, match="which is alive"):
        refused.claim()
    assert owner.is_owner() and numbered("epoch", 2) not in store.objects
    owner.release()


@virtually
async def test_an_owner_whose_rounds_a_base_has_replaced_lives() -> None:
    """What is deleted leaves holes, or nothing at all, in the list of its rounds."""
    store = MemoryObjects()
    owner = await Owner(store).begin()
    beat = asyncio.create_task(owner.rounds.beat())
    bases = EpochBases(store, 1)
    standby = asyncio.create_task(standing_by(store).wait())
    for _ in range(20):
        await asyncio.sleep(0.7 * SILENCE_S)
        manifest = await bases.put(await owner.rounds.mark(), [])
        await owner.rounds.sync()
        await owner.rounds.reach(manifest.position)
        await bases.complete(manifest)
        await bases.trim(manifest)
        assert not [key for key in store.objects if key.startswith("log/")]
    assert not standby.done()
    beat.cancel()
    await asyncio.wait_for(standby, 3 * SILENCE_S)


@virtually
async def test_who_has_claimed_and_reads_is_waited_for_longer_each_time() -> None:
    store = MemoryObjects()
    waited_s = []
    for _ in range(4):
        await claim_epoch(store, "reads for ever")
        begun_s = asyncio.get_running_loop().time()
        await wait_for_silence(store)
        waited_s.append(asyncio.get_running_loop().time() - begun_s)
    assert all(0.6 * EMPTY_S * 2**n <= waited <= 1.5 * EMPTY_S * 2**n for n, waited in enumerate(waited_s))


@virtually
async def test_a_standby_outlasts_a_store_that_is_away() -> None:
    store = MemoryObjects()
    owner = await Owner(store).begin()
    beat = asyncio.create_task(owner.rounds.beat())

    class Away(MemoryObjects):
        is_away = True

        async def exists(self, key: str) -> bool:
            return self._answered(await store.exists(key))

        async def get(self, key: str) -> bytes | None:
            return self._answered(await store.get(key))

        async def list(self, prefix: str) -> list[str]:
            return self._answered(await store.list(prefix))

        def _answered(self, answer: Any) -> Any:
            if self.is_away:
                raise UnavailableError("away (injected)")
            return answer

    way = Away()
    standby = asyncio.create_task(standing_by(way).wait())
    await asyncio.sleep(120)
    assert not standby.done()
    way.is_away = False
    await asyncio.sleep(60)
    assert not standby.done()
    beat.cancel()
    await asyncio.wait_for(standby, 20)


def test_a_standby_tells_once_that_the_store_answers_again(caplog: pytest.LogCaptureFixture) -> None:
    async def stand_by() -> None:
        store = MemoryObjects()
        way, owner = CutWay(store), await Owner(store).begin()
        beat, standby = asyncio.create_task(owner.rounds.beat()), asyncio.create_task(standing_by(way).wait())
        await asyncio.sleep(10)
        way.is_cut = True
        await asyncio.sleep(40)
        way.is_cut = False
        await asyncio.sleep(10)
        assert not standby.done()
        for task in (beat, standby):
            task.cancel()

    run_virtually(stand_by())
    told = [record.message for record in caplog.records]
    assert "standing by: cut off; looking again" in told
    assert [text.partition(", after")[0] for text in told].count("the bucket of the logs answers again") == 1
