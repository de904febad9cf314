"""Deliveries: a batch of columns, and a message as a view of one of its rows.

A message is two references. Columns become Python values a whole batch at a time, and only those that are asked for.
Acknowledging appends a row number to a list; everything else about it happens in bulk, in ``settling``.
"""

# The columns of a batch are lists of Any; the properties below say what is in them.
# mypy: disable-error-code="no-any-return"

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import repeat
from operator import length_hint
from typing import Any, Protocol, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tarry.base.delay import Delay, due_from_delay
from tarry.base.errors import InvalidArgumentError
from tarry.base.types import Int64s
from tarry.client.stream_op import StreamOp
from tarry.message.options import ORDER_KEY
from tarry.message.receipt import id_of, ids_of

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class _Lists(dict[str, list[Any]]):
    """The columns of a batch as Python lists, each made when it is first asked for."""

    __slots__ = ("_data",)

    def __init__(self, data: pa.RecordBatch) -> None:
        self._data = data

    def __missing__(self, name: str) -> list[Any]:
        column = self._data.column(name)
        if name == "properties":
            values = [dict(pairs) if pairs else {} for pairs in column.to_pylist()]
        else:
            # Not by way of numpy: for texts that imports pandas, half a second in front of the first message.
            values = column.to_pylist()
        self[name] = values
        return values


def _with_ids(data: pa.RecordBatch) -> pa.RecordBatch:
    ids = data.column("id")
    if not ids.null_count:
        return data
    return data.set_column(data.schema.get_field_index("id"), "id", pc.coalesce(ids, ids_of(data.column("seq"))))


class Settles(Protocol):
    """The receiver of a delivery's settlements: :class:`tarry.client.settling.Settler`. Any thread."""

    @property
    def closed(self) -> bool:
        """The connection is over: what was not sent by now comes again by itself."""
        ...

    def mark(self, batch: DeliveryBatch) -> None:
        """Note that a row of the batch was acknowledged."""
        ...

    def order(
        self, op: StreamOp, argument: int, batch: DeliveryBatch, rows: int | list[int] | None, reason: str = ""
    ) -> None:
        """Settle a row of the batch, or some, or all that are not settled (None)."""
        ...

    def push(self) -> None:
        """Send what has gathered, in the caller's thread."""
        ...

    def hurry(self) -> None:
        """Have another thread send what has gathered, now."""
        ...


class Keeps(Protocol):
    """Keeps the leases of what is in work: :class:`tarry.client.holding.Holding`. Any thread."""

    def enter(self, batch: DeliveryBatch) -> None:
        """Work at a message of the batch begins."""
        ...

    def leave_work(self, batch: DeliveryBatch) -> None:
        """Note that the work has ended."""
        ...


