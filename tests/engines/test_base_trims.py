"""Deletion of what bases take the place of, in single steps: each race with readers, held at its place."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from tarry.base.clock import TestClock
from tarry.base.errors import CorruptError, OwnershipLostError, TrimmedError, UnavailableError
from tarry.log.objects import bases
from tarry.log.objects.content import numbered
from tarry.log.objects.engine import ObjectEngine
from tarry.log.objects.history import START, RoundPlace, follow_parts, reached
from tarry.log.objects.lease import OwnerLease
from tarry.log.objects.store import ObjectStore
from tests.engines.base_owner import Keeping, key_of, keys, manifest_key, manifests, written
from tests.engines.object_store import HeldWay, MemoryObjects, run_virtually
from tests.engines.test_objects import virtually
from tests.faults import FaultyFiles
from tests.waiting import wait_until


@virtually
async def test_a_trim_between_the_list_of_bases_and_a_get() -> None:
    """The shortest trace that the model found without the second look: the round is gone, not missing."""
    store = MemoryObjects()
    first = await written(store, 1, 2)
    draft = await first.answered()
    second = Keeping(store)
    held, taking = await second.claim_held("before", "get", first.round(0))
    await first.bases.complete(draft)
    await first.bases.trim(draft)
    held.set()
    await taking
    assert second.read == [1, 2]


@pytest.mark.parametrize("is_piece", [False, True])
def test_a_trim_while_a_base_is_read(is_piece: bool) -> None:
    @virtually
    async def case() -> None:
        store = MemoryObjects()
        first = await written(store, 1)
        old = await first.base()
        key = old.files[0].pieces[0].key if is_piece else key_of(old)
        await first.send(2)
        draft = await first.answered()
        second = Keeping(store)
        held, taking = await second.claim_held("before", "get", key)
        await first.bases.complete(draft)
        await first.bases.trim(draft)
        assert key not in store.objects
        held.set()
        await taking
        assert second.read == [1, 2]

    case()


@virtually
async def test_a_trim_that_removes_some_rounds_in_the_midst() -> None:
    store = MemoryObjects()
    first = await written(store, *range(20))
    held = first.way.hold("before", "delete", first.round(16))
    base = await first.base()
    trimming = asyncio.create_task(first.bases.trim(base))
    await first.way.until_waits("before", "delete", first.round(16))
    assert (await written(store)).read == list(range(20))
    held.set()
    await trimming
    assert (await written(store)).read == list(range(20))


@virtually
async def test_a_delete_that_runs_minutes_late() -> None:
    store = MemoryObjects()
    first = await written(store, 1, 2)
    held = first.way.hold("before", "delete", first.round(1))
    trimming = asyncio.create_task(first.bases.trim(await first.base()))
    await first.way.until_waits("before", "delete", first.round(1))
    second = await written(store, 3)
    await second.base_and_trim()
    third = await written(store, 4)
    await asyncio.sleep(300)
    before = dict(store.objects)
    held.set()
    await trimming
    assert store.objects == before
    assert (await written(store)).read == [1, 2, 3, 4]
    with pytest.raises(OwnershipLostError):
        await third.send(5)


@virtually
async def test_what_could_not_be_deleted_is_deleted_after_the_next_base() -> None:
    store = MemoryObjects()
    first = await written(store, 1)
    first.way.fail("before", "delete", first.round(0), times=1000)
    with pytest.raises(UnavailableError):
        await first.base_and_trim()
    first.way.fail("before", "delete", first.round(0), times=0)
    await first.send(2)
    await first.base_and_trim()
    assert keys(store, "log/") == []
    assert len(keys(store, "base/")) == 2


class Answers(HeldWay):
    """Requests to create and to delete as they begin, and the answers of the first."""

    def __init__(self, store: ObjectStore) -> None:
        super().__init__(store)
        self.events: list[tuple[str, str]] = []

    async def create(self, key: str, content: bytes) -> bool:
        is_new = await super().create(key, content)
        await asyncio.sleep(0.1)  # on the way back
        self.events.append(("answered", key))
        return is_new

    async def delete(self, keys: Sequence[str]) -> None:
        self.events += [("delete", key) for key in keys]
        await super().delete(keys)


def test_nothing_is_deleted_before_a_manifest_is_answered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the engine as a whole, also where the base is given up."""
    monkeypatch.setattr(bases, "PATIENCE_S", 0.01)
    store, data = MemoryObjects(), tmp_path / "data"
    way = Answers(store)
    lease = OwnerLease(lambda: 100.0)  # no rounds come by themselves, so the bases have their names
    engine = ObjectEngine(way, FaultyFiles(), data, TestClock(), lease=lease)
    engine.claim()
    trials = len(way.events)
    way.fail("after", "create", manifest_key(1, 2), times=2)
    with pytest.raises(UnavailableError):
        engine.keep_base({})
    for _ in range(2):
        engine.keep_base({})
    wait_until(lambda: len(manifests(store)) == 1)
    [last] = manifests(store)
    engine.release()
    events = way.events[trials:]
    deleted = {key: place for place, (what, key) in enumerate(events) if what == "delete"}
    first = events.index(("answered", manifest_key(1, 3)))
    assert deleted and min(deleted.values()) > first
    assert deleted[manifest_key(1, 2)] < events.index(("answered", last)) < deleted[manifest_key(1, 3)]


