"""One DoExchange stream: messages go out as they fall due, settlements come in.

A task reads the client's messages. Those of one turn of the loop are carried out together, acks that follow each other
as one; they are answered in order. The stream itself polls its subscription whenever the group has news. Where the
broker wants to end it, it says goodbye, and the client ends its side. Then, what came before is carried out and the
subscription closed: what is still held is redelivered at once.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from dataclasses import replace
from itertools import groupby

import numpy as np
import pyarrow as pa

from loopgrpc import UnreadBytes, framed
from tarry.api.consuming import OnResult, Subscription
from tarry.api.views import DELIVERY
from tarry.api.wire import ALIVE_S, GOODBYE, LEASE_MS, SETTLED, Settle, StreamOp, decode_settle, encode_notice
from tarry.base.arrow_messages import BATCH, look_at
from tarry.base.clock import SystemClock
from tarry.base.errors import (
    CorruptError,
    InvalidArgumentError,
    NotFoundError,
    StaleLeaseError,
    TarryError,
    UnavailableError,
)
from tarry.base.event_loop import post
from tarry.fronts.flight.messages import METADATA, arrow_data, field, read_data
from tarry.fronts.kit.in_order import InOrder
from tarry.fronts.kit.known_errors import known

ROWS_MAX = 8192
"""Most messages in one batch to a consumer."""
LOOK_S = 0.25
"""Seconds between checks of what is not announced: that others have read, or that acks were made."""
MUCH_BYTES = 1 << 20
"""Whoever got so much at once will get more."""
ANSWER_S = 1.0
"""Seconds to wait for a sign of a consumer before it is asked again."""
UNSETTLED_MAX = 1024
"""Settling messages under way; beyond that the reader waits, and so does the client."""
LAST_ACKS_S = 10.0
"""Seconds that the end of a stream waits for its last acks to be durable."""
_BATCH_TEXT = "a consumer sent a record batch; allowed: settling messages, as app metadata only"


class ConsumeStream:
    """Made for one call, with its subscription; :meth:`answers` is the call. On the loop's thread."""

    def __init__(self, subscription: Subscription, unread: UnreadBytes, host: str) -> None:
        self._subscription, self._unread, self._host = subscription, unread, host
        self._loop = asyncio.get_running_loop()
        self._changed = asyncio.Event()
        self._inbox: list[tuple[int, Settle | TarryError]] = []
        self._settling: InOrder[int, TarryError | None] = InOrder(self._on_settled, UNSETTLED_MAX)
        self._notices: list[bytes] = []
        self._said_s = self._loop.time()
        """Time of the last batch or ALIVE."""
        self._is_much = True
        self._has_goodbye = False

    async def answers(self, messages: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        """Yield the schema, batches and notices until the client ends the stream."""
        subscription, end_s = self._subscription, math.inf
        reading = asyncio.ensure_future(self._read(messages))
        reading.add_done_callback(lambda _: self._changed.set())
        stop_listening = subscription.group.listen(lambda: post(self._loop, self._changed.set))
        try:
            schema = DELIVERY.with_metadata({LEASE_MS: str(subscription.lease_ms)})
            yield arrow_data(schema.serialize(), has_body=False)
            while not reading.done() or self._notices or (self._settling and self._loop.time() < end_s):
                self._changed.clear()
                batch, wait_s = None, LAST_ACKS_S
                if reading.done() and end_s == math.inf:
                    subscription.close()
                    end_s = self._loop.time() + LAST_ACKS_S
                elif not reading.done() and not self._has_goodbye:
                    batch, wait_s = self._next()
                if batch is not None:
                    self._said_s = self._loop.time()
                    yield arrow_data(batch.serialize())
                elif not self._notices:
                    with suppress(TimeoutError):
                        async with asyncio.timeout(wait_s):
                            await self._changed.wait()
                if notices := self._notices:
                    self._notices = []
                    yield framed(notices)
        finally:
            stop_listening()
            reading.cancel()
            subscription.close()

    def stop(self, error: TarryError) -> None:
        """Hand out nothing more; ask the client to settle what it has done, and to end the stream."""
        if not self._has_goodbye:
            self._has_goodbye = True
            self._notify(GOODBYE, 0, error)

    # -- out -----------------------------------------------------------------------------------------------------------

    def _next(self) -> tuple[pa.RecordBatch | None, float]:
        """Return what there is to be sent; or None, and in how many seconds to look again."""
        try:
            return self._poll()
        except Exception as error:  # noqa: BLE001  every error goes to the client, and bugs to the log
            self.stop(known(error))
            return None, ALIVE_S

    def _poll(self) -> tuple[pa.RecordBatch | None, float]:
        subscription, silent_s = self._subscription, self._loop.time() - self._said_s
        has_room = not self._is_much or self._unread.refusal(self._host) is None
        # Where its peer's other streams leave no room, it is one message now and then, since they may never read.
        rows_max = ROWS_MAX if has_room else int(silent_s >= LOOK_S)
        batch: pa.RecordBatch | None = None
        again_s: float | None = LOOK_S
        if rows_max:
            try:
                batch, again_s = subscription.poll(rows_max)
                self._is_much = batch is not None and (batch.nbytes >= MUCH_BYTES or not has_room)
            except CorruptError:
                # The end of the stream gives back what is held, and it would never be done with: it comes first.
                if not subscription.held:
                    raise
        if batch is not None:
            return batch, 0.0
        if subscription.group.deleted:
            # Not to be tried again: that would make the group anew, and begin at its beginning.
            raise NotFoundError("the group was deleted")
        if subscription.closed or subscription.group.closed:
            raise UnavailableError("the broker is stopping")
        # Clients answer this notice with their window; again, since one of the past may have been read late.
        alive_s = (ANSWER_S if subscription.silent else ALIVE_S) - silent_s
        if alive_s <= 0:
            self._said_s = self._loop.time()
            self._notify(StreamOp.ALIVE, SystemClock().now_ms())
        return None, alive_s if again_s is None else min(alive_s, again_s)

    def _notify(self, op: StreamOp, number: int, error: TarryError | None = None) -> None:
        self._notices.append(field(METADATA, encode_notice(op, number, error)))
        self._changed.set()

    # -- in ------------------------------------------------------------------------------------------------------------

    async def _read(self, messages: AsyncIterator[bytes]) -> None:
        number = 0
        with suppress(InvalidArgumentError):  # of a message that cannot be read, which ends the stream
            async for raw in messages:
                data = read_data(raw)
                if data.header and look_at(data.header)[0] != BATCH:
                    continue  # a schema, which means nothing here
                number += 1
                try:
                    if data.header:
                        raise InvalidArgumentError(_BATCH_TEXT)
                    settle: Settle | TarryError = decode_settle(data.metadata)
                except TarryError as error:
                    settle = error
                if isinstance(settle, Settle) and settle.op is StreamOp.CLOSE:
                    break
                if not self._inbox:
                    self._loop.call_soon(self._settle)
                self._inbox.append((number, settle))
                if len(self._inbox) >= UNSETTLED_MAX:
                    self._settle()
                await self._settling.room()
        self._settle()

    def _settle(self) -> None:
        """Carry out what has come in."""
        items, self._inbox = self._inbox, []
        for number, settle in _joined(items):
            done = self._settling.add(number)
            try:
                if isinstance(settle, TarryError):
                    raise settle
                self._carry_out(settle, done)
            except Exception as error:  # noqa: BLE001  as above
                done(known(error))

    def _carry_out(self, settle: Settle, done: OnResult) -> None:
        subscription, argument, leased = self._subscription, settle.argument, (settle.leases, settle.offsets)
        if settle.op is StreamOp.WINDOW:
            subscription.resize(argument)
            done(None)
        elif settle.op is StreamOp.EXTEND or not len(settle.leases):
            if len(settle.leases):
                subscription.extend(*leased, argument)
            done(None)
        elif settle.op is StreamOp.ACK:
            subscription.ack(*leased, done)
        elif settle.op is StreamOp.RETURN:
            # Whose lease is over need not be given back.
            subscription.give_back(*leased, lambda e: done(None if isinstance(e, StaleLeaseError) else e))
        else:
            subscription.nack(*leased, None if argument < 0 else argument, done, settle.reason)

    def _on_settled(self) -> None:
        """Tell the client of what is done; one notice for all of it, and one for each error."""
        last: int | None = None
        for number, error in self._settling.take():
            last = number if error is None else None
            if error is not None:
                self._notify(SETTLED, number, error)
        if last is not None:
            self._notify(SETTLED, last)


def _joined(items: list[tuple[int, Settle | TarryError]]) -> Iterator[tuple[int, Settle | TarryError]]:
    """Yield acks that follow each other as one, under the number of the last."""
    for is_ack, group in groupby(items, key=lambda item: isinstance(item[1], Settle) and item[1].op is StreamOp.ACK):
        run = list(group)
        if not is_ack or len(run) == 1:
            yield from run
            continue
        acks = [ack for _, ack in run if isinstance(ack, Settle)]
        offsets = np.concatenate([ack.offsets for ack in acks])
        yield run[-1][0], replace(acks[0], leases=np.concatenate([ack.leases for ack in acks]), offsets=offsets)
