"""An owner of numbers that makes bases, each step of it by itself."""

from __future__ import annotations

import asyncio

from tarry.log.engine import Part
from tarry.log.frame import LogKind
from tarry.log.objects.bases import BaseSource, EpochBases
from tarry.log.objects.content import Manifest
from tarry.log.objects.history import claim_epoch
from tests.engines.object_store import MemoryObjects
from tests.engines.test_objects import Owner
from tests.engines.test_objects_simulated import Directory


class Keeping(Owner):
    """An owner of numbers that makes bases."""

    cache = Directory

    async def take_over(self) -> None:
        await super().take_over()
        self.values = list(self.read)
        self.bases = EpochBases(self.way, self.claim.epoch)

    def send(self, value: int) -> asyncio.Task[None]:
        self.rounds.add(Part(LogKind.INTAKE, 0, len(self.values), b"%d " % value))
        self.values.append(value)
        return asyncio.create_task(self.rounds.sync())

    async def draft(self) -> Manifest:
        """Put all that was written by now; nothing of it needs to be answered yet."""
        at = await self.rounds.mark()
        content = b" ".join(b"%d" % value for value in self.values)
        return await self.bases.put(at, [BaseSource.of("values", content)])

    async def answered(self) -> Manifest:
        """Put a base that lacks its manifest alone."""
        draft = await self.draft()
        await self.rounds.sync()
        await self.rounds.reach(draft.position)
        return draft

    async def base(self) -> Manifest:
        draft = await self.answered()
        await self.bases.complete(draft)
        return draft

    async def base_and_trim(self) -> Manifest:
        draft = await self.base()
        await self.bases.trim(draft)
        return draft

    async def claim_held(self, when: str, what: str, key: str) -> tuple[asyncio.Event, asyncio.Task[None]]:
        """Claim, and begin to take over until a request waits; it goes on when the event is set."""
        self.claim = await claim_epoch(self.way, "test")
        held = self.way.hold(when, what, key)
        taking = asyncio.create_task(self.take_over())
        await self.way.until_waits(when, what, key)
        return held, taking


async def written(store: MemoryObjects, *values: int) -> Keeping:
    owner = Keeping(store)
    await owner.begin()
    for value in values:
        await owner.send(value)
    return owner


def keys(store: MemoryObjects, prefix: str) -> list[str]:
    return sorted(key for key in list(store.objects) if key.startswith(prefix))


def manifest_key(epoch: int, position: int) -> str:
    return f"base/{epoch:020d}-{position:020d}/manifest"


def key_of(base: Manifest) -> str:
    return manifest_key(base.epoch, base.position)


def manifests(store: MemoryObjects) -> list[str]:
    return [key for key in keys(store, "base/") if key.endswith("/manifest")]
