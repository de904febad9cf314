"""Many messages at once: tables and iterables, cut into chunks, several under way at a time.

Each chunk is accepted whole or not at all; the whole of the data is not one transaction. Chunks are sent in order and
refused ones stop the sending, but those already under way may still be accepted. The caller's ``progress`` is told of
each accepted chunk, also when the call then raises.
"""

from __future__ import annotations

import itertools
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from queue import Empty, SimpleQueue
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow.interchange import from_dataframe

from tarry.base.back_off import BackOff
from tarry.base.errors import (
    InvalidArgumentError,
    InvalidMessageError,
    OverloadedError,
    TarryError,
    UnavailableError,
)
from tarry.client.producing import Submit
from tarry.link.frames import decode_accepted
from tarry.message.accepted import Accepted
from tarry.message.columns import stream_bytes
from tarry.message.message import Message
from tarry.message.receipt import Receipt
from tarry.message.row_columns import columns_of, to_batch
from tarry.message.rows import BODY, ID, Row, rows_of

CHUNKS_IN_FLIGHT = 4
CHUNK_BYTES = 8 << 20
OVERLOAD_S, OVERLOAD_S_MAX = 0.05, 1.0
"""The first and the longest pause when the broker is overloaded."""

MANY_ROWS = 4096
"""Messages in one chunk of schedule_many."""

Progress = Callable[[Accepted], None]


def batches_of(data: Any, chunk_rows: int) -> Iterator[pa.RecordBatch]:
    """Cut whatever holds columns into chunks.

    Raises:
        InvalidArgumentError: it does not.
    """
    if isinstance(chunk_rows, bool) or not isinstance(chunk_rows, int) or chunk_rows < 1:
        raise InvalidArgumentError(f"chunk_rows is {chunk_rows!r}; allowed: 1 or more")
    if isinstance(data, pa.RecordBatchReader):
        return (part for batch in data for part in _cut(batch, chunk_rows))
    table = _table(data)
    if table.num_rows and table.num_rows / len(table.to_batches()) < min(1000, chunk_rows):
        table = table.combine_chunks()  # many small pieces would each be a submission of their own
    return (part for batch in table.to_batches() for part in _cut(batch, chunk_rows))


class Chunks:
    """Batches of messages as they are read from an iterable, and their receipts."""

    def __init__(self, messages: Iterable[Message | Mapping[str, Any]]) -> None:
        self._rows = iter(rows_of(messages))
        self._ids: dict[int, list[str | None]] = {}
        self._receipts: dict[int, list[Receipt]] = {}
        self._columns: set[str] = set()
        self._next = 0

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        while rows := self._take():
            self._ids[self._next] = [row[ID] for row in rows]
            self._next += len(rows)
            self._columns.update(columns_of(rows))
            yield to_batch(rows, self._columns)

    def _take(self) -> list[Row]:
        rows: list[Row] = []
        size = 0
        for row in itertools.islice(self._rows, MANY_ROWS):
            rows.append(row)
            size += len(row[BODY])
            if size >= CHUNK_BYTES:
                break
        return rows

    def accept(self, accepted: Accepted) -> None:
        """Keep the receipts of one chunk, which was accepted."""
        self._receipts[accepted.row] = accepted.receipts(self._ids.pop(accepted.row))

    def receipts(self) -> list[Receipt]:
        """Return the receipts of all messages, in order."""
        return [receipt for row in sorted(self._receipts) for receipt in self._receipts[row]]


