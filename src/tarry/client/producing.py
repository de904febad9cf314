"""Scheduling of many callers' single messages in few batches (:mod:`tarry.batching`), over Flight.

A stream's schema is fixed, and columns that nobody uses cost the broker time, so there is one stream for each set of
columns in use. Answers are read by one thread a stream.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

import pyarrow as pa
import pyarrow.flight as fl

from tarry.api.wire import SCHEDULE_PATH, AcceptedAnswer, Goodbye, PlacedAnswer, as_bytes, decode_answer
from tarry.base.errors import InvalidMessageError, TarryError, UnavailableError
from tarry.batching.coalescing import Batch, Coalescer, Pacing, copy_of
from tarry.client.connection import FLIGHT_ERRORS, BrokerConnection
from tarry.message.receipt import Receipt, id_of, placed_receipt
from tarry.message.rows import BODY, COLUMNS, DUE_MS, ID, Row, to_batch

log = logging.getLogger(__name__)

QUICK_ROWS = 256
QUICK_BYTES = 32 << 10
BYTES_MAX = 8 << 20
STREAMS_MAX = 4
CLOSE_S = 5.0
"""Seconds that closing waits for answers."""

W = TypeVar("W")
Entry = tuple[Row, W]
Answered = AcceptedAnswer | PlacedAnswer
Resolve = Callable[[list[tuple[W, Receipt | TarryError]]], None]


class Producer(Generic[W]):
    """``resolve`` gets, in any thread, what became of each waiter's row. Any thread."""

    def __init__(self, connection: BrokerConnection, resolve: Resolve[W], pace: Pacing | None = None) -> None:
        self._connection = connection
        self._resolve = resolve
        self.coalescer: Coalescer[Entry[W]] = Coalescer(
            self._send, self._refuse, size_of=lambda entry: len(entry[0][BODY]), bytes_max=BYTES_MAX, pace=pace
        )
        self.pump = self.coalescer.pump
        """Send what waits, as far as there is room."""
        self._streams: dict[tuple[str, ...], _PutStream[W]] = {}
        """By their columns. Added to by who sends, one thread at a time."""

    def add(self, row: Row, waiter: W, *, urgent: bool = False) -> None:
        """Queue a row; :attr:`pump` sends it.

        Raises:
            ClosedError: after :meth:`close`.
        """
        self.coalescer.add((row, waiter), urgent=urgent)

    @property
    def is_ready(self) -> bool:
        """Return whether :attr:`pump` would send now. If not, the next answer does."""
        return self.coalescer.is_ready

    @property
    def is_quick(self) -> bool:
        """Return whether :attr:`pump` would neither connect nor wait for the network.

        Then nothing is under way, and what it sends is small.
        """
        return bool(self._streams) and self.coalescer.is_light(QUICK_ROWS, QUICK_BYTES)

    def close(self) -> None:
        """Wait for the answers under way, for some seconds; who has none by then gets an error."""
        self.coalescer.close("the client is closed", CLOSE_S)
        streams = list(self._streams.values())
        self._streams.clear()
        for stream in streams:
            # Its writer may be stuck: the broker does not read. The caller closes the connection then.
            stream.end(CLOSE_S)
        for stream in streams:
            stream.join(CLOSE_S)

    # -- sending -------------------------------------------------------------------------------------------------------

    def _send(self, batch: Batch[Entry[W]]) -> None:
        rows = [row for row, _ in batch.entries]
        try:
            data = to_batch(rows)
            for _ in range(2):
                stream, data = self._stream_for(data, rows)
                if stream.write(data, batch):
                    return
                self._forget(stream)  # it ended in this moment, perhaps before it was among the streams
        except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
            # api.schedule should have refused it.
            log.exception("a batch could not be built")
            raise InvalidMessageError(f"the message cannot be sent: {error}") from error
        raise UnavailableError(f"the broker at {self._connection.address} ends each stream; nothing was sent")

    def _stream_for(self, data: pa.RecordBatch, rows: list[Row]) -> tuple[_PutStream[W], pa.RecordBatch]:
        names = tuple(data.schema.names)
        stream = self._streams.get(names)
        if stream is None and len(self._streams) >= STREAMS_MAX:
            names = tuple(name for name, _ in COLUMNS)
            data = to_batch(rows, names)
            stream = self._streams.get(names)
        if stream is None:
            stream = self._streams[names] = _PutStream(self._connection, data.schema, self)
        return stream, data

    def _refuse(self, entries: list[Entry[W]], error: TarryError) -> None:
        self._resolve([(waiter, copy_of(error)) for _, waiter in entries])

    # -- called by streams ---------------------------------------------------------------------------------------------

    def on_answer(self, batch: Batch[Entry[W]], answer: Answered | TarryError) -> None:
        """Tell the callers of a batch its answer, which has come."""
        rows = len(batch.entries)
        if isinstance(answer, TarryError):
            self.coalescer.on_refused(batch, answer)
        elif answer.rows != rows:
            self.on_lost(batch, TarryError(f"the broker answered {answer.rows} rows to a batch of {rows}"))
        else:
            self._resolve(_receipts(batch.entries, answer))
            self.coalescer.on_accepted(batch)
        self.pump()

    def on_lost(self, batch: Batch[Entry[W]], why: TarryError) -> None:
        """Tell a batch's callers that its answer is lost or cannot be read: it may have been accepted."""
        self.coalescer.on_failed(batch, why)
        self.pump()

    def on_end(self, stream: _PutStream[W]) -> None:
        """Send no further batch on this stream."""
        # First out of the streams: who writes to it in between learns that it has ended, and takes another one.
        self._forget(stream)
        stream.end()

    def _forget(self, stream: _PutStream[W]) -> None:
        for names, other in list(self._streams.items()):
            if other is stream:
                self._streams.pop(names, None)


