"""One DoPut stream: batches are submitted as they are read, and answered in order once durable.

A task reads and submits. Answers may become ready in any order (a refusal is ready at once); they leave in the order of
the batches. The stream ends when every batch has its answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from loopgrpc import framed
from tarry.api.wire import AnswerKind, encode_accepted, encode_placed, encode_refused
from tarry.base.arrow_feed import BatchReader
from tarry.base.errors import InvalidArgumentError, TarryError
from tarry.fronts.flight.messages import RESULT, FlightData, field, read_data
from tarry.fronts.kit.in_order import InOrder
from tarry.fronts.kit.known_errors import known
from tarry.identity.seen import SeenBroker

UNANSWERED_MAX = 256
"""Batches of one stream that may wait for their answer (or for a client that does not read it)."""
_BY_THE_BROKER = frozenset(("delay_ms", "delay_level", "repeat"))
"""Columns by which a due time may be another than the batch says in ``due_ms``."""


class PutStream:
    """Made for one call; :meth:`answers` is the call. On the loop's thread."""

    def __init__(self, broker: SeenBroker, run_in_thread: Callable[..., Awaitable[Any]]) -> None:
        self._broker, self._principal, self._run_in_thread = broker, broker.principal, run_in_thread
        self._batches = BatchReader()
        self._changed = asyncio.Event()
        self._batch_answers: InOrder[bool, Any] = InOrder(self._changed.set, UNANSWERED_MAX)
        """Accepted, TarryError, or bytes to send as they are; and whether the due times are part of it."""
        self._stopping: TarryError | None = None

    async def answers(self, first: FlightData, messages: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        """Yield the answers until the client ends the stream."""
        reading = asyncio.ensure_future(self._read(first, messages))
        reading.add_done_callback(lambda _: self._changed.set())
        try:
            while self._batch_answers or not reading.done():
                await self._changed.wait()
                self._changed.clear()
                if ready := [field(RESULT, _encode(*taken)) for taken in self._batch_answers.take()]:
                    yield framed(ready)
            await reading
        finally:
            reading.cancel()

    def stop(self, error: TarryError) -> None:
        """Refuse further batches and ask the client to end the stream."""
        self._stopping = error
        self._batch_answers.add(False)(encode_refused(error, AnswerKind.GOODBYE))

    async def _read(self, first: FlightData, messages: AsyncIterator[bytes]) -> None:
        if first.header:
            self._batches.read(first.header, first.body)
        async for raw in messages:
            data = read_data(raw)
            await self._batch_answers.room()
            await self._principal.in_turn()
            if not data.header or self._batches.is_quick(data.header, data.body):
                self._submit(data)
            else:
                await self._run_in_thread(self._submit, data)

    def _submit(self, data: FlightData) -> None:
        """Read a batch, and submit it. Where that may take a while, in a thread, for which the reader waits."""
        batch = self._batches.read(data.header, data.body) if data.header else None
        if data.header and batch is None:
            return
        names = () if batch is None else batch.schema.names
        done = self._batch_answers.add("due_ms" not in names or not _BY_THE_BROKER.isdisjoint(names))
        try:
            if self._stopping is not None:
                raise self._stopping
            if batch is None:
                raise InvalidArgumentError("a message without a record batch; allowed: batches")
            # Which also checks that the memory behind the batch is what it claims to be.
            self._broker.submit(batch, done)
        except Exception as error:  # noqa: BLE001  every error goes to the client, and bugs to the log
            done(known(error, "internal error; nothing of the batch was accepted; see the broker's log"))


def _encode(has_due: bool, answer: Any) -> bytes:
    if isinstance(answer, bytes):
        return answer
    if isinstance(answer, TarryError):
        return encode_refused(answer)
    if answer.placed is not None:
        return encode_placed(answer.placed)
    return encode_accepted(answer.first_seq, len(answer.due_ms), answer.token, answer.due_ms if has_due else None)
