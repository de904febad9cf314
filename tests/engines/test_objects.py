"""The engine ``objects`` in single steps: each race of the model that is about the log alone, held at its place."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from functools import wraps
from pathlib import Path
from typing import Any

import pytest

from tarry.base.clock import TestClock
from tarry.base.errors import CorruptError, FatalError, LockedError, OwnershipLostError, UnavailableError
from tarry.log.engine import Part
from tarry.log.file_engine import FileEngine
from tarry.log.frame import LogKind
from tarry.log.objects.content import (
    TRIMMED,
    Manifest,
    StoredRound,
    decode_end,
    decode_manifest,
    decode_nonce,
    decode_round,
    encode_end,
    encode_epoch,
    encode_manifest,
    encode_round,
    numbered,
    round_key,
)
from tarry.log.objects.engine import ObjectEngine
from tarry.log.objects.history import (
    START,
    WINDOW,
    Claim,
    RoundHistory,
    claim_epoch,
    follow_parts,
    reached,
)
from tarry.log.objects.kept_files import inside
from tarry.log.objects.reading import LogReader
from tarry.log.objects.rounds import DEPTH, PUT_S_MAX, ROUND_BYTES, EpochRounds, gathered
from tarry.log.objects.store import CountedObjects, ObjectStore, asked, try_out
from tests.engines.object_store import CutWay, HeldWay, MemoryObjects, run_virtually
from tests.engines.test_objects_simulated import Read
from tests.faults import FaultyFiles

Case = Callable[[], Coroutine[Any, Any, None]]


def virtually(case: Case) -> Callable[[], None]:
    @wraps(case)
    def run() -> None:
        run_virtually(case())

    del run.__wrapped__  # type: ignore[attr-defined]  # pytest would look at the signature of a coroutine
    return run


class Owner:
    """An owner that writes numbers, on a way of its own."""

    cache: type[Read] = Read

    def __init__(self, store: ObjectStore, now_ms: int = 1000, depth: int = DEPTH) -> None:
        self.depth = depth
        self.way, self.clock = HeldWay(store), TestClock(now_ms)
        self.claim: Claim
        self.history: RoundHistory
        self.rounds: EpochRounds
        self.read: list[int] = []
        self.next = 0

    async def begin(self) -> Owner:
        self.claim = await claim_epoch(self.way, "test")
        await self.take_over()
        return self

    async def take_over(self) -> None:
        read = self.cache()
        self.history = await LogReader(self.way, read).read_former(self.claim.epoch)
        self.read = read.values
        self.rounds = EpochRounds(self.way, self.claim, self.history, self.clock, self.depth)
        await self.rounds.first()

    def send(self, value: int) -> asyncio.Task[None]:
        """Begin a round, and wait for its answer in a task."""
        self.rounds.add(Part(LogKind.INTAKE, 0, value, b"%d " % value))
        return asyncio.create_task(self.rounds.sync())

    async def send_held(self, value: int, number: int) -> tuple[asyncio.Event, asyncio.Task[None]]:
        """Begin the round of that number, which waits right before its PUT until the event is set."""
        held = self.way.hold("before", "create", self.round(number))
        sent = self.send(value)
        await self.way.until_waits("before", "create", self.round(number))
        return held, sent

    def round(self, number: int) -> str:
        return round_key(self.claim.epoch, number)

    @property
    def after(self) -> str:
        return numbered("epoch", self.claim.epoch + 1)


async def settle() -> None:
    """Let everything that can go on go on."""
    await asyncio.sleep(5)


@asynccontextmanager
async def lost(task: asyncio.Task[None]) -> AsyncIterator[None]:
    yield
    with pytest.raises(OwnershipLostError):
        await task


@virtually
async def test_a_put_that_arrives_after_a_claim_is_not_answered() -> None:
    """The owner stood still right before its PUT; all of its epoch is over when it arrives."""
    store = MemoryObjects()
    first = await Owner(store).begin()
    await first.send(1)
    held, sent = await first.send_held(2, 2)
    second = await Owner(store).begin()
    assert second.read == [1]
    await second.send(3)
    held.set()
    async with lost(sent):
        pass
    assert first.round(2) in store.objects, "it arrived, behind the end"
    with pytest.raises(OwnershipLostError):
        await first.send(4)
    third = await Owner(store).begin()
    assert third.read == [1, 3]


@virtually
async def test_a_put_that_arrives_between_claim_and_reading_counts_and_is_not_answered() -> None:
    store = MemoryObjects()
    first = await Owner(store).begin()
    held, sent = await first.send_held(1, 1)
    second = Owner(store)
    second.claim = await claim_epoch(second.way, "test")
    held.set()
    async with lost(sent):
        pass
    await second.take_over()
    assert second.read == [1]


@virtually
async def test_a_404_may_be_used_however_late_it_comes() -> None:
    store = MemoryObjects()
    first = await Owner(store).begin()
    held = first.way.hold("after", "exists", first.after)
    sent = first.send(1)
    await first.way.until_waits("after", "exists", first.after)
    second = await Owner(store).begin()
    held.set()
    await sent
    assert second.read == [1]


@virtually
async def test_a_look_that_began_before_a_put_was_answered_says_nothing_of_it() -> None:
    store = MemoryObjects()
    first = await Owner(store).begin()
    held = first.way.hold("after", "exists", first.after)
    sent = first.send(1)
    await first.way.until_waits("after", "exists", first.after)
    put, behind = await first.send_held(2, 2)
    second = await Owner(store).begin()
    put.set()
    await settle()
    held.set()
    async with lost(behind):
        await settle()
    await sent
    assert second.read == [1]


@virtually
async def test_a_round_waits_for_those_before_it() -> None:
    store = MemoryObjects()
    first = await Owner(store).begin()
    held, gap = await first.send_held(1, 1)
    behind = first.send(2)
    await settle()
    assert first.round(2) in store.objects
    assert not behind.done()
    second = await Owner(store).begin()
    assert second.read == []
    held.set()
    async with lost(gap), lost(behind):
        pass


@virtually
async def test_a_put_whose_answer_is_lost_is_answered_when_it_is_seen() -> None:
    first = await Owner(MemoryObjects()).begin()
    first.way.fail("after", "create", first.round(1), times=3)
    await first.send(1)
    first.way.fail("before", "create", first.round(2), times=3)
    await first.send(2)
    assert (await Owner(first.way.store).begin()).read == [1, 2]


@virtually
async def test_a_claim_whose_answer_is_lost_is_found_by_its_nonce() -> None:
    owner = Owner(MemoryObjects())
    owner.way.fail("after", "create", numbered("epoch", 1), times=2)
    await owner.begin()
    assert owner.claim.epoch == 1


@virtually
async def test_two_claims_at_once_are_two_epochs() -> None:
    store = MemoryObjects()
    first, second = Owner(store), Owner(store)
    held = [each.way.hold("after", "list", "epoch/") for each in (first, second)]
    begun = [asyncio.create_task(each.begin()) for each in (first, second)]
    for owner in (first, second):
        await owner.way.until_waits("after", "list", "epoch/")
    for event in held:
        event.set()
    answers = await asyncio.gather(*begun, return_exceptions=True)
    assert {first.claim.epoch, second.claim.epoch} == {1, 2}
    assert not isinstance(answers[second.claim.epoch - 1], BaseException) or second.claim.epoch == 1
    newer, older = sorted((first, second), key=lambda each: -each.claim.epoch)
    await newer.send(1)
    if not isinstance(answers[0 if older is first else 1], OwnershipLostError):
        with pytest.raises(OwnershipLostError):
            await older.send(2)


@virtually
async def test_an_end_that_another_made_earlier_takes_back_what_was_read_beyond_it() -> None:
    store = MemoryObjects()
    first = await Owner(store).begin()
    held, sent = await first.send_held(1, 1)
    second = Owner(store)
    second.claim = await claim_epoch(second.way, "test")
    end = numbered("end", 1)
    late = second.way.hold("before", "create", end)
    taking = asyncio.create_task(second.take_over())
    third = Owner(store)
    third.claim = await claim_epoch(third.way, "test")
    third_end = third.way.hold("before", "create", end)
    await second.way.until_waits("before", "create", end)  # it has found the end at 1
    held.set()
    async with lost(sent):
        pass
    third_taking = asyncio.create_task(third.take_over())
    await third.way.until_waits("before", "create", end)  # it has read round 1
    late.set()
    with pytest.raises(OwnershipLostError):
        await taking
    third_end.set()
    await third_taking
    assert decode_end(store.objects[end], 1) == 1
    assert third.read == second.read == []


@virtually
async def test_an_end_that_another_made_later_is_read_up_to() -> None:
    store = MemoryObjects()
    first = await Owner(store).begin()
    held, sent = await first.send_held(1, 1)
    second = Owner(store)
    second.claim = await claim_epoch(second.way, "test")
    end = numbered("end", 1)
    late = second.way.hold("before", "create", end)
    taking = asyncio.create_task(second.take_over())
    await second.way.until_waits("before", "create", end)
    held.set()
    async with lost(sent):
        pass
    third = await Owner(store).begin()
    assert third.read == [1]
    late.set()
    with pytest.raises(OwnershipLostError):
        await taking
    assert second.read == [1]


@virtually
async def test_an_end_that_was_deleted_is_found() -> None:
    """A round that was never answered would be in the history of the third owner, and was not in the second one's."""
    store = MemoryObjects()
    first = await Owner(store).begin()
    held, sent = await first.send_held(1, 1)
    second = await Owner(store).begin()
    await second.send(2)
    held.set()
    async with lost(sent):
        pass
    del store.objects[numbered("end", 1)]
    with pytest.raises(CorruptError, match=f"{second.round(0)} follows another round"):
        await Owner(store).begin()