class _PutStream(Generic[W]):
    """One DoPut stream. Its thread reads the answers; the lock is held while it is written to or ended."""

    def __init__(self, connection: BrokerConnection, schema: pa.Schema, producer: Producer[W]) -> None:
        connection.check_open()
        self._connection = connection
        self._producer = producer
        self._sent: deque[Batch[Entry[W]]] = deque()
        self._lock = threading.Lock()
        self._done = False
        try:
            self._writer, self._reader = connection.flight.do_put(fl.FlightDescriptor.for_path(*SCHEDULE_PATH), schema)
        except FLIGHT_ERRORS as error:
            cause = connection.translate(error)
            if isinstance(cause, UnavailableError):
                cause = UnavailableError(f"{cause}; nothing was sent")
            raise cause from error
        self._thread = threading.Thread(target=self._read, name="tarry-client-answers", daemon=True)
        self._thread.start()

    def write(self, data: pa.RecordBatch, batch: Batch[Entry[W]]) -> bool:
        """Send a batch; False: the stream has ended, and nothing was sent."""
        with self._lock:
            if self._done:
                return False
            # Before the write: the answer may be there before the write has returned.
            self._sent.append(batch)
            try:
                self._writer.write_batch(data)
            except FLIGHT_ERRORS as error:
                log.debug("writing to the broker failed: %s", error)  # the reading thread gets it, too, and says why
        return True

    def end(self, timeout_s: float = -1) -> None:
        """No more batches; answers may still come. Does nothing where the lock is not free within the timeout."""
        if self._lock.acquire(timeout=timeout_s):
            try:
                if not self._done:
                    self._done = True
                    self._writer.done_writing()
            except FLIGHT_ERRORS as error:
                log.debug("ending a stream failed: %s", error)
            finally:
                self._lock.release()

    def join(self, timeout_s: float) -> None:
        if self._thread is not threading.current_thread():
            self._thread.join(timeout_s)

    def _read(self) -> None:
        try:
            while (buffer := self._reader.read()) is not None:
                answer = decode_answer(as_bytes(buffer))
                if isinstance(answer, Goodbye):
                    self._producer.on_end(self)
                elif self._sent:
                    self._producer.on_answer(self._sent.popleft(), answer)
        except TarryError:
            log.exception("the broker's answer could not be read")
        except FLIGHT_ERRORS as error:
            log.debug("reading answers failed: %s", error)
        finally:
            self._producer.on_end(self)
            cause = self._cause()
            while self._sent:
                self._producer.on_lost(self._sent.popleft(), cause)

    def _cause(self) -> TarryError:
        """Return the reason for the stream's end, as the error of batches without an answer."""
        try:
            self._writer.close()
        except FLIGHT_ERRORS as error:
            cause = self._connection.translate(error)
            if not isinstance(cause, UnavailableError):
                return cause
            text = str(cause)
            if "failed to connect" in text:
                return UnavailableError(f"{text}; nothing was sent")
        else:
            text = f"the broker at {self._connection.address} ended the stream"
        return UnavailableError(f"{text}; the message may or may not have been accepted")


def _receipts(entries: list[Entry[W]], answer: Answered) -> list[tuple[W, Receipt | TarryError]]:
    if isinstance(answer, PlacedAnswer):
        places = zip(entries, answer.placed.tolist(), strict=True)
        return [(waiter, placed_receipt(row[ID], entry)) for (row, waiter), entry in places]
    first, rows, token = answer.first_seq, answer.rows, answer.token
    dues = [row[DUE_MS] for row, _ in entries] if answer.due_ms is None else answer.due_ms.tolist()
    return [
        (waiter, Receipt(row[ID] or id_of(seq), seq, due or 0, first, rows, token))
        for seq, due, (row, waiter) in zip(range(first, first + rows), dues, entries, strict=True)
    ]
