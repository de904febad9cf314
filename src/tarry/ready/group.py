"""A consumer group of a topic: hands each ready message to one of its consumers until one acknowledges it.

Offsets below ``floor`` are acknowledged. From ``floor`` to ``cursor`` each offset is acknowledged, leased, or waiting
to be tried again; from ``cursor`` on nothing was handed out yet. Leases are kept by the batch that was handed out, with
one bit a row, so that the cost of a message is a few bytes and a share of some array operations.
"""

from __future__ import annotations

import heapq
import itertools
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tarry.clock import Clock
from tarry.errors import ClosedError, CorruptError, StaleLeaseError, TarryError
from tarry.intake.index import Int64s
from tarry.message import SCHEMA, concat
from tarry.ready.intervals import Intervals, runs
from tarry.ready.journal import Entry, Journal, Op
from tarry.ready.topic import Topic

DELIVERY = pa.schema([*SCHEMA, ("offset", pa.int64()), ("lease", pa.int64()), ("attempt", pa.int32())])
"""What a consumer gets: the message, its place in the topic, the lease to settle it with, and which try it is (1 is the
first).
"""

Done = Callable[[TarryError | None], None]


@dataclass(slots=True)
class _Lease:
    offsets: Int64s
    open: npt.NDArray[np.bool_]
    left: int
    attempt: npt.NDArray[np.int32]
    deadline_ms: int
    holder: Subscription