async def twins(store: MemoryObjects) -> tuple[Owner, Owner]:
    """An owner, and a copy of it from a snapshot of its machine."""
    one, two = Owner(store), Owner(store)
    one.claim = two.claim = await claim_epoch(one.way, "test")
    for owner in (one, two):
        await owner.take_over()
    return one, two


@virtually
async def test_of_two_copies_of_a_machine_one_goes_on() -> None:
    store = MemoryObjects()
    one, two = await twins(store)
    await asyncio.gather(one.send(1), two.send(1))  # the same bytes are the same round
    await one.send(2)
    with pytest.raises(OwnershipLostError, match="two copies"):
        await two.send(3)
    await one.send(4)
    assert (await Owner(store).begin()).read == [1, 2, 4]


@virtually
async def test_an_epoch_ends_where_the_rounds_of_two_copies_part() -> None:
    store = MemoryObjects()
    one, two = await twins(store)
    await one.send(1)
    # The other one's round 1 is denied, but its round 2 is there first.
    held, sent = await two.send_held(2, 1)
    behind = two.send(3)
    await settle()
    with pytest.raises(OwnershipLostError, match="two copies"):
        await one.send(4)
    async with lost(sent), lost(behind):
        held.set()
    followed = [part.content async for _, part in follow_parts(store, START, None)]
    assert followed == [b"1 "]
    third = await Owner(store).begin()
    assert third.read == [1]
    assert decode_end(store.objects[numbered("end", 1)], 1) == 2


