"""Receipts of scheduled messages, and what is pending of a topic.

The same in-process and through the client.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tarry.base.types import Int64s
from tarry.message import handle

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_HEX = np.array([list(f"{i:02x}".encode()) for i in range(256)], np.uint8)


ReceiptOutcome = Literal["scheduled", "replaced", "kept", "duplicate", "not_pending", "changed"]
OUTCOMES: tuple[ReceiptOutcome, ...] = ("scheduled", "replaced", "kept", "duplicate", "not_pending", "changed")
"""Outcomes of a scheduled message; see :class:`Receipt`."""
NO_SEQ = -1
"""In place of a message that there is not."""

PLACED = np.dtype(
    [("seq", "<i8"), ("due_ms", "<i8"), ("first_seq", "<i8"), ("rows", "<u4"), ("token", "V8"), ("outcome", "u1")]
)
"""Columns: place of a row's message, accepted batch of its handle, outcome as an index of OUTCOMES."""


def id_of(seq: int) -> str:
    """Return the id of a message whose producer gave it none."""
    return f"{seq:016x}"


def ids_of(seq: pa.Array) -> pa.Array:
    """:func:`id_of` of many: a string column."""
    numbers = np.ascontiguousarray(seq.to_numpy(zero_copy_only=False), ">i8")
    digits = np.ascontiguousarray(_HEX[numbers.view(np.uint8)])
    offsets = np.arange(0, 16 * len(numbers) + 1, 16, dtype=np.int32)
    buffers: list[Any] = [None, pa.py_buffer(offsets), pa.py_buffer(digits)]
    return pa.Array.from_buffers(pa.string(), len(numbers), buffers)


class Receipt:
    """The answer to one scheduled, durable message; the broker's clock resolved its delay to ``due_ms``.

    ``outcome`` is "scheduled"; "replaced": another message of its key was pending, and was cancelled; "kept": such a
    message was pending, and this is its receipt; "duplicate": a message of its id had been accepted within the dedupe
    window, and this is its receipt. With the condition ``on_key="if_pending"``: "replaced"; "not_pending": no message
    of its key was (it was delivered, cancelled, or never there), and nothing was scheduled, so there is no handle and
    ``seq`` is -1; "changed": another one than ``if_seq`` says was pending, which this is the receipt of, and it stays.
    """

    __slots__ = ("_first_seq", "_rows", "_token", "due_ms", "id", "outcome", "seq")

    def __init__(
        self,
        id: str,
        seq: int,
        due_ms: int,
        first_seq: int,
        rows: int,
        token: bytes,
        outcome: ReceiptOutcome = "scheduled",
    ) -> None:
        self.id = id
        self.seq = seq
        self.due_ms = due_ms
        self._first_seq = first_seq
        self._rows = rows
        self._token = token
        self.outcome = outcome

    @property
    def handle(self) -> str:
        """Handle that cancels or reschedules the message later; keep it as it is."""
        if self.seq == NO_SEQ:
            return ""
        return handle.encode(self.seq, self.due_ms, self._first_seq, self._rows, self._token)

    @property
    def due(self) -> datetime:
        """The due time as an aware datetime."""
        return _EPOCH + timedelta(milliseconds=self.due_ms)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Receipt) and (self.seq, self.handle) == (other.seq, other.handle)

    def __hash__(self) -> int:
        return hash((self.seq, self.due_ms))

    def __repr__(self) -> str:
        fields = f"id={self.id!r}, seq={self.seq}, due_ms={self.due_ms}, handle={self.handle!r}"
        return f"Receipt({fields}, outcome={self.outcome!r})"


@dataclass(frozen=True, slots=True, eq=False)
class Accepted:
    """The answer to a batch of producers' rows, or to a chunk of one: they are durable.

    Row ``row + i`` has seq ``first_seq + i`` and due time ``due_ms[i]``. Where that does not hold for each row, for
    keys and ids, ``placed`` says where each one's message is (:data:`PLACED`); see :attr:`seqs` and :attr:`outcomes`.
    """

    first_seq: int
    due_ms: Int64s = field(repr=False)
    token: bytes = field(repr=False)
    placed: npt.NDArray[np.void] | None = field(default=None, repr=False)
    row: int = 0
    """The chunk's first row in the whole of what was given."""

    @property
    def count(self) -> int:
        """The number of rows."""
        return len(self.due_ms)

    @property
    def seqs(self) -> Int64s:
        """The seq of each row's message: shape (rows,)."""
        if self.placed is not None:
            return self.placed["seq"].astype(np.int64)
        return np.arange(self.first_seq, self.first_seq + self.count)

    @property
    def outcomes(self) -> list[ReceiptOutcome]:
        """Outcome of each row; see :class:`Receipt`."""
        if self.placed is None:
            return [OUTCOMES[0]] * self.count
        return [OUTCOMES[outcome] for outcome in self.placed["outcome"].tolist()]

    def handles(self) -> list[str]:
        """Return the handle of each row's message, by which it is cancelled or rescheduled."""
        if self.placed is not None:
            return ["" if entry[0] == NO_SEQ else handle.encode(*entry[:5]) for entry in self.placed.tolist()]
        return [
            handle.encode(self.first_seq + i, due, self.first_seq, self.count, self.token)
            for i, due in enumerate(self.due_ms.tolist())
        ]

    def receipts(self, ids: Iterable[str | None]) -> list[Receipt]:
        """Receipts of the rows, whose producer gave them ``ids``."""
        if self.placed is not None:
            return [placed_receipt(id, entry) for id, entry in zip(ids, self.placed.tolist(), strict=True)]
        first, rows, token = self.first_seq, self.count, self.token
        return [
            Receipt(id or id_of(seq), seq, due, first, rows, token)
            for seq, due, id in zip(range(first, first + rows), self.due_ms.tolist(), ids, strict=True)
        ]


def with_own_handles(accepted: Accepted, secret: bytes) -> Accepted:
    """Return the answer to rows of several callers, of whose handles none stands for the others.

    A token of a batch is good for each message in it; so each row gets one that is signed as a batch of its own.
    """
    placed = accepted.placed
    if placed is None:
        placed = np.zeros(accepted.count, PLACED)
        placed["seq"], placed["due_ms"] = accepted.seqs, accepted.due_ms
    else:
        placed = placed.copy()
    seqs: list[int] = placed["seq"].tolist()
    placed["first_seq"], placed["rows"] = placed["seq"], 1
    tokens = b"".join([handle.sign(secret, seq, 1) for seq in seqs])
    placed["token"] = np.frombuffer(tokens, f"V{handle.TOKEN_BYTES}")
    return replace(accepted, placed=placed)


def placed_receipt(id: str | None, entry: tuple[int, int, int, int, bytes, int]) -> Receipt:
    """Return the receipt of a row, from its entry of :data:`PLACED`."""
    seq, due_ms, first_seq, rows, token, outcome = entry
    id = id or ("" if seq == NO_SEQ else id_of(seq))
    return Receipt(id, seq, due_ms, first_seq, rows, bytes(token), OUTCOMES[outcome])


@dataclass(frozen=True, slots=True)
class TopicPending:
    """Numbers of a topic: pending (not due yet), next due time, and ready messages.

    Ready are those that the slowest group has not acknowledged.
    """

    topic: str
    pending: int
    next_due_ms: int | None
    ready: int
