"""Many messages at once: tables and iterables, cut into chunks, several under way at a time.

Each chunk is accepted whole or not at all; the whole of the data is not one transaction. Chunks are sent in order and
refused ones stop the sending, but those already under way may still be accepted. The caller's ``progress`` is told of
each accepted chunk, also when the call then raises.
"""

from __future__ import annotations

import itertools
import re
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.flight as fl
from pyarrow.interchange import from_dataframe

from tarry.api.wire import SCHEDULE_PATH, AcceptedAnswer, Goodbye, PlacedAnswer, as_bytes, decode_answer
from tarry.base.back_off import BackOff
from tarry.base.errors import (
    InvalidArgumentError,
    InvalidMessageError,
    OverloadedError,
    TarryError,
    UnavailableError,
)
from tarry.base.types import Int64s
from tarry.client.connection import FLIGHT_ERRORS, BrokerConnection
from tarry.message.receipt import Accepted, Receipt
from tarry.message.rows import BODY, ID, Row, columns_of, rows_of, to_batch
from tarry.message.schema import Message

CHUNKS_IN_FLIGHT = 4
CHUNK_ROWS = 16_384
CHUNK_BYTES = 8 << 20
OVERLOAD_S, OVERLOAD_S_MAX = 0.05, 1.0
"""The first and the longest pause when the broker is overloaded."""

MANY_ROWS = 4096
"""Messages in one chunk of schedule_many."""

Progress = Callable[[Accepted], None]


def batches_of(data: Any, chunk_rows: int) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    """Cut whatever holds columns into chunks: their schema, and an iterator of them.

    Raises:
        InvalidArgumentError: it does not.
    """
    if isinstance(chunk_rows, bool) or not isinstance(chunk_rows, int) or chunk_rows < 1:
        raise InvalidArgumentError(f"chunk_rows is {chunk_rows!r}; allowed: 1 or more")
    if isinstance(data, pa.RecordBatchReader):
        return data.schema, (part for batch in data for part in _cut(batch, chunk_rows))
    table = _table(data)
    if table.num_rows and table.num_rows / len(table.to_batches()) < min(1000, chunk_rows):
        table = table.combine_chunks()  # many small pieces would each be a submission of their own
    return table.schema, (part for batch in table.to_batches() for part in _cut(batch, chunk_rows))


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
            if size >= CHUNK_BYTES:
                break
        return rows

    def accept(self, accepted: Accepted) -> None:
        """Keep the receipts of one chunk, which was accepted."""
        self._receipts[accepted.row] = accepted.receipts(self._ids.pop(accepted.row))

    def receipts(self) -> list[Receipt]:
        """Return the receipts of all messages, in order."""
        return [receipt for row in sorted(self._receipts) for receipt in self._receipts[row]]