def test_a_store_that_is_away_is_told_of_once_for_all_that_wait(caplog: pytest.LogCaptureFixture) -> None:
    way = CutWay(MemoryObjects())
    way.is_cut = True

    async def wait_for_nothing() -> None:
        waiting = [asyncio.create_task(asked(lambda: way.list("epoch/"), 40.0)) for _ in range(9)]
        await asyncio.wait(waiting)
        assert all(isinstance(each.exception(), UnavailableError) for each in waiting)

    run_virtually(wait_for_nothing())
    assert [record.message for record in caplog.records] == ["cut off; trying again"] * 3


def test_a_store_that_answers_again_is_told_of_once_and_how_long_it_was_away(caplog: pytest.LogCaptureFixture) -> None:
    way = CutWay(MemoryObjects())
    store = CountedObjects(way)

    async def away_for(seconds: float) -> None:
        way.is_cut = True
        waiting = [asyncio.create_task(asked(lambda: store.list("epoch/"))) for _ in range(9)]
        await asyncio.sleep(seconds)
        way.is_cut = False
        await asyncio.gather(*waiting)

    async def come_and_go() -> None:
        await store.list("epoch/")
        await away_for(3)  # that is not told
        await away_for(40)
        await asyncio.sleep(60)
        await store.list("epoch/")
        await away_for(20)

    run_virtually(come_and_go())
    away, back = "cut off; trying again", "the bucket of the logs answers again, after "
    told = [re.fullmatch(r"(.*?)(?:(\d+) s)?", record.message) for record in caplog.records]
    assert [each[1] for each in told if each] == [away, away, away, back, away, back]
    spans = [int(each[2]) for each in told if each and each[2]]
    assert [40 <= spans[0] <= 42, 20 <= spans[1] <= 22] == [True, True], spans  # it is asked each second


