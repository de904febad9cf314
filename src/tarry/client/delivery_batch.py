"""A batch of deliveries as columns, of the native link.

Columns become Python values a whole batch at a time, and only those that are asked for. Acknowledging appends a row
number to a list; everything else about it happens in bulk, in ``settling``.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from itertools import repeat
from operator import length_hint
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tarry.base.delay import Delay
from tarry.base.types import Int64s
from tarry.client.delivery import Delivery, Keeps, Settles, duration_ms, nacked, reason_of
from tarry.client.stream_op import StreamOp
from tarry.message.accepted import ids_of


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
        self.settler.order(*nacked(delay, reason), self, None, reason)

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