class Group:
    """All state is guarded by ``lock``. ``on_handout`` is told (due times, now).

    Consumers wait on another condition, so that the dispatcher, which wakes them, never waits for one of them that is
    being served.
    """

    def __init__(
        self,
        topic: Topic,
        name: str,
        *,
        clock: Clock,
        journal: Journal,
        ticket: Callable[[], int],
        on_handout: Callable[[Int64s, int], None],
        lease_ids: Iterator[int],
        floor: int = 0,
    ) -> None:
        self.topic = topic
        self.name = name
        # Reentrant: without threads, a write to the journal may be one of those that begin a new file, of all entries.
        self.lock = threading.RLock()
        self._wake = threading.Condition()
        self._news = 0  # counts what may be of interest to who waits
        self.floor = self.cursor = floor
        self._acked = Intervals()
        self._retries: list[
            tuple[int, int, Int64s, npt.NDArray[np.int32]]
        ] = []  # heap of (at_ms, tie, offsets, next attempts)
        self._retrying = Intervals()  # from recovery: retry offsets that the cursor must pass over
        self._recovered_end = 0
        self._leases: dict[int, _Lease] = {}
        self._deadlines: list[tuple[int, int]] = []
        self._ties = itertools.count()
        self._lease_ids = lease_ids
        self._clock = clock
        self._journal = journal
        self._ticket = ticket
        self._on_handout = on_handout
        self.closed = False

    # -- handing out -------------------------------------------------------------------------------------------------

    def fetch(self, holder: Subscription, rows_max: int, wait_s: float | None) -> pa.RecordBatch | None:
        """Lease up to ``rows_max`` messages to ``holder``, waiting up to ``wait_s`` seconds for the first (None: for
        ever).
        """
        end = None if wait_s is None else time.monotonic() + wait_s
        while True:
            seen = self._news
            with self.lock:
                # Under the lock: what is leased to a consumer after it was closed would come back only with its lease.
                if self.closed or holder.closed:
                    return None
                room = min(rows_max, holder.prefetch - holder.held)
                batch = self._lease(holder, room) if room > 0 else None
                if batch is not None:
                    return batch
                left = None if end is None else end - time.monotonic()
                if left is not None and left <= 0:
                    return None
                left = self._until_next(left)
            with self._wake:
                if self._news == seen:
                    self._clock.wait(self._wake, left)

    def _lease(self, holder: Subscription, room: int) -> pa.RecordBatch | None:
        now = self._clock.now_ms()
        self._expire(now)
        return self._lease_retry(holder, room, now) or self._lease_new(holder, room, now)

    def _lease_new(self, holder: Subscription, room: int, now: int) -> pa.RecordBatch | None:
        # After a recovery the cursor begins at the floor of then, which may have risen past it since.
        self.cursor = max(self.cursor, self.floor)
        while (found := self.topic.read(self.cursor, room)) is not None:
            base, batch = found
            if base > self.cursor:
                # Retention deleted what lay between.
                self.cursor = base
                self.floor = self._acked.drop_below(max(self.floor, base))
            offsets = np.arange(base, base + batch.num_rows, dtype=np.int64)
            self.cursor = base + batch.num_rows
            due = batch.column("due_ms").to_numpy()
            keep = due <= now
            if base < self._recovered_end:
                new = ~(self._acked.mask(offsets) | self._retrying.mask(offsets))
                self._defer(offsets[new & ~keep], due[new & ~keep], np.ones(np.sum(new & ~keep), np.int32))
                keep &= new
            elif not keep.all():
                self._defer(offsets[~keep], due[~keep], np.ones(np.sum(~keep), np.int32))
            if not keep.any():
                continue
            if not keep.all():
                batch, offsets = batch.filter(pa.array(keep)), offsets[keep]
            return self._hand_out(holder, batch, offsets, np.ones(len(offsets), np.int32), now)
        return None

    def _lease_retry(self, holder: Subscription, room: int, now: int) -> pa.RecordBatch | None:
        while self._retries and self._retries[0][0] <= now:
            at, _, offsets, attempts = heapq.heappop(self._retries)
            if len(offsets) > room:
                self._push_retry(at, offsets[room:], attempts[room:])
                offsets, attempts = offsets[:room], attempts[:room]
            batches, kept = [], []
            for first, end in runs(offsets):
                position = first
                while (
                    position < end
                    and (found := self.topic.read(position, end - position)) is not None
                    and found[0] < end
                ):
                    base, batch = found
                    batch = batch.slice(0, end - base)
                    batches.append(batch)
                    kept.append(np.arange(base, base + batch.num_rows, dtype=np.int64))
                    position = base + batch.num_rows
            here = np.concatenate(kept) if kept else np.empty(0, np.int64)
            for first, end in runs(offsets[~np.isin(offsets, here)]):
                self._acked.add(first, end)  # retention deleted them: nothing is left to deliver
                self.floor = self._acked.drop_below(self.floor)
            if not batches:
                continue
            batch, again = concat(batches), attempts[np.isin(offsets, here)]
            due = batch.column("due_ms").to_numpy()
            early = due > now
            if early.any():
                self._defer(here[early], due[early], again[early])
                if early.all():
                    continue
                batch, here, again = batch.filter(pa.array(~early)), here[~early], again[~early]
            return self._hand_out(holder, batch, here, again, now)
        return None

    def _defer(self, offsets: Int64s, due: Int64s, attempts: npt.NDArray[np.int32]) -> None:
        """The clock was set back since these were dispatched. Never early; and what is due behind them need not wait
        for them.
        """
        for moment in np.unique(due).tolist():
            self._push_retry(moment, offsets[due == moment], attempts[due == moment])

    def _hand_out(
        self, holder: Subscription, batch: pa.RecordBatch, offsets: Int64s, attempts: npt.NDArray[np.int32], now: int
    ) -> pa.RecordBatch:
        rows, number = len(offsets), next(self._lease_ids)
        deadline = now + holder.lease_ms
        self._leases[number] = _Lease(offsets, np.ones(rows, np.bool_), rows, attempts, deadline, holder)
        self._push_deadline(deadline, number)
        holder.held += rows
        self._on_handout(batch.column("due_ms").to_numpy(), now)
        # With its type given, pa.array() does not look for what pandas might have to say: a fifth of the time.
        leases = pa.array(np.full(rows, number, np.int64), pa.int64())
        columns = [*batch.columns, pa.array(offsets, pa.int64()), leases, pa.array(attempts, pa.int32())]
        return pa.RecordBatch.from_arrays(columns, schema=DELIVERY)

    def _push_deadline(self, deadline_ms: int, number: int) -> None:
        heapq.heappush(self._deadlines, (deadline_ms, number))
        if len(self._deadlines) > 2 * len(self._leases) + 1024:
            # Most leases are settled long before their deadline: let go of what they left here.
            self._deadlines = [(lease.deadline_ms, n) for n, lease in self._leases.items()]
            heapq.heapify(self._deadlines)

    def _until_next(self, left: float | None) -> float | None:
        """How long a waiting consumer may sleep before a retry or a lease of its group comes due."""
        moments = [self._retries[0][0]] if self._retries else []
        if self._deadlines:
            moments.append(self._deadlines[0][0])
        if self.cursor < self.topic.end:
            # There is no room, and an ack will wake us; or rows came after we looked, and a notification will.
            moments.append(self._clock.now_ms() + 50)
        waits = [max(self._clock.seconds_until(m), 0.0005) for m in moments]
        if left is not None:
            waits.append(left)
        return min(waits, default=None)

    def notify(self) -> None:
        """Wake those who wait: there may be something for them."""
        self._wake_up()

    def _wake_up(self) -> None:
        with self._wake:
            self._news += 1
            self._wake.notify_all()

    def stop(self) -> None:
        """Nothing is handed out any more; who waits is let go."""
        self.closed = True
        self._wake_up()

    # -- settling ----------------------------------------------------------------------------------------------------

    def ack(self, leases: Int64s, offsets: Int64s, done: Done | None = None) -> int:
        """Settle for good. ``done`` is told when that is durable; after a crash before, the messages come again.

        Returns:
            How many were settled; if fewer than given, the others' leases were stale, and ``done`` gets a
            StaleLeaseError.
        """
        with self.lock:
            settled = [o for _, o, _ in self._settle(leases, offsets)]
            count = sum(len(o) for o in settled)
            entries = self._acknowledge(np.sort(np.concatenate(settled))) if settled else []
        self._wake_up()
        self._write(entries, len(offsets) - count, len(offsets), done)
        return count

    def nack(self, leases: Int64s, offsets: Int64s, delay_ms: int, done: Done | None = None) -> int:
        """Give back, to be delivered again after ``delay_ms`` with the next attempt number; counts as :meth:`ack`
        does.
        """
        with self.lock:
            at = self._clock.now_ms() + delay_ms
            entries: list[Entry] = []
            count = 0
            for _, given_back, attempts in self._settle(leases, offsets):
                entries += self._retry(at, given_back, attempts + 1)
                count += len(given_back)
        self._wake_up()
        self._write(entries, len(offsets) - count, len(offsets), done)
        return count

    def extend(self, leases: Int64s, offsets: Int64s, lease_ms: int) -> int:
        """Hold the whole batches that these belong to for ``lease_ms`` from now; how many of the offsets are still
        held.
        """
        with self.lock:
            deadline, held = self._clock.now_ms() + lease_ms, 0
            for number in np.unique(leases).tolist():
                lease = self._leases.get(number)
                if lease is not None:
                    lease.deadline_ms = deadline
                    self._push_deadline(deadline, number)
                    held += int(np.isin(offsets[leases == number], lease.offsets[lease.open]).sum())
            return held

    def _settle(self, leases: Int64s, offsets: Int64s) -> list[tuple[_Lease, Int64s, npt.NDArray[np.int32]]]:
        """Close the open rows among these; by lease, the offsets closed (ascending) and their attempts."""
        closed = []
        one = len(leases) > 0 and bool((leases == leases[0]).all())
        for number in [int(leases[0])] if one else np.unique(leases).tolist():
            lease = self._leases.get(number)
            if lease is None:
                continue
            wanted = np.unique(offsets if one else offsets[leases == number])
            at = np.minimum(np.searchsorted(lease.offsets, wanted), len(lease.offsets) - 1)
            at = at[(lease.offsets[at] == wanted) & lease.open[at]]
            if not len(at):
                continue
            lease.open[at] = False
            lease.left -= len(at)
            lease.holder.held -= len(at)
            if not lease.left:
                del self._leases[number]
            closed.append((lease, lease.offsets[at], lease.attempt[at]))
        return closed

    def _acknowledge(self, offsets: Int64s) -> list[Entry]:
        intervals = runs(offsets)
        for first, end in intervals:
            self._acked.add(first, end)
        self.floor = self._acked.drop_below(self.floor)
        return [Entry(self.topic.name, self.name, Op.ACK, first, end) for first, end in intervals]

    def _retry(self, at_ms: int, offsets: Int64s, attempts: npt.NDArray[np.int32]) -> list[Entry]:
        self._push_retry(at_ms, offsets, attempts)
        return list(self._retry_entries(at_ms, offsets, attempts))

    def _push_retry(self, at_ms: int, offsets: Int64s, attempts: npt.NDArray[np.int32]) -> None:
        heapq.heappush(self._retries, (at_ms, next(self._ties), offsets, attempts))

    def _retry_entries(self, at_ms: int, offsets: Int64s, attempts: npt.NDArray[np.int32]) -> Iterator[Entry]:
        for attempt in np.unique(attempts).tolist():
            for first, end in runs(offsets[attempts == attempt]):
                yield Entry(self.topic.name, self.name, Op.RETRY, first, end, attempt, at_ms)

    def _expire(self, now: int) -> None:
        entries: list[Entry] = []
        while self._deadlines and self._deadlines[0][0] <= now:
            _, number = heapq.heappop(self._deadlines)
            lease = self._leases.get(number)
            if lease is None or lease.deadline_ms > now:
                continue  # settled, or extended: a later entry of the heap speaks for it
            entries += self._release(number, lease, now, count_try=True)
        if entries:
            self._journal.write(entries, self._ticket())

    def _release(self, number: int, lease: _Lease, now: int, *, count_try: bool) -> list[Entry]:
        del self._leases[number]
        lease.holder.held -= lease.left
        return self._retry(now, lease.offsets[lease.open], lease.attempt[lease.open] + count_try)

    def release(self, holder: Subscription) -> None:
        """A consumer is gone: what it holds is delivered again at once, as the same attempt plus one (it may have seen
        it).
        """
        with self.lock:
            now = self._clock.now_ms()
            entries: list[Entry] = []
            for number, lease in [(n, held) for n, held in self._leases.items() if held.holder is holder]:
                entries += self._release(number, lease, now, count_try=True)
        self._wake_up()
        if entries and not self.closed:
            self._write(entries, 0, 0, None)

    def _write(self, entries: list[Entry], stale: int, given: int, done: Done | None) -> None:
        error = (
            StaleLeaseError(f"{stale} of {given} leases are stale: expired, settled before, or never given")
            if stale
            else None
        )
        if entries:
            told = (lambda failure: done(failure or error)) if done is not None else None
            self._journal.write(entries, self._ticket(), told)
        elif done is not None:
            done(error)

    # -- recovery ----------------------------------------------------------------------------------------------------

    def replay(self, entry: Entry, retries: dict[int, tuple[int, int]]) -> None:
        """Apply an entry of the journal; ``retries`` collects offset → (attempt, at_ms) for :meth:`recovered`."""
        if entry.op is Op.GROUP:
            self.floor = max(self.floor, entry.first)
        elif entry.op is Op.ACK:
            self._acked.add(entry.first, entry.last)
            for offset in range(entry.first, entry.last) if retries else ():
                retries.pop(offset, None)
        else:
            retries.update(dict.fromkeys(range(entry.first, entry.last), (entry.attempt, entry.at_ms)))

    def recovered(self, retries: dict[int, tuple[int, int]]) -> None:
        """All entries were replayed: what is neither acknowledged nor to be retried is handed out anew.

        Raises:
            CorruptError: they name offsets that the ready log does not have, which new messages would get.
        """
        self.cursor = self.floor = self._acked.drop_below(self.floor)
        self._recovered_end = max([self.cursor, *(end for _, end in self._acked), *(o + 1 for o in retries)])
        if self._recovered_end > self.topic.end:
            raise CorruptError(
                f"group {self.name!r} has settled offsets below {self._recovered_end} of topic {self.topic.name!r}, "
                f"but the ready log ends at {self.topic.end}: a segment or the checkpoint is missing or too old"
            )
        by_moment: dict[int, list[tuple[int, int]]] = {}
        found = np.array(sorted(o for o in retries if o >= self.floor), np.int64)
        # Not those acknowledged: two consumers' entries may be written in another order than they happened in.
        for offset in found[~self._acked.mask(found)].tolist():
            attempt, at = retries[offset]
            by_moment.setdefault(at, []).append((offset, attempt))
            self._retrying.add(offset, offset + 1)
        for at, rows in by_moment.items():
            self._push_retry(at, np.array([o for o, _ in rows], np.int64), np.array([a for _, a in rows], np.int32))

    def entries(self) -> Iterator[Entry]:
        """The group's state, for a snapshot of the journal."""
        with self.lock:
            name = (self.topic.name, self.name)
            found = [Entry(*name, Op.GROUP, self.floor)]
            found += [Entry(*name, Op.ACK, first, end) for first, end in self._acked]
            for at, _, offsets, attempts in self._retries:
                found += self._retry_entries(at, offsets, attempts)
            for lease in self._leases.values():
                again = lease.open & (lease.attempt > 1)
                if again.any():
                    found += self._retry_entries(0, lease.offsets[again], lease.attempt[again])
        yield from found

    @property
    def unsettled(self) -> int:
        """Ready messages that are not acknowledged."""
        with self.lock:
            floor = max(self.floor, self.topic.first)  # below is what retention deleted
            settled = sum(max(0, end - max(first, floor)) for first, end in self._acked)
            return self.topic.end - floor - settled


