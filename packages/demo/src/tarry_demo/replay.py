"""The producer: it schedules the year in three ways, and keeps the broker's answers in columns.

Most departures are scheduled as one Arrow table, in an order that has nothing to do with time; some one by one before
the replay, very many at a time; and the late bookings while it runs, each seconds before its departure and with a
*delay*, also while the broker is dead. A late booking without an answer is scheduled again, as a real producer does: it
cannot know if the first one was accepted, so such a departure may be accepted twice, under two seqs.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from tarry.base.errors import OverloadedError, TarryError, UnavailableError
from tarry.base.types import Int64s
from tarry.client import Accepted, AsyncClient, Client, Receipt
from tarry_demo.flights import Flights

SINGLE_SHARE = 0.05
"""Share that is scheduled one by one; half of it before the replay, half while it runs."""
LEAD_S = (1.0, 15.0)
"""Seconds from a late booking to its departure, least and most; in a short replay less."""
AT_ONCE = 1000
"""Single calls that are under way at a time before the replay."""
ANSWER_S = 30.0
AGAIN_S = 0.1
STEP_S = 0.02
SEED = 2013

OnAccepted = Callable[[int], None]
"""Called with the number of messages that were accepted since."""

BULK, SINGLE, LATE = 0, 1, 2
WAYS = ("in one table", "one by one", 'one by one, while it runs, by delay="…"')


@dataclass(frozen=True, slots=True)
class Plan:
    """The rows of each way."""

    bulk: Int64s
    single: Int64s
    late: Int64s
    lead_ms: Int64s
    """Milliseconds from the scheduling of each of ``late`` to its due time."""

    @classmethod
    def of(cls, rows: int, seconds: float) -> Plan:
        """Make the plan; it is the same for every run with these arguments."""
        rng = np.random.default_rng(SEED)
        order = rng.permutation(rows)
        half = max(1, round(rows * SINGLE_SHARE / 2))
        low, high = (1000 * min(lead, seconds / 8) for lead in LEAD_S)
        late = np.sort(order[half : 2 * half])
        lead_ms = rng.uniform(low, max(high, low + 1), len(late)).astype(np.int64)
        return cls(order[2 * half :], order[:half], late, lead_ms)


@dataclass(slots=True)
class Book:
    """The accepted messages, in parts: rows, seqs, due times, and their way."""

    parts: list[tuple[Int64s, Int64s, Int64s, int]] = field(default_factory=list)
    asked_again: int = 0
    """Late bookings without an answer, which were made again until they had one."""

    def chunk(self, rows: Int64s, accepted: Accepted) -> None:
        """Add a part of a table."""
        seq = accepted.first_seq + np.arange(accepted.count)
        self.parts.append((rows[accepted.row : accepted.row + accepted.count], seq, accepted.due_ms, BULK))

    def receipts(self, rows: Int64s, receipts: list[Receipt], way: int) -> None:
        """Add single messages."""
        if receipts:
            seq, due = np.array([(r.seq, r.due_ms) for r in receipts], np.int64).T
            self.parts.append((rows, seq, due, way))

    def accepted(self) -> pa.Table:
        """Return columns ``row``, ``seq``, ``due_ms``, and ``exact``: 1 for the departure's own due time."""
        return pa.table(
            {
                "row": _joined([rows for rows, _, _, _ in self.parts]),
                "seq": _joined([seqs for _, seqs, _, _ in self.parts]),
                "due_ms": _joined([dues for _, _, dues, _ in self.parts]),
                "exact": _joined([np.full(len(rows), way != LATE, np.int64) for rows, _, _, way in self.parts]),
            }
        )


def schedule_table(
    client: Client, flights: Flights, rows: Int64s, due_ms: Int64s, book: Book, on_accepted: OnAccepted
) -> None:
    """Schedule these rows as one Arrow table."""
    table = flights.messages.take(pa.array(rows)).append_column("due_ms", pa.array(due_ms[rows]))

    def accepted(chunk: Accepted) -> None:
        book.chunk(rows, chunk)
        on_accepted(chunk.count)

    client.schedule_batch(table, progress=accepted)


