"""Batches plain jobs of many requests for the broker: those of one turn of the event loop.

A plain job has a body, a delay, a ttl and tries, and nothing left to check: whoever adds one has checked it. So its
columns are made here, and its answer directly from the broker's result of the batch.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import groupby
from typing import NamedTuple

import pyarrow as pa

from tarry.api.local import AnyBroker, OnAccepted
from tarry.base.clock import Clock
from tarry.base.delay import due_after
from tarry.base.errors import TarryError
from tarry.batching.submitting import Submitter
from tarry.fronts.http.lmstfy.names import job_ids
from tarry.fronts.http.read_your_writes import Landing
from tarry.message.accepted import Accepted
from tarry.message.admission import assembled

ROWS_BESIDE_MIN = 48
"""Jobs that make a batch which is sent while another one waits for the disk."""

BATCH_BYTES = 16 << 20
"""Bytes after which a batch ends."""

OnPublished = Callable[[list[str]], None]
"""Called with the jobs' ids when they are durable."""
OnError = Callable[[TarryError], None]


class Plain(NamedTuple):
    """The properties that jobs of one kind share."""

    topic: str
    delay_ms: int
    ttl_ms: int | None
    tries: int


class JobEntry(NamedTuple):
    """Jobs of one request, and its callbacks: one of the two is called, on the event loop's thread."""

    kind: Plain
    bodies: list[bytes]
    on_published: OnPublished
    on_error: OnError


class JobQueue:
    """On the event loop's thread."""

    def __init__(self, broker: AnyBroker, loop: asyncio.AbstractEventLoop, landing: Landing) -> None:
        self._broker = broker
        self._landing = landing
        self._submitter: Submitter[JobEntry, Accepted] = Submitter(
            loop,
            self._submit,
            self._accept,
            _refuse,
            rows_beside_min=ROWS_BESIDE_MIN,
            size_of=_size_of,
            bytes_max=BATCH_BYTES,
        )
        self.close = self._submitter.close
        """Refuse what is not sent yet, for this reason."""

    def add(self, entry: JobEntry) -> None:
        """Have jobs scheduled, all of them or none.

        Raises:
            ClosedError: the front has stopped.
        """
        self._submitter.add(entry)
        self._submitter.plan()

    def _submit(self, entries: list[JobEntry], on_result: OnAccepted) -> None:
        self._broker.submit_checked(_rows_of(entries, self._broker.clock), on_result)

    def _accept(self, entries: list[JobEntry], result: Accepted) -> None:
        places = list(zip(result.seqs.tolist(), result.due_ms.tolist(), strict=True))
        at = 0
        for topic, run in groupby(entries, _topic_of):
            of_topic = list(run)
            rows = sum(len(entry.bodies) for entry in of_topic)
            own, first = places[at : at + rows], 0
            ids = job_ids(topic, own)
            last = None
            for entry in of_topic:
                end = first + len(entry.bodies)
                last = last if entry.kind.delay_ms else own[end - 1]
                entry.on_published(ids[first:end])
                first = end
            at += rows
            if last is not None:
                self._landing.note(topic, *last)


def _refuse(entries: list[JobEntry], error: TarryError) -> None:
    for entry in entries:
        entry.on_error(error)


def _rows_of(entries: list[JobEntry], clock: Clock) -> pa.RecordBatch:
    now_ms, start_ms = clock.now_ms(), clock.start_ms()
    kinds = [entry.kind for entry in entries for _ in entry.bodies]
    topics, delays_ms, ttls_ms, tries = zip(*kinds, strict=True)
    bodies = [body for entry in entries for body in entry.bodies]
    columns = {
        "topic": pa.array(topics, pa.string()),
        "due_ms": pa.array([due_after(delay_ms, now_ms, start_ms) for delay_ms in delays_ms], pa.int64()),
        "body": pa.array(bodies, pa.binary()),
        "tries": pa.array(tries, pa.int32()),
    }
    if any(ttls_ms):
        columns["expire_ms"] = pa.array([None if ttl_ms is None else now_ms + ttl_ms for ttl_ms in ttls_ms], pa.int64())
    return assembled(columns, now_ms)


def _topic_of(entry: JobEntry) -> str:
    return entry.kind.topic


def _size_of(entry: JobEntry) -> int:
    return sum(map(len, entry.bodies))