class Subscription:
    """One consumer of a group. Any thread may call; ``held`` counts what is leased to it and not settled."""

    def __init__(self, group: Group, *, prefetch: int, lease_ms: int, retry_ms: int) -> None:
        self.group = group
        self.prefetch = prefetch
        self.lease_ms = lease_ms
        self.retry_ms = retry_ms
        self.held = 0
        self.closed = False

    def fetch(self, max_rows: int = 8192, wait_s: float | None = None) -> pa.RecordBatch | None:
        """Messages (:data:`DELIVERY`), as soon as there are any; None when there were none within ``wait_s``, or after
        :meth:`close`.
        """
        return self.group.fetch(self, max_rows, wait_s)

    def ack(self, leases: Int64s, offsets: Int64s, done: Done | None = None) -> int:
        """See :meth:`Group.ack`."""
        self._check()
        return self.group.ack(leases, offsets, done)

    def nack(self, leases: Int64s, offsets: Int64s, delay_ms: int | None = None, done: Done | None = None) -> int:
        """See :meth:`Group.nack`; without a delay, the broker's default back-off."""
        self._check()
        return self.group.nack(leases, offsets, self.retry_ms if delay_ms is None else delay_ms, done)

    def extend(self, leases: Int64s, offsets: Int64s, lease_ms: int) -> int:
        """See :meth:`Group.extend`."""
        self._check()
        return self.group.extend(leases, offsets, lease_ms)

    def close(self) -> None:
        """Give back what is held, to be delivered to others at once. A fetch in another thread returns None."""
        with self.group.lock:
            if self.closed:
                return
            self.closed = True
        self.group.release(self)

    def _check(self) -> None:
        if self.group.closed:
            raise ClosedError("the broker is closed")
