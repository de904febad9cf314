"""A shard's log in the store: claiming the next epoch, reading rounds, following them part by part."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import NamedTuple

from tarry.base.errors import CorruptError, TrimmedError
from tarry.log.engine import Part
from tarry.log.frame import LogKind
from tarry.log.objects.bases import MissingObject, newest_base
from tarry.log.objects.content import (
    HANDED_OVER,
    LEFT,
    NO_DIGEST,
    TRIMMED,
    StoredRound,
    decode_end,
    decode_nonce,
    decode_round,
    decode_who,
    digest_of,
    encode_epoch,
    number_in,
    numbered,
    round_key,
)
from tarry.log.objects.store import PATIENCE_S, ObjectStore, asked, created

WINDOW = 64
"""The most rounds of an owner that are not answered."""
READS = 16
"""The most rounds that are read at a time."""


class Claim(NamedTuple):
    """An epoch, the nonce that says whose it is, and the object that says so."""

    epoch: int
    nonce: bytes
    content: bytes


class RoundPlace(NamedTuple):
    """A place in the log: behind all rounds before ``number`` of an epoch, and so many parts of that one."""

    epoch: int
    number: int
    parts: int


START = RoundPlace(1, 0, 0)


@dataclass
class RoundHistory:
    """Sum of all rounds up to a place."""

    digest: bytes = NO_DIGEST
    clock_ms: int = 0
    trimmed: dict[LogKind, int] = field(default_factory=dict)
    """By log: the first segment that is kept, where some were trimmed."""
    epoch: int = 0
    """That of the last round."""
    handed_over_ms: int | None = None
    """Left by its owner (:attr:`tarry.log.engine.SharedLogs.left_ms`); None: it has not handed over."""

    def add(self, each: StoredRound, digest: bytes) -> None:
        self.digest, self.clock_ms = digest, max(self.clock_ms, each.clock_ms)
        if each.epoch != self.epoch:
            self.epoch, self.handed_over_ms = each.epoch, None
        for part in each.parts:
            if part.position == TRIMMED:
                self.trimmed[part.kind] = max(self.trimmed.get(part.kind, 0), part.segment + 1)
            elif part.position == HANDED_OVER:
                [self.handed_over_ms] = LEFT.unpack(part.content)


async def claim_epoch(store: ObjectStore, who: str) -> Claim:
    """Create the epoch after the newest one; see :func:`claim_after`."""
    while (claim := await claim_after(store, who, None)) is None:
        pass
    return claim


async def claim_after(store: ObjectStore, who: str, former: int | None) -> Claim | None:
    """Create the epoch after ``former``, or after the newest one; None: another one has it.

    Raises:
        UnavailableError: the store cannot be asked. An epoch that nobody has may be there then, which harms nobody.
        CorruptError: an epoch is missing.
    """
    if former is not None:
        # At once: that it can be created says as well that there is none behind the former, which is there.
        claim, newest = await asyncio.gather(_created_epoch(store, who, former + 1), newest_epoch(store))
        if claim is not None and newest > claim.epoch:
            raise CorruptError(
                f"{numbered('epoch', claim.epoch)} was missing, and later ones are there: it was deleted"
            )
        return claim
    return await _created_epoch(store, who, await newest_epoch(store) + 1)


async def _created_epoch(store: ObjectStore, who: str, epoch: int) -> Claim | None:
    nonce = secrets.token_bytes(16)
    content = encode_epoch(epoch, nonce, who)
    there = await created(store, numbered("epoch", epoch), content, PATIENCE_S)
    return Claim(epoch, nonce, content) if there == content else None


async def newest_epoch(store: ObjectStore) -> int:
    """Return the number of the newest epoch; 0: there is none. Raises UnavailableError, CorruptError."""
    epochs = {number_in(key) for key in await asked(lambda: store.list("epoch/"), PATIENCE_S)}
    # Where one was missing, its predecessor could look for it for ever, and answer what nobody reads.
    if gaps := set(range(1, len(epochs) + 1)) - epochs:
        raise CorruptError(f"{numbered('epoch', min(gaps))} is missing, and later ones are there: it was deleted")
    return len(epochs)


async def read_rounds(
    store: ObjectStore,
    epoch: int,
    first: int,
    end: int | None,
    before: bytes | None,
    *,
    is_base: bool = False,
    nonce: bytes | None = None,
    most: int | None = None,
) -> AsyncGenerator[tuple[StoredRound, bytes], None]:
    """Yield the rounds of an epoch, each with its digest, up to ``end``; None: to the last that is there.

    ``before``: digest of the round before the first; None: unknown. ``is_base``: a base says it, so it is certain.
    ``nonce``: the epoch's, if it is known. ``most``: so many at most are asked for, all at once.

    Raises:
        UnavailableError: the store cannot be asked.
        MissingObject: a round before ``end`` is missing. CorruptError: one is damaged.
    """
    if end is not None and first >= end:
        return
    if nonce is None:
        nonce, _ = await owner_of(store, epoch)
    number, window = first, most or 1
    while end is None or number < end:
        behind = number + window if end is None else min(number + window, end)
        gets = [partial(store.get, round_key(epoch, each)) for each in range(number, behind)]
        for content in await asyncio.gather(*(asked(get, PATIENCE_S) for get in gets)):
            if content is None:
                if end is not None:
                    raise MissingObject(f"{round_key(epoch, number)} is missing: epoch {epoch} ends at {end}")
                return
            each = decode_round(content, epoch, number)
            if each.nonce != nonce:
                raise CorruptError(f"{round_key(epoch, number)} has another nonce than {numbered('epoch', epoch)}")
            if before is not None and each.digest != before:
                if end is None and number > (first if is_base else 0):
                    return  # two copies of one machine wrote, and neither was told that this round is its own
                raise CorruptError(f"{round_key(epoch, number)} follows another round than the one before it")
            before = digest_of(content)
            yield each, before
            number += 1
        if most is not None:
            return
        window = min(2 * window, READS)


async def reached(store: ObjectStore) -> RoundPlace:
    """Return a place up to which the log is certain, for who does not own it. Raises UnavailableError."""
    while newest := await newest_epoch(store):
        ends = set(await asked(lambda: store.list("end/"), PATIENCE_S))
        epoch = next(each for each in count(1) if numbered("end", each) not in ends)
        if epoch < newest:
            return RoundPlace(epoch, 0, 0)  # the new owner still reads what is behind it
        folder = numbered("log", epoch) + "/"
        rounds = set(await asked(partial(store.list, folder), PATIENCE_S))
        base = await newest_base(store, epoch + 1)  # after the list, which may lack what was deleted
        kept = base.position if base is not None and base.epoch == epoch else 0
        place = next(each for each in count(kept) if round_key(epoch, each) not in rounds)
        if not await is_there(store, epoch + 1):
            return RoundPlace(epoch, place, 0)
    return START


async def follow_parts(
    store: ObjectStore, place: RoundPlace, until: RoundPlace | None
) -> AsyncIterator[tuple[RoundPlace, Part]]:
    """Yield what lies behind a place, as far as it is certain; ``until``: how far it is, for who knows.

    Raises:
        TrimmedError: rounds behind ``place`` were deleted. UnavailableError: the store cannot be asked.
        CorruptError: a round is missing or damaged.
    """
    epoch, number, skipped = place
    before = None
    await _refuse_trimmed(store, place)
    if number and (content := await asked(lambda: store.get(round_key(epoch, number - 1)), PATIENCE_S)):
        before = digest_of(content)
    while until is None or (epoch, number) < until[:2]:
        end = until.number if until is not None and epoch == until.epoch else await end_of(store, epoch)
        if end is None and not await is_there(store, epoch):
            return
        async with aclosing(read_rounds(store, epoch, number, end, before)) as rounds:
            while batch := await _some_kept(store, RoundPlace(epoch, number, 0), rounds):
                # The owner's own rule: where nobody has claimed by now, nobody will end the epoch before these.
                if end is None and await is_there(store, epoch + 1):
                    break
                for each, digest in batch:
                    for at, part in enumerate(each.parts[skipped:], skipped + 1):
                        if part.position not in (TRIMMED, HANDED_OVER):
                            whole = at == len(each.parts)
                            yield RoundPlace(epoch, number + whole, 0 if whole else at), part
                    before, number, skipped = digest, number + 1, 0
        if end is None and await end_of(store, epoch) is None:
            return  # the present end; or the new owner has not said yet how far this epoch counts
        if end is not None:
            epoch, number, skipped = epoch + 1, 0, 0


async def _some_kept(
    store: ObjectStore, place: RoundPlace, rounds: AsyncIterator[tuple[StoredRound, bytes]]
) -> list[tuple[StoredRound, bytes]]:
    batch = []
    try:
        async for each in rounds:
            batch.append(each)
            if len(batch) == READS:
                break
    except MissingObject as missing:
        await _refuse_trimmed(store, place)
        raise CorruptError(str(missing)) from missing  # nobody has deleted it by right
    return batch


async def _refuse_trimmed(store: ObjectStore, place: RoundPlace) -> None:
    """Raise TrimmedError if there is a base behind a place."""
    base = await newest_base(store)
    if base is not None and (base.epoch, base.position) > place[:2]:
        raise TrimmedError(f"rounds before base {base.epoch}-{base.position} were deleted")


async def is_there(store: ObjectStore, epoch: int) -> bool:
    return await asked(lambda: store.exists(numbered("epoch", epoch)), PATIENCE_S)


async def end_of(store: ObjectStore, epoch: int) -> int | None:
    content = await asked(lambda: store.get(numbered("end", epoch)), PATIENCE_S)
    return None if content is None else decode_end(content, epoch)


async def owner_of(store: ObjectStore, epoch: int) -> tuple[bytes, str]:
    """Return the nonce of an epoch that was claimed, and who has claimed it.

    Raises CorruptError: it is gone.
    """
    content = await asked(lambda: store.get(numbered("epoch", epoch)), PATIENCE_S)
    if content is None:
        raise CorruptError(f"{numbered('epoch', epoch)} is missing: it was deleted")
    return decode_nonce(content, epoch), decode_who(content, epoch)
