"""Queue of single messages that tasks of an event loop schedule with a broker in this process.

Messages of one turn of the loop travel together.
"""

from __future__ import annotations

import asyncio

from tarry.api.local import LocalBroker
from tarry.base.errors import TarryError
from tarry.base.event_loop import post
from tarry.batching.coalescing import Batch, Coalescer, EndOfTurn, fail_futures
from tarry.message.receipt import Accepted, Receipt
from tarry.message.rows import ID, Row, to_batch

Entry = tuple[Row, "asyncio.Future[Receipt]"]


class RowQueue:
    """Queue of single messages. On the loop's thread."""

    def __init__(self, broker: LocalBroker, loop: asyncio.AbstractEventLoop) -> None:
        self._broker = broker
        self._loop = loop
        self._coalescer: Coalescer[Entry] = Coalescer(self._send, fail_futures)
        self._end_of_turn = EndOfTurn(loop, self._coalescer.pump)

    def add(self, row: Row) -> asyncio.Future[Receipt]:
        """Schedule the message of a row whose values were checked; done when it is durable."""
        future: asyncio.Future[Receipt] = self._loop.create_future()
        self._coalescer.add((row, future))
        self._end_of_turn.plan()
        return future

    def close(self, why: str) -> None:
        """Refuse what is not sent yet."""
        self._coalescer.close(why)

    def _send(self, batch: Batch[Entry]) -> None:
        def on_result(result: Accepted | TarryError) -> None:
            post(self._loop, self._on_result, batch, result)

        self._broker.submit(to_batch([row for row, _ in batch.entries]), on_result)

    def _on_result(self, batch: Batch[Entry], result: Accepted | TarryError) -> None:
        if isinstance(result, TarryError):
            self._coalescer.on_refused(batch, result)
        else:
            receipts = result.receipts([row[ID] for row, _ in batch.entries])
            for receipt, (_, future) in zip(receipts, batch.entries, strict=True):
                if not future.done():
                    future.set_result(receipt)
            self._coalescer.on_accepted(batch)
        self._coalescer.pump()
