"""One DoPut stream: batches are submitted as they are read, and answered in order once durable.

A task reads and submits. Answers may become ready in any order, on any thread (a refusal is ready at once); they leave
in the order of the batches. The stream ends when every batch has its answer.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import Any

from loopgrpc import framed
from tarry.api.local import LocalBroker
from tarry.api.wire import AnswerKind, encode_accepted, encode_placed, encode_refused
from tarry.base.errors import InvalidArgumentError, TarryError, UnavailableError
from tarry.base.event_loop import post
from tarry.fronts.flight.batches import BatchReader
from tarry.fronts.flight.messages import METADATA_OF_PUT, FlightData, field, read_data

log = logging.getLogger(__name__)

UNANSWERED_MAX = 256
"""Batches of one stream that may wait for their answer (or for a client that does not read it)."""
INTERNAL = TarryError("internal error; nothing of the batch was accepted; see the broker's log")

_BY_THE_BROKER = frozenset(("delay_ms", "delay_level", "repeat"))
"""Columns by which a due time may be another than the batch says in ``due_ms``."""

RunInThread = Callable[..., Awaitable[Any]]


@dataclass(slots=True)
class _AnswerSlot:
    answer: Any = None  # Accepted, TarryError, or bytes to send as they are
    has_due: bool = False


class PutStream:
    """Made for one call; :meth:`answers` is the call. On the loop's thread."""

    def __init__(self, broker: LocalBroker, run_in_thread: RunInThread) -> None:
        self._broker = broker
        self._run_in_thread = run_in_thread
        self._loop = asyncio.get_running_loop()
        self._batches = BatchReader()
        self._slots: deque[_AnswerSlot] = deque()
        self._changed = asyncio.Event()
        self._has_room = asyncio.Event()
        self._stopping: UnavailableError | None = None

    async def answers(self, first: FlightData, messages: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        """Yield the answers until the client ends the stream."""
        reading = asyncio.ensure_future(self._read(first, messages))
        reading.add_done_callback(lambda _: self._changed.set())
        try:
            while self._slots or not reading.done():
                self._changed.clear()
                if ready := list(self._take_ready()):
                    yield framed(ready)
                elif not reading.done() or self._slots:
                    await self._changed.wait()
            await reading
        finally:
            reading.cancel()

    def stop(self, error: UnavailableError) -> None:
        """Refuse further batches and ask the client to end the stream."""
        self._stopping = error
        self._slots.append(_AnswerSlot(encode_refused(error, AnswerKind.GOODBYE)))
        self._changed.set()

    async def _read(self, first: FlightData, messages: AsyncIterator[bytes]) -> None:
        if first.header:
            self._batches.read(first)
        async for raw in messages:
            data = read_data(raw)
            while len(self._slots) >= UNANSWERED_MAX:
                self._has_room.clear()
                await self._has_room.wait()
            slot = _AnswerSlot()
            if not data.header:
                slot.answer = InvalidArgumentError("a message without a record batch; allowed: batches")
                self._slots.append(slot)
                self._changed.set()
            elif self._batches.is_quick(data):
                self._submit(data, slot)
            else:
                await self._run_in_thread(self._submit, data, slot)

    def _submit(self, data: FlightData, slot: _AnswerSlot) -> None:
        """Read a batch, and submit it. In a thread if it may take a while; nothing else is read meanwhile."""
        batch = self._batches.read(data)
        if batch is None:
            return
        names = batch.schema.names
        slot.has_due = "due_ms" not in names or not _BY_THE_BROKER.isdisjoint(names)
        self._slots.append(slot)
        try:
            if self._stopping is not None:
                raise self._stopping
            # Which also checks that the memory behind the batch is what it claims to be.
            self._broker.submit(batch, lambda answer: self._post(slot, answer))
        except TarryError as error:
            self._post(slot, error)
        except Exception:
            log.exception("a batch could not be submitted")
            self._post(slot, INTERNAL)

    def _post(self, slot: _AnswerSlot, answer: Any) -> None:
        slot.answer = answer
        post(self._loop, self._changed.set)

    def _take_ready(self) -> Iterator[bytes]:
        while self._slots and self._slots[0].answer is not None:
            slot = self._slots.popleft()
            self._has_room.set()
            yield field(METADATA_OF_PUT, _encode(slot))


def _encode(slot: _AnswerSlot) -> bytes:
    answer = slot.answer
    if isinstance(answer, bytes):
        return answer
    if isinstance(answer, TarryError):
        return encode_refused(answer)
    if answer.placed is not None:
        return encode_placed(answer.placed)
    return encode_accepted(answer.first_seq, len(answer.due_ms), answer.token, answer.due_ms if slot.has_due else None)
