"""A look whether a log's owner lives: it writes a round each half of a lease, in any case.

Nothing rests on this but good manners: a claim over an owner that lives is as safe as any other. It costs a takeover.
"""

from __future__ import annotations

import asyncio
import logging
import random
from functools import partial
from typing import NamedTuple

from tarry.base.errors import LockedError
from tarry.log.objects.bases import newest_base
from tarry.log.objects.content import HANDED_OVER, decode_round, number_in, numbered, round_key
from tarry.log.objects.history import newest_epoch, owner_of
from tarry.log.objects.lease import LEASE_S
from tarry.log.objects.store import PATIENCE_S, ObjectStore, asked

log = logging.getLogger(__name__)

SILENCE_S = LEASE_S
"""Twice the time in which an owner writes."""
LOOK_S = SILENCE_S / 8
EMPTY_S, EMPTY_S_MAX = 5.0, 160.0
"""Silence of an owner that has written nothing yet; doubled with each such epoch before it."""
LAST_ROUNDS = 4
"""So many rounds may follow the one in which an owner hands over."""


class Seen(NamedTuple):
    """The newest epoch, and the number behind its last round.

    ``handed_over``: by its owner; else it counts as dead when it is silent for ``silence_s``. ``is_over``: one of both.
    """

    epoch: int
    end: int
    handed_over: bool
    silence_s: float
    is_over: bool = False


async def wait_for_silence(store: ObjectStore) -> int:
    """Return the newest epoch when its owner has handed over, or is silent for a while; 0: none.

    Raises:
        LockedError: its owner writes; names it.
        UnavailableError: the store cannot be asked.
    """
    seen = await until_seen(store)
    if seen.is_over:
        return seen.epoch
    _, who = await owner_of(store, seen.epoch)
    raise LockedError(
        f"the logs are owned by {who}, which is alive (epoch {seen.epoch}); allowed: stop it first, --standby to wait "
        "for its end, or the setting takeover=now to depose it"
    )


async def until_seen(store: ObjectStore) -> Seen:
    """Return how far an owner was seen to write, or that it hands over, or writes nothing any more."""
    clock = asyncio.get_running_loop()
    seen, since_s = await look(store), clock.time()
    while seen.epoch and not seen.handed_over:
        if clock.time() - since_s >= seen.silence_s:
            # The round that was looked for may have come and been trimmed between two looks.
            again = await look(store)
            if again[:2] != seen[:2]:
                return again
            tell_silence(seen.epoch, seen.silence_s)
            break
        await asyncio.sleep(LOOK_S)
        if await store.exists(round_key(seen.epoch, seen.end)) or await store.exists(numbered("epoch", seen.epoch + 1)):
            return await look(store)
    return seen._replace(is_over=True)


def tell_silence(epoch: int, silent_s: float) -> None:
    """Say in the log that an owner is silent, and is taken over."""
    log.warning("the owner of epoch %d has written nothing for %.1f s: taking over", epoch, silent_s)


async def look(store: ObjectStore) -> Seen:
    """Return how far the newest owner has come."""
    epoch = await newest_epoch(store)
    if not epoch:
        return Seen(0, 0, False, 0.0)
    end = await _end_of(store, epoch)
    for number in range(max(end - LAST_ROUNDS, 0), end):
        content = await asked(partial(store.get, round_key(epoch, number)), PATIENCE_S)
        if content and any(part.position == HANDED_OVER for part in decode_round(content, epoch, number).parts):
            return Seen(epoch, end, True, 0.0)
    if end:
        return Seen(epoch, end, False, SILENCE_S)
    # Who has claimed reads first, which may take long; and two that claim in turn must not go on so for ever.
    empty = 1
    while empty < epoch and not await _end_of(store, epoch - empty):
        empty += 1
    grace_s = min(EMPTY_S * 2 ** (empty - 1), EMPTY_S_MAX) * random.uniform(0.7, 1.3)
    return Seen(epoch, 0, False, grace_s)


async def _end_of(store: ObjectStore, epoch: int) -> int:
    """Return the number behind the last round of an epoch that is there, or was; 0: it has none."""
    keys = await asked(partial(store.list, numbered("log", epoch) + "/"), PATIENCE_S)
    if keys:
        return max(map(number_in, keys)) + 1
    base = await newest_base(store, epoch + 1)
    return base.position if base is not None and base.epoch == epoch else 0
