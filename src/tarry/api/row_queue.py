"""Queue of single messages that tasks of an event loop schedule with a broker in this process.

Messages of one turn of the loop travel together.
"""

from __future__ import annotations

import asyncio

from tarry.api.local import AnyBroker, OnAccepted
from tarry.batching.coalescing import fail_futures
from tarry.batching.submitting import Submitter
from tarry.message.accepted import Accepted
from tarry.message.receipt import Receipt
from tarry.message.row_columns import to_batch
from tarry.message.rows import ID, Row

Entry = tuple[Row, "asyncio.Future[Receipt]"]


class RowQueue:
    """Queue of single messages. On the loop's thread."""

    def __init__(self, broker: AnyBroker, loop: asyncio.AbstractEventLoop, *, own_handles: bool = False) -> None:
        """``own_handles``: the messages are of several callers; see :meth:`AnyBroker.submit`."""
        self._broker, self._own_handles = broker, own_handles
        self._loop = loop
        self._submitter: Submitter[Entry, Accepted] = Submitter(loop, self._submit, _accept, fail_futures)
        self.close = self._submitter.close
        """Refuse what is not sent yet, for this reason."""

    def add(self, row: Row) -> asyncio.Future[Receipt]:
        """Schedule the message of a row whose values were checked; done when it is durable."""
        future: asyncio.Future[Receipt] = self._loop.create_future()
        self._submitter.add((row, future))
        self._submitter.plan()
        return future

    def _submit(self, entries: list[Entry], on_result: OnAccepted) -> None:
        self._broker.submit(to_batch([row for row, _ in entries]), on_result, own_handles=self._own_handles)


def _accept(entries: list[Entry], result: Accepted) -> None:
    receipts = result.receipts([row[ID] for row, _ in entries])
    for receipt, (_, future) in zip(receipts, entries, strict=True):
        if not future.done():
            future.set_result(receipt)