@virtually
async def test_while_the_store_cannot_be_asked_nothing_is_answered() -> None:
    first = await Owner(MemoryObjects()).begin()
    first.way.fail("before", "exists", first.after, times=50)
    sent = first.send(1)
    await asyncio.sleep(20)
    assert not sent.done()
    await sent
    with pytest.raises(UnavailableError):
        first.way.fail("before", "get", numbered("epoch", 1))
        await first.rounds.look_around()
    assert first.rounds.lost is None


@virtually
async def test_a_conflict_that_nobody_won_is_tried_again() -> None:
    class Conflicting(MemoryObjects):
        conflicts = 2

        async def create(self, key: str, content: bytes) -> bool:
            if key.startswith("log/") and self.conflicts:
                self.conflicts -= 1
                return False  # a 409, which reads as "exists"
            return await super().create(key, content)

    owner = await Owner(Conflicting()).begin()
    await owner.send(1)
    assert (await Owner(owner.way.store).begin()).read == [1]


@virtually
async def test_what_is_written_meanwhile_is_one_round_and_one_look_serves_several() -> None:
    store = MemoryObjects()
    owner = await Owner(store, depth=1).begin()
    held, sent = await owner.send_held(1, 1)
    sends = [sent]
    sends += [owner.send(value) for value in range(2, 50)]
    await settle()
    held.set()
    await asyncio.gather(*sends)
    assert [key for what, key in owner.way.passed if what == "create" and key >= owner.round(1)] == [
        owner.round(1),
        owner.round(2),
    ]


@virtually
async def test_a_sync_does_not_wait_for_what_was_added_behind_it() -> None:
    owner = await Owner(MemoryObjects()).begin()
    owner.rounds.add(Part(LogKind.INTAKE, 0, 0, bytes(ROUND_BYTES)))  # a round by itself
    added = owner.rounds.added
    held, behind = await owner.send_held(2, 2)
    await owner.rounds.sync(added)
    assert not behind.done()
    held.set()
    await behind


@virtually
async def test_a_mark_is_reached_when_its_own_round_is_answered() -> None:
    owner = await Owner(MemoryObjects()).begin()
    held, sent = await owner.send_held(1, 1)
    held_mark = owner.way.hold("before", "create", owner.round(2))
    place = await owner.rounds.mark()
    reached = asyncio.create_task(owner.rounds.reach(place.position))
    held.set()
    await sent
    await settle()
    assert not reached.done(), "what is in the round of the mark, or nothing, is not in the log yet"
    held_mark.set()
    await reached


@virtually
async def test_puts_that_take_long_do_not_make_a_writer_wait_for_ever() -> None:
    owner = await Owner(MemoryObjects()).begin()
    before_s = owner.rounds.put_s
    held, sent = await owner.send_held(1, 1)
    await asyncio.sleep(100)
    held.set()
    await sent
    assert before_s < owner.rounds.put_s <= PUT_S_MAX


@virtually
async def test_one_look_serves_all_rounds_that_wait_for_the_first() -> None:
    owner = await Owner(MemoryObjects()).begin()
    held, sent = await owner.send_held(1, 1)
    sends = [sent]
    for value in range(2, 6):
        sends.append(owner.send(value))
        await settle()
    looks = owner.way.passed.count(("exists", owner.after))
    held.set()
    await asyncio.gather(*sends)
    assert owner.way.passed.count(("exists", owner.after)) == looks + 1


@virtually
async def test_clocks_of_rounds_never_go_back() -> None:
    store = MemoryObjects()
    for now_ms in (5000, 1000, 9000, 2000):
        owner = await Owner(store, now_ms).begin()
        await owner.send(now_ms)
    clocks = [
        decode_round(store.objects[round_key(epoch, number)], epoch, number).clock_ms
        for epoch in range(1, 5)
        for number in range(2)
    ]
    assert clocks == [5000] * 4 + [9000] * 4


