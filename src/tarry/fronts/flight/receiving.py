"""One DoExchange stream: messages go out as they fall due, settlements come in.

A task reads the client's messages. Those of one turn of the loop are carried out together, all acks that follow each
other as one, and the broker's notices about them leave in order. The other half polls the subscription whenever its
group has news.

A stream that the broker wants to end says goodbye; the client settles what it has done, and ends its side. Whatever
ends the stream, what came before is carried out, and the subscription is closed: what is still held is redelivered at
once.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from loopgrpc import UnreadBytes, framed
from tarry.api.consuming import Subscription
from tarry.api.views import DELIVERY
from tarry.api.wire import (
    ALIVE_S,
    GOODBYE,
    LEASE_MS,
    SETTLED,
    Settle,
    StreamOp,
    decode_settle,
    encode_notice,
)
from tarry.base.arrow_messages import BATCH, look_at
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

log = logging.getLogger(__name__)

ROWS_MAX = 8192
"""Most messages in one batch to a consumer."""
LOOK_S = 0.25
"""Seconds between checks that a consumer has settled what lies before a damaged frame, or has read its answers."""
MUCH_BYTES = 1 << 20
"""Whoever got so much at once will get more."""
ANSWER_S = 1.0
"""Seconds to wait for a sign of a consumer before it is asked again."""
UNSETTLED_MAX = 1024
"""Settling messages that may be under way; beyond that the reader waits, and so does the client."""
LAST_ACKS_S = 10.0
"""Seconds that the end of a stream waits for its last acks to be durable."""
INTERNAL = TarryError("internal error; see the broker's log")


@dataclass(slots=True)
class _Task:
    """A settling message under way: ``numbers`` up to this one are done when it is."""

    number: int
    finished: bool = False
    error: TarryError | None = None


class ConsumeStream:
    """Made for one call, with its subscription; :meth:`answers` is the call. On the loop's thread."""

    def __init__(self, subscription: Subscription, unread: UnreadBytes, host: str, now_ms: Callable[[], int]) -> None:
        self._subscription = subscription
        self._unread = unread
        self._host = host
        self._now_ms = now_ms
        self._loop = asyncio.get_running_loop()
        self._changed = asyncio.Event()
        self._inbox: list[tuple[int, Settle | TarryError]] = []
        self._tasks: deque[_Task] = deque()
        self._has_room = asyncio.Event()
        self._notices: list[bytes] = []
        self._said_s = self._loop.time()
        """When a batch or the last ALIVE went out."""
        self._is_much = True
        self._crowded_s: float | None = None
        self._leaving = False
        """True once goodbye was said: nothing more is handed out."""

    async def answers(self, messages: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        """Yield the schema, batches and notices until the client ends the stream."""
        subscription = self._subscription
        reading = asyncio.ensure_future(self._read(messages))
        reading.add_done_callback(lambda _: self._changed.set())
        stop_listening = subscription.group.listen(lambda: post(self._loop, self._changed.set))
        try:
            lease_ms = str(subscription.lease_ms)
            yield arrow_data(DELIVERY.with_metadata({LEASE_MS: lease_ms}).serialize(), has_body=False)
            while not reading.done() or self._notices:
                self._changed.clear()
                batch, wait_s = (None, None) if self._leaving or reading.done() else self._next()
                if self._notices:
                    yield self._take_notices()
                if batch is not None:
                    self._said_s = self._loop.time()
                    yield arrow_data(batch.serialize())
                elif not reading.done() and not self._notices:
                    await self._wait(wait_s)
            subscription.close()
            end_s = self._loop.time() + LAST_ACKS_S
            while self._tasks and (left_s := end_s - self._loop.time()) > 0:
                self._changed.clear()
                await self._wait(left_s)
                if self._notices:
                    yield self._take_notices()
        finally:
            stop_listening()
            reading.cancel()
            subscription.close()

    def stop(self, error: TarryError) -> None:
        """Ask the client to settle what it has done and to end the stream."""
        if not self._leaving:
            self._leaving = True
            self._notify(GOODBYE, 0, error)

    async def _wait(self, timeout_s: float | None) -> None:
        try:
            async with asyncio.timeout(timeout_s):
                await self._changed.wait()
        except TimeoutError:
            pass

    # -- out -----------------------------------------------------------------------------------------------------------

    def _next(self) -> tuple[pa.RecordBatch | None, float | None]:
        """Return what there is to be sent; or None, and in how many seconds to look again."""
        try:
            return self._poll()
        except TarryError as error:
            self.stop(error)
        except Exception:
            log.exception("delivering to a consumer failed")
            self.stop(INTERNAL)
        return None, None

    def _poll(self) -> tuple[pa.RecordBatch | None, float | None]:
        subscription, now_s = self._subscription, self._loop.time()
        rows_max = self._rows_max(now_s)
        batch: pa.RecordBatch | None = None
        again_s: float | None = LOOK_S
        if rows_max:
            try:
                batch, again_s = subscription.poll(rows_max)
            except CorruptError:
                # The end of the stream gives back what is held, and it would never be done with: it comes first.
                if not subscription.held:
                    raise
        if batch is not None:
            # Whoever has no room, and reads it all the same, will get more.
            self._is_much = rows_max < ROWS_MAX or batch.nbytes >= MUCH_BYTES
            return batch, None
        if rows_max:
            self._is_much = False  # it has all that there was, and waits for more
        if subscription.group.deleted:
            # Not to be tried again: that would make the group anew, and begin at its beginning.
            raise NotFoundError("the group was deleted")
        if subscription.closed or subscription.group.closed:
            raise UnavailableError("the broker is stopping")
        # Clients answer this notice with their window; again, since one of the past may have been read late.
        alive_s = self._said_s + (ANSWER_S if subscription.silent else ALIVE_S) - now_s
        if alive_s <= 0:
            self._said_s = now_s
            self._notify(StreamOp.ALIVE, self._now_ms())
        return None, alive_s if again_s is None else min(alive_s, again_s)

    def _rows_max(self, now_s: float) -> int:
        """Return how many messages may be handed out now.

        Where the peer's other streams leave no room, it is one message now and then, since they may never read.
        """
        if not self._is_much or self._unread.refusal(self._host) is None:
            self._crowded_s = None
            return ROWS_MAX
        if self._crowded_s is None:
            self._crowded_s = now_s
        if now_s - self._crowded_s < LOOK_S:
            return 0
        self._crowded_s = now_s
        return 1

    def _notify(self, op: StreamOp, number: int, error: TarryError | None = None) -> None:
        self._notices.append(field(METADATA, encode_notice(op, number, error)))
        self._changed.set()

    def _take_notices(self) -> bytes:
        notices, self._notices = self._notices, []
        return framed(notices)

    # -- in ------------------------------------------------------------------------------------------------------------

    async def _read(self, messages: AsyncIterator[bytes]) -> None:
        number = 0
        try:
            async for raw in messages:
                data = read_data(raw)
                if data.header and look_at(data.header)[0] != BATCH:
                    continue  # a schema, which means nothing here
                number += 1
                try:
                    settle: Settle | TarryError = _decoded(data.metadata, has_batch=bool(data.header))
                except TarryError as error:
                    settle = error
                if isinstance(settle, Settle) and settle.op is StreamOp.CLOSE:
                    break
                if not self._inbox:
                    self._loop.call_soon(self._settle)
                self._inbox.append((number, settle))
                while len(self._tasks) + len(self._inbox) >= UNSETTLED_MAX:
                    self._has_room.clear()
                    await self._has_room.wait()
        except TarryError as error:
            log.debug("a consumer sent what cannot be read: %s", error)
        self._settle()

    def _settle(self) -> None:
        """Carry out what has come in."""
        items, self._inbox = self._inbox, []
        for number, settle in _joined(items):
            self._carry_out(number, settle)
        self._report()

    def _carry_out(self, number: int, settle: Settle | TarryError) -> None:
        task = _Task(number)
        self._tasks.append(task)

        def finish(error: TarryError | None) -> None:
            task.error, task.finished = error, True

        def done(error: TarryError | None) -> None:
            finish(error)
            post(self._loop, self._report)

        try:
            if isinstance(settle, TarryError):
                raise settle
            leases, offsets, argument = settle.leases, settle.offsets, settle.argument
            if settle.op is StreamOp.WINDOW:
                self._subscription.resize(argument)
                finish(None)
            elif not len(leases):
                finish(None)
            elif settle.op is StreamOp.ACK:
                self._subscription.ack(leases, offsets, done)
            elif settle.op is StreamOp.RETURN:
                # Whose lease is over need not be given back.
                self._subscription.give_back(
                    leases, offsets, lambda e: done(None if isinstance(e, StaleLeaseError) else e)
                )
            elif settle.op is StreamOp.EXTEND:
                self._subscription.extend(leases, offsets, argument)
                finish(None)
            else:
                delay_ms = None if argument < 0 else argument
                self._subscription.nack(leases, offsets, delay_ms, done, settle.reason)
        except TarryError as error:
            finish(error)
        except Exception:
            log.exception("settling failed")
            finish(INTERNAL)

    def _report(self) -> None:
        """Tell the client of what is done, in order; one notice for all of it, and one for each error."""
        last: int | None = None
        while self._tasks and self._tasks[0].finished:
            task = self._tasks.popleft()
            last = task.number
            if task.error is not None:
                self._notify(SETTLED, task.number, task.error)
                last = None
        if last is not None:
            self._notify(SETTLED, last)
        self._has_room.set()


def _decoded(metadata: bytes, *, has_batch: bool) -> Settle:
    if has_batch:
        raise InvalidArgumentError("a consumer sent a record batch; allowed: settling messages, as app metadata only")
    return decode_settle(metadata)


def _joined(items: list[tuple[int, Settle | TarryError]]) -> Iterator[tuple[int, Settle | TarryError]]:
    """Acks that follow each other as one, under the number of the last."""
    acks: list[tuple[int, Settle]] = []
    for number, settle in items:
        if isinstance(settle, Settle) and settle.op is StreamOp.ACK:
            acks.append((number, settle))
            continue
        if acks:
            yield _join(acks)
            acks = []
        yield number, settle
    if acks:
        yield _join(acks)


def _join(acks: list[tuple[int, Settle]]) -> tuple[int, Settle]:
    number, first = acks[-1][0], acks[0][1]
    if len(acks) == 1:
        return number, first
    leases = np.concatenate([settle.leases for _, settle in acks])
    return number, replace(first, leases=leases, offsets=np.concatenate([settle.offsets for _, settle in acks]))
