"""Bases of the engine ``objects`` in single steps: from which one a claim begins, each race held at its place."""

from __future__ import annotations

import asyncio

import pytest

from tarry.base.errors import CorruptError, OwnershipLostError, UnavailableError
from tarry.log.objects.bases import newest_base
from tarry.log.objects.content import encode_end, numbered
from tests.engines.base_owner import Keeping, key_of, keys, manifest_key, manifests, written
from tests.engines.object_store import MemoryObjects
from tests.engines.test_objects import settle, virtually


@virtually
async def test_a_claim_begins_from_the_newest_base() -> None:
    store = MemoryObjects()
    first = await written(store, 1, 2)
    base = await first.base_and_trim()
    assert (base.epoch, base.position, keys(store, "log/")) == (1, 4, [])
    await first.send(3)
    second = await written(store, 4)
    assert second.read == [1, 2, 3]
    assert ("get", first.round(3)) not in second.way.passed
    await second.base_and_trim()
    assert keys(store, "log/") == [] and not keys(store, numbered("base", 1))
    third = await written(store)
    assert third.read == [1, 2, 3, 4]
    assert ("get", numbered("end", 1)) not in third.way.passed, "an epoch before the base's is not read"


@virtually
async def test_the_clock_and_the_digest_go_on_from_a_base() -> None:
    store = MemoryObjects()
    first = Keeping(store, now_ms=9000)
    await first.begin()
    await first.base_and_trim()
    second = await written(store)
    assert second.history.clock_ms == 9000
    await second.send(1)
    assert (await written(store)).read == [1]


@virtually
async def test_a_base_waits_for_the_answers_of_what_is_in_it() -> None:
    store = MemoryObjects()
    first = await written(store, 1)
    held, sent = await first.send_held(2, 2)
    basing = asyncio.create_task(first.base())
    await settle()
    assert keys(store, "base/") and not manifests(store)
    second = await written(store, 3)
    held.set()
    for task in (sent, basing):
        with pytest.raises(OwnershipLostError):
            await task
    assert not manifests(store)
    assert second.read == [1]
    assert (await written(store)).read == [1, 3]


@virtually
async def test_a_base_beyond_the_end_is_passed_over() -> None:
    store = MemoryObjects()
    first = await written(store, 1)
    good = await first.base()
    await first.send(2)
    beyond = await first.base()
    store.objects[numbered("end", 1)] = encode_end(good.position)
    assert beyond.position > good.position
    assert await newest_base(store) == good
    assert (await written(store)).read == [1]


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("what", ["piece", "manifest"])
def test_a_base_whose_put_is_not_answered_is_given_up_and_made_again(when: str, what: str) -> None:
    @virtually
    async def case() -> None:
        store = MemoryObjects()
        first = await written(store, 1)
        key = manifest_key(1, 3) if what == "manifest" else manifest_key(1, 3).replace("manifest", "0-0")
        first.way.fail(when, "create", key, times=1000)
        with pytest.raises(UnavailableError):
            await first.base()
        await first.send(2)
        base = await first.base_and_trim()
        assert manifests(store) == [key_of(base)]
        store.objects[key] = b"a PUT that nobody waits for arrives, and nobody reads it"
        assert await newest_base(store) == base
        assert (await written(store, 3)).read == [1, 2]

    case()


@pytest.mark.parametrize("when", ["get", "create"])
def test_an_end_before_the_base_that_was_begun_from_is_made_meanwhile(when: str) -> None:
    @virtually
    async def case() -> None:
        store = MemoryObjects()
        first = await written(store, 1)
        await first.send(2)
        beyond = await first.base()
        end, [piece] = numbered("end", 1), beyond.files[0].pieces
        second = Keeping(store)
        held, taking = await second.claim_held("before", when, end if when == "create" else piece.key)
        store.objects[end] = encode_end(2)
        held.set()
        await taking
        assert second.read == [1]

    case()


@virtually
async def test_a_claim_that_crashes_in_the_midst() -> None:
    store = MemoryObjects()
    first = await written(store, 1)
    base = await first.base_and_trim()
    await first.send(2)
    for when, what, key in (
        ("before", "list", "base/"),
        ("after", "get", key_of(base)),
        ("before", "get", first.round(base.position)),
        ("before", "create", numbered("end", 1)),
        ("after", "create", numbered("end", 1)),
    ):
        _, taking = await Keeping(store).claim_held(when, what, key)
        taking.cancel()
        await asyncio.wait([taking])
        assert taking.cancelled()
    last = await written(store, 3)
    assert (last.read, last.claim.epoch) == ([1, 2], 7)


@virtually
async def test_a_claim_that_a_later_owner_has_overtaken_ends_nothing() -> None:
    store = MemoryObjects()
    first = await written(store, 1)
    slow = Keeping(store)
    held, taking = await slow.claim_held("before", "get", first.round(0))
    third = await written(store, 2)
    await third.base_and_trim()
    held.set()
    with pytest.raises(OwnershipLostError, match="epoch 2 has ended: there is a base of epoch 3"):
        await taking
    assert (await written(store)).read == [1, 2]


@virtually
async def test_damage_is_refused_by_name() -> None:
    store = MemoryObjects()
    first = await written(store, 1)
    manifest = key_of(await first.base())
    sound = dict(store.objects)
    for key in keys(store, "base/"):
        for damaged in (None, b"", sound[key][:-1], sound[key].replace(b"1", b"2", 1)):
            if damaged is None and key == manifest:
                continue  # no manifest: no base
            store.objects = {**sound, key: damaged} if damaged is not None else dict(sound)
            if damaged is None:
                del store.objects[key]
            with pytest.raises(CorruptError, match=key):
                await written(store)
    store.objects = {key: content for key, content in sound.items() if key != manifest}
    assert (await written(store)).read == [1]


@virtually
async def test_a_claim_takes_no_base_of_its_own_epoch_or_a_later_one() -> None:
    store = MemoryObjects()
    first = await written(store, 1)
    base = await first.base()
    slow = Keeping(store)
    held, taking = await slow.claim_held("before", "list", "base/")
    third = await written(store, 2)
    await third.base()
    assert await newest_base(store, slow.claim.epoch) == base
    held.set()
    with pytest.raises(OwnershipLostError):
        await taking
    assert slow.read in ([], [1])
