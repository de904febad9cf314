"""Rows that only have to be in the log: what they say was decided already."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from tarry.base.errors import TarryError
from tarry.broker.commands.write_batch import WriteBatch


class AppendRows:
    """A command. ``rows`` are of UNNUMBERED; ``done`` gets None when they are durable."""

    def __init__(self, rows: pa.RecordBatch, done: Callable[[TarryError | None], None]) -> None:
        self._rows = rows
        self._done = done

    def decide(self, batch: WriteBatch) -> pa.RecordBatch | None:
        """Return the rows to write."""
        return self._rows

    def on_durable(self, first_seq: int) -> None:
        self._done(None)

    def on_refused(self, error: TarryError) -> None:
        self._done(error)
