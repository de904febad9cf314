"""Reading of the logs into a directory, by a standby and by a claim: bases, and rounds behind them.

A standby may read what was never answered, and what a later base makes superfluous: it does not matter what it has
then. A claim finds that, by requests that begin after its own answer, and begins again from the newest base.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import aclosing
from functools import partial
from typing import Protocol

from tarry.base.errors import CorruptError, OwnershipLostError
from tarry.log.engine import Part
from tarry.log.frame import LogKind
from tarry.log.objects.bases import MissingObject, newest_base, read_base, read_file
from tarry.log.objects.content import (
    BaseFile,
    Manifest,
    decode_end,
    decode_file,
    encode_end,
    number_in,
    numbered,
    round_key,
)
from tarry.log.objects.history import START, WINDOW, RoundHistory, end_of, owner_of, read_rounds
from tarry.log.objects.store import PATIENCE_S, ObjectStore, asked, created

Place = tuple[int, int]
"""An epoch, and a number of rounds of it."""


class Cache(Protocol):
    """Place for what is read: nothing, or a base, then rounds; and what newer bases have beside rounds."""

    def clear(self) -> None:
        """Forget everything: reading begins, or begins again."""
        ...

    def restore(self, file: BaseFile, offset: int, content: bytes) -> None:
        """Put a piece of a base's file at its offset, which is where the piece before it ended.

        At offset 0 it takes the place of a file that is there.
        """
        ...

    def apply(self, parts: Sequence[Part]) -> None:
        """Put the parts of the next round where they belong; behind a base, they may be there already."""
        ...

    def needs(self, file: BaseFile) -> bool:
        """Return whether a file of a base belongs to what is here, and no round has it."""
        ...

    def remove(self, path: str) -> None:
        """Delete a file that a base had, and a newer one has no more."""
        ...


class LogReader:
    """A place in the logs, and a cache that has what lies before it."""

    def __init__(self, store: ObjectStore, cache: Cache) -> None:
        self._store, self._cache = store, cache
        self._stands = False
        self._nonce: bytes | None = None
        self._end: int | None = None
        self._alone: dict[str, BaseFile | None] = {}
        """Files of bases that are here as they are there, and that no round has.

        None: it is that of another base, or only a part of it is here.
        """
        self._taking: Place | None = None
        """A newer base of which not all is here."""
        self._replaced: dict[str, Place] = {}
        """Small files that rounds have replaced since the base: the last of them."""
        self.base: Manifest | None = None
        """The newest that was read; if a claim has read one, nothing is here that is older."""
        self.history = RoundHistory()
        self.epoch, self.number = START[:2]
        self.owner = "somebody"
        """Name of the owner of the present epoch, once a round of it was asked for."""

    @property
    def place(self) -> Place:
        """The next round."""
        return self.epoch, self.number

    @property
    def stands(self) -> bool:
        """False: it has to begin, or to begin again."""
        return self._stands

    def give_up(self) -> None:
        """Have reading begin again: what is here cannot be used."""
        self._stands = False

    async def begin(self, claimed: int | None = None) -> None:
        """Read the newest base, of the epochs before one that was claimed.

        Raises:
            UnavailableError: the store cannot be asked.
            OwnershipLostError: there is a base of a later owner than of the claimed epoch.
            CorruptError: what has to be there is missing or damaged; names the object.
        """
        self.base = None  # it may be beyond its epoch's end: it is looked at as any other
        base = await self._newest(claimed)
        while not self._stands:
            self._cache.clear()
            self._alone.clear()
            self._replaced.clear()
            self.base, self._taking, self._nonce, self._end = base, None, None, None
            self.history, (self.epoch, self.number) = RoundHistory(), START[:2]
            if base is not None:
                try:
                    async for file, offset, content in read_base(self._store, base):
                        self._cache.restore(file, offset, content)
                except MissingObject as missing:
                    base = await self._newer(base, claimed, missing)
                    continue
                self._alone = {file.path: file for file in base.files if self._cache.needs(file)}
                self.history = RoundHistory(base.digest, base.clock_ms, dict(base.trimmed), base.epoch)
                self.epoch, self.number = _place_of(base)
            self._stands = True

    async def follow(self, most: int) -> int:
        """Read rounds that have come, and return how many; ``most`` are asked for, at once.

        Where the present epoch is known to have ended, all of it is read, and none behind its end: an owner that was
        taken over may have written more. To go on with the next epoch counts as one.

        Raises: see :meth:`begin`.
        """
        if self._nonce is None:
            owner, end = await owner_of(self._store, self.epoch), await end_of(self._store, self.epoch)
            (self._nonce, self.owner), self._end = owner, end
        if self._end is None:
            return await self._read(None, most)
        first = self.number
        if not await self._read_to(self._end, None):
            return 0
        found = self.number - first + 1
        self._next_epoch()
        return found

    async def has_ended(self) -> bool:
        """Look whether the present epoch has ended; what is behind is given up, and reading begins again then."""
        self._end = await end_of(self._store, self.epoch)
        if self._end is not None and self._end < self.number:
            self._stands = False
        return self._end is not None

    async def _read(self, end: int | None, most: int | None = None) -> int:
        """Read rounds of the present epoch, up to ``end`` or the first that is missing; return how many.

        Raises:
            UnavailableError: the store cannot be asked.
            MissingObject: a round before ``end`` is missing. CorruptError: one is damaged.
        """
        first = self.number
        rounds = read_rounds(
            *(self._store, self.epoch, first, end, self.history.digest),
            is_base=self.base is not None and _place_of(self.base) == self.place,
            nonce=self._nonce,
            most=most,
        )
        async with aclosing(rounds):
            async for each, digest in rounds:
                self.history.add(each, digest)
                self._note(each.parts)
                self._cache.apply(each.parts)
                self.number += 1
        return self.number - first

    def _note(self, parts: Sequence[Part]) -> None:
        for part in parts:
            if part.kind is LogKind.FILES and part.position >= 0:
                path, _ = decode_file(part)
                self._replaced[path] = self.place

    async def _read_to(self, end: int, claimed: int | None) -> bool:
        """Read all of the present epoch; False: begin again, for a base has taken the place of some."""
        try:
            await self._read(end)
        except MissingObject as missing:
            if await self.settle(claimed):
                raise CorruptError(str(missing)) from missing
            return False
        return True

    def _next_epoch(self) -> None:
        self.epoch, self.number, self._nonce, self._end = self.epoch + 1, 0, None, None

    async def settle(self, claimed: int | None = None) -> bool:
        """Take what the newest base has beside rounds; return whether reading goes on from here.

        It does not if the base lies behind this place, or if the one before does not count any more.

        Raises: see :meth:`begin`.
        """
        while self._stands:
            base = await self._newest(claimed)
            here = self._taking or (START[:2] if self.base is None else _place_of(self.base))
            there = START[:2] if base is None else _place_of(base)
            if not here <= there <= self.place:
                self._stands = False
            elif base is None or (base == self.base and self._taking is None):
                break
            else:
                await self._take(base, claimed)
        return self._stands

    async def _take(self, base: Manifest, claimed: int | None) -> None:
        """Take what a base has beside rounds. If this ends early, :meth:`settle` goes on."""
        self._taking = _place_of(base)
        files = {file.path: file for file in base.files if self._cache.needs(file)}
        for path in self._alone.keys() - files.keys():
            self._cache.remove(path)
            del self._alone[path]
        for path, file in files.items():
            if self._replaced.get(path, START[:2]) >= self._taking or self._alone.get(path) == file:
                continue  # a round has a newer one; or they are the same objects, and no name is used twice
            self._alone[path] = None  # if this ends early, a newer base may not have it, and it goes
            try:
                async for offset, content in read_file(self._store, file):
                    self._cache.restore(file, offset, content)
            except MissingObject as missing:
                await self._newer(base, claimed, missing)
                return
            self._alone[path] = file
        self._replaced = {path: at for path, at in self._replaced.items() if at >= self._taking}
        self.base, self._taking = base, None

    async def _newest(self, claimed: int | None) -> Manifest | None:
        base = await newest_base(self._store, known=self.base)
        if claimed is not None and base is not None and base.epoch >= claimed:
            # It may have deleted anything.
            raise OwnershipLostError(f"epoch {claimed} has ended: there is a base of epoch {base.epoch}")
        return base

    async def _newer(self, base: Manifest, claimed: int | None, missing: MissingObject) -> Manifest:
        """Return the base that is there instead of one that lacks an object. Raises CorruptError: none is."""
        newest = await self._newest(claimed)
        if newest is None or _place_of(newest) <= _place_of(base):
            raise CorruptError(str(missing)) from missing
        return newest

    # -- taking over ---------------------------------------------------------------------------------------------------

    async def read_former(self, claimed: int) -> RoundHistory:
        """Read all rounds of the epochs before one that was claimed, and end those that have no end yet.

        Each request begins after the claim was answered: what it does not find, the former owner cannot answer any
        more. What was read before is kept.

        Raises: see :meth:`begin`.
        """
        while not (self._stands and await self._read_on(claimed)):
            self._stands = False
            await self.begin(claimed)
        return self.history

    async def _read_on(self, claimed: int) -> bool:
        """Read up to the claimed epoch; False: begin again."""
        is_settled = True
        while self.epoch < claimed:
            # At once: as a rule, a standby has read all.
            end, is_more = await asyncio.gather(
                end_of(self._store, self.epoch),
                asked(partial(self._store.exists, round_key(self.epoch, self.number)), PATIENCE_S),
            )
            is_settled = end is None
            if end is not None:
                # What lies beyond the end was never answered, be it rounds or the base that was begun from.
                if end < self.number or not await self._read_to(end, claimed):
                    return False
                self._next_epoch()
                continue
            if is_more:
                await self._read(None)
            # The former owner does not know of the claim yet: it may have deleted what a base is instead of, or trimmed
            # what only that base makes superfluous.
            stands, last = await asyncio.gather(self.settle(claimed), self.last())
            if not stands:
                return False
            self.check_hole(last)
            # Another claimant may have been first, and have found fewer or more: its end counts for all.
            content = await created(self._store, numbered("end", self.epoch), encode_end(self.number), PATIENCE_S)
            if decode_end(content, self.epoch) == self.number:
                self._next_epoch()
        return is_settled or await self.settle(claimed)

    def check_hole(self, last: int) -> None:
        """Check that what lies behind a round that is missing, up to ``last``, may be on its way with it.

        Raises:
            CorruptError: it lies too far behind, so the round was there, and was deleted.
        """
        if last >= self.number + WINDOW:
            key = round_key(self.epoch, self.number)
            raise CorruptError(f"{key} is missing, and there are rounds up to {last}: it was deleted")

    async def last(self) -> int:
        """Return the highest number of a round of the present epoch that is there; 0: of none, as well."""
        keys = await asked(partial(self._store.list, numbered("log", self.epoch) + "/"), PATIENCE_S)
        return max(map(number_in, keys), default=0)


def _place_of(base: Manifest) -> Place:
    return base.epoch, base.position