@virtually
async def test_an_epoch_that_was_deleted_or_replaced_is_found() -> None:
    store = MemoryObjects()
    owner = await Owner(store).begin()
    there = store.objects.pop(numbered("epoch", 1))
    await owner.rounds.look_around()
    with pytest.raises(OwnershipLostError, match="is gone"):
        await owner.send(1)
    store.objects[numbered("epoch", 1)] = there
    second = await Owner(store).begin()
    store.objects[numbered("epoch", 2)] = there
    await second.rounds.look_around()
    with pytest.raises(OwnershipLostError, match="another's"):
        await second.send(1)
    del store.objects[numbered("epoch", 1)]
    with pytest.raises(CorruptError, match="epoch/00000000000000000001 is missing"):
        await claim_epoch(store, "test")


@virtually
async def test_a_round_that_is_missing_below_the_end_is_damage() -> None:
    store = MemoryObjects()
    owner = await Owner(store).begin()
    for value in range(3):
        await owner.send(value)
    await Owner(store).begin()
    del store.objects[owner.round(2)]
    with pytest.raises(CorruptError, match=f"{owner.round(2)} is missing"):
        await Owner(store).begin()


@virtually
async def test_a_follower_gets_what_is_certain_and_nothing_else() -> None:
    store = MemoryObjects()
    first = await Owner(store).begin()
    for value in range(40):
        await first.send(value)
    followed = [(place, part.content) async for place, part in follow_parts(store, START, None)]
    assert [int(content) for _, content in followed] == list(range(40))
    assert followed[-1][0] == await reached(store)
    for place, content in followed:
        behind = [part.content async for _, part in follow_parts(store, place, None)]
        assert [int(each) for each in behind] == list(range(int(content) + 1, 40))
    # A round that has arrived while another one claims: nobody knows yet.
    held, sent = await first.send_held(40, 41)
    second = Owner(store)
    second.claim = await claim_epoch(second.way, "test")
    held.set()
    async with lost(sent):
        pass
    assert [part async for _, part in follow_parts(store, followed[-1][0], None)] == []
    await second.take_over()
    await second.send(41)
    behind = [part.content async for _, part in follow_parts(store, followed[-1][0], None)]
    assert behind == [b"40 ", b"41 "]


class CachedStore(MemoryObjects):
    """A store behind a cache of what is not there."""

    def __init__(self) -> None:
        super().__init__()
        self.missing: set[str] = set()

    async def exists(self, key: str) -> bool:
        if key not in self.objects:
            self.missing.add(key)
        return key not in self.missing


class WithoutConditions(MemoryObjects):
    async def create(self, key: str, content: bytes) -> bool:
        self.objects[key] = content
        return True


@pytest.mark.parametrize("store", [CachedStore(), WithoutConditions()], ids=lambda each: type(each).__name__)
def test_a_store_that_does_not_do_is_refused(store: MemoryObjects, tmp_path: Path) -> None:
    engine = ObjectEngine(store, FaultyFiles(), tmp_path, TestClock())
    with pytest.raises(FatalError, match="the store of the logs answered"):
        engine.claim()
    assert not [key for key in store.objects if key.startswith("epoch/")]
    run_virtually(try_out(MemoryObjects()))


class LatePuts(MemoryObjects):
    """Of the first trials, each creation is answered at its second try.

    The first one arrives after the deletion.
    """

    def __init__(self, trials: int) -> None:
        super().__init__()
        self.trials = trials
        self.tried: dict[str, bytes] = {}

    async def create(self, key: str, content: bytes) -> bool:
        if key not in self.tried and len(self.tried) < self.trials:
            self.tried[key] = content
            raise UnavailableError("a timeout")
        return await super().create(key, content)

    async def delete(self, keys: Sequence[str]) -> None:
        await super().delete(keys)
        self.objects |= {key: self.tried[key] for key in keys if key in self.tried}


def test_a_put_of_a_trial_that_arrives_late_says_nothing_of_the_store() -> None:
    run_virtually(try_out(LatePuts(2)))
    with pytest.raises(UnavailableError, match="carried out late"):
        run_virtually(try_out(LatePuts(1000)))


