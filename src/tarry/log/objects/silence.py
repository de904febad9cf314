"""A look whether a log's owner lives: it writes a round each half of a lease, in any case.

Nothing rests on this but good manners: a claim over an owner that lives is as safe as any other. It costs a takeover.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from itertools import count
from typing import NamedTuple

from tarry.base.errors import LockedError, UnavailableError
from tarry.log.objects.content import HANDED_OVER, decode_round, decode_who, numbered, round_key
from tarry.log.objects.history import newest_epoch
from tarry.log.objects.lease import LEASE_S
from tarry.log.objects.store import PATIENCE_S, ObjectStore, asked

log = logging.getLogger(__name__)

SILENCE_S = LEASE_S
"""Twice the time in which an owner writes."""
LOOK_S = SILENCE_S / 8
LAST_ROUNDS = 4
"""So many rounds may follow the one in which an owner hands over."""


class _Seen(NamedTuple):
    """The newest epoch; the first of its rounds that is not there; and whether its owner has handed over."""

    epoch: int
    end: int
    handed_over: bool


async def wait_for_silence(store: ObjectStore, *, stands_by: bool) -> None:
    """Return when nobody owns the log, its owner has handed over, or has written nothing for a while.

    Raises:
        LockedError: its owner writes, and ``stands_by`` is false; names it.
        UnavailableError: the store cannot be asked.
    """
    clock = asyncio.get_running_loop()
    seen, told = await _look(store), 0
    since_s = clock.time()
    while seen.epoch and not seen.handed_over:
        if clock.time() - since_s >= SILENCE_S:
            # The round that was looked for may have come and been trimmed between two looks.
            if (again := await _look(store)) == seen:
                return
            seen, since_s = again, clock.time()
            continue
        await asyncio.sleep(LOOK_S)
        try:
            lives = await store.exists(round_key(seen.epoch, seen.end)) or await store.exists(
                numbered("epoch", seen.epoch + 1)
            )
        except UnavailableError:
            lives = stands_by  # a store that gives no answer says nothing of the owner
            since_s = clock.time()
        if not lives:
            continue
        if not stands_by or told != seen.epoch:
            who = await _who(store, seen.epoch)
            if not stands_by:
                raise LockedError(
                    f"the logs are owned by {who}, which is alive (epoch {seen.epoch}); allowed: stop it first, "
                    "--standby to wait for its end, or the setting takeover=now to depose it"
                )
            log.info("standing by: the logs are owned by %s (epoch %d)", who, seen.epoch)
            told = seen.epoch
        seen, since_s = await _look(store), clock.time()


async def _look(store: ObjectStore) -> _Seen:
    epoch = await newest_epoch(store)
    if not epoch:
        return _Seen(0, 0, False)
    keys = await asked(partial(store.list, numbered("log", epoch) + "/"), PATIENCE_S)
    rounds = {int(key.rpartition("/")[2]) for key in keys}
    end = next(each for each in count(min(rounds, default=0)) if each not in rounds)
    for number in range(max(end - LAST_ROUNDS, 0), end):
        content = await asked(partial(store.get, round_key(epoch, number)), PATIENCE_S)
        if content and any(part.position == HANDED_OVER for part in decode_round(content, epoch, number).parts):
            return _Seen(epoch, end, True)
    return _Seen(epoch, end, False)


async def _who(store: ObjectStore, epoch: int) -> str:
    content = await asked(partial(store.get, numbered("epoch", epoch)), PATIENCE_S)
    return "somebody" if content is None else decode_who(content, epoch)
