"""The streaming source of the schedule query: the ends of Kafka's source topics.

Its offset is that of ``positions``. A batch is one row, which holds its start and its end: the work is planned in the
driver (``queries``). As long as there is nothing new, or Kafka is away, there is no batch, so that waiting is cheap. A
partition that appears gets a batch of its own, which fixes its first offset.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

from tarry.base.clock import SystemClock
from tarry.base.errors import UnavailableError
from tarry_relay.clients import KafkaAdmin
from tarry_relay.positions import Partition, SourcePositions
from tarry_relay.rules import TopicRules
from tarry_relay.settings import RelaySettings
from tarry_relay.table import RelayStore

log = logging.getLogger(__name__)

REFRESH_S = 5.0
"""Seconds between two searches for new topics and partitions."""

SCHEMA = "start string, end string"
_SCHEMA = pa.schema([("start", pa.string()), ("end", pa.string())])


@dataclass
class WholeBatch(InputPartition):  # type: ignore[misc]
    """Both ends of a batch, as JSON."""

    start: str
    end: str

    def rows(self) -> Iterator[pa.RecordBatch]:
        """Yield the row that Spark gives to the driver."""
        yield pa.RecordBatch.from_pydict({"start": [self.start], "end": [self.end]}, schema=_SCHEMA)


class ScheduleSource(DataSource):  # type: ignore[misc]
    """Source with one option: ``settings``, as JSON."""

    @classmethod
    def name(cls) -> str:
        return "tarry-relay-schedule"

    def schema(self) -> str:
        return SCHEMA

    def streamReader(self, schema: Any) -> ScheduleReader:  # noqa: N802 - Spark's name
        return ScheduleReader(RelaySettings.from_json(self.options["settings"]))


class ScheduleReader(DataSourceStreamReader):  # type: ignore[misc]
    """Reader whose offsets are :class:`SourcePositions` as JSON."""

    def __init__(self, settings: RelaySettings) -> None:
        self._settings = settings
        self._rules = TopicRules(settings)
        self._clock = SystemClock()
        self._client: KafkaAdmin | None = None
        self._partitions: list[Partition] = []
        self._refresh_at = 0.0

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        # The store's positions, not Kafka's beginning: so a lost checkpoint does no harm.
        store = self._store()
        next_number, at = store.positions_of(self._sources())
        return SourcePositions(self._clock.now_ms(), next_number, at).to_json()

    def latestOffset(self, start: dict[str, Any], *_: Any) -> dict[str, Any]:  # noqa: N802
        begin = SourcePositions.from_json(start)
        try:
            end = self._end(begin)
        except UnavailableError as error:
            log.warning("no batch: %s", error)
            return start
        return start if end is begin else end.to_json()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        return [WholeBatch(json.dumps(start), json.dumps(end))]

    def read(self, partition: WholeBatch) -> Iterator[pa.RecordBatch]:
        return partition.rows()

    # -- inside ------------------------------------------------------------------------------------------------------

    def _end(self, begin: SourcePositions) -> SourcePositions:
        sources = self._sources()
        if not sources:
            return begin
        latest = self._admin().offsets(sources, "latest")
        new = [p for p in sources if p not in begin.at]
        # A partition that ends before what was read of it is another one: its topic was deleted and created anew.
        again = [p for p in sources if p in begin.at and latest[p] < begin.at[p].offset]
        if new or again:
            end = begin.with_new(self._begins(new, begin) | self._admin().offsets(again, "earliest"))
        else:
            end = begin
        ends = {p: latest[p] for p in sources if p in begin.at and p not in again}
        return end.advanced(ends, self._settings.batch_rows_max, self._clock.now_ms())

    def _begins(self, new: list[Partition], begin: SourcePositions) -> dict[Partition, int]:
        # Partitions that existed at the relay's first start are read as the setting says; later ones, from their first
        # record on.
        first = begin.next_number == 0
        return self._admin().offsets(new, self._settings.start if first else "earliest")

    def _sources(self) -> list[Partition]:
        if time.monotonic() >= self._refresh_at:
            topics = self._admin().partitions()
            self._partitions = [(t, p) for t in self._rules.sources(topics) for p in topics[t]]
            self._refresh_at = time.monotonic() + REFRESH_S
        return self._partitions

    def _admin(self) -> KafkaAdmin:
        if self._client is None:
            self._client = KafkaAdmin(self._settings)
        return self._client

    def _store(self) -> RelayStore:
        return RelayStore.look(self._settings.store, shard=self._settings.store_shard)