def test_a_directory_is_used_by_one_owner(tmp_path: Path) -> None:
    engines = [ObjectEngine(MemoryObjects(), FaultyFiles(), tmp_path, TestClock()) for _ in range(2)]
    engines[0].claim()
    with pytest.raises(LockedError):
        engines[1].claim()
    engines[0].release()


def test_what_is_in_the_directory_does_not_count(tmp_path: Path) -> None:
    store = MemoryObjects()
    engine = ObjectEngine(store, FaultyFiles(), tmp_path, TestClock())
    engine.claim()
    engine.release()
    stale = tmp_path / "intake" / f"{7:020d}.log"
    stale.parent.mkdir()
    stale.write_bytes(b"an earlier life's")
    engine = ObjectEngine(store, FaultyFiles(), tmp_path, TestClock())
    engine.claim()
    assert not stale.exists()
    engine.release()


def test_logs_in_a_directory_are_not_emptied(tmp_path: Path) -> None:
    own = tmp_path / "intake" / f"{7:020d}.log"
    own.parent.mkdir()
    own.write_bytes(b"accepted")
    store = MemoryObjects()
    engine = ObjectEngine(store, FaultyFiles(), tmp_path, TestClock())
    with pytest.raises(LockedError, match=r"is no cache .* it has intake"):
        engine.claim()
    assert own.read_bytes() == b"accepted" and not store.objects


def test_a_cache_is_not_opened_as_a_directory_of_logs(tmp_path: Path) -> None:
    engine = ObjectEngine(MemoryObjects(), FaultyFiles(), tmp_path, TestClock(), name="s3://logs/a")
    engine.claim()
    engine.release()
    files = FileEngine(FaultyFiles(), tmp_path)
    with pytest.raises(LockedError, match="is a cache of the logs in s3://logs/a"):
        files.claim()


def test_small_files_are_part_of_the_log(tmp_path: Path) -> None:
    store, data = MemoryObjects(), [tmp_path / "1", tmp_path / "2"]
    first = ObjectEngine(store, FaultyFiles(), data[0], TestClock(), local=("here.json",))
    first.claim()
    (data[0] / "sub").mkdir()
    for name, content in {"a": b"1", "sub/b": b"2", "here.json": b"3", "a ": b"4"}.items():
        first.files.replace(data[0] / name, content)
    first.files.replace(data[0] / "a", b"5")
    (data[0] / "c").write_bytes(b"6")
    first.keep(data[0] / "c")
    second = ObjectEngine(store, FaultyFiles(), data[1], TestClock())
    second.claim()
    there = {path.relative_to(data[1]).as_posix(): path.read_bytes() for path in data[1].rglob("*") if path.is_file()}
    del there["lock"], there["cache-of"], there["role.json"]
    assert there == {"a": b"5", "sub/b": b"2", "a ": b"4", "c": b"6"}
    with pytest.raises(OwnershipLostError):
        first.files.replace(data[0] / "a", b"7")
    for engine in (first, second):
        engine.release()


def a_round(**changes: Any) -> StoredRound:
    parts = (Part(LogKind.INTAKE, 3, 70, b"abc"), Part(LogKind.READY, 0, TRIMMED, b""), Part(LogKind.ACKS, 1, 0, b""))
    return StoredRound(2, 5, bytes(range(16)), 1234, bytes(32), parts)._replace(**changes)


def test_a_round_is_read_as_it_was_written() -> None:
    each = a_round()
    assert decode_round(encode_round(each), 2, 5) == each._replace(parts=list(each.parts))
    empty = a_round(parts=())
    assert decode_round(encode_round(empty), 2, 5) == empty._replace(parts=[])
    assert encode_round(each) == encode_round(a_round())


def test_every_damage_of_a_round_is_found() -> None:
    content = encode_round(a_round())
    for at in range(len(content)):
        with pytest.raises(CorruptError, match=r"log/0{19}2/0{19}5"):
            decode_round(content[:at] + bytes([content[at] ^ 4]) + content[at + 1 :], 2, 5)
    for size in range(len(content)):
        with pytest.raises(CorruptError):
            decode_round(content[:size], 2, 5)
    with pytest.raises(CorruptError, match="is round 5 of epoch 2"):
        decode_round(content, 2, 6)


