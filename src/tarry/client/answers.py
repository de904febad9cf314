"""What a producer gets back."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from tarry.api.receipt import OUTCOMES, Receipt, TopicPending, id_of
from tarry.api.wire import AcceptedAnswer, PlacedAnswer
from tarry.base import handle
from tarry.base.errors import InvalidArgumentError, TarryError
from tarry.base.types import Int64s

__all__ = ["Accepted", "Receipt", "TopicPending", "id_of"]

R = TypeVar("R")


@dataclass(frozen=True, slots=True, eq=False)
class Accepted:
    """The answer to one chunk of a batch: its rows, from row ``row`` of the data on, are durable.

    Row ``row + i`` has seq ``first_seq + i`` and due time ``due_ms[i]``. Where that does not hold for each row, for
    keys and ids, ``placed`` says where each one's message is (:data:`tarry.api.receipt.PLACED`); ``first_seq`` is then
    that of the first row's message. See :attr:`seqs` and :attr:`outcomes`.
    """

    row: int
    first_seq: int
    count: int
    due_ms: Int64s = field(repr=False)
    token: bytes = field(repr=False)
    placed: npt.NDArray[np.void] | None = field(default=None, repr=False)

    @property
    def seqs(self) -> Int64s:
        """Each row's message's number."""
        if self.placed is not None:
            return self.placed["seq"].astype(np.int64)
        return np.arange(self.first_seq, self.first_seq + self.count)

    @property
    def outcomes(self) -> list[str]:
        """What became of each row; see :class:`Receipt`."""
        if self.placed is None:
            return [OUTCOMES[0]] * self.count
        return [OUTCOMES[outcome] for outcome in self.placed["outcome"].tolist()]

    def handles(self) -> list[str]:
        """What cancels or reschedules the rows."""
        if self.placed is not None:
            return [handle.encode(*entry[:5]) for entry in self.placed.tolist()]
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


def accepted_of(row: int, answer: AcceptedAnswer | PlacedAnswer, due_ms: Int64s | None) -> Accepted:
    """What the broker answered to a chunk; ``due_ms`` is the chunk's own, for an answer that leaves it out."""
    if isinstance(answer, PlacedAnswer):
        placed = answer.placed
        first, token = (int(placed["seq"][0]), bytes(placed["token"][0])) if len(placed) else (0, b"")
        return Accepted(row, first, len(placed), placed["due_ms"].astype(np.int64), token, placed)
    due = answer.due_ms if answer.due_ms is not None else due_ms
    assert due is not None
    return Accepted(row, answer.first_seq, answer.rows, due, answer.token)


def placed_receipt(id: str | None, entry: tuple[int, int, int, int, bytes, int]) -> Receipt:
    """The receipt of a row, from its entry of :data:`tarry.api.receipt.PLACED`."""
    seq, due_ms, first_seq, rows, token, outcome = entry
    return Receipt(id or id_of(seq), seq, due_ms, first_seq, rows, token, OUTCOMES[outcome])


def read_answer(take: Callable[[], R], answer: Any) -> R:
    """What ``take`` finds in the broker's ``answer``.

    Raises:
        TarryError: it does not find it there.
    """
    try:
        return take()
    except (InvalidArgumentError, TypeError, KeyError, ValueError) as error:
        raise TarryError(f"the broker's answer could not be read: {answer!r:.80}") from error
