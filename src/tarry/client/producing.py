"""Many callers, few batches: what they schedule one at a time travels together.

While up to :data:`BATCHES_IN_FLIGHT` batches wait for their answers, rows queue; the next answer takes the queue along.
Alone, a message goes at once; with many callers waiting, batches grow by themselves to what is worth a round trip.

Who sends: whoever calls :meth:`Producer.pump` and gets the sending lock; a second one leaves its rows to the first, who
looks again after letting go of the lock. Answers are read by one thread a stream. A stream's schema is fixed, and
columns that nobody uses cost the broker time, so there is one stream for each set of columns in use.

The broker accepts a batch whole or not at all. When it refuses one because of a row, that row's caller gets the error,
and the others' rows, which certainly were not accepted, go again without it. A batch whose answer never comes is
not sent again: it may have been accepted.
"""

from __future__ import annotations

import logging
import re
import threading
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

import pyarrow as pa
import pyarrow.flight as fl

from tarry.api.receipt import Receipt, id_of, placed_receipt
from tarry.api.schedule import BODY, COLUMNS, DUE_MS, ID, Row, to_batch
from tarry.api.wire import SCHEDULE_PATH, AcceptedAnswer, Goodbye, PlacedAnswer, as_bytes, decode_answer
from tarry.base.errors import ClosedError, InvalidMessageError, TarryError, UnavailableError, from_wire
from tarry.client.connection import FLIGHT_ERRORS, Connection

log = logging.getLogger(__name__)

BATCHES_IN_FLIGHT = 2
ROWS_MAX = 4096
QUICK_ROWS = 256
QUICK_BYTES = 32 << 10
BYTES_MAX = 8 << 20
STREAMS_MAX = 4
CLOSE_S = 5.0
"""How long closing waits for answers."""

W = TypeVar("W")
Entries = list[tuple[Row, W]]
Answered = AcceptedAnswer | PlacedAnswer
Resolve = Callable[[list[tuple[W, Receipt | TarryError]]], None]


class Producer(Generic[W]):
    """``resolve`` is told, from any thread, what became of each waiter's row."""

    def __init__(self, connection: Connection, resolve: Resolve[W]) -> None:
        self._connection = connection
        self._resolve = resolve
        self._waiting: deque[tuple[Row, W]] = deque()
        self._again: deque[tuple[Entries[W], int]] = deque()
        self._sending = threading.Lock()
        self._state = threading.Condition()
        self._in_flight = 0
        self._streams: dict[tuple[str, ...], _Stream[W]] = {}
        self._closed = False

    def add(self, row: Row, waiter: W) -> None:
        """Queue a row; :meth:`pump` sends it.

        Raises:
            ClosedError: after :meth:`close`.
        """
        if self._closed:
            raise ClosedError("the client is closed")
        self._waiting.append((row, waiter))

    @property
    def has_room(self) -> bool:
        """Whether :meth:`pump` would send now. When not, the next answer does."""
        return self._in_flight < BATCHES_IN_FLIGHT

    @property
    def is_quick(self) -> bool:
        """Whether :meth:`pump` would neither connect nor wait for the network: nothing is under way, and what it sends
        is small.
        """
        if self._in_flight or self._again or not self._streams or len(self._waiting) > QUICK_ROWS:
            return False
        return sum(len(row[BODY]) for row, _ in self._waiting) <= QUICK_BYTES

    def pump(self) -> None:
        """Send what waits, as far as there is room. Any thread."""
        # Looking again after the release: a row may have been added by one who found the lock taken.
        while (self._waiting or self._again) and self.has_room and self._sending.acquire(blocking=False):
            try:
                while self.has_room and (taken := self._take()):
                    self._send(*taken)
            finally:
                self._sending.release()

    def close(self) -> None:
        """Wait for the answers under way, for some seconds; who has none by then gets an error."""
        self._closed = True
        with self._state:
            self._state.wait_for(lambda: not (self._in_flight or self._waiting or self._again), CLOSE_S)
        streams = list(self._streams.values())
        # Who holds the lock may be stuck writing to a broker that does not read; the caller closes the connection then.
        if self._sending.acquire(timeout=CLOSE_S):
            try:
                streams = list(self._streams.values())
                self._streams.clear()
                for stream in streams:
                    stream.end()
            finally:
                self._sending.release()
        for stream in streams:
            stream.join(CLOSE_S)
        left = [entry for entries, _ in self._again for entry in entries] + list(self._waiting)
        self._waiting.clear()
        self._again.clear()
        self._fail(left, ClosedError("the client was closed; the message was not sent"))

    # -- sending -------------------------------------------------------------------------------------------------------

    def _take(self) -> tuple[Entries[W], int] | None:
        if self._again:
            return self._again.popleft()
        entries: Entries[W] = []
        size = 0
        while self._waiting and len(entries) < ROWS_MAX and size < BYTES_MAX:
            entry = self._waiting.popleft()
            size += len(entry[0][BODY])
            entries.append(entry)
        return (entries, 0) if entries else None

    def _send(self, entries: Entries[W], refusals: int) -> None:
        try:
            batch = to_batch([row for row, _ in entries])
            stream, batch = self._stream_for(batch, entries)
        except TarryError as error:
            self._fail(entries, error)
            return
        except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
            # rows.py should have refused it; none of these callers may wait for ever because it did not.
            log.exception("a batch could not be built")
            self._fail(entries, InvalidMessageError(f"the message cannot be sent: {error}"))
            return
        with self._state:
            self._in_flight += 1
        stream.write(batch, entries, refusals)

    def _stream_for(self, batch: pa.RecordBatch, entries: Entries[W]) -> tuple[_Stream[W], pa.RecordBatch]:
        names = tuple(batch.schema.names)
        stream = self._streams.get(names)
        if stream is None and len(self._streams) >= STREAMS_MAX:
            names = tuple(name for name, _ in COLUMNS)
            batch = to_batch([row for row, _ in entries], names)
            stream = self._streams.get(names)
        if stream is None:
            stream = _Stream(self._connection, batch.schema, self)
            self._streams[names] = stream
        return stream, batch

    # -- called by streams ---------------------------------------------------------------------------------------------

    def answered(self, entries: Entries[W], refusals: int, answer: Answered | TarryError) -> None:
        """The answer to one batch has come, or will not."""
        if not isinstance(answer, TarryError) and answer.rows != len(entries):
            answer = TarryError(f"the broker answered {answer.rows} rows to a batch of {len(entries)}")
        if isinstance(answer, AcceptedAnswer | PlacedAnswer):
            self._resolve(_receipts(entries, answer))
        elif isinstance(answer, InvalidMessageError) and answer.row is not None and len(entries) > answer.row:
            self._refused(entries, refusals, answer.row, answer)
        else:
            self._fail(entries, answer)
        with self._state:
            self._in_flight -= 1
            self._state.notify_all()
        self.pump()

    def ended(self, stream: _Stream[W]) -> None:
        """No further batch on this stream."""
        with self._sending:
            for names, known in list(self._streams.items()):
                if known is stream:
                    del self._streams[names]
            stream.end()

    def _refused(self, entries: Entries[W], refusals: int, row: int, error: InvalidMessageError) -> None:
        rest = entries[:row] + entries[row + 1 :]
        if refusals == 0:
            self._again.extend([(rest, 1)] if rest else [])
        else:
            # More than one bad row among them: each on its own, rather than one refusal after the other.
            self._again.extend(([entry], 1) for entry in rest)
        error.args = (re.sub(r"^row \d+: ", "", str(error)),)
        error.row = None
        self._resolve([(entries[row][1], error)])

    def _fail(self, entries: Entries[W], error: TarryError) -> None:
        if entries:
            # Each gets its own: an exception that several threads raise collects all their tracebacks.
            self._resolve([(waiter, from_wire(error.code, str(error))) for _, waiter in entries])


