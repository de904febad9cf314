"""Messages from an iterable, as they are read: in batches, whose answers become receipts."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pyarrow as pa

from tarry.api.receipt import Accepted, Receipt
from tarry.api.schedule import BODY, ID, Row, columns_of, rows_of, to_batch
from tarry.base.message import Message

MANY_ROWS = 4096
"""Messages in one chunk of schedule_many."""


class Chunks:
    """Batches of messages as they are read from an iterable, and their receipts."""

    def __init__(self, messages: Iterable[Message | Mapping[str, Any]]) -> None:
        self._rows = iter(rows_of(messages))
        self._ids: dict[int, list[str | None]] = {}
        self._receipts: dict[int, list[Receipt]] = {}
        self._columns: set[str] = set()
        self._next = 0
        self.first_row = 0
        """Of the chunk that was given last."""

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        while rows := self._take():
            self._ids[self._next] = [row[ID] for row in rows]
            self.first_row = self._next
            self._next += len(rows)
            self._columns.update(columns_of(rows))
            yield to_batch(rows, self._columns)

    def _take(self) -> list[Row]:
        rows: list[Row] = []
        size = 0
        for row in itertools.islice(self._rows, MANY_ROWS):
            rows.append(row)
            size += len(row[BODY])
            if size >= 8 << 20:
                break
        return rows

    def accept(self, accepted: Accepted) -> None:
        """The answer to one of the chunks."""
        self._receipts[accepted.row] = accepted.receipts(self._ids.pop(accepted.row))

    def receipts(self) -> list[Receipt]:
        """Of all messages, in order."""
        return [receipt for row in sorted(self._receipts) for receipt in self._receipts[row]]
