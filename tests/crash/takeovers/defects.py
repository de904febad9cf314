"""Defects of brokers that a simulation has to find: a checker that cannot fail is one, too.

Each leaves a clause of the design out (``docs/takeover-model.md``), by other methods, or functions of a module, in the
place of the product's.
"""

# ruff: noqa: SLF001  defects are made inside

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch
from weakref import WeakKeyDictionary

import numpy as np

from tarry.base.types import NEVER_MS, Int64s
from tarry.broker.directory import CHECKPOINT_FILE
from tarry.broker.progress import Checkpointer
from tarry.groups.leases import Lease, Leases, Places
from tarry.log.objects import reading as reading_module
from tarry.log.objects.bases import EpochBases
from tarry.log.objects.cache import CacheDirectory
from tarry.log.objects.content import NO_DIGEST, Manifest
from tarry.log.objects.engine import ObjectEngine
from tarry.log.objects.history import RoundHistory, end_of
from tarry.log.objects.lease import LEASE_S, OwnerLease
from tarry.log.objects.reading import LogReader, Place
from tarry.log.objects.rounds import EpochRounds
from tarry.log.objects.store import ObjectStore
from tests.crash.takeovers.life import simulate

Replacements = Mapping[tuple[Any, str], Any]


class Defect(NamedTuple):
    """What is left out, the methods that do so, and the faults of lives that find it soon (none: any)."""

    what: str
    methods: Replacements
    faults: tuple[str, ...] = ()

    @contextmanager
    def applied(self) -> Iterator[None]:
        with ExitStack() as stack:
            for (owner, name), method in self.methods.items():
                stack.enter_context(patch.object(owner, name, method))
            yield


_claim = ObjectEngine._claim
_extend = OwnerLease.extend
_keep_base = ObjectEngine.keep_base


async def _nothing_async(*_: object) -> None:
    pass


def _nothing(*_: object) -> None:
    pass


async def _claim_without_lease_in_floor(engine: ObjectEngine) -> EpochRounds:
    rounds = await _claim(engine)
    if engine._lease.begins_in_s > 0:  # the former owner has not handed over
        engine.left_ms -= round(1000 * LEASE_S)
    return rounds


async def _claim_without_floor(engine: ObjectEngine) -> EpochRounds:
    rounds = await _claim(engine)
    engine.left_ms = NEVER_MS
    return rounds


async def _answer_without_look(rounds: EpochRounds, _: int) -> None:
    for number in range(rounds.answered, rounds._durable):
        begun_s, clock_ms, rounds._parts_answered = rounds._begun.pop(number)
        rounds._lease.extend(begun_s, clock_ms)
    rounds.answered = rounds._durable
    rounds._wake()


def _extend_from_answer(lease: OwnerLease, _: float, clock_ms: int) -> None:
    _extend(lease, lease.now_s(), clock_ms)


async def _keep_base_unanswered(engine: ObjectEngine, files: Mapping[str, Path]) -> None:
    rounds, bases = engine._owned(), engine._bases
    assert bases is not None
    manifest = await bases.put(await rounds.mark(), engine._cache.sources(files))
    await bases.complete(manifest)
    await bases.trim(manifest)


def _keep_base_without_checkpoint(engine: ObjectEngine, files: Mapping[str, Path]) -> None:
    _keep_base(engine, {name: path for name, path in files.items() if name != CHECKPOINT_FILE})


def _announce_to_nobody(progress: Checkpointer, ready_first: int) -> None:
    pass


async def _trim_first(bases: EpochBases, manifest: Manifest) -> None:
    await bases.trim(manifest)
    await _complete(bases, manifest)


_complete = EpochBases.complete


class _EndOfAll(int):
    """An end beyond which nothing lies."""

    def __lt__(self, other: int) -> bool:
        return False


async def _end_of_all(store: ObjectStore, epoch: int) -> int | None:
    end = await end_of(store, epoch)
    return None if end is None else _EndOfAll(end)


def _history_without_clock(digest: bytes = NO_DIGEST, _: int = 0, *more: Any) -> RoundHistory:
    return RoundHistory(digest, 0, *more)


_MISSING: WeakKeyDictionary[LogReader, Place] = WeakKeyDictionary()
_follow, _read, _find = LogReader.follow, LogReader._read, Leases.find


async def _follow_noting_what_is_missing(reader: LogReader, most: int) -> int:
    if (found := await _follow(reader, most)) < most:
        _MISSING[reader] = reader.place
    return found


async def _read_what_was_not_missing(reader: LogReader, end: int | None, most: int | None = None) -> int:
    is_claimed = end is None and most is None
    return 0 if is_claimed and _MISSING.get(reader) == reader.place else await _read(reader, end, most)