class DeliveryBatch:
    """Messages that arrived together. For columnar consumers: :attr:`data`, then :meth:`ack`.

    A message is settled once: what comes first counts, and what comes later, or after the connection was lost, does
    nothing (the message comes again then). In a ``with`` block, it is as with :class:`Delivery`.
    """

    __slots__ = (
        "_acked_read", "_data", "_open", "_raw", "_rest", "acked", "arrived_ms", "busy", "came_s", "clean",
        "extended_s", "keeper", "lists", "settler", "source", "until_s",
    )  # fmt: skip

    def __init__(self, data: pa.RecordBatch, settler: Settles, source: tuple[str, str]) -> None:
        self._raw = data
        self._data: pa.RecordBatch | None = None
        self.source = source
        self.settler = settler
        self.arrived_ms = time.time() * 1000
        self.lists = _Lists(data)
        self.acked: list[int] = []
        self.clean = True
        self._acked_read = 0
        self._open: npt.NDArray[np.bool_] | None = None
        self._rest: Iterator[Delivery] | None = None
        # The following are the keeper's.
        self.keeper: Keeps | None = None
        self.busy = 0
        """Messages of it that are in a ``with`` block."""
        self.came_s = self.extended_s = 0.0
        self.until_s = math.inf
        """Until when, as monotonic time, what nobody has taken of it may be taken."""

    @property
    def data(self) -> pa.RecordBatch:
        """Arrow record batch: the columns of a message, and ``offset``, ``lease``, ``attempt``.

        A message that was given no id has the one that is made of its seq, as :attr:`Delivery.id`.
        """
        if self._data is None:
            self._data = _with_ids(self._raw)
        return self._data

    def __len__(self) -> int:
        return int(self._raw.num_rows)

    def __iter__(self) -> Iterator[Delivery]:
        return iter(self.messages())

    def messages(self) -> list[Delivery]:
        """Messages, in order."""
        return list(map(Delivery, repeat(self), range(self._raw.num_rows)))

    def ack(self) -> None:
        """Acknowledge all of it; returns at once (:meth:`Consumer.flush`). What was settled before stays so."""
        self.settler.order(StreamOp.ACK, 0, self, None)

    def nack(self, delay: Delay | None = None, *, reason: str = "") -> None:
        """Deliver all of it again, after ``delay`` (default: by the group's back-off).

        ``reason``: as of :meth:`Delivery.nack`.
        """
        self.settler.order(*_nacked(delay, reason), self, None, reason)

    def extend(self, lease: Delay) -> None:
        """Hold all of it for ``lease`` from now."""
        self.settler.order(StreamOp.EXTEND, duration_ms("lease", lease, 1), self, None)

    def __enter__(self) -> Self:
        if self.keeper is not None:
            self.keeper.enter(self)
        return self

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if error is None:
            self.ack()
        else:
            self.nack(reason=reason_of(error))
        if self.keeper is not None:
            self.keeper.leave_work(self)

    async def __aenter__(self) -> Self:
        return self.__enter__()

    async def __aexit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        self.__exit__(kind, error, traceback)

    # The following are the keeper's, under its lock.

    @property
    def unstarted(self) -> int:
        """Number of messages that nobody has taken."""
        return len(self) if self._rest is None else length_hint(self._rest)

    def begin(self) -> Iterator[Delivery]:
        """Yield what nobody has taken yet; whoever has this iterator takes from it."""
        if self._rest is None:
            self._rest = iter(self.messages())
        return self._rest

    def take_rest(self) -> list[int]:
        """Take all that nobody has taken yet, and return the rows.

        It is one step: no other thread's iterator takes any of it, too.
        """
        if self._rest is None:
            self._rest = iter(())
            return list(range(len(self)))
        return [message.row for message in list(self._rest)]

    def mark(self) -> None:
        """There are new rows in :attr:`acked`."""
        self.clean = False
        self.settler.mark(self)

    # The following are the settler's, under its lock.

    def is_given_back(self, row: int) -> bool:
        """Return whether a row was settled otherwise than by an acknowledgement. Any thread."""
        return self._open is not None and not self._open[row] and row not in self.acked

    def take_acked(self) -> tuple[Int64s, Int64s]:
        """Leases and offsets of what was acknowledged since the last call.

        The list only grows: a thread that appends while we read is seen now or next time, never lost.
        """
        # First the mark, then the length: who appends after our look marks again.
        self.clean = True
        end = len(self.acked)
        rows = np.array(self.acked[self._acked_read : end], np.int64)
        self._acked_read = end
        return self.take(rows, settle=True)

    def take(self, rows: Int64s | None, *, settle: bool) -> tuple[Int64s, Int64s]:
        """Return leases and offsets of ``rows`` (None: all) not settled yet; ``settle``: mark them settled."""
        if self._open is None:
            self._open = np.ones(len(self), np.bool_)
        if rows is None:
            rows = np.flatnonzero(self._open)
        else:
            rows = np.unique(rows)
            rows = rows[self._open[rows]]
        if settle:
            self._open[rows] = False
        return self._column("lease")[rows], self._column("offset")[rows]

    def last_open(self) -> tuple[Int64s, Int64s]:
        """Lease and offset of the last row that is not settled; nothing where all are."""
        leases, offsets = self.take(None, settle=False)
        return leases[-1:], offsets[-1:]

    def _column(self, name: str) -> Int64s:
        # Not by to_numpy(): the first time, that imports pandas, for seconds on a busy machine, and leases end.
        column = self._raw.column(name)
        values: Int64s = np.frombuffer(column.buffers()[1], np.int64, len(column), 8 * column.offset)
        return values