def test_many_objects_are_deleted_by_few_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    """A request for each, many at a time, would hold up the rounds that somebody waits for."""

    async def case() -> None:
        store = MemoryObjects()
        first = await written(store, *range(50))
        rounds = len(keys(store, "log/"))
        await first.base_and_trim()
        assert keys(store, "log/") == []
        assert first.way.deletions[:2] == [20, 20]
        assert sum(first.way.deletions) >= rounds > 40

    monkeypatch.setattr(bases, "DELETE_KEYS", 20)
    run_virtually(case())


@virtually
async def test_a_manifest_that_arrives_after_its_owner_was_deposed() -> None:
    store = MemoryObjects()
    first = await written(store, 1, 2)
    manifest = manifest_key(1, 4)
    held = first.way.hold("before", "create", manifest)
    basing = asyncio.create_task(first.base_and_trim())
    await first.way.until_waits("before", "create", manifest)
    second = await written(store, 3)
    assert second.read == [1, 2]
    held.set()
    await basing  # its owner does not know yet, and trims
    assert keys(store, "log/") == [second.round(0), second.round(1)]
    third = await written(store, 4)
    assert third.read == [1, 2, 3]
    # As a PUT that was repeated: what it names is deleted, and a newer base is there.
    there = store.objects[manifest]
    await third.base_and_trim()
    assert manifest not in store.objects
    store.objects[manifest] = there
    assert (await written(store)).read == [1, 2, 3, 4]


@virtually
async def test_two_owners_that_both_write_a_base() -> None:
    store = MemoryObjects()
    first = await written(store, 1, 2)
    draft = await first.answered()
    second = await written(store, 3)
    theirs = await second.base()
    await first.bases.complete(draft)  # its rounds were answered before the second one claimed
    assert manifests(store) == [key_of(draft), key_of(theirs)]
    await asyncio.gather(first.bases.trim(draft), second.bases.trim(theirs))
    assert manifests(store) == [key_of(theirs)]
    assert (await written(store)).read == [1, 2, 3]


@virtually
async def test_a_follower_before_the_base_is_refused() -> None:
    store = MemoryObjects()
    first = await written(store, 1, 2, 3)
    followed = [place async for place, _ in follow_parts(store, START, None)]
    base = await first.base_and_trim()
    place = RoundPlace(base.epoch, base.position, 0)
    assert await reached(store) == place
    assert [each async for each in follow_parts(store, place, None)] == []
    for before in (START, *followed):
        with pytest.raises(TrimmedError, match="deleted"):
            [each async for each in follow_parts(store, before, None)]
    await first.send(4)
    assert [part.content async for _, part in follow_parts(store, place, None)] == [b"4 "]
    second = await written(store, 5)
    await second.base_and_trim()
    with pytest.raises(TrimmedError):
        [each async for each in follow_parts(store, place, None)]


@virtually
async def test_a_follower_is_not_told_that_a_lost_round_was_trimmed() -> None:
    store = MemoryObjects()
    first = await written(store, 1, 2, 3)
    await written(store)
    del store.objects[first.round(2)]
    with pytest.raises(CorruptError, match=f"{first.round(2)} is missing"):
        [each async for each in follow_parts(store, START, None)]


@virtually
async def test_the_end_does_not_go_back_when_rounds_are_trimmed() -> None:
    store = MemoryObjects()
    first = await written(store, 1)
    draft = await first.answered()
    place, way, rounds = await reached(store), HeldWay(store), numbered("log", 1) + "/"
    held = way.hold("before", "list", rounds)
    asking = asyncio.create_task(reached(way))
    await way.until_waits("before", "list", rounds)
    await first.bases.complete(draft)
    await first.bases.trim(draft)
    held.set()
    assert await asking == place


@virtually
async def test_what_an_attempt_that_failed_has_put_is_left_behind() -> None:
    """A DELETE or a PUT of the attempt may be carried out later: no name of it is used again."""
    store = MemoryObjects()
    first = await written(store, 1)
    left = await first.draft()  # and its owner goes on without a manifest
    base = await first.base_and_trim()
    assert base.position > left.position
    assert keys(store, "base/") == sorted([base.files[0].pieces[0].key, key_of(base)])
    assert (await written(store)).read == [1]
