"""Following the clock: the deliveries of the driver, one after the other, each from the place that the last reached.

A Spark batch of the deliver query takes about 400 ms before and after what it does. So a batch is a stretch of time, in
which the driver delivers as often as ``deliver_interval_ms`` says; and as the markers in Kafka say how far each shard
has got, nothing depends on where Spark believes a batch ends. What is too much for the driver, after an hour away or in
a herd that does not fit its memory, goes through Spark's tasks.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence

from tarry.base.clock import Clock, SystemClock
from tarry.relay.ahead import Ahead
from tarry.relay.clients import consumer
from tarry.relay.deliver import DeliverPlan, reached
from tarry.relay.ledger import File, Ledger, Reached
from tarry.relay.outbox import read_markers
from tarry.relay.running import Runner
from tarry.relay.schedule import Done
from tarry.relay.settings import Settings
from tarry.relay.table import RelayStore

log = logging.getLogger(__name__)

REFRESH_MS = 60_000
"""A shard without work commits its place now and then, so that no marker falls far behind."""
IDLE_MS = 3_600_000
"""Where nothing is due, the places move on so often: versions that are a day old leave the store's log, and a place
must not be one of them.
"""
BEHIND_MS = 1_000
"""Who is behind by more than this looks whether it is too much for the driver."""


class Follower:
    """Delivers, from one thread; ``places`` is where the shards are. After an error it is of no use any more; another
    begins where the markers are.
    """

    def __init__(
        self,
        settings: Settings,
        store: RelayStore,
        runner: Runner,
        places: Sequence[Reached],
        clock: Clock | None = None,
    ) -> None:
        self._settings, self._store, self._runner = settings, store, runner
        self._clock = clock or SystemClock()
        self.place = Reached(min(p.t for p in places), min(p.v for p in places))
        # A marker ahead of the clock, which was set back: what comes now is not due before it is there again.
        self._not_before_ms = max(p.t for p in places)
        self._moved_ms = self.place.t
        """When all shards committed their places."""
        self._committed_v = self.place.v
        """The version that all of them have committed, at least."""
        self._ledger = Ledger(store.root, settings.store_shard, self.place.v)
        self._ahead = Ahead(settings, store.root, self.place.t)
        runner.read_ahead(self._ahead.between)
        self._together = False
        """Whether the shards are at one place. They are not where one had begun and another had not."""

    def follow(
        self, until: float, interval_s: float, stop: threading.Event, tell: Callable[[list[Done]], None]
    ) -> None:
        """Deliver what falls due until the monotonic clock shows ``until``, or ``stop``; ``tell`` what was done.

        Raises:
            TarryError, OSError: Kafka or the store is away, or somebody else delivers.
        """
        while not stop.is_set() and (now := time.monotonic()) < until:
            done = self.step()
            if done:
                tell(done)
            while (left := now + interval_s - time.monotonic()) > 0 and not stop.is_set():
                if not self._ahead.more(self._ledger, self._clock.now_ms()):
                    stop.wait(left)

    def settle(self) -> None:
        """Have all shards commit one place, so that there may be more or fewer of them next time."""
        if self._together:
            self._runner.run(self._plans(self.place, all_of_them=True), direct=True)

    def step(self) -> list[Done]:
        """Deliver what is due now, if anything, as far as it goes in one."""
        now_ms = self._clock.now_ms()
        if now_ms < max(self.place.t, self._not_before_ms):
            return []
        self._look()
        if not self._together or self._late() > self._settings.direct_rows_max:
            return self._step_from_store(now_ms)
        reading = True
        while self._ahead.until_ms < now_ms and reading and not self._ready(min(now_ms, self._ahead.until_ms)):
            if now_ms - self._ahead.until_ms > BEHIND_MS and self._count(now_ms) > self._settings.direct_rows_max:
                return self._step_from_store(now_ms)
            reading = self._ahead.more(self._ledger, now_ms)
        if not reading and self._ahead.until_ms <= self.place.t:
            return self._step_from_store(now_ms)
        return self._deliver(Reached(min(now_ms, self._ahead.until_ms), self._ledger.version), ahead=True)

    # -- inside ------------------------------------------------------------------------------------------------------

    def _look(self) -> None:
        """Take up what the store has that is new."""
        before = self._ledger.version
        # Files that are rewritten count as old: a rewrite is taken up when all that went into it was old for whoever
        # begins anew, at the markers.
        if self._ledger.follow(Reached(self.place.t, self._committed_v)):
            new = [file for file in self._ledger.files.values() if file.version > before]
            self._ahead.added(self._ledger, new, self.place.t)

    def _ready(self, until_ms: int) -> bool:
        return any(self._ahead.count(shard, self.place.t, until_ms) for shard in range(self._settings.shards))

    def _count(self, until_ms: int) -> int:
        end = Reached(until_ms, self._ledger.version)
        return sum(self._ledger.count(file, self.place, end) for file in self._ledger.wanted(self.place, end))

    def _late(self) -> int:
        """Rows that came when they were due already: only a new version of the store has any."""
        return self._count(self.place.t) if self._ledger.version > self.place.v else 0

    def _step_from_store(self, now_ms: int) -> list[Done]:
        rows, end_ms = self._count(now_ms), now_ms
        if rows > self._settings.batch_rows_max:
            end_ms = self._shorter(now_ms)
        done = self._deliver(Reached(end_ms, self._ledger.version), ahead=False)
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

    def _deliver(self, end: Reached, *, ahead: bool) -> list[Done]:
        """``ahead``: what is due after the place was read ahead."""
        plans = self._plans(end, ahead=ahead)
        minute = end.t // REFRESH_MS != self._moved_ms // REFRESH_MS
        if self._ledger.held_up or (minute and (plans or end.t - self._moved_ms >= IDLE_MS)):
            plans = self._plans(end, ahead=ahead, all_of_them=True)
        # A place without rows needs no commit: whoever begins before it finds nothing on the way either.
        done = self._runner.run(plans, direct=ahead)
        self.place = end
        if len(plans) == self._settings.shards:
            self._moved_ms, self._committed_v = end.t, end.v
            self._store.delivered = end
        self._ahead.delivered(end.t)
        return done

    def _plans(self, end: Reached, *, ahead: bool = False, all_of_them: bool = False) -> list[DeliverPlan]:
        begin, ledger, shards = self.place, self._ledger, range(self._settings.shards)
        files: dict[int, list[File]] = {shard: [] for shard in shards}
        counts = {shard: self._ahead.count(shard, begin.t, end.t) if ahead else 0 for shard in shards}
        # In most steps there is nothing but what was read ahead, and the files need not be looked at.
        for file in ledger.wanted(begin, end) if not ahead or ledger.version > begin.v else ():
            late = file.version > begin.v
            until = min(begin.t, end.t) if ahead else end.t
            rows = ledger.count(file, begin, Reached(until, end.v)) if late or not ahead else 0
            for shard in file.shards(self._settings.shards) if rows else ():
                files[shard].append(file)
                counts[shard] += rows
        chosen = [shard for shard in shards if counts[shard] or all_of_them]
        cancelled = tuple(ledger.cancelled(begin)) if chosen else ()
        return [
            DeliverPlan(shard, begin, end, tuple(files[shard]), cancelled, counts[shard], ahead) for shard in chosen
        ]


def places_of(settings: Settings) -> list[Reached]:
    """Where the shards are, by their markers: so a checkpoint that is lost is no loss."""
    reader = consumer(settings, settings.deliver_group)
    try:
        found = read_markers(reader, [(settings.marker_topic, shard) for shard in range(settings.shards)])
    finally:
        reader.close()
    return [reached(marker) or Reached(0, 0) for marker in found.values()]