async def _settle_without_a_look(reader: LogReader, _: int | None = None) -> bool:
    return reader.stands


def _clear_nothing(cache: CacheDirectory) -> None:
    cache.close()


def _find_by_offset(leases: Leases, numbers: Int64s, offsets: Int64s) -> list[tuple[Lease, Places]]:
    known = {lease.number for lease in leases}
    for at, (number, offset) in enumerate(zip(numbers.tolist(), offsets.tolist(), strict=True)):
        if number not in known:  # of a former owner
            held = next((lease.number for lease in leases if lease.place(offset) is not None), number)
            numbers = np.concatenate([numbers[:at], [held], numbers[at + 1 :]])
    return _find(leases, numbers, offsets)


_HANDED, _RACE, _STILL = ("hand out and kill",), ("race",), ("stand still",)
_TOLD, _TRIM_FOLLOWED = ("tell a standby",), ("trim and kill", "trim and tell a standby")
_BASE, _TRIM = ("end amid a base",), ("trim and kill",)
DEFECTS = {
    "no-look": Defect("a look for a later epoch, after a PUT", {(EpochRounds, "_look"): _answer_without_look}),
    "no-confirm": Defect("a look where an answer has no frame", {(EpochRounds, "confirm"): _nothing_async}),
    "no-floor": Defect("the floor", {(ObjectEngine, "_claim"): _claim_without_floor}, _HANDED),
    "no-lease-in-floor": Defect(
        "LEASE beyond the log's clock, in the floor", {(ObjectEngine, "_claim"): _claim_without_lease_in_floor}, _HANDED
    ),
    "no-wait": Defect("the wait for former leases", {(OwnerLease, "wait_for_former"): _nothing}, _RACE),
    "no-wait-of-acks": Defect(
        "the wait for former leases, of what groups write", {(ObjectEngine, "wait_for_former"): _nothing}, _RACE
    ),
    "endless-lease": Defect("the lease's end", {(OwnerLease, "lasts"): lambda lease: True}, _STILL),
    "stale-lists": Defect(
        "a look at the lease, before a list", {(OwnerLease, "is_confirmed"): lambda lease: True}, _STILL
    ),
    "lease-from-answer": Defect(
        "a lease that counts from the PUT's beginning", {(OwnerLease, "extend"): _extend_from_answer}, _STILL
    ),
    "unanswered-base": Defect(
        "answers to a base's rounds, before it counts", {(ObjectEngine, "_keep_base"): _keep_base_unanswered}, _BASE
    ),
    "trim-before-base": Defect(
        "a base, before what it replaces is deleted", {(EpochBases, "complete"): _trim_first}, _BASE
    ),
    "no-checkpoint-in-base": Defect(
        "the checkpoint in a base", {(ObjectEngine, "keep_base"): _keep_base_without_checkpoint}, _TRIM
    ),
    "no-announcement": Defect(
        "word of which segments of the ready log stay", {(Checkpointer, "_announce"): _announce_to_nobody}, _TRIM
    ),
    "standby-no-wait": Defect(
        "the wait of a standby for former leases", {(OwnerLease, "wait_for_former"): _nothing}, _TOLD
    ),
    "standby-beyond-end": Defect(
        "a standby's giving up of what it has applied beyond an end",
        {(reading_module, "end_of"): _end_of_all},
        ("late round",),
    ),
    "old-404": Defect(
        "a look, after the claim, for what a standby did not find before",
        {(LogReader, "follow"): _follow_noting_what_is_missing, (LogReader, "_read"): _read_what_was_not_missing},
        _TOLD,
    ),
    "no-clock-of-base": Defect(
        "the clock of a base",
        {(reading_module, "RoundHistory"): _history_without_clock},
        ("end behind a base",),
    ),
    "former-offsets": Defect(
        "a lease of its own that an acknowledgement needs", {(Leases, "find"): _find_by_offset}, ("settle elsewhere",)
    ),
    "no-settling": Defect(
        "a standby's look for newer bases", {(LogReader, "settle"): _settle_without_a_look}, _TRIM_FOLLOWED
    ),
    "no-clearing": Defect(
        "the emptying of a directory that a machine of before has left",
        {(CacheDirectory, "clear"): _clear_nothing},
        ("kill", "trim and kill", "trouble with a standby"),
    ),
}
"""By name."""


def find(name: str, seeds: Iterable[int], directory: Path) -> tuple[int, Exception] | None:
    """Live the lives of some seeds with a defect; return the first that fails, and how."""
    defect = DEFECTS[name]
    with defect.applied():
        for seed in seeds:
            try:
                simulate(seed, directory / str(seed), faults=defect.faults)
            except Exception as error:  # noqa: BLE001  whatever it is, it is seen
                return seed, error
    return None
