"""Sends of many callers in few batches: one turn of the event loop makes one batch, with one fsync.

While one batch is on its way to the disk, more messages gather. A second batch is sent beside it once it has
``ROWS_BESIDE_MIN`` messages. So the slower the disk, the larger the batches, and a single message does not wait.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import lru_cache
from typing import Protocol

import pyarrow as pa

from tarry.api.local import AnyBroker, OnAccepted
from tarry.base.errors import TarryError
from tarry.batching.pacing import SOON_MS, Pace
from tarry.batching.submitting import Submitter
from tarry.fronts.rocketmq.common.draft import Draft
from tarry.fronts.rocketmq.common.half_messages import HalfMessages
from tarry.fronts.rocketmq.common.properties import map_of
from tarry.fronts.rocketmq.common.refusal import Refusal
from tarry.message.accepted import Accepted
from tarry.message.admission import assembled
from tarry.message.options import ORDER_KEY

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


Entry = tuple[Draft, SendRequest, int]
"""A message, the request that it came with, and its place there."""


class SendQueue:
    """Sends the messages of many requests as few batches. On the loop's thread."""

    def __init__(self, broker: AnyBroker, loop: asyncio.AbstractEventLoop, half_messages: HalfMessages) -> None:
        self._broker = broker
        self._clock = broker.clock
        self._half_messages = half_messages
        self._messages: Submitter[Entry, Accepted] = Submitter(
            loop, self._submit, _accept, _refuse, rows_beside_min=ROWS_BESIDE_MIN, pace=Pace()
        )
        self._halves: Submitter[Entry, Accepted] = Submitter(
            loop, self._submit_halves, _accept, _refuse, rows_beside_min=ROWS_BESIDE_MIN
        )

    def add(self, drafts: Sequence[Draft], request: SendRequest) -> None:
        """Send messages with the next batch. ``request`` gets the answers later, never before this returns."""
        soon_ms = self._clock.now_ms() + SOON_MS
        halves = False
        for place, draft in enumerate(drafts):
            halves = halves or draft.half
            submitter = self._halves if draft.half else self._messages
            submitter.add((draft, request, place), urgent=draft.due_ms < soon_ms)
        self._messages.plan()
        if halves:
            self._halves.plan()

    def _submit(self, entries: list[Entry], on_result: OnAccepted) -> None:
        rows = rows_of([draft for draft, _, _ in entries], self._clock.now_ms())
        self._broker.submit_checked(rows, on_result, own_handles=_gives_handles(entries))

    def _submit_halves(self, entries: list[Entry], on_result: OnAccepted) -> None:
        rows = self._half_messages.rows([draft for draft, _, _ in entries])
        self._broker.submit(rows, on_result, internal=True, own_handles=_gives_handles(entries))


def _gives_handles(entries: list[Entry]) -> bool:
    """Return whether callers get handles of this batch: those of delayed messages do."""
    return any(draft.delayed for draft, _, _ in entries)


def _accept(entries: list[Entry], result: Accepted) -> None:
    handles = result.handles() if _gives_handles(entries) else None
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
