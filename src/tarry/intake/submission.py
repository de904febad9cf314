"""What is given to the intake's writer, and what it answers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tarry.api.receipt import OUTCOMES, Receipt, id_of
from tarry.base import handle
from tarry.base.errors import TarryError
from tarry.base.message import UNNUMBERED
from tarry.base.types import Int64s

NO_ROWS = pa.RecordBatch.from_pylist([], schema=UNNUMBERED)


@dataclass(frozen=True, slots=True)
class Accepted:
    """The answer to a submitted batch, given when it is durable: row i has seq ``first_seq + i`` and due time
    ``due_ms[i]``. Where that does not hold for each row, for keys and ids, ``placed`` says where each one's message is
    (:data:`tarry.api.receipt.PLACED`).
    """

    first_seq: int
    due_ms: Int64s
    token: bytes
    placed: npt.NDArray[np.void] | None = None

    def handles(self) -> list[str]:
        """The handles that cancel or reschedule the rows."""
        if self.placed is not None:
            return [
                handle.encode(seq, due, first, rows, bytes(token))
                for seq, due, first, rows, token, _ in self.placed.tolist()
            ]
        rows = len(self.due_ms)
        return [
            handle.encode(self.first_seq + i, int(d), self.first_seq, rows, self.token)
            for i, d in enumerate(self.due_ms)
        ]

    def receipts(self, ids: Sequence[str | None]) -> list[Receipt]:
        """The answers to the rows, whose producer gave them these ids."""
        if self.placed is not None:
            return [
                Receipt(id or id_of(seq), seq, due, first, rows, bytes(token), OUTCOMES[outcome])
                for id, (seq, due, first, rows, token, outcome) in zip(ids, self.placed.tolist(), strict=True)
            ]
        first, rows = self.first_seq, len(self.due_ms)
        return [
            Receipt(id or id_of(first + i), first + i, due, first, rows, self.token)
            for i, (id, due) in enumerate(zip(ids, self.due_ms.tolist(), strict=True))
        ]


class WriteBatch(Protocol):
    """What is decided in one commit: see ``tarry.broker.commands.write_batch``."""

    next_seq: int
    """Of the next row that is written."""

    def on_durable(self) -> None:
        """All of it is durable and published."""
        ...

    def on_refused(self) -> None:
        """The disk refused it: nothing of it came to pass."""
        ...


class Command(Protocol):
    """What a submission asks beyond having its rows stored. The writer calls it, in the order of the log."""

    def decide(self, batch: Any) -> pa.RecordBatch | None:
        """The rows to write, if any; ``batch`` is the :class:`WriteBatch` of this commit.

        Raises:
            TarryError: it is refused, and nothing was decided.
        """
        ...

    def on_durable(self, first_seq: int) -> None:
        """It is durable; its rows begin at ``first_seq``."""
        ...

    def on_refused(self, error: TarryError) -> None:
        """Nothing of it was accepted."""
        ...


@dataclass(frozen=True, slots=True)
class Submission:
    """An admitted batch on its way to the disk, and who gets the result; or a command, which says what to write and
    answers its caller itself.
    """

    batch: pa.RecordBatch
    on_result: Callable[[Accepted | TarryError], None]
    command: Command | None = None

    def refuse(self, error: TarryError) -> None:
        """Tell whoever submitted it that nothing was accepted."""
        if self.command is not None:
            self.command.on_refused(error)
        else:
            self.on_result(error)