def test_ends_of_another_format_are_refused() -> None:
    assert decode_end(encode_end(7), 1) == 7
    for content in (b"", b"[]", b'{"format": 2, "position": 1}', b'{"format": 1}', b'{"format": 1, "position": -1}'):
        with pytest.raises(CorruptError, match="end/"):
            decode_end(content, 1)


def test_parts_that_go_on_from_one_another_are_one() -> None:
    parts = [
        Part(LogKind.READY, 0, 0, b"ab"),
        Part(LogKind.INTAKE, 0, 0, b"x"),
        Part(LogKind.READY, 0, 2, b"c"),
        Part(LogKind.READY, 1, 0, b"d"),
        Part(LogKind.READY, 1, 0, b""),
        Part(LogKind.READY, 1, 0, b"e"),
    ]
    assert gathered(parts) == [parts[1], Part(LogKind.READY, 0, 0, b"abc"), *parts[3:]]


@virtually
async def test_a_round_that_was_deleted_is_no_end() -> None:
    store = MemoryObjects()
    owner = await Owner(store).begin()
    for value in range(WINDOW + 4):
        await owner.send(value)
    del store.objects[round_key(1, 3)]
    with pytest.raises(CorruptError, match=rf"{round_key(1, 3)} is missing, and there are rounds up to {WINDOW + 4}"):
        await Owner(store).begin()
    assert numbered("end", 1) not in store.objects


@virtually
async def test_no_more_rounds_than_a_window_are_under_way() -> None:
    store = MemoryObjects()
    owner = await Owner(store).begin()
    held, _ = await owner.send_held(0, 1)
    sent = [owner.send(value) for value in range(1, 2 * WINDOW)]
    for _ in range(50):
        await asyncio.sleep(0.1)
    assert max(int(key[-20:]) for key in store.objects if key.startswith("log/")) < WINDOW
    held.set()
    await asyncio.gather(*sent)


@virtually
async def test_what_is_no_object_of_a_log_is_named() -> None:
    for key in ("epoch/README", "epoch/00000000000000000002.bak", "base/old/manifest"):
        store = MemoryObjects()
        await Owner(store).begin()
        store.objects[key] = b"by hand"
        with pytest.raises(CorruptError, match=f"{key} is no object of a log"):
            await Owner(store).begin()


@pytest.mark.parametrize("name", ["../x", "/etc/x", "a/../../x", "", "lock", "cache-of"])
def test_a_file_of_the_log_stays_in_the_directory(name: str, tmp_path: Path) -> None:
    with pytest.raises(CorruptError, match="which is none of a data directory"):
        inside(tmp_path, name)
    assert inside(tmp_path, "rocketmq/classic-a.json") == tmp_path / "rocketmq/classic-a.json"


@pytest.mark.parametrize(
    "content",
    [encode_end(3), encode_epoch(1, bytes(16), "a"), encode_manifest(Manifest(1, 2, 3, bytes(32), {LogKind.READY: 4}))],
)
def test_each_damaged_bit_of_a_small_object_is_found(content: bytes) -> None:
    def decode(content: bytes, kind: bytes) -> object:
        if b"nonce" in kind:
            return decode_nonce(content, 1)
        return decode_manifest(content, "manifest", 1, 2) if b"digest" in kind else decode_end(content, 1)

    assert decode(content, content) is not None
    for at in range(len(content)):
        damaged = bytearray(content)
        damaged[at] ^= 1 << at % 8
        with pytest.raises(CorruptError):
            decode(bytes(damaged), content)


@virtually
async def test_who_stops_says_who_has_claimed_or_that_somebody_has() -> None:
    store = MemoryObjects()
    first = await Owner(store).begin()
    second = await Owner(store).begin()
    with pytest.raises(OwnershipLostError, match=r"^epoch 1 has ended: test has claimed 2$"):
        await first.send(1)
    second.way.fail("before", "get", numbered("epoch", 3))
    await Owner(store).begin()
    with pytest.raises(OwnershipLostError, match=r"^epoch 2 has ended: another owner has claimed 3$"):
        await second.send(1)