class BulkStream:
    """One DoPut stream, used by one thread: :meth:`send` all chunks of a schema."""

    def __init__(
        self, connection: BrokerConnection, schema: pa.Schema, progress: Progress | None, overload_timeout_s: float
    ) -> None:
        connection.check_open()
        self._connection = connection
        self._progress = progress
        self._patience_s = overload_timeout_s
        self._under_way: deque[tuple[int, pa.RecordBatch]] = deque()
        self._back_off = BackOff(OVERLOAD_S, OVERLOAD_S_MAX)
        self._accepted: list[Accepted] = []
        self._refused: TarryError | None = None
        try:
            self._writer, self._reader = connection.flight.do_put(fl.FlightDescriptor.for_path(*SCHEDULE_PATH), schema)
        except FLIGHT_ERRORS as error:
            raise connection.translate(error) from error

    def send(self, chunks: Iterable[pa.RecordBatch], row: int = 0) -> list[Accepted]:
        """Send all chunks, from row ``row`` of the data on; what was accepted, in the order of the rows.

        Raises:
            InvalidMessageError: ``row`` is the row of the whole data. OverloadedError, DiskFullError: nothing of the
            chunk was accepted. UnavailableError: the answers to the chunks under way are unknown.
        """
        try:
            for chunk in chunks:
                self._write(row, chunk)
                row += chunk.num_rows
                while len(self._under_way) >= CHUNKS_IN_FLIGHT and self._refused is None:
                    self._take_answer()
                if self._refused is not None:
                    break
            while self._under_way:
                self._take_answer()
        finally:
            self._end()
        if self._refused is not None:
            raise self._refused
        self._accepted.sort(key=lambda accepted: accepted.row)
        return self._accepted

    def _write(self, row: int, chunk: pa.RecordBatch) -> None:
        self._under_way.append((row, chunk))
        try:
            self._writer.write_batch(chunk)
        except FLIGHT_ERRORS as error:
            raise self._unknown(error) from error

    def _take_answer(self) -> None:
        try:
            buffer = self._reader.read()
        except FLIGHT_ERRORS as error:
            raise self._unknown(error) from error
        if buffer is None:
            raise self._unknown(None)
        answer = decode_answer(as_bytes(buffer))
        if isinstance(answer, Goodbye):
            self._refused = self._refused or answer.error
            return
        row, chunk = self._under_way.popleft()
        if isinstance(answer, AcceptedAnswer | PlacedAnswer):
            self._accept(row, chunk, answer)
        elif isinstance(answer, OverloadedError) and self._refused is None and self._patience_s > 0:
            # Certainly not accepted, so it may be sent again.
            pause_s = self._back_off.fail()
            time.sleep(pause_s)
            self._patience_s -= pause_s
            self._write(row, chunk)
        else:
            self._refused = self._refused or _absolute(answer, row)

    def _accept(self, row: int, chunk: pa.RecordBatch, answer: AcceptedAnswer | PlacedAnswer) -> None:
        self._back_off.reset()
        as_asked = isinstance(answer, AcceptedAnswer) and answer.due_ms is None
        accepted = accepted_of(row, answer, _int64s(chunk.column("due_ms")) if as_asked else None)
        self._accepted.append(accepted)
        if self._progress is not None:
            self._progress(accepted)

    def _unknown(self, error: BaseException | None) -> TarryError:
        rows = f"rows {self._under_way[0][0]} to {self._under_way[-1][0] + self._under_way[-1][1].num_rows - 1}"
        self._under_way.clear()
        if error is None:
            try:
                self._writer.close()
            except FLIGHT_ERRORS as reason:
                error = reason
        cause = self._connection.translate(error) if error else UnavailableError("the broker ended the stream")
        if not isinstance(cause, UnavailableError):
            return cause
        return UnavailableError(f"{cause}; {rows} may or may not have been accepted")

    def _end(self) -> None:
        try:
            self._writer.close()
        except FLIGHT_ERRORS:
            pass  # what matters was said in the answers


def accepted_of(row: int, answer: AcceptedAnswer | PlacedAnswer, due_ms: Int64s | None) -> Accepted:
    """Return the broker's answer to a chunk; ``due_ms``: the chunk's own, if the answer leaves it out."""
    if isinstance(answer, PlacedAnswer):
        placed = answer.placed
        first, token = (int(placed["seq"][0]), bytes(placed["token"][0])) if len(placed) else (0, b"")
        return Accepted(first, placed["due_ms"].astype(np.int64), token, placed, row)
    due = answer.due_ms if answer.due_ms is not None else due_ms
    assert due is not None
    return Accepted(answer.first_seq, due, answer.token, row=row)


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


def _int64s(column: pa.Array) -> Int64s:
    return np.asarray(pc.cast(column, pa.int64()).to_numpy(zero_copy_only=False), np.int64)


def _absolute(error: TarryError, first: int) -> TarryError:
    if isinstance(error, InvalidMessageError) and error.row is not None:
        text = re.sub(r"^row \d+: ", "", str(error))
        error.row += first
        error.args = (f"row {error.row}: {text}",)
    return error