class BulkSender:
    """Sends all chunks of what one thread has: :meth:`send`. Several are under way at a time."""

    def __init__(self, submit: Submit, progress: Progress | None, timeout_s: float) -> None:
        """Send by ``submit``.

        ``timeout_s``: how long the broker may say nothing, and how long it may be overloaded, in all.
        """
        self._submit = submit
        self._progress = progress
        self._timeout_s = self._patience_s = timeout_s
        self._under_way: dict[int, pa.RecordBatch] = {}
        """Chunks by their first row."""
        self._answers: SimpleQueue[tuple[int, memoryview | TarryError]] = SimpleQueue()
        self._back_off = BackOff(OVERLOAD_S, OVERLOAD_S_MAX)
        self._accepted: list[Accepted] = []
        self._refused: TarryError | None = None

    def send(self, chunks: Iterable[pa.RecordBatch], row: int = 0) -> list[Accepted]:
        """Send all chunks, from row ``row`` of the data on; what was accepted, in the order of the rows.

        Raises:
            InvalidMessageError: ``row`` is the row of the whole data. OverloadedError, DiskFullError: nothing of the
            chunk was accepted. UnavailableError: the answers to the chunks under way are unknown.
        """
        for chunk in chunks:
            while len(self._under_way) >= CHUNKS_IN_FLIGHT:
                self._take_answer()
            if self._refused is not None:
                break
            self._write(row, chunk)
            row += chunk.num_rows
        while self._under_way:
            self._take_answer()
        if self._refused is not None:
            raise self._refused
        self._accepted.sort(key=lambda accepted: accepted.row)
        return self._accepted

    def _write(self, row: int, chunk: pa.RecordBatch) -> None:
        self._under_way[row] = chunk
        try:
            self._submit(stream_bytes(chunk.schema, [chunk]), lambda raw: self._answers.put((row, raw)))
        except BaseException:
            del self._under_way[row]
            raise

    def _take_answer(self) -> None:
        try:
            row, raw = self._answers.get(timeout=self._timeout_s)
        except Empty:
            raise self._unknown(UnavailableError(f"no answer from the broker within {self._timeout_s} s")) from None
        if isinstance(raw, UnavailableError) and not raw.nothing_sent:
            raw = self._unknown(raw)
        chunk = self._under_way.pop(row)
        if isinstance(raw, OverloadedError) and self._refused is None and self._patience_s > 0:
            # Certainly not accepted, so it may be sent again.
            pause_s = self._back_off.fail()
            time.sleep(pause_s)
            self._patience_s -= pause_s
            self._write(row, chunk)
        elif isinstance(raw, TarryError):
            self._refused = self._refused or _absolute(raw, row)
        else:
            self._back_off.reset()
            accepted = _of_chunk(decode_accepted(raw), row)
            self._accepted.append(accepted)
            if self._progress is not None:
                self._progress(accepted)

    def _unknown(self, error: UnavailableError) -> UnavailableError:
        """Name the rows that are under way, of which nothing will be known."""
        last, chunk = max(self._under_way.items())
        rows = f"rows {min(self._under_way)} to {last + chunk.num_rows - 1}"
        return UnavailableError(f"{error}; {rows} may or may not have been accepted")


def _of_chunk(accepted: Accepted, row: int) -> Accepted:
    """Return the answer to a chunk that begins at a row, with the due times of its messages."""
    placed = accepted.placed
    if placed is None or not len(placed):
        return replace(accepted, row=row)
    due_ms = placed["due_ms"].astype(np.int64)
    return replace(accepted, first_seq=int(placed["seq"][0]), due_ms=due_ms, row=row)


def _table(data: Any) -> pa.Table:
    if isinstance(data, pa.Table):
        return data
    if isinstance(data, pa.RecordBatch):
        return pa.Table.from_batches([data])
    try:
        if hasattr(data, "__arrow_c_stream__"):
            return pa.table(data)
        if hasattr(data, "__dataframe__"):
            return from_dataframe(data)
    except (pa.ArrowException, ValueError, TypeError) as error:
        raise InvalidArgumentError(f"a {type(data).__name__} that has no Arrow form: {error}") from error
    raise InvalidArgumentError(
        f"data of type {type(data).__name__}; allowed: an Arrow table, record batch or reader, or a DataFrame"
    )


def _cut(batch: pa.RecordBatch, chunk_rows: int) -> Iterator[pa.RecordBatch]:
    for start in range(0, batch.num_rows, chunk_rows):
        yield from _cut_bytes(batch.slice(start, chunk_rows))


def _cut_bytes(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    if batch.num_rows > 1 and batch.nbytes > CHUNK_BYTES:
        half = batch.num_rows // 2
        yield from _cut_bytes(batch.slice(0, half))
        yield from _cut_bytes(batch.slice(half))
    else:
        yield batch


def _absolute(error: TarryError, first: int) -> TarryError:
    if isinstance(error, InvalidMessageError) and error.row is not None:
        text = re.sub(r"^row \d+: ", "", str(error))
        error.row += first
        error.args = (f"row {error.row}: {text}",)
    return error
