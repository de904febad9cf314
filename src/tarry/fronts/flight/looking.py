"""The calls that only look: pages of what is pending, what is ready, the load to come, all figures."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import pyarrow as pa
import pyarrow.flight as fl

from tarry.api.wire import CURSOR_KEY
from tarry.fronts.flight.commands import Command, ListPending, Natural, Peek, parse
from tarry.fronts.flight.core import Core


class ForecastOf(Command):
    """Until when, in which unit, of which topic."""

    topic: str | None = None
    unit: str = "hour"
    until_ms: Natural | None = None


class HistoryOf(Command):
    """Of which message."""

    what: str
    topic: str | None = None


class OverviewOf(Command):
    """How many topics and groups are told one by one."""

    most: Natural = 100
    next_due: bool = False


class Looking:
    """For one broker."""

    def __init__(self, core: Core) -> None:
        self._core = core

    def actions(self) -> dict[str, tuple[str, Callable[[bytes], Any]]]:
        """What each is for, and what carries it out."""
        return {
            "forecast": ("how many messages fall due when", self._forecast),
            "history": ("what happened to a message", self._history),
            "overview": ("all figures at one moment", self._overview),
        }

    def stream(self, command: ListPending | Peek) -> fl.FlightDataStream:
        """What a DoGet gives. The cursor of a page is in the metadata of its schema: nothing comes after the rows."""
        asked = command.model_dump(exclude={"op"})
        if isinstance(command, Peek):
            return fl.RecordBatchStream(pa.Table.from_batches([self._core.peek(asked.pop("topic"), **asked)]))
        page = self._core.list_pending(**asked)
        schema = page.rows.schema.with_metadata({} if page.cursor is None else {CURSOR_KEY: page.cursor})
        return fl.RecordBatchStream(pa.Table.from_batches([page.rows]).cast(schema))

    def _forecast(self, body: bytes) -> dict[str, Any]:
        found = self._core.forecast(**parse(ForecastOf, body).model_dump())
        return {**asdict(found), "loads": [[load.from_ms, load.rows, load.unsure] for load in found.loads]}

    def _history(self, body: bytes) -> dict[str, Any]:
        command = parse(HistoryOf, body)
        return asdict(self._core.history(command.what, topic=command.topic))

    def _overview(self, body: bytes) -> dict[str, Any]:
        command = parse(OverviewOf, body)
        return self._core.overview(most=command.most, next_due=command.next_due)
