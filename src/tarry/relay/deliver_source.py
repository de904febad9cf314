"""The streaming source ``tarry-relay-deliver``: what has fallen due in the store, as plans for the shards.

Its offset is ``{"t": clock, "v": version of the store}``; ``ledger`` says what a batch from one to another reads. There
is a batch only when a row is due: due times that are near are kept in memory, so that looking costs next to nothing.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from typing import Any

from pyspark.sql.datasource import DataSource, InputPartition

from tarry.clock import SystemClock
from tarry.errors import UnavailableError
from tarry.relay.clients import consumer
from tarry.relay.deliver import DeliverPlan, reached
from tarry.relay.ledger import File, Ledger, Reached
from tarry.relay.outbox import read_markers
from tarry.relay.schedule_source import Planned, PlanReader
from tarry.relay.settings import Settings
from tarry.store.place import Place

log = logging.getLogger(__name__)

REFRESH_MS = 60_000
"""A shard without work commits its place now and then, so that no marker falls far behind."""


IDLE_MS = 3_600_000
"""Where nothing is due, the place moves on so often: versions that are a day old leave the store's log, and a place
must not be one of them.
"""


class DeliverSource(DataSource):  # type: ignore[misc]
    """Option: ``settings``, as JSON."""

    @classmethod
    def name(cls) -> str:
        return "tarry-relay-deliver"

    def schema(self) -> str:
        return "plan string"

    def streamReader(self, schema: Any) -> DeliverReader:  # noqa: N802 - Spark's name
        return DeliverReader(Settings.from_json(self.options["settings"]))


class DeliverReader(PlanReader):
    """Offsets are :class:`Reached` as a dict."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._root = Place.of(settings.store).uri
        self._clock = SystemClock()
        self._followed: Ledger | None = None

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        # The least that the shards have delivered, not the beginning: so a checkpoint that is lost is no loss.
        reader = consumer(self._settings, self._settings.deliver_group)
        try:
            topic = self._settings.marker_topic
            found = read_markers(reader, [(topic, shard) for shard in range(self._settings.shards)])
        finally:
            reader.close()
        places = [reached(marker) or Reached(0, 0) for marker in found.values()]
        return {"t": min(p.t for p in places), "v": min(p.v for p in places)}

    def latestOffset(self, start: dict[str, int], *_: Any) -> dict[str, int]:  # noqa: N802
        begin = Reached(**start)
        try:
            end = self._end(begin)
        except UnavailableError as error:
            log.warning("no batch: %s", error)
            return start
        return {"t": end.t, "v": end.v}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        begin, until = Reached(**start), Reached(**end)
        ledger = self._ledger(begin)
        if ledger.version != until.v:  # a batch that is replayed
            ledger = Ledger(self._root, self._settings.store_shard, begin.v)
            ledger.follow(begin, until.v)
        return [Planned(json.dumps({"start": start, "end": end, "plans": self._plans(ledger, begin, until)}))]

    # -- inside ------------------------------------------------------------------------------------------------------

    def _ledger(self, begin: Reached) -> Ledger:
        if self._followed is None:
            self._followed = Ledger(self._root, self._settings.store_shard, begin.v)
        return self._followed

    def _end(self, begin: Reached) -> Reached:
        ledger = self._ledger(begin)
        ledger.follow(begin)
        now_ms = self._clock.now_ms()
        if now_ms < begin.t:  # the clock was set back: what comes now is not due before it is there again
            return begin
        end = Reached(now_ms, ledger.version)
        rows = _rows(ledger, begin, end)
        if rows == 0:
            # A rewrite is only followed from the version before it, so get there.
            held_up = ledger.held_up and begin.v < end.v
            return end if held_up or (begin.t and now_ms - begin.t >= IDLE_MS) else begin
        return end if rows <= self._settings.batch_rows_max else _shorter(ledger, begin, end, self._settings)

    def _plans(self, ledger: Ledger, begin: Reached, until: Reached) -> list[str]:
        files = ledger.wanted(begin, until)
        cancelled = tuple(ledger.cancelled(begin))
        all_of_them = begin.t // REFRESH_MS != until.t // REFRESH_MS
        shards: dict[int, list[File]] = {shard: [] for shard in range(self._settings.shards)}
        counts = dict.fromkeys(shards, 0)
        for file in files:
            rows = ledger.count(file, begin, until)
            for shard in file.shards(self._settings.shards) if rows else ():
                shards[shard].append(file)
                counts[shard] += rows
        return [
            DeliverPlan(shard, begin, until, tuple(some), cancelled, counts[shard]).to_json()
            for shard, some in shards.items()
            if some or all_of_them
        ]


def _rows(ledger: Ledger, begin: Reached, end: Reached) -> int:
    return sum(ledger.count(file, begin, end) for file in ledger.wanted(begin, end))


def _shorter(ledger: Ledger, begin: Reached, end: Reached, settings: Settings) -> Reached:
    """The longest step with no more rows than a batch may have; of one millisecond at least, however many it has."""
    low, high = begin.t, end.t
    while high - low > 1:
        middle = (low + high) // 2
        if _rows(ledger, begin, Reached(middle, end.v)) <= settings.batch_rows_max:
            low = middle
        else:
            high = middle
    return Reached(low if low > begin.t else high, end.v)
