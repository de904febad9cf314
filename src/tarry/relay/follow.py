"""Following the clock: the deliveries of the driver, one after the other, each from the place that the last reached.

A Spark batch of the deliver query takes about 400 ms before and after what it does. So a batch is a stretch of time, in
which the driver delivers every ``deliver_interval_ms``; and as the markers in Kafka say how far each shard has got,
nothing depends on where Spark believes a batch ends. What is too much for the driver, after an hour's pause or in a
herd that does not fit its memory, goes through Spark's tasks.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence

from tarry.base.clock import Clock, SystemClock
from tarry.relay.deliver import DeliverPlan, reached
from tarry.relay.files import File, FileTracker, Reached
from tarry.relay.markers import markers_of
from tarry.relay.read_ahead import ReadAhead
from tarry.relay.runner import Runner
from tarry.relay.schedule import ShardResult
from tarry.relay.settings import RelaySettings
from tarry.relay.table import RelayStore

log = logging.getLogger(__name__)

REFRESH_MS = 60_000
"""A shard without work commits its place every so often, so that no marker falls far behind."""
IDLE_MS = 3_600_000
"""Where nothing is due, the places move on so often: versions that are a day old leave the store's log, and a place
must not be one of them.
"""
BEHIND_MS = 1_000
"""A delivery that is behind by more than this checks whether it is too much for the driver."""


class Follower:
    """Delivers, from one thread; ``places`` is where the shards are. After an error it is not used any more; a new one
    begins where the markers are.
    """

    def __init__(
        self,
        settings: RelaySettings,
        store: RelayStore,
        runner: Runner,
        places: Sequence[Reached],
        clock: Clock | None = None,
    ) -> None:
        self._settings, self._store, self._runner = settings, store, runner
        self._clock = clock or SystemClock()
        self.place = Reached(min(p.t for p in places), min(p.v for p in places))
        # A marker may be ahead of a clock that was set back: nothing more is due before the clock is there again.
        self._not_before_ms = max(p.t for p in places)
        self._moved_ms = self.place.t
        """When all shards committed their places."""
        self._committed_v = self.place.v
        """The version that all of them have committed, at least."""
        self._tracker = FileTracker(store.root, settings.store_shard, self.place.v)
        self._ahead = ReadAhead(settings, store.root, self.place.t)
        self._together = False
        """Whether the shards are at one place. They are not where one had begun and another had not."""

    def follow(
        self, until: float, interval_s: float, stop: threading.Event, on_result: Callable[[list[ShardResult]], None]
    ) -> None:
        """Deliver what falls due until ``stop``, or until the monotonic clock shows ``until``. ``on_result`` gets what
        each step did.

        Raises:
            TarryError, OSError: Kafka or the store is away, or somebody else delivers.
        """
        while not stop.is_set() and (now := time.monotonic()) < until:
            done = self.step()
            if done:
                on_result(done)
            while (left := now + interval_s - time.monotonic()) > 0 and not stop.is_set():
                if not self.read_ahead():
                    stop.wait(left)

    def read_ahead(self) -> bool:
        """Read one piece of what falls due soon; false where there is none left, or no room for more."""
        return self._ahead.more(self._tracker, self._clock.now_ms())

    def settle(self) -> None:
        """Have all shards commit one place, so that there may be more or fewer of them next time."""
        if self._together:
            self._runner.run(self._plans(self.place, all_of_them=True), direct=True)

    def step(self) -> list[ShardResult]:
        """Deliver what is due now, if anything, as far as one step goes."""
        now_ms = self._clock.now_ms()
        if now_ms < max(self.place.t, self._not_before_ms):
            return []
        self._take_up_versions()
        if not self._together or self._late() > self._settings.direct_rows_max:
            return self._step_from_store(now_ms)
        reading = True
        while self._ahead.until_ms < now_ms and reading and not self._ready(min(now_ms, self._ahead.until_ms)):
            if now_ms - self._ahead.until_ms > BEHIND_MS and self._count(now_ms) > self._settings.direct_rows_max:
                return self._step_from_store(now_ms)
            reading = self._ahead.more(self._tracker, now_ms)
        if not reading and self._ahead.until_ms <= self.place.t:
            return self._step_from_store(now_ms)
        return self._deliver(Reached(min(now_ms, self._ahead.until_ms), self._tracker.version), ahead=True)

    # -- inside ------------------------------------------------------------------------------------------------------

    def _take_up_versions(self) -> None:
        """Take up new versions of the store."""
        before = self._tracker.version
        # Files that are rewritten count as old: a rewrite is taken up when all that went into it was old for whoever
        # begins anew, at the markers.
        if self._tracker.follow(Reached(self.place.t, self._committed_v)):
            new = [file for file in self._tracker.files.values() if file.version > before]
            self._ahead.add_files(self._tracker, new, self.place.t)

    def _ready(self, until_ms: int) -> bool:
        return any(self._ahead.count(shard, self.place.t, until_ms) for shard in range(self._settings.shards))

    def _count(self, until_ms: int) -> int:
        end = Reached(until_ms, self._tracker.version)
        return sum(self._tracker.count(file, self.place, end) for file in self._tracker.wanted(self.place, end))

    def _late(self) -> int:
        """How many rows were due already when they came: only a new version of the store has any."""
        return self._count(self.place.t) if self._tracker.version > self.place.v else 0

    def _step_from_store(self, now_ms: int) -> list[ShardResult]:
        rows, end_ms = self._count(now_ms), now_ms
        if rows > self._settings.batch_rows_max:
            end_ms = self._shorter(now_ms)
        done = self._deliver(Reached(end_ms, self._tracker.version), ahead=False)
        self._ahead.begin(self.place.t)
        self._together = True
        return done

    def _shorter(self, end_ms: int) -> int:
        """The longest step with no more rows than a batch may have; of one millisecond at least, however many."""
        first = low = max(self.place.t, self._not_before_ms)
        high = end_ms
        while high - low > 1:
            middle = (low + high) // 2
            if self._count(middle) <= self._settings.batch_rows_max:
                low = middle
            else:
                high = middle
        return low if low > first else high

    def _deliver(self, end: Reached, *, ahead: bool) -> list[ShardResult]:
        """``ahead``: what is due after the place was read ahead."""
        plans = self._plans(end, ahead=ahead)
        minute = end.t // REFRESH_MS != self._moved_ms // REFRESH_MS
        if self._tracker.held_up or (minute and (plans or end.t - self._moved_ms >= IDLE_MS)):
            plans = self._plans(end, ahead=ahead, all_of_them=True)
        # A place without rows needs no commit: from any place before it there is nothing to deliver either.
        done = self._runner.run(plans, direct=ahead, ahead=self._ahead.between)
        self.place = end
        if len(plans) == self._settings.shards:
            self._moved_ms, self._committed_v = end.t, end.v
            self._store.delivered = end
        self._ahead.drop_until(end.t)
        return done

    def _plans(self, end: Reached, *, ahead: bool = False, all_of_them: bool = False) -> list[DeliverPlan]:
        begin, tracker, shards = self.place, self._tracker, range(self._settings.shards)
        files: dict[int, list[File]] = {shard: [] for shard in shards}
        counts = {shard: self._ahead.count(shard, begin.t, end.t) if ahead else 0 for shard in shards}
        # Most steps need only what was read ahead, and no look at the files.
        for file in tracker.wanted(begin, end) if not ahead or tracker.version > begin.v else ():
            late = file.version > begin.v
            until = min(begin.t, end.t) if ahead else end.t
            rows = tracker.count(file, begin, Reached(until, end.v)) if late or not ahead else 0
            for shard in file.shards(self._settings.shards) if rows else ():
                files[shard].append(file)
                counts[shard] += rows
        chosen = [shard for shard in shards if counts[shard] or all_of_them]
        cancelled = tuple(tracker.cancelled(begin)) if chosen else ()
        return [
            DeliverPlan(shard, begin, end, tuple(files[shard]), cancelled, counts[shard], ahead) for shard in chosen
        ]


def places_of(settings: RelaySettings) -> list[Reached]:
    """Where the shards are, by their markers: so a checkpoint that is lost is no loss."""
    shards = [(settings.marker_topic, shard) for shard in range(settings.shards)]
    markers = markers_of(settings, settings.deliver_group, shards)
    return [reached(marker) or Reached(0, 0) for marker in markers.values()]
