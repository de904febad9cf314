"""Sends of many callers in few batches: one turn of the event loop makes one batch, with one fsync.

While one batch is on its way to the disk, more messages gather. A second batch is sent beside it once it has
``ROWS_BESIDE_MIN`` messages. So the slower the disk, the larger the batches, and a single message does not wait.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Protocol

import pyarrow as pa

from tarry.api.local import LocalBroker
from tarry.base.errors import TarryError
from tarry.base.event_loop import post
from tarry.batching.coalescing import Batch, Coalescer
from tarry.batching.pacing import SOON_MS, Pace, PacedTurns
from tarry.fronts.rocketmq.common.draft import Draft
from tarry.fronts.rocketmq.common.half_messages import HalfMessages
from tarry.fronts.rocketmq.common.properties import map_of
from tarry.fronts.rocketmq.common.refusal import Refusal
from tarry.message.admission import assembled
from tarry.message.options import ORDER_KEY
from tarry.message.receipt import Accepted

ROWS_BESIDE_MIN = 16
_TEXT, _INTEGER, _BYTES = pa.string(), pa.int64(), pa.binary()


class SendRequest(Protocol):
    """Receives the answers to the messages of one request, on the loop's thread.

    One of the methods is called once for each message. ``place`` is the message's place in the request, from 0.
    """

    def on_accepted(self, place: int, draft: Draft, seq: int, handle: str) -> None:
        """Note that the message is durable as number ``seq``.

        ``handle`` cancels a delayed message; it is empty for others.
        """
        ...

    def on_refused(self, place: int, draft: Draft, refusal: Refusal) -> None:
        """Note that the message was not accepted."""
        ...


OnAccepted = Callable[[Accepted | TarryError], None]
Entry = tuple[Draft, SendRequest, int]
"""A message, the request that it came with, and its place there."""


class SendQueue:
    """Sends the messages of many requests as few batches. On the loop's thread."""

    def __init__(self, broker: LocalBroker, loop: asyncio.AbstractEventLoop, half_messages: HalfMessages) -> None:
        self._loop = loop
        self._clock = broker.clock
        self._messages = self._coalescer(
            lambda drafts, on_result: broker.submit_checked(rows_of(drafts, broker.clock.now_ms()), on_result), Pace()
        )
        self._halves = self._coalescer(
            lambda drafts, on_result: broker.submit(half_messages.rows(drafts), on_result, internal=True)
        )
        self._turns = PacedTurns(loop, self._messages, self._pump)

    def add(self, drafts: Sequence[Draft], request: SendRequest) -> None:
        """Send messages with the next batch. ``request`` gets the answers later, never before this returns."""
        soon_ms = self._clock.now_ms() + SOON_MS
        for place, draft in enumerate(drafts):
            urgent = draft.due_ms < soon_ms
            (self._halves if draft.half else self._messages).add((draft, request, place), urgent=urgent)
        self._turns.plan()

    def _pump(self) -> None:
        self._messages.pump()
        self._halves.pump()

    def _coalescer(
        self, submit: Callable[[list[Draft], OnAccepted], None], pace: Pace | None = None
    ) -> Coalescer[Entry]:
        """Return a coalescer for messages of one kind, which gives each batch of them to ``submit``."""

        def send(batch: Batch[Entry]) -> None:
            def on_result(result: Accepted | TarryError) -> None:
                post(self._loop, self._on_result, coalescer, batch, result)

            submit([draft for draft, _, _ in batch.entries], on_result)

        coalescer: Coalescer[Entry] = Coalescer(send, _refuse, rows_beside_min=ROWS_BESIDE_MIN, pace=pace)
        return coalescer

    def _on_result(self, coalescer: Coalescer[Entry], batch: Batch[Entry], result: Accepted | TarryError) -> None:
        if isinstance(result, TarryError):
            coalescer.on_refused(batch, result)
        else:
            coalescer.on_accepted(batch)
            _accept(batch.entries, result)
        self._turns.plan()


def _accept(entries: list[Entry], result: Accepted) -> None:
    handles = result.handles() if any(draft.delayed for draft, _, _ in entries) else None
    first, placed = result.first_seq, result.placed
    seqs = range(first, first + len(entries)) if placed is None else placed["seq"].tolist()
    for row, (draft, request, place) in enumerate(entries):
        request.on_accepted(place, draft, seqs[row], handles[row] if draft.delayed and handles else "")


def _refuse(entries: list[Entry], error: TarryError) -> None:
    refusal = Refusal.of(error)
    for draft, request, place in entries:
        request.on_refused(place, draft, refusal)


def rows_of(drafts: Sequence[Draft], now_ms: int) -> pa.RecordBatch:
    """Return a batch of messages as the broker stores them; none may be a half message.

    It has one row a message, with the columns of :data:`tarry.message.schema.UNNUMBERED`.
    """
    properties = [[*d.properties, (ORDER_KEY, d.order_key)] if d.order_key else d.properties for d in drafts]
    rows, topic, tags = len(drafts), drafts[0].topic, [d.tag for d in drafts]
    same = rows <= _SAME_TOPIC_ROWS and [d.topic for d in drafts].count(topic) == rows
    columns = {
        "topic": _topics_of(topic, rows) if same else pa.array([d.topic for d in drafts], _TEXT),
        "due_ms": pa.array([d.due_ms for d in drafts], _INTEGER),
        "body": pa.array([d.body for d in drafts], _BYTES),
        "id": pa.array([d.id or None for d in drafts], _TEXT),
        "properties": map_of(properties),
    }
    if any(tags):
        columns["tag"] = pa.array(tags, _TEXT)
    return assembled(columns, now_ms)


_SAME_TOPIC_ROWS = 64


@lru_cache(maxsize=256)
def _topics_of(topic: str, rows: int) -> pa.Array:
    """Return the topic column of a batch whose messages all have one topic; kept for small batches."""
    return pa.array([topic] * rows, _TEXT)
