"""Follows the clock and the store: the deliveries of one shard, each from the end of the last.

It begins at the shard's marker, and needs nobody to plan for it: due records are in the store, and the marker says up
to where they were delivered. What is too much for the memory, after an hour's pause or in a large herd, is not read
ahead but sent on from the store, in several transactions if one may not hold it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Protocol

from tarry.base.clock import Clock, SystemClock
from tarry_relay.deliver import DeliverPlan, ReadAheadRows
from tarry_relay.files import File, FileTracker, Reached
from tarry_relay.read_ahead import ReadAhead
from tarry_relay.schedule import ShardResult
from tarry_relay.settings import RelaySettings

log = logging.getLogger(__name__)

REFRESH_MS = 60_000
"""Interval at which a shard without work commits its place, if somebody waits for that.

Files are removed, and versions of the store forgotten, when all shards are past them.
"""
IDLE_MS = 3_600_000
"""Interval at which the place moves on if nothing is due at all.

Versions that are a day old leave the store's log, and a place must not be one of them.
"""
BEHIND_MS = 1_000
"""A delivery that is behind by more than this checks if it is too much for the memory."""
SETTLE_MS_MAX = 5_000
"""A moment to settle at that is further away was taken from another clock than this one."""

Deliver = Callable[[DeliverPlan, ReadAheadRows], ShardResult]
"""Carries out one delivery; when it returns, the marker is at the plan's end."""


class Stop(Protocol):
    """Signal that ends the following: an event, or the connection to the driver."""

    def is_set(self) -> bool: ...
    def wait(self, timeout: float) -> object: ...


