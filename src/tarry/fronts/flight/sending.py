"""One DoPut stream: batches are submitted as they are read, and answered in order once durable.

Two threads. The call's own thread reads and submits, so that reading the next large batch never waits for the disk. A
second one writes the answers. A small batch is written to the log and answered by the reading thread itself where
nobody else is at it: handing over to other threads and back takes longer than the disk. Answers may become ready in any
order (a refusal is ready at once); they leave in the order of the batches. gRPC allows one reader and one writer at a
time, and the call must not return before both are done: the reading thread waits for the writing one, which ends when
every batch has its answer.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.flight as fl

from tarry.api.local import LocalBroker
from tarry.api.wire import STREAM_ERRORS, AnswerKind, encode_accepted, encode_placed, encode_refused
from tarry.base.errors import InvalidArgumentError, TarryError, UnavailableError
from tarry.base.placement import Placement

log = logging.getLogger(__name__)

LEAD_ROWS_MAX = 256
"""Larger batches are worth reading the next one meanwhile."""
UNANSWERED_MAX = 256
"""Batches of one stream that may wait for their answer (or for a client that does not read it)."""

_BY_THE_BROKER = frozenset(("delay_ms", "delay_level", "repeat"))
"""Columns by which a due time may be another than the batch says in ``due_ms``."""


@dataclass(slots=True)
class _AnswerSlot:
    has_due: bool = False
    answer: Any = None  # Accepted, TarryError, or bytes to send as they are


class PutStream:
    """Made for one call; :meth:`run` is the call."""

    def __init__(
        self,
        broker: LocalBroker,
        reader: fl.MetadataRecordBatchReader,
        writer: fl.FlightMetadataWriter,
        placement: Placement,
    ) -> None:
        self._broker = broker
        self._reader = reader
        self._writer = writer
        self._placement = placement
        self._changed = threading.Condition()
        self._slots: deque[_AnswerSlot] = deque()
        self._leading = False
        self._writing = threading.Lock()
        self._read_all = False
        self._client_left = False
        self._stopping: UnavailableError | None = None

    def run(self) -> None:
        """Serve the stream until the client ends it or is gone."""
        self._placement.together()
        answering = threading.Thread(target=self._answer_all, name="tarry-flight-answers", daemon=True)
        answering.start()
        try:
            self._read()
        finally:
            with self._changed:
                self._read_all = True
                self._changed.notify_all()
            # Every submission is answered by the broker, also a failing one, so this ends.
            answering.join()
            self._placement.apart()  # the thread is gRPC's, and serves other calls

    def stop(self, error: UnavailableError) -> None:
        """Refuse further batches and ask the client to end the stream."""
        with self._changed:
            self._stopping = error
            self._slots.append(_AnswerSlot(answer=encode_refused(error, AnswerKind.GOODBYE)))
            self._changed.notify_all()

    def _read(self) -> None:
        while True:
            try:
                chunk = self._reader.read_chunk()
            except StopIteration:
                return
            except STREAM_ERRORS as error:
                with self._changed:
                    if self._client_left:
                        return
                raise InvalidArgumentError(f"the stream of batches could not be read: {error}") from error
            self._submit(chunk.data)

    def _submit(self, batch: pa.RecordBatch | None) -> None:
        slot = self._open_slot(batch)
        lead = batch is not None and batch.num_rows <= LEAD_ROWS_MAX

        def done(answer: Any) -> None:
            with self._changed:
                slot.answer = answer
                if not self._leading:
                    self._changed.notify_all()

        self._leading = lead
        (self._placement.together if lead else self._placement.apart)()
        try:
            if self._stopping is not None:
                raise self._stopping
            if batch is None:
                raise InvalidArgumentError("a message without a record batch; allowed: batches")
            # Which also checks that the memory behind the batch is what it claims to be.
            self._broker.submit(batch, done, lead=lead)
        except TarryError as error:
            done(error)
        except Exception:
            log.exception("a batch could not be submitted")
            done(TarryError("internal error; nothing of the batch was accepted; see the broker's log"))
        if lead:
            self._answer_here()

    def _answer_here(self) -> None:
        """After leading: write what is answered, unless the other thread is at it; it is woken for the rest."""
        if self._writing.acquire(blocking=False):
            try:
                while (raw := self._next_answer()) is not None:
                    self._write(raw)
            finally:
                self._writing.release()
        with self._changed:
            self._leading = False
            if self._slots and self._slots[0].answer is not None:
                self._changed.notify_all()

    def _open_slot(self, batch: pa.RecordBatch | None) -> _AnswerSlot:
        names = () if batch is None else batch.schema.names
        slot = _AnswerSlot(has_due="due_ms" not in names or not _BY_THE_BROKER.isdisjoint(names))
        with self._changed:
            self._changed.wait_for(lambda: len(self._slots) < UNANSWERED_MAX or self._client_left)
            self._slots.append(slot)
        return slot

    def _answer_all(self) -> None:
        self._placement.together()
        while self._wait_answer():
            with self._writing:
                if (raw := self._next_answer()) is not None:
                    self._write(raw)

    def _write(self, raw: bytes) -> None:
        if self._client_left:
            return  # what was submitted stays accepted; only nobody hears of it
        try:
            self._writer.write(pa.py_buffer(raw))
        except STREAM_ERRORS as error:
            log.debug("a producer left before its answers: %s", error)
            with self._changed:
                self._client_left = True
                self._changed.notify_all()

    def _wait_answer(self) -> bool:
        """Wait until there may be an answer to write; False when all are written and no batch can come."""
        with self._changed:
            self._changed.wait_for(lambda: self._slots[0].answer is not None if self._slots else self._read_all)
            return bool(self._slots)

    def _next_answer(self) -> bytes | None:
        with self._changed:
            if not self._slots or self._slots[0].answer is None:
                return None
            slot = self._slots.popleft()
            if len(self._slots) == UNANSWERED_MAX - 1:
                self._changed.notify_all()  # the reader waits for room; nobody else need be woken
        answer = slot.answer
        if isinstance(answer, bytes):
            return answer
        if isinstance(answer, TarryError):
            return encode_refused(answer)
        if answer.placed is not None:
            return encode_placed(answer.placed)
        due = answer.due_ms
        return encode_accepted(answer.first_seq, len(due), answer.token, due if slot.has_due else None)