async def schedule_singles(
    client: AsyncClient, flights: Flights, rows: Int64s, due_ms: Int64s, book: Book, on_accepted: OnAccepted
) -> None:
    """Schedule these rows one by one, many under way at a time, each with its due time."""
    calls = _Calls(client, flights, rows)
    for start in range(0, len(rows), AT_ONCE):
        part = rows[start : start + AT_ONCE]
        receipts = await asyncio.gather(*(calls.schedule(start + i, due=int(due_ms[r])) for i, r in enumerate(part)))
        book.receipts(part, receipts, SINGLE)
        on_accepted(len(part))


async def schedule_late(
    client: AsyncClient, flights: Flights, plan: Plan, due_ms: Int64s, book: Book, on_accepted: OnAccepted
) -> None:
    """Schedule the late bookings, each when its time has come, until all have been accepted."""
    calls = _Calls(client, flights, plan.late)
    send_ms = due_ms[plan.late] - plan.lead_ms

    async def one(i: int) -> None:
        row = plan.late[i]
        again = 0
        while True:
            delay_ms = max(0, int(due_ms[row]) - time.time_ns() // 1_000_000)
            try:
                async with asyncio.timeout(ANSWER_S):
                    receipt = await calls.schedule(i, delay=f"{delay_ms}ms")
            except (UnavailableError, TimeoutError):
                again = 1
            except OverloadedError:
                pass  # certainly not accepted
            else:
                book.receipts(plan.late[i : i + 1], [receipt], LATE)
                book.asked_again += again
                on_accepted(1)
                return
            await asyncio.sleep(AGAIN_S)

    async with asyncio.TaskGroup() as calls_under_way:
        for i in np.argsort(send_ms, kind="stable").tolist():
            while send_ms[i] > time.time_ns() // 1_000_000:
                await asyncio.sleep(STEP_S)
            calls_under_way.create_task(one(i))


class LateBookings:
    """:func:`schedule_late` in a thread with an event loop of its own. Use it in a ``with`` block."""

    def __init__(self, address: str, flights: Flights, plan: Plan, due_ms: Int64s, book: Book) -> None:
        self._arguments = (flights, plan, due_ms, book, lambda _: None)
        self._address = address
        self._error: BaseException | None = None
        self._task: asyncio.Task[None] | None = None
        self._thread = threading.Thread(target=self._run, name="demo-late-bookings", daemon=True)

    def check(self) -> None:
        """Raise the error with which the thread failed, if it did."""
        if self._error is not None:
            raise TarryError(f"the producer failed: {self._error!r}") from self._error

    def finish(self, timeout_s: float) -> None:
        """Wait until all bookings have been accepted."""
        self._thread.join(timeout_s)
        self.check()
        if self._thread.is_alive():
            raise UnavailableError(f"late bookings were not accepted within {timeout_s:g} s after the replay")

    def __enter__(self) -> LateBookings:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        task = self._task
        if self._thread.is_alive() and task is not None:
            task.get_loop().call_soon_threadsafe(task.cancel)
            self._thread.join()

    def _run(self) -> None:
        try:
            asyncio.run(self._book())
        except asyncio.CancelledError:
            pass
        except BaseException as error:  # noqa: BLE001  check() raises it in the demo's thread
            self._error = error

    async def _book(self) -> None:
        self._task = asyncio.current_task()
        async with AsyncClient(self._address) as client:
            await schedule_late(client, *self._arguments)


class _Calls:
    """Some rows as calls of ``schedule``."""

    def __init__(self, client: AsyncClient, flights: Flights, rows: Int64s) -> None:
        self._client = client
        messages = flights.messages.take(pa.array(rows))
        self._columns = {name: messages.column(name).to_pylist() for name in messages.column_names}

    async def schedule(self, i: int, *, due: int | None = None, delay: str | None = None) -> Receipt:
        c = self._columns
        return await self._client.schedule(
            c["topic"][i],
            c["body"][i],
            due=due,
            delay=delay,
            id=c["id"][i],
            tag=c["tag"][i],
            properties=dict(c["properties"][i]),
        )


def _joined(parts: list[Int64s]) -> pa.Array:
    return pa.array(np.concatenate([*parts, np.empty(0, np.int64)]).astype(np.int64))
