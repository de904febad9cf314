"""The streaming source ``tarry-relay-deliver``: the clock, as Spark's offset.

Its offset is ``{"t": clock, "v": version of the store}``, and there is always a new one: a batch is a stretch of time
(``follow``). Only people and Spark read it; how far the shards have got is in their markers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

from tarry.base.clock import SystemClock
from tarry.relay.schedule_source import Planned, read_plan
from tarry.relay.settings import RelaySettings
from tarry.store.place import Place


class DeliverSource(DataSource):  # type: ignore[misc]
    """Option: ``settings``, as JSON."""

    @classmethod
    def name(cls) -> str:
        return "tarry-relay-deliver"

    def schema(self) -> str:
        return "plan string"

    def streamReader(self, schema: Any) -> DeliverReader:  # noqa: N802 - Spark's name
        return DeliverReader(RelaySettings.from_json(self.options["settings"]))


class DeliverReader(DataSourceStreamReader):  # type: ignore[misc]
    """Offsets are :class:`tarry.relay.files.Reached` as a dict."""

    def __init__(self, settings: RelaySettings) -> None:
        self._uri = Place.of(settings.store).uri
        self._clock = SystemClock()

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        return {"t": 0, "v": 0}

    def latestOffset(self, start: dict[str, int], *_: Any) -> dict[str, int]:  # noqa: N802
        version = DeltaTable(self._uri, without_files=True).version()
        return {"t": max(self._clock.now_ms(), start["t"] + 1), "v": max(version, start["v"])}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        return [Planned("")]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_plan(partition)
