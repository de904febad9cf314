"""A shard's log in the store: claiming the next epoch, ending those before, reading, following."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import NamedTuple, Protocol

from tarry.base.errors import CorruptError, OwnershipLostError, TrimmedError
from tarry.log.engine import Part
from tarry.log.frame import LogKind
from tarry.log.objects.bases import MissingObject, newest_base, read_base
from tarry.log.objects.content import (
    HANDED_OVER,
    LEFT,
    NO_DIGEST,
    TRIMMED,
    BaseFile,
    StoredRound,
    decode_end,
    decode_nonce,
    decode_round,
    digest_of,
    encode_end,
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


class Cache(Protocol):
    """Place for what a claim reads: nothing, or a base, then rounds."""

    def clear(self) -> None:
        """Forget everything: reading begins, or begins again."""
        ...

    def restore(self, file: BaseFile, offset: int, content: bytes) -> None:
        """Put a piece of a base's file at its offset, which is where the piece before it ended."""
        ...

    def apply(self, parts: Sequence[Part]) -> None:
        """Put the parts of the next round where they belong; behind a base, they may be there already."""
        ...


async def claim_epoch(store: ObjectStore, who: str) -> Claim:
    """Create the epoch after the newest one.

    Raises:
        UnavailableError: the store cannot be asked. An epoch that nobody has may be there then, which harms nobody.
        CorruptError: an epoch is missing.
    """
    nonce = secrets.token_bytes(16)
    while True:
        epoch = await newest_epoch(store) + 1
        content = encode_epoch(epoch, nonce, who)
        if await created(store, numbered("epoch", epoch), content, PATIENCE_S) == content:
            return Claim(epoch, nonce, content)


async def newest_epoch(store: ObjectStore) -> int:
    """Return the number of the newest epoch; 0: there is none. Raises UnavailableError, CorruptError."""
    epochs = {number_in(key) for key in await asked(lambda: store.list("epoch/"), PATIENCE_S)}
    # Where one was missing, its predecessor could look for it for ever, and answer what nobody reads.
    if gaps := set(range(1, len(epochs) + 1)) - epochs:
        raise CorruptError(f"{numbered('epoch', min(gaps))} is missing, and later ones are there: it was deleted")
    return len(epochs)


async def read_former(store: ObjectStore, epoch: int, cache: Cache) -> RoundHistory:
    """Read all rounds of the epochs before one that was claimed, and end those that have no end yet.

    Each request begins after the claim was answered: what it does not find, the former owner cannot answer any more.

    Raises:
        UnavailableError: the store cannot be asked. OwnershipLostError: a later owner has gone on already.
        CorruptError: what has to be there is missing or damaged; names the object.
    """
    while (history := await _read_once(store, epoch, cache)) is None:
        pass
    return history


async def _read_once(store: ObjectStore, epoch: int, cache: Cache) -> RoundHistory | None:
    """Read what :func:`read_former` does; None: begin again."""
    cache.clear()
    history, first, place = RoundHistory(), 1, 0
    base = await newest_base(store, epoch)
    if base is not None:
        try:
            async for file, offset, content in read_base(store, base):
                cache.restore(file, offset, content)
        except MissingObject as missing:
            if await _is_base_behind(store, epoch, base.epoch, base.position):
                return None
            raise CorruptError(str(missing)) from missing
        history = RoundHistory(base.digest, base.clock_ms, dict(base.trimmed), base.epoch)
        first, place = base.epoch, base.position
    for former in range(first, epoch):
        end, number = await _end_of(store, former), place if former == first else 0
        if end is not None and end < number:
            return None  # it was made since the base was found, which counts no more
        while True:
            try:
                is_base = base is not None and (former, number) == (first, place)
                async for each, digest in read_rounds(store, former, number, end, history.digest, is_base=is_base):
                    history.add(each, digest)
                    cache.apply(each.parts)
                    number += 1
            except MissingObject as missing:
                if await _is_base_behind(store, epoch, former, number):
                    return None
                raise CorruptError(str(missing)) from missing
            if end is not None:
                break
            # The former owner does not know of the claim yet, and may have deleted what its newest base is instead of.
            if await _is_base_behind(store, epoch, former, number):
                return None
            await _check_hole(store, former, number)
            # Another claimant may have been first, and have found fewer or more: its end counts for all.
            content = await created(store, numbered("end", former), encode_end(number), PATIENCE_S)
            end = decode_end(content, former)
            if end < number:
                return None  # what was applied beyond it was never answered
    return history


