"""The streaming source ``tarry-relay-deliver``: the clock, as Spark's offset.

Its offset is ``{"t": clock, "v": version of the store}``, and there is always a new one: a batch is a stretch of time
(``follow``). It is for people and for Spark; where the shards are is in their markers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from deltalake import DeltaTable
from pyspark.sql.datasource import DataSource, InputPartition

from tarry.base.clock import SystemClock
from tarry.relay.schedule_source import Planned, PlanReader
from tarry.relay.settings import Settings
from tarry.store.place import Place


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
    """Offsets are :class:`tarry.relay.ledger.Reached` as a dict."""

    def __init__(self, settings: Settings) -> None:
        self._uri = Place.of(settings.store).uri
        self._clock = SystemClock()

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        return {"t": 0, "v": 0}

    def latestOffset(self, start: dict[str, int], *_: Any) -> dict[str, int]:  # noqa: N802
        version = DeltaTable(self._uri, without_files=True).version()
        return {"t": max(self._clock.now_ms(), start["t"] + 1), "v": max(version, start["v"])}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        return [Planned("")]
