"""Sends of many callers as few batches: what comes in one turn of the event loop is accepted together, with one fsync.

While one batch is on its way to the disk, more messages gather; a second one goes beside it once it has
``SECOND_ROWS_MIN`` messages. So each batch is as large as the disk is slow, and a message alone does not wait.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Protocol

import pyarrow as pa

from tarry.api.admission import assembled
from tarry.api.local import LocalBroker
from tarry.api.receipt import Accepted
from tarry.base.errors import InvalidMessageError, TarryError
from tarry.base.message import ORDER_KEY
from tarry.fronts.rocketmq.common.draft import Draft
from tarry.fronts.rocketmq.common.half_messages import HalfMessages
from tarry.fronts.rocketmq.common.properties import map_of
from tarry.fronts.rocketmq.common.refusal import Refusal

BATCHES_IN_FLIGHT = 2
SECOND_ROWS_MIN = 16
_TEXT = pa.string()


class SendRequest(Protocol):
    """Who waits for the answers to some messages: called once for each, on the loop's thread. ``place``: which of its
    messages, from 0.
    """

    def on_accepted(self, place: int, draft: Draft, seq: int, handle: str) -> None:
        """The message is durable as number ``seq``. ``handle``: what cancels it, of a delayed one; else empty."""
        ...

    def on_refused(self, place: int, draft: Draft, refusal: Refusal) -> None:
        """The message was not accepted."""
        ...


Entry = tuple[Draft, SendRequest, int]
"""A message, the request that it came with, and its place there."""


class SendQueue:
    """On the loop's thread."""

    def __init__(self, broker: LocalBroker, loop: asyncio.AbstractEventLoop, half_messages: HalfMessages) -> None:
        self._broker = broker
        self._loop = loop
        self._half_messages = half_messages
        self._gathered: list[Entry] = []
        self._in_flight = 0
        """Batches on their way to the disk."""
        self._planned = False

    def add(self, drafts: Sequence[Draft], request: SendRequest) -> None:
        """Send these with the next batch; ``request`` has the answers later, never before this returns."""
        self._gathered += [(draft, request, place) for place, draft in enumerate(drafts)]
        self._plan()

    def _plan(self) -> None:
        rows = len(self._gathered)
        may_go = self._in_flight == 0 or (self._in_flight < BATCHES_IN_FLIGHT and rows >= SECOND_ROWS_MIN)
        if rows and may_go and not self._planned:
            self._planned = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._planned = False
        entries, self._gathered = self._gathered, []
        if entries:
            self._submit(entries)

    def _submit(self, entries: list[Entry]) -> None:
        self._in_flight += 1

        def on_result(result: Accepted | TarryError) -> None:
            self._loop.call_soon_threadsafe(self._on_result, entries, result)

        drafts = [draft for draft, _, _ in entries]
        try:
            if any(draft.half for draft in drafts):
                self._broker.submit(self._half_messages.rows(drafts), on_result)
            else:
                self._broker.submit_checked(rows_of(drafts, self._broker.clock.now_ms()), on_result)
        except InvalidMessageError as error:
            self._in_flight -= 1
            if len(entries) == 1:
                self._refuse(entries, Refusal.of(error))
                return
            # One of them is refused, and nobody else's shall suffer for it: each on its own.
            for entry in entries:
                self._submit([entry])
        except TarryError as error:
            self._in_flight -= 1
            self._refuse(entries, Refusal.of(error))

    def _on_result(self, entries: list[Entry], result: Accepted | TarryError) -> None:
        self._in_flight -= 1
        self._plan()
        if isinstance(result, TarryError):
            self._refuse(entries, Refusal.of(result))
            return
        handles = result.handles() if any(draft.delayed for draft, _, _ in entries) else None
        first, placed = result.first_seq, result.placed
        seqs = range(first, first + len(entries)) if placed is None else placed["seq"].tolist()
        for row, (draft, request, place) in enumerate(entries):
            request.on_accepted(place, draft, seqs[row], handles[row] if draft.delayed and handles else "")

    def _refuse(self, entries: list[Entry], refusal: Refusal) -> None:
        for draft, request, place in entries:
            request.on_refused(place, draft, refusal)


def rows_of(drafts: Sequence[Draft], now_ms: int) -> pa.RecordBatch:
    """Messages, none of them a half message, as the broker stores them: a row each of
    :data:`tarry.base.message.UNNUMBERED`.
    """
    properties = [[*d.properties, (ORDER_KEY, d.order_key)] if d.order_key else d.properties for d in drafts]
    columns = {
        "topic": pa.array([d.topic for d in drafts], _TEXT),
        "due_ms": pa.array([d.due_ms for d in drafts], pa.int64()),
        "body": pa.array([d.body for d in drafts], pa.binary()),
        "id": pa.array([d.id or None for d in drafts], _TEXT),
        "properties": map_of(properties),
    }
    tags = [d.tag for d in drafts]
    if any(tags):
        columns["tag"] = pa.array(tags, _TEXT)
    return assembled(columns, now_ms)
