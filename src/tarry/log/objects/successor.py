"""The name of the next owner, for the one that stops for it."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from tarry.base.errors import CorruptError, UnavailableError
from tarry.log.objects.content import decode_who, numbered
from tarry.log.objects.store import ObjectStore

WAIT_S = 0.5


async def name_of(store: ObjectStore, epoch: int) -> str:
    """Return who has claimed an epoch, for people; "another owner" if the store does not tell soon."""
    # Not cancelled when it takes too long: who cancels a request waits for its end.
    asking = asyncio.create_task(_name_of(store, epoch))
    await asyncio.wait([asking], timeout=WAIT_S)
    return (asking.result() if asking.done() else None) or "another owner"


async def _name_of(store: ObjectStore, epoch: int) -> str | None:
    with suppress(UnavailableError, CorruptError):
        if (content := await store.get(numbered("epoch", epoch))) is not None:
            return decode_who(content, epoch)
    return None
