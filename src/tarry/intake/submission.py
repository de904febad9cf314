"""Submissions to the intake's writer, and its answers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa

from tarry.base.errors import TarryError
from tarry.message.accepted import Accepted
from tarry.message.schema import UNNUMBERED

NO_ROWS = pa.RecordBatch.from_arrays([pa.nulls(0, field.type) for field in UNNUMBERED], schema=UNNUMBERED)


class WriteBatch(Protocol):
    """Decisions of one commit: see ``tarry.broker.commands.write_batch``."""

    next_seq: int
    """Of the next row that is written."""

    def register(self, rows: int) -> bool:
        """Register the durable ``rows`` of this commit's commands.

        Return True if everybody knows now what they say of names, and all of them are messages.
        """
        ...

    def on_durable(self) -> None:
        """All of it is durable and published."""
        ...

    def on_refused(self) -> None:
        """Undo the decisions: the disk refused the commit, and nothing of it came to pass."""
        ...


class Command(Protocol):
    """A submission that asks for more than storing rows. The writer calls it, in the order of the log."""

    def decide(self, batch: Any) -> pa.RecordBatch | None:
        """Return the rows to write, if any; ``batch`` is the :class:`WriteBatch` of this commit.

        Raises:
            TarryError: it is refused, and nothing was decided.
        """
        ...

    def on_durable(self, first_seq: int) -> None:
        """Answer the caller: the command is durable; its rows begin at ``first_seq``."""
        ...

    def on_refused(self, error: TarryError) -> None:
        """Nothing of it was accepted."""
        ...


@dataclass(frozen=True, slots=True)
class Submission:
    """An admitted batch on its way to the disk, with the callback for its result; or a command.

    A command says what to write, and answers its caller itself.
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
