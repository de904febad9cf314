"""Plain jobs of many requests on their way to the broker: those of one turn of the event loop travel together.

A plain job has a body, a delay, a ttl and tries, and nothing that is left to check: who adds one has seen to that. So
its columns are made here, and its answer from what the broker says of the batch, without anything in between.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from tarry.api.admission import assembled
from tarry.api.coalescing import Batch, Coalescer, EndOfTurn
from tarry.api.local import LocalBroker
from tarry.api.receipt import Accepted
from tarry.base.errors import TarryError
from tarry.base.event_loop import post

ROWS_BESIDE_MIN = 16
"""So many jobs make a batch that goes while another one waits for the disk."""

OnResult = Callable[[int, int], None]
"""Called with the job's seq and due time when it is durable."""
OnError = Callable[[TarryError], None]


class Plain(NamedTuple):
    """What jobs of one kind have in common."""

    topic: str
    delay_ms: int
    ttl_ms: int | None
    tries: int


class Entry(NamedTuple):
    """A job, and who waits for it: one of the two is called, on the loop's thread."""

    kind: Plain
    body: bytes
    on_result: OnResult
    on_error: OnError


class JobQueue:
    """On the loop's thread."""

    def __init__(self, broker: LocalBroker, loop: asyncio.AbstractEventLoop) -> None:
        self._broker = broker
        self._loop = loop
        self._coalescer: Coalescer[Entry] = Coalescer(self._send, _refuse, rows_beside_min=ROWS_BESIDE_MIN)
        self._end_of_turn = EndOfTurn(loop, self._coalescer.pump)

    def add(self, entry: Entry) -> None:
        """Have a job scheduled.

        Raises:
            ClosedError: the front has stopped.
        """
        self._coalescer.add(entry)
        self._end_of_turn.plan()

    def close(self, why: str) -> None:
        """Refuse what is not sent yet."""
        self._coalescer.close(why)

    def _send(self, batch: Batch[Entry]) -> None:
        def on_result(result: Accepted | TarryError) -> None:
            post(self._loop, self._on_result, batch, result)

        self._broker.submit_checked(_rows_of(batch.entries, self._broker.clock.now_ms()), on_result)

    def _on_result(self, batch: Batch[Entry], result: Accepted | TarryError) -> None:
        if isinstance(result, TarryError):
            self._coalescer.on_refused(batch, result)
        else:
            self._coalescer.on_accepted(batch)
            for seq, due_ms, entry in zip(result.seqs.tolist(), result.due_ms.tolist(), batch.entries, strict=True):
                entry.on_result(seq, due_ms)
        if self._coalescer.is_ready:
            self._end_of_turn.plan()


def _refuse(entries: list[Entry], error: TarryError) -> None:
    for entry in entries:
        entry.on_error(error)


def _rows_of(entries: list[Entry], now_ms: int) -> pa.RecordBatch:
    kinds, bodies, _, _ = zip(*entries, strict=True)
    topics, delays_ms, ttls_ms, tries = zip(*kinds, strict=True)
    columns = {
        "topic": pa.array(topics, pa.string()),
        "due_ms": pa.array(np.array(delays_ms, np.int64) + now_ms),
        "body": pa.array(bodies, pa.binary()),
        "tries": pa.array(tries, pa.int32()),
    }
    if any(ttls_ms):
        columns["expire_ms"] = pa.array([None if ttl_ms is None else now_ms + ttl_ms for ttl_ms in ttls_ms], pa.int64())
    return assembled(columns, now_ms)