class _Stream(Generic[W]):
    """One DoPut stream. Written to under the producer's sending lock; its own thread reads the answers."""

    def __init__(self, connection: Connection, schema: pa.Schema, producer: Producer[W]) -> None:
        connection.check_open()
        self._connection = connection
        self._producer = producer
        self._sent: deque[tuple[Entries[W], int]] = deque()
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

    def write(self, batch: pa.RecordBatch, entries: Entries[W], refusals: int) -> None:
        # Before the write: the answer may be there before the write has returned.
        self._sent.append((entries, refusals))
        try:
            self._writer.write_batch(batch)
        except FLIGHT_ERRORS as error:
            log.debug("writing to the broker failed: %s", error)  # the reading thread hears of it, too, and says why

    def end(self) -> None:
        """No more batches; answers may still come."""
        if not self._done:
            self._done = True
            try:
                self._writer.done_writing()
            except FLIGHT_ERRORS as error:
                log.debug("ending a stream failed: %s", error)

    def join(self, timeout_s: float) -> None:
        if self._thread is not threading.current_thread():
            self._thread.join(timeout_s)

    def _read(self) -> None:
        try:
            while (buffer := self._reader.read()) is not None:
                answer = decode_answer(as_bytes(buffer))
                if isinstance(answer, Goodbye):
                    self._producer.ended(self)
                elif self._sent:
                    self._producer.answered(*self._sent.popleft(), answer)
        except TarryError:
            log.exception("the broker's answer could not be read")
        except FLIGHT_ERRORS as error:
            log.debug("reading answers failed: %s", error)
        finally:
            self._producer.ended(self)
            self._fail_rest()

    def _fail_rest(self) -> None:
        cause = self._cause()
        while self._sent:
            self._producer.answered(*self._sent.popleft(), cause)

    def _cause(self) -> TarryError:
        """Why the stream has ended; for those whose answer it did not bring."""
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


def _receipts(entries: Entries[W], answer: Answered) -> list[tuple[W, Receipt | TarryError]]:
    if isinstance(answer, PlacedAnswer):
        places = zip(entries, answer.placed.tolist(), strict=True)
        return [(waiter, placed_receipt(row[ID], entry)) for (row, waiter), entry in places]
    first, rows, token = answer.first_seq, answer.rows, answer.token
    dues = [row[DUE_MS] for row, _ in entries] if answer.due_ms is None else answer.due_ms.tolist()
    return [
        (waiter, Receipt(row[ID] or id_of(seq), seq, due or 0, first, rows, token))
        for seq, due, (row, waiter) in zip(range(first, first + rows), dues, entries, strict=True)
    ]
