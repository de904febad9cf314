"""Answers to batches of rows, as columns; :mod:`tarry.message.receipt` is that to one message."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tarry.base.types import Int64s
from tarry.message import handle
from tarry.message.receipt import NO_SEQ, OUTCOMES, Receipt, ReceiptOutcome, id_of

_HEX = np.array([list(f"{i:02x}".encode()) for i in range(256)], np.uint8)
PLACED = np.dtype(
    [("seq", "<i8"), ("due_ms", "<i8"), ("first_seq", "<i8"), ("rows", "<u4"), ("token", "V8"), ("outcome", "u1")]
)
"""Columns: place of a row's message, accepted batch of its handle, outcome as an index of OUTCOMES."""


def ids_of(seq: pa.Array) -> pa.Array:
    """:func:`id_of` of many: a string column."""
    numbers = np.ascontiguousarray(seq.to_numpy(zero_copy_only=False), ">i8")
    digits = np.ascontiguousarray(_HEX[numbers.view(np.uint8)])
    offsets = np.arange(0, 16 * len(numbers) + 1, 16, dtype=np.int32)
    buffers: list[Any] = [None, pa.py_buffer(offsets), pa.py_buffer(digits)]
    return pa.Array.from_buffers(pa.string(), len(numbers), buffers)


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
