"""Scheduling of many callers' single messages in few batches (:mod:`tarry.batching`)."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Generic, TypeVar

import pyarrow as pa

from tarry.base.errors import InvalidMessageError, TarryError
from tarry.batching.coalescing import Batch, Coalescer, Pacing, copy_of
from tarry.link.frames import decode_accepted
from tarry.link.peer import OnAnswer
from tarry.message.accepted import Accepted
from tarry.message.columns import stream_bytes
from tarry.message.receipt import Receipt
from tarry.message.row_columns import to_batch
from tarry.message.rows import BODY, ID, Row

log = logging.getLogger(__name__)

BYTES_MAX = 8 << 20
CLOSE_S = 5.0
"""Seconds that closing waits for answers."""

W = TypeVar("W")
Entry = tuple[Row, W]
Resolve = Callable[[list[tuple[W, Receipt | TarryError]]], None]


Submit = Callable[[bytes, OnAnswer], None]
"""Carries rows, an Arrow stream, to the broker; see :class:`tarry.client.connection.BrokerConnection`."""


class Producer(Generic[W]):
    """``resolve`` gets, in any thread, what became of each waiter's row. Any thread."""

    def __init__(self, submit: Submit, resolve: Resolve[W], pace: Pacing | None = None) -> None:
        self._submit = submit
        self._resolve = resolve
        self.coalescer: Coalescer[Entry[W]] = Coalescer(
            self._send, self._refuse, size_of=lambda entry: len(entry[0][BODY]), bytes_max=BYTES_MAX, pace=pace
        )
        self.pump = self.coalescer.pump
        """Send what waits, as far as there is room."""

    def add(self, row: Row, waiter: W, *, urgent: bool = False) -> None:
        """Queue a row; :attr:`pump` sends it.

        Raises:
            ClosedError: after :meth:`close`.
        """
        self.coalescer.add((row, waiter), urgent=urgent)

    def close(self) -> None:
        """Wait for the answers under way, for some seconds; who has none by then gets an error when it comes."""
        self.coalescer.close("the client is closed", CLOSE_S)

    def _send(self, batch: Batch[Entry[W]]) -> None:
        try:
            data = to_batch([row for row, _ in batch.entries])
        except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
            # api.schedule should have refused it.
            log.exception("a batch could not be built")
            raise InvalidMessageError(f"the message cannot be sent: {error}") from error
        self._submit(stream_bytes(data.schema, [data]), partial(self._on_answer, batch))

    def _refuse(self, entries: list[Entry[W]], error: TarryError) -> None:
        self._resolve([(waiter, copy_of(error)) for _, waiter in entries])

    def _on_answer(self, batch: Batch[Entry[W]], raw: memoryview | TarryError) -> None:
        """Tell the callers of a batch its answer."""
        if isinstance(raw, TarryError):
            self.coalescer.on_refused(batch, raw)
        else:
            try:
                self._resolve(_receipts(batch.entries, decode_accepted(raw)))
            except TarryError as error:
                self.coalescer.on_failed(batch, error)
            else:
                self.coalescer.on_accepted(batch)
        self.pump()


def _receipts(entries: list[Entry[W]], accepted: Accepted) -> list[tuple[W, Receipt | TarryError]]:
    if accepted.count != len(entries):
        raise TarryError(f"the broker answered {accepted.count} rows to a batch of {len(entries)}")
    receipts = accepted.receipts(row[ID] for row, _ in entries)
    return [(waiter, receipt) for (_, waiter), receipt in zip(entries, receipts, strict=True)]