async def _check_hole(store: ObjectStore, epoch: int, number: int) -> None:
    """Check that what lies behind a round that is missing may be on its way with it.

    Raises:
        CorruptError: it lies too far behind, so the round was there, and was deleted.
    """
    keys = await asked(partial(store.list, numbered("log", epoch) + "/"), PATIENCE_S)
    last = max(map(number_in, keys), default=0)
    if last >= number + WINDOW:
        raise CorruptError(f"{round_key(epoch, number)} is missing, and there are rounds up to {last}: it was deleted")


async def _is_base_behind(store: ObjectStore, epoch: int, former: int, number: int) -> bool:
    """Return whether a base of epochs before ``epoch`` lies behind a place, as of now.

    Raises:
        OwnershipLostError: a later owner has one, and may have deleted anything.
    """
    base = await newest_base(store)
    if base is not None and base.epoch >= epoch:
        raise OwnershipLostError(f"epoch {epoch} has ended: there is a base of epoch {base.epoch}")
    return base is not None and (base.epoch, base.position) > (former, number)


async def read_rounds(
    store: ObjectStore, epoch: int, first: int, end: int | None, before: bytes | None, *, is_base: bool = False
) -> AsyncGenerator[tuple[StoredRound, bytes], None]:
    """Yield the rounds of an epoch, each with its digest, up to ``end``; None: to the last that is there.

    ``before``: digest of the round before the first; None: unknown. ``is_base``: a base says it, so it is certain.

    Raises:
        UnavailableError: the store cannot be asked.
        MissingObject: a round before ``end`` is missing. CorruptError: one is damaged.
    """
    if end is not None and first >= end:
        return
    nonce = await _nonce_of(store, epoch)
    number, window = first, 1
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
        if not await _is_there(store, epoch + 1):
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
        end = until.number if until is not None and epoch == until.epoch else await _end_of(store, epoch)
        if end is None and not await _is_there(store, epoch):
            return
        async with aclosing(read_rounds(store, epoch, number, end, before)) as rounds:
            while batch := await _some_kept(store, RoundPlace(epoch, number, 0), rounds):
                # The owner's own rule: where nobody has claimed by now, nobody will end the epoch before these.
                if end is None and await _is_there(store, epoch + 1):
                    break
                for each, digest in batch:
                    for at, part in enumerate(each.parts[skipped:], skipped + 1):
                        if part.position not in (TRIMMED, HANDED_OVER):
                            whole = at == len(each.parts)
                            yield RoundPlace(epoch, number + whole, 0 if whole else at), part
                    before, number, skipped = digest, number + 1, 0
        if end is None and await _end_of(store, epoch) is None:
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


async def _is_there(store: ObjectStore, epoch: int) -> bool:
    return await asked(lambda: store.exists(numbered("epoch", epoch)), PATIENCE_S)


async def _end_of(store: ObjectStore, epoch: int) -> int | None:
    content = await asked(lambda: store.get(numbered("end", epoch)), PATIENCE_S)
    return None if content is None else decode_end(content, epoch)


async def _nonce_of(store: ObjectStore, epoch: int) -> bytes:
    content = await asked(lambda: store.get(numbered("epoch", epoch)), PATIENCE_S)
    if content is None:
        raise CorruptError(f"{numbered('epoch', epoch)} is missing: it was deleted")
    return decode_nonce(content, epoch)