class Delivery:
    """One message, handed out to this consumer until it is settled or its lease ends.

    It is a view of the batch that it came with, and keeps that in memory. In a ``with`` block it stays this consumer's
    until the end of the block, and is acknowledged there; after an exception it is given back, with its text as reason.
    """

    __slots__ = ("_batch", "_row")

    def __init__(self, batch: DeliveryBatch, row: int) -> None:
        self._batch = batch
        self._row = row

    @property
    def row(self) -> int:
        """Row of the message in its batch."""
        return self._row

    def __enter__(self) -> Self:
        """Begin the work on the message.

        Raises:
            StaleLeaseError: it is not this consumer's any more: its lease is over, or its consumer has ended.
        """
        if self._batch.keeper is not None:
            self._batch.keeper.enter(self._batch)
        return self

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if error is None:
            self.ack()
        else:
            self.nack(reason=reason_of(error))
        if self._batch.keeper is not None:
            self._batch.keeper.leave_work(self._batch)

    async def __aenter__(self) -> Self:
        """As without ``async``: nothing is waited for; see :meth:`ack`."""
        return self.__enter__()

    async def __aexit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        self.__exit__(kind, error, traceback)

    def ack(self) -> None:
        """Acknowledge the message: it never comes again.

        Returns at once: acks travel together, within milliseconds. To acknowledge it once more is accepted, and does
        nothing.
        """
        batch = self._batch
        batch.acked.append(self._row)
        if batch.clean:
            batch.mark()

    def nack(self, delay: Delay | None = None, *, reason: str = "") -> None:
        """Give the message back: it comes again after ``delay`` (default: by the group's back-off).

        ``reason``: why, for who looks at its history, or at the dead letter that it becomes.
        """
        self._order(*_nacked(delay, reason), reason)

    def reject(self, *, reason: str = "") -> None:
        """Make it a dead letter at once, whatever tries are left: no consumer will ever be able to handle it.

        ``reason``: as of :meth:`nack`.

        Raises:
            InvalidArgumentError: it comes of ``receive``; of ``consume`` it may be rejected.
        """
        self._check_consumed("reject")
        self._order(StreamOp.REJECT, 0, reason)

    def release(self) -> None:
        """Give it back as if it had not been handed out: it is ready at once, as the same try.

        Raises:
            InvalidArgumentError: it comes of ``receive``; of ``consume`` it may be released.
        """
        self._check_consumed("release")
        self._order(StreamOp.RETURN, 0)

    def _check_consumed(self, what: str) -> None:
        if self._batch.keeper is None:
            raise InvalidArgumentError(f"{what} of a message of receive(); allowed: of consume(), or nack()")

    @property
    def lost(self) -> bool:
        """True if it is not this consumer's any more, so that nothing that is said of it here counts.

        Its lease is over, and others have it or will; or it was given back or rejected.
        """
        batch = self._batch
        return batch.settler.closed or time.monotonic() >= batch.until_s or batch.is_given_back(self._row)

    def extend(self, lease: Delay) -> None:
        """Hold it for ``lease`` from now, because the work takes longer. So is the batch that it came with."""
        self._order(StreamOp.EXTEND, duration_ms("lease", lease, 1))

    def _order(self, op: StreamOp, argument: int, reason: str = "") -> None:
        self._batch.settler.order(op, argument, self._batch, self._row, reason)

    @property
    def topic(self) -> str:
        return self._batch.lists["topic"][self._row]

    @property
    def group(self) -> str:
        """The consumer group that it was handed out to."""
        return self._batch.source[1]

    @property
    def body(self) -> bytes:
        return self._batch.lists["body"][self._row]

    @property
    def id(self) -> str:
        """The producer's id, or one made from :attr:`seq`."""
        return self._batch.lists["id"][self._row] or id_of(self.seq)

    @property
    def key(self) -> str | None:
        return self._batch.lists["key"][self._row]

    @property
    def tag(self) -> str | None:
        return self._batch.lists["tag"][self._row]

    @property
    def properties(self) -> dict[str, str]:
        """The producer's properties, and Tarry's own, which begin with "tarry."; empty if there are none."""
        return self._batch.lists["properties"][self._row]

    @property
    def order_key(self) -> str | None:
        """Order key: messages of one are delivered in order; see :meth:`Client.schedule`."""
        return self.properties.get(ORDER_KEY)

    @property
    def due_ms(self) -> int:
        """Due time in UTC milliseconds."""
        return self._batch.lists["due_ms"][self._row]

    @property
    def due(self) -> datetime:
        """Due time as an aware datetime."""
        return _EPOCH + timedelta(milliseconds=self.due_ms)

    @property
    def born_ms(self) -> int:
        """Time at which the broker accepted it, in UTC milliseconds."""
        return self._batch.lists["born_ms"][self._row]

    @property
    def expire_ms(self) -> int | None:
        """Time at which it stops being of use, in UTC milliseconds."""
        return self._batch.lists["expire_ms"][self._row]

    @property
    def attempt(self) -> int:
        """Number of this delivery; 1 is the first."""
        return self._batch.lists["attempt"][self._row]

    @property
    def offset(self) -> int:
        """Its offset in the topic's queue."""
        return self._batch.lists["offset"][self._row]

    @property
    def seq(self) -> int:
        """The broker's number for it."""
        return self._batch.lists["seq"][self._row]

    @property
    def lateness_ms(self) -> float:
        """From its due time to its arrival at this client, by this machine's clock."""
        return self._batch.arrived_ms - self.due_ms

    def __repr__(self) -> str:
        body = self.body if len(self.body) <= 40 else self.body[:40] + b"..."
        fields = f"topic={self.topic!r}, id={self.id!r}, due_ms={self.due_ms}, attempt={self.attempt}"
        return f"Delivery({fields}, body={body!r})"


def reason_of(error: BaseException) -> str:
    """Return the text of an exception, as the reason why a message was not handled."""
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def _nacked(delay: Delay | None, reason: str) -> tuple[StreamOp, int]:
    return StreamOp.FAIL if reason else StreamOp.NACK, -1 if delay is None else duration_ms("delay", delay, 0)


def duration_ms(name: str, duration: Delay, least: int) -> int:
    """Milliseconds of a duration from now; an instant is refused. ``name``: what an error calls it.

    Raises:
        InvalidArgumentError: it is none, or is less than ``least``.
    """
    try:
        ms = due_from_delay(duration, 0, name=name)
    except InvalidArgumentError as error:
        why = str(error).partition("; allowed: ")[0]
        raise type(error)(f"{why}; allowed: {least} ms or more: seconds, a timedelta, '30s'") from error
    if due_from_delay(duration, 1) == ms:
        raise InvalidArgumentError(
            f"{name} {duration!r} is an instant; allowed: a duration: seconds, a timedelta, '30s'"
        )
    if not least <= ms < 1 << 62:
        raise InvalidArgumentError(f"{name} {duration!r} is {ms} ms; allowed: {least} ms or more")
    return ms
