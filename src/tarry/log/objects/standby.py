"""A standby: it follows the logs of whoever owns them, and says when they are to be taken over.

To follow shows that the owner lives: it writes a round each half of a lease, in any case. Nothing rests on that but
good manners, as in ``silence.py``.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Iterator
from typing import Any

from tarry.base.clock import Clock
from tarry.base.errors import CorruptError, UnavailableError
from tarry.log.objects.content import numbered
from tarry.log.objects.history import READS, newest_epoch
from tarry.log.objects.reading import LogReader, Place
from tarry.log.objects.silence import LOOK_S, SILENCE_S, look, tell_silence, until_seen
from tarry.log.objects.store import CountedObjects, tell_away

log = logging.getLogger(__name__)

LATE_S = SILENCE_S / 2 + LOOK_S
"""An owner that has written nothing for so long may have been followed by another."""
SETTLE_S = 10.0
"""Time between two looks for a newer base."""
COUNT_S = 5.0
"""Time between two counts of the rounds that it is behind."""
DAMAGED_S = 30.0
"""Time until what could not be followed is read again."""
AWAY_PAUSE_S = 1.0


class Standby:
    """A standby, and what there is to know of it. Of one event loop; any thread may ask for :attr:`state`.

    Args:
        store: the shard's objects.
        reader: what it reads, which a claim goes on with.
        clock: the wall clock, for people.
        by_itself: False: it takes over when it is told, and never else.
        is_told: asked four times a second: is it told to take over?
        on_silence: called when nothing was heard for a while, once until something is.
    """

    def __init__(
        self,
        store: CountedObjects,
        reader: LogReader,
        clock: Clock,
        *,
        by_itself: bool = True,
        is_told: Callable[[], bool] = lambda: False,
        on_silence: Callable[[], None] = lambda: None,
    ) -> None:
        self._store, self._reader, self._clock = store, reader, clock
        self._by_itself, self._is_told, self._on_silence = by_itself, is_told, on_silence
        self._is_suspected = False
        self._taken: int | None = None
        """The last epoch that was said to be over."""
        self._heard_s = self._silence_s = 0.0
        self._lags_s: tuple[int, float] = (0, math.inf)
        """Of an epoch, the shortest time from a round's clock, another machine's, until the round was found."""
        self._heard_ms: int | None = None
        self._since_ms = 0
        self._watched: Place = (0, 0)
        self._looked: Place | None = None
        self._end: Place = (0, 0)
        self._counted_s = 0.0
        self._damage: str | None = None
        self._told = 0

    @property
    def state(self) -> dict[str, Any]:
        """Figures for people.

        ``owner``: its epoch, who it is, since when it is followed, when a round of it was last found;
        ``position``: the next round to read;
        ``behind``: rounds that are known to be there and were not read, and the age of the newest one that was;
        ``problem``: why it cannot follow.
        """
        reader, now_ms = self._reader, self._clock.now_ms()
        base = reader.base
        follows = reader.stands and self._heard_ms is not None
        ahead = self._end[1] - reader.number if self._end[0] == reader.epoch else 0
        return {
            "owner": self._owner if follows else None,
            "position": {"epoch": reader.epoch, "round": reader.number} if follows else None,
            "behind": {"rounds": max(0, ahead), "ms": max(0, now_ms - reader.history.clock_ms)} if follows else None,
            "base": None if base is None else {"epoch": base.epoch, "round": base.position},
            "problem": self._damage,
        }

    @property
    def _owner(self) -> dict[str, Any]:
        reader = self._reader
        since_ms = self._since_ms if self._told == reader.epoch else None  # it is still caught up with
        return {"epoch": reader.epoch, "who": reader.owner, "since_ms": since_ms, "heard_ms": self._heard_ms}

    async def wait(self) -> int | None:
        """Follow until the logs are to be taken over; return the epoch that is over.

        0: there is none yet. None: it was told, whichever that is.

        What cannot be asked, or is damaged, is tried again; of the owner this says nothing.
        """
        told = asyncio.create_task(self._until_told())
        following = asyncio.create_task(self._follow())
        try:
            await asyncio.wait([told, following], return_when=asyncio.FIRST_COMPLETED)
            return None if told.done() else following.result()
        finally:
            told.cancel()
            following.cancel()
            await asyncio.gather(told, following, return_exceptions=True)

    async def _until_told(self) -> None:
        while not self._is_told():
            await asyncio.sleep(LOOK_S)
        log.info("told to take over")

    async def _follow(self) -> int:
        while True:
            try:
                return await self._until_over()
            except CorruptError as error:
                self._damage = str(error)
                log.warning("standing by: %s; it is read again in %.0f s", error, DAMAGED_S)
                self._reader.give_up()
                if (epoch := await self._watch(DAMAGED_S)) is not None:
                    return epoch

    async def _watch(self, for_s: float) -> int | None:
        """Look at the owner alone; return the epoch that is over, or None after a time."""
        loop = asyncio.get_running_loop()
        until_s = loop.time() + for_s
        while loop.time() < until_s:
            try:
                seen = await until_seen(self._store)
            except UnavailableError as error:
                tell_away("standing by: %s; looking again", error)
                await asyncio.sleep(SILENCE_S)
                continue
            if seen.is_over and self._by_itself:
                return seen.epoch
            await asyncio.sleep(SILENCE_S if seen.is_over else LOOK_S)
        return None

    async def _until_over(self) -> int:
        reader, loop = self._reader, asyncio.get_running_loop()
        settled_s, windows = loop.time(), _windows()
        while True:
            try:
                if not reader.stands:
                    if not await newest_epoch(self._store):
                        if self._by_itself:
                            return 0
                        await asyncio.sleep(SILENCE_S)
                        continue
                    await reader.begin()
                    settled_s = loop.time()
                    self._hear()
                window = next(windows)
                found = await reader.follow(window)
                self._damage = None
                await self._note(found, is_end=found < window)
                if loop.time() - settled_s >= SETTLE_S:
                    settled_s = loop.time()
                    await reader.settle()
                if found >= window:
                    continue
                windows = _windows()
                if not found and (epoch := await self._over()) is not None:
                    return epoch
            except UnavailableError as error:
                tell_away("standing by: %s; looking again", error)
                await asyncio.sleep(AWAY_PAUSE_S)
            await asyncio.sleep(self._pause_s())

    async def _note(self, found: int, *, is_end: bool) -> None:
        """Note what was read, and how far the present epoch goes; a list says it where that is far."""
        reader, now_s = self._reader, asyncio.get_running_loop().time()
        if found:
            self._hear()
        if is_end:
            self._end = reader.place
            if self._told != reader.epoch:
                self._told, self._since_ms = reader.epoch, self._clock.now_ms()
                log.info("standing by: the logs are owned by %s (epoch %d)", reader.owner, reader.epoch)
        elif now_s - self._counted_s >= COUNT_S:
            self._counted_s, self._end = now_s, (reader.epoch, await reader.last() + 1)

    def _pause_s(self) -> float:
        silent_in_s = self._heard_s + self._silence_s - asyncio.get_running_loop().time()
        return min(silent_in_s, LOOK_S) if silent_in_s > 0 else LOOK_S

    def _hear(self) -> None:
        """Note that something of the owner was read."""
        reader, now_s = self._reader, asyncio.get_running_loop().time()
        self._heard_s, self._heard_ms = max(now_s - LOOK_S, self._written_s(now_s)), self._clock.now_ms()
        self._watched, self._silence_s, self._is_suspected = reader.place, SILENCE_S, False

    def _written_s(self, now_s: float) -> float:
        """Return when the last round that was read was written: most are found some time later.

        By the rounds that were found soonest. A clock that was set, or stands still behind a former owner's, shows
        another time, but never one after ``now_s``.
        """
        epoch, clock_s = self._reader.history.epoch, self._reader.history.clock_ms / 1000
        known, lag_s = self._lags_s
        lag_s = min(lag_s, now_s - clock_s) if epoch == known else now_s - clock_s
        self._lags_s = epoch, lag_s
        return clock_s + lag_s

    async def _over(self) -> int | None:
        """Return the present epoch if its owner has handed over, or has written nothing for long enough."""
        reader, store, loop = self._reader, self._store, asyncio.get_running_loop()
        # A store that was away was so to the owner, too, as a rule: it has some time to write.
        self._heard_s = max(self._heard_s, store.recovered_s - SILENCE_S / 2)
        silent_s = loop.time() - self._heard_s
        # One that does not take over by itself goes on looking for an owner that does.
        goes_on = silent_s < self._silence_s or not self._is_suspected or not self._by_itself
        if silent_s >= LATE_S and goes_on:
            if not await self._look_around():
                return None
            silent_s = loop.time() - self._heard_s
        if not self._by_itself:
            return None
        is_here = self._watched == reader.place
        hands_over = is_here and reader.history.epoch == reader.epoch and reader.history.handed_over_ms is not None
        if not hands_over and silent_s < self._silence_s:
            return None
        # Whether it was followed shows when the next epoch is created; only who was refused that looks before.
        is_followed = reader.epoch == self._taken and await store.exists(numbered("epoch", reader.epoch + 1))
        if is_here and reader.number and not is_followed:
            if not hands_over:
                tell_silence(reader.epoch, silent_s)
            elif not await reader.settle():
                return None  # what comes next was deleted, for a base takes its place
            self._taken = reader.epoch
            return reader.epoch
        return await self._look(silent_s)

    async def _look_around(self) -> bool:
        """Look, when the owner is silent for a while, whether reading goes on from here.

        No request is left for later.

        False: it does not, or the epoch has ended.
        """
        if await self._reader.has_ended():
            return False
        if not self._is_suspected:
            self._is_suspected = True
            self._on_silence()
            # Else what comes next was deleted, for a base takes its place.
            return await self._reader.settle()
        return True

    async def _look(self, silent_s: float) -> int | None:
        """Look for an owner that is further on than what was read; return the newest epoch if it is over."""
        seen = await look(self._store)
        place, reader = seen[:2], self._reader
        if seen.handed_over:
            return seen.epoch
        if place == self._watched == self._looked:
            tell_silence(seen.epoch, silent_s)
            return seen.epoch
        if place != self._watched:
            self._heard_s = asyncio.get_running_loop().time()
        self._watched = self._looked = place
        self._silence_s = seen.silence_s
        if seen.epoch == reader.epoch and await reader.settle():
            reader.check_hole(await reader.last())
        return None


def _windows() -> Iterator[int]:
    """Yield how many rounds to ask for, while all are there: as a rule there is one, and none behind it."""
    yield 1
    window = 1
    while True:
        yield window
        window = min(2 * window, READS)