class Follower:
    """Delivers for one shard, from one thread; ``place`` is that of its marker.

    After an error it is not used any more; a new one begins at the marker.
    """

    def __init__(
        self,
        settings: RelaySettings,
        root: str,
        shard: int,
        deliver: Deliver,
        place: Reached,
        clock: Clock | None = None,
    ) -> None:
        self._settings, self._shard, self._run = settings, shard, deliver
        self._clock = clock or SystemClock()
        self.place = self.committed = place
        """``committed`` is in the marker; ``place`` may be ahead of it if there was nothing to deliver."""
        self._rows_max = settings.direct_rows_max // settings.shards
        self._tracker = FileTracker(root, settings.store_shard, place.v)
        self._ahead = ReadAhead(settings, root, shard, place.t)
        self._until_ms: int | None = None

    def follow(self, interval_s: float, stop: Stop, on_result: Callable[[ShardResult], None]) -> None:
        """Deliver what falls due until ``stop``. ``on_result`` gets the result of each step.

        Raises:
            TarryError, OSError: Kafka or the store is away, or somebody else delivers.
        """
        while not stop.is_set():
            now = time.monotonic()
            done = self.step()
            if done is not None:
                on_result(done)
            while (left := now + interval_s - time.monotonic()) > 0 and not stop.is_set():
                if not self.read_ahead():
                    stop.wait(left)

    def read_ahead(self) -> bool:
        """Read one piece of what falls due soon.

        Returns False if nothing is left, or there is no room for more.
        """
        return self._ahead.more(self._tracker, self._clock.now_ms())

    def settle(self, until_ms: int) -> None:
        """Deliver until exactly this moment, and commit the place.

        All shards thus come to one place, and there may be more or fewer of them next time. Call it only when nothing
        is committed to the store any more, so that they all find the same version.
        """
        if self.place.t > until_ms or until_ms - self._clock.now_ms() > SETTLE_MS_MAX:
            log.warning("shard %d is at %s and does not settle at %d", self._shard, self.place, until_ms)
            return
        while (left := self._clock.seconds_until(until_ms)) > 0:
            time.sleep(left)
        self._until_ms = until_ms
        self.step()
        while self.place.t < until_ms or self._tracker.held_up:
            self.step()
        if self.committed != self.place:
            self._commit(self._plan(self.place, ahead=False, always=True))

    def step(self) -> ShardResult | None:
        """Deliver what is due now, if anything, as far as one step goes."""
        now_ms = self._clock.now_ms() if self._until_ms is None else self._until_ms
        # A marker may be ahead of a clock that was set back: nothing more is due before the clock reaches it again.
        if now_ms < self.place.t:
            return None
        self._take_up_versions()
        if self._late() > self._rows_max:
            return self._step_from_store(now_ms)
        reading = True
        while self._ahead.until_ms < now_ms and reading and not self._ready(min(now_ms, self._ahead.until_ms)):
            if now_ms - self._ahead.until_ms > BEHIND_MS and self._count(now_ms) > self._rows_max:
                return self._step_from_store(now_ms)
            reading = self._ahead.more(self._tracker, now_ms)
        if not reading and self._ahead.until_ms <= self.place.t:
            return self._step_from_store(now_ms)
        return self._deliver(Reached(min(now_ms, self._ahead.until_ms), self._tracker.version), ahead=True)

    # -- inside ------------------------------------------------------------------------------------------------------

    def _take_up_versions(self) -> None:
        """Follow new versions of the store."""
        before = self._tracker.version
        # Rewritten files count as old: a rewrite is followed once all rows of this shard that went into it are old for
        # a follower that begins anew, at the marker.
        if self._tracker.follow(Reached(self.place.t, self.committed.v)):
            new = [file for file in self._tracker.files.values() if file.version > before]
            self._ahead.add_files(self._tracker, new, self.place.t)

    def _ready(self, until_ms: int) -> bool:
        return self._ahead.count(self.place.t, until_ms) > 0

    def _wanted(self, end: Reached) -> list[File]:
        files, shards = self._tracker.wanted(self.place, end), self._settings.shards
        return [file for file in files if self._shard in file.shards(shards)]

    def _count(self, until_ms: int) -> int:
        end = Reached(until_ms, self._tracker.version)
        return sum(self._tracker.count(file, self.place, end) for file in self._wanted(end))

    def _late(self) -> int:
        """Count the rows that were due already when they came: only a new version of the store has any."""
        return self._count(self.place.t) if self._tracker.version > self.place.v else 0

    def _step_from_store(self, now_ms: int) -> ShardResult | None:
        rows, end_ms = self._count(now_ms), now_ms
        if rows > self._settings.batch_rows_max:
            end_ms = self._shorter(now_ms)
        done = self._deliver(Reached(end_ms, self._tracker.version), ahead=False)
        self._ahead.begin(self.place.t)
        return done

    def _shorter(self, end_ms: int) -> int:
        """Return the end of the longest step with no more rows than a batch may have.

        It is at least one millisecond, however many rows that has.
        """
        first = low = self.place.t
        high = end_ms
        while high - low > 1:
            middle = (low + high) // 2
            if self._count(middle) <= self._settings.batch_rows_max:
                low = middle
            else:
                high = middle
        return low if low > first else high

    def _deliver(self, end: Reached, *, ahead: bool) -> ShardResult | None:
        """Deliver up to ``end``. With ``ahead``, rows due after the place were read ahead."""
        plan = self._plan(end, ahead=ahead, always=self._tracker.held_up or self._is_waited_for(end))
        # A place without rows needs no commit: from any place before it there is nothing to deliver either.
        done = None if plan is None else self._commit(plan)
        self.place = end
        self._ahead.drop_until(end.t)
        return done

    def _commit(self, plan: DeliverPlan | None) -> ShardResult:
        assert plan is not None
        done = self._run(plan, self._ahead.between)
        self.committed = plan.end
        return done

    def _is_waited_for(self, end: Reached) -> bool:
        behind_ms = end.t - self.committed.t
        if end.t // REFRESH_MS == self.committed.t // REFRESH_MS:
            return False
        passed = any(self.committed.t < file.due_max_ms <= end.t for file in self._tracker.files.values())
        return passed or end.v > self.committed.v or behind_ms >= IDLE_MS

    def _plan(self, end: Reached, *, ahead: bool, always: bool) -> DeliverPlan | None:
        begin, tracker = self.place, self._tracker
        rows, files = self._ahead.count(begin.t, end.t) if ahead else 0, []
        # Most steps need only what was read ahead, and no look at the files.
        for file in self._wanted(end) if not ahead or tracker.version > begin.v else ():
            late = file.version > begin.v
            until = min(begin.t, end.t) if ahead else end.t
            of_file = tracker.count(file, begin, Reached(until, end.v)) if late or not ahead else 0
            if of_file:
                files.append(file)
                rows += of_file
        if not rows and not always:
            return None
        return DeliverPlan(self._shard, begin, end, tuple(files), tuple(tracker.cancelled(begin)), rows, ahead)
