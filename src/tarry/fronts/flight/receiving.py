"""One DoExchange stream: messages go out as they fall due, settlements come in.

Three threads, since two of them wait for something that cannot be waited for together:

- the call's own thread fetches from the subscription and writes batches;
- the reader waits for the client's messages, and puts them into the inbox;
- the settler carries them out, all acks that have come in meanwhile as one, and writes the broker's notices.

gRPC allows one writer at a time, hence the lock around writes. The call must not return before the reader has seen the
end of the client's side: nothing else can interrupt its wait. So a stream that the broker wants to end says goodbye,
and the front cuts connections that do not react (see ``front``).

Whatever ends the stream ends up as ``None`` in the inbox. The settler then has carried out all that came before, and
closes the subscription: what is still held is redelivered at once.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.flight as fl

from loopgrpc import ANSWER_BYTES, UnreadBytes
from tarry.api.consuming import Subscription
from tarry.api.views import DELIVERY
from tarry.api.wire import (
    ALIVE_S,
    GOODBYE,
    LEASE_MS,
    SETTLED,
    STREAM_ERRORS,
    Settle,
    StreamOp,
    as_bytes,
    decode_settle,
    encode_notice,
)
from tarry.base.errors import (
    CorruptError,
    InvalidArgumentError,
    NotFoundError,
    StaleLeaseError,
    TarryError,
    UnavailableError,
)
from tarry.base.placement import Placement

log = logging.getLogger(__name__)

ROWS_MAX = 8192
"""Most messages in one batch to a consumer."""
LOOK_S = 0.25
"""Seconds between checks that a consumer has settled what lies before a damaged frame."""
MUCH_BYTES = 1 << 20
"""Whoever got so much at once will get more."""
ANSWER_S = 1.0
"""Seconds to wait for a sign of a consumer before it is asked again."""
INBOX_MAX = 1024
"""Settling messages that may wait; beyond that the reader waits, and so does the client."""
BULK_ROWS = 1000
"""Batches of so many rows are written by whatever core is free."""
LAST_ACKS_S = 10.0
"""Seconds that the end of a stream waits for its last acks to be durable."""


@dataclass(slots=True)
class _Task:
    """A settling message under way: ``numbers`` up to this one are done when it is."""

    number: int
    finished: bool = False
    error: TarryError | None = None


class ConsumeStream:
    """Made for one call, with its subscription; :meth:`run` is the call."""

    def __init__(
        self,
        subscription: Subscription,
        reader: fl.MetadataRecordBatchReader,
        writer: fl.MetadataRecordBatchWriter,
        now_ms: Callable[[], int],
        placement: Placement,
        unread: UnreadBytes,
        host: str,
    ) -> None:
        self._unread = unread
        self._host = host
        self._subscription = subscription
        self._reader = reader
        self._writer = writer
        self._now_ms = now_ms
        self._placement = placement
        self._writing = threading.Lock()
        self._changed = threading.Condition()
        self._inbox: deque[tuple[int, Settle | TarryError] | None] = deque()
        self._tasks: deque[_Task] = deque()
        self._goodbye: TarryError | None = None
        self._ended = False
        self._client_left = False
        self._reserved = 0

    def run(self) -> None:
        """Serve the stream until the client ends it or is gone."""
        threads = [
            threading.Thread(target=self._read, name="tarry-flight-acks", daemon=True),
            threading.Thread(target=self._settle_all, name="tarry-flight-settle", daemon=True),
        ]
        try:
            self._writer.begin(DELIVERY.with_metadata({LEASE_MS: str(self._subscription.lease_ms)}))
        except STREAM_ERRORS:
            self._subscription.close()
            return
        for thread in threads:
            thread.start()
        try:
            self._deliver()
        except TarryError as error:
            self.stop(error)
        except Exception:
            log.exception("delivering to a consumer failed")
            self.stop(TarryError("internal error; see the broker's log"))
        finally:
            for thread in threads:
                thread.join()
            self._placement.apart()  # the thread is gRPC's, and serves other calls

    def stop(self, error: TarryError) -> None:
        """Ask the client to settle what it has done and to end the stream."""
        with self._changed:
            self._goodbye = error
            self._changed.notify_all()

    # -- out -----------------------------------------------------------------------------------------------------------

    def _deliver(self) -> None:
        is_much = True
        while not self._ended:
            asked = time.monotonic()
            batch, had_room = self._fetch_within_room() if is_much else (self._fetch(asked + ALIVE_S), True)
            if batch is not None:
                size = batch.nbytes
                is_much = size >= MUCH_BYTES or not had_room
                small = batch.num_rows < BULK_ROWS
                (self._placement.together if small else self._placement.apart)()
                with self._counted(size):
                    self._write(partial(self._writer.write_batch, batch))
            elif is_much:
                is_much = False  # it has all that there was, and waits for more
            elif self._subscription.silent and not self._subscription.closed:
                self._ask_whether_it_is_there()
            elif time.monotonic() - asked >= ALIVE_S * 0.9:
                self._notify(StreamOp.ALIVE, self._now_ms())
            elif not self._ended:
                # Nothing comes before its time only when the subscription, the group or the broker was closed under us.
                if self._subscription.group.deleted:
                    # Not to be tried again: that would make the group anew, and begin at its beginning.
                    raise NotFoundError("the group was deleted")
                raise UnavailableError("the broker is stopping")

    def _ask_whether_it_is_there(self) -> None:
        """Clients answer this notice with their window; again, since one of the past may have been read late."""
        self._notify(StreamOp.ALIVE, self._now_ms())
        with self._changed:
            self._changed.wait_for(lambda: self._ended or not self._subscription.silent, ANSWER_S)

    def _fetch_within_room(self) -> tuple[pa.RecordBatch | None, bool]:
        """Fetch what there is now, as much as one read may give; and return whether there was room for it.

        Where the peer's other streams leave no room, it is one message now and then, since they may never read.
        """
        if not self._unread.take(self._host, ANSWER_BYTES, LOOK_S):
            return self._subscription.fetch(1, 0.0), False
        self._reserved, batch = ANSWER_BYTES, None
        try:
            batch = self._fetch(time.monotonic())
        finally:
            if batch is None:
                self._unread.add(self._host, -self._reserved)
                self._reserved = 0
        return batch, True

    @contextmanager
    def _counted(self, size: int) -> Iterator[None]:
        """Count so many bytes as under way, in the place of what was reserved for them.

        In one step: what is free in between would let in all streams that wait.
        """
        self._unread.add(self._host, size - self._reserved)
        self._reserved = 0
        try:
            yield
        finally:
            self._unread.add(self._host, -size)

    def _fetch(self, until_s: float) -> pa.RecordBatch | None:
        while True:
            try:
                return self._subscription.fetch(ROWS_MAX, max(0.0, until_s - time.monotonic()))
            except CorruptError:
                # The end of the stream gives back what is held, and it would never be done with: it comes first.
                if not self._subscription.held:
                    raise
            with self._changed:
                self._changed.wait(LOOK_S)
            if self._ended or time.monotonic() >= until_s:
                return None

    def _notify(self, op: StreamOp, number: int, error: TarryError | None = None) -> None:
        self._write(partial(self._writer.write_metadata, pa.py_buffer(encode_notice(op, number, error))))

    def _write(self, write: Callable[[], None]) -> None:
        try:
            with self._writing:
                if not self._client_left:
                    write()
        except STREAM_ERRORS as error:
            log.debug("a consumer left: %s", error)
            self._client_left = True
            self._post(None)

    # -- in ------------------------------------------------------------------------------------------------------------

    def _read(self) -> None:
        number = 0
        self._placement.together()
        try:
            while True:
                chunk = self._reader.read_chunk()
                number += 1
                try:
                    settle: Settle | TarryError = _decoded(chunk)
                except TarryError as error:
                    settle = error
                if isinstance(settle, Settle) and settle.op is StreamOp.CLOSE:
                    self._post(None)
                else:
                    self._post((number, settle))
        except StopIteration:
            pass
        except (*STREAM_ERRORS, TarryError) as error:
            log.debug("a consumer left, or sent what cannot be read: %s", error)
        except Exception:
            log.exception("reading from a consumer failed")
        finally:
            self._post(None)

    def _post(self, item: tuple[int, Settle | TarryError] | None) -> None:
        with self._changed:
            if item is not None:
                self._changed.wait_for(lambda: len(self._inbox) < INBOX_MAX)
            self._inbox.append(item)
            self._changed.notify_all()

    # -- settling ------------------------------------------------------------------------------------------------------

    def _settle_all(self) -> None:
        self._placement.together()
        try:
            while self._settle_round():
                pass
        finally:
            self._ended = True
            self._subscription.close()
            self._finish()

    def _settle_round(self) -> bool:
        """Carry out what came in and report what is done; False when the client has ended its side."""
        with self._changed:
            self._changed.wait_for(lambda: self._inbox or self._goodbye or (self._tasks and self._tasks[0].finished))
            items = list(self._inbox)
            self._inbox.clear()
            goodbye, self._goodbye = self._goodbye, None
            self._changed.notify_all()
        ended = None in items
        came = items[: items.index(None)] if ended else items
        for number, settle in _joined([item for item in came if item is not None]):
            self._carry_out(number, settle)
        self._report()
        if goodbye is not None:
            self._notify(GOODBYE, 0, goodbye)
        return not ended

    def _finish(self) -> None:
        while self._tasks:
            with self._changed:
                if not self._changed.wait_for(lambda: self._tasks[0].finished, LAST_ACKS_S):
                    break
            self._report()
        with self._changed:
            # The reader must not wait for room in the inbox from now on: it may still read what nobody wants.
            self._inbox = deque(maxlen=1)
            self._changed.notify_all()

    def _carry_out(self, number: int, settle: Settle | TarryError) -> None:
        task = _Task(number)
        self._tasks.append(task)

        def done(error: TarryError | None) -> None:
            with self._changed:
                task.error, task.finished = error, True
                self._changed.notify_all()

        try:
            if isinstance(settle, TarryError):
                raise settle
            leases, offsets, argument = settle.leases, settle.offsets, settle.argument
            if settle.op is StreamOp.WINDOW:
                self._subscription.resize(argument)
                done(None)
            elif not len(leases):
                done(None)
            elif settle.op is StreamOp.ACK:
                self._subscription.ack(leases, offsets, done)
            elif settle.op is StreamOp.RETURN:
                # Whose lease is over need not be given back.
                self._subscription.give_back(
                    leases, offsets, lambda e: done(None if isinstance(e, StaleLeaseError) else e)
                )
            elif settle.op is StreamOp.EXTEND:
                self._subscription.extend(leases, offsets, argument)
                done(None)
            else:
                delay_ms = None if argument < 0 else argument
                self._subscription.nack(leases, offsets, delay_ms, done, settle.reason)
        except TarryError as error:
            done(error)
        except Exception:
            log.exception("settling failed")
            done(TarryError("internal error; see the broker's log"))

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


def _decoded(chunk: fl.FlightStreamChunk) -> Settle:
    if chunk.data is not None:
        raise InvalidArgumentError("a consumer sent a record batch; allowed: settling messages, as app metadata only")
    return decode_settle(as_bytes(chunk.app_metadata))


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
